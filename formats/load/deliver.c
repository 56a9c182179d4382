/* From a slot to where the pieces go. */
#include <string.h>

#include "formats/load/box_load_i.h"

/* A piece in a slot. */
struct there {
	const struct mfs_load_piece *p;
	const uint8_t *from;
	uint64_t step; /* from row to row */
};

static void copy_items(uint8_t *to, int64_t to_item, const uint8_t *from, uint64_t count,
		       unsigned item)
{
	for (uint64_t i = 0; i < count; i++)
		memcpy(to + (int64_t)i * to_item, from + i * item, item);
}

static void copy_to_host(const struct there *t)
{
	const struct mfs_load_piece *p = t->p;

	for (uint64_t i = 0; i < p->rows; i++) {
		uint8_t *to = p->to + (int64_t)i * p->to_row;
		const uint8_t *from = t->from + i * t->step;

		if (p->to_item == p->item)
			memcpy(to, from, p->width);
		else
			copy_items(to, p->to_item, from, p->width / p->item, p->item);
	}
}

static int copy_to_device(const struct there *t, struct mfs_cuda_stream *stream,
			  struct mfs_error *err)
{
	const struct mfs_load_piece *p = t->p;
	struct mfs_cuda_rows rows = {.to = p->to,
				     .from = t->from,
				     .rows = p->rows,
				     .width = p->width,
				     .to_step = (uint64_t)p->to_row,
				     .from_step = t->step};
	int rc = 0;

	if (p->to_item == p->item)
		return mfs_cuda_copy(stream, &rows, err);
	/* Elements that are apart are rows of one element each. */
	for (uint64_t i = 0; i < p->rows && !rc; i++) {
		rows = (struct mfs_cuda_rows){.to = p->to + (int64_t)i * p->to_row,
					      .from = t->from + i * t->step,
					      .rows = p->width / p->item,
					      .width = p->item,
					      .to_step = (uint64_t)p->to_item,
					      .from_step = p->item};
		rc = mfs_cuda_copy(stream, &rows, err);
	}
	return rc;
}

int mfs_load_deliver(struct mfs_load *load, struct mfs_load_slot *slot,
		     struct mfs_cuda_stream *stream, struct mfs_error *err)
{
	const struct mfs_load_chunk *c = slot->chunk;
	const bool packed = mfs_load_is_gathered(load, c);
	const uint8_t *from = slot->data;
	int rc = 0;

	for (uint32_t i = 0; i < c->count && !slot->in_place && !rc; i++) {
		const struct mfs_load_piece *p = &load->job.pieces[c->first + i];
		const struct there t = {.p = p,
					.from = packed ? from : slot->data + (p->off - c->from),
					.step = packed ? p->width : p->row_step};

		if (stream)
			rc = copy_to_device(&t, stream, err);
		else
			copy_to_host(&t);
		from += p->rows * p->width;
	}
	return !rc && stream ? mfs_cuda_record(stream, slot->number, err) : rc;
}
