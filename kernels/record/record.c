#include "kernels/record/record.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/record/record_i.h"

const struct mfk_backend mfk_recorder = {
	.name = "record",
	.device = &mfk_record_device_ops,
	.ops = &mfk_record_ops,
	.comm = &mfk_record_comm_ops,
};

/* Room doubles whenever the count is a power of two. */
static void *room(void *list, uint64_t count, size_t size)
{
	if (count & (count - 1))
		return list;
	return realloc(list, (count ? 2 * count : 1) * size);
}

void mfk_record_add(struct mfk_device *d, const struct mfk_work *w)
{
	struct mfk_record *r = &d->record;
	struct mfk_work *list = r->out_of_memory ? NULL : room(r->list, r->count, sizeof(*list));

	if (!list) {
		r->out_of_memory = true;
		return;
	}
	r->list = list;
	r->list[r->count++] = *w;
}

void mfk_record_message(struct mfk_device *d, const struct mfk_message *m)
{
	struct mfk_record *r = &d->record;
	struct mfk_record_message *list =
		r->out_of_memory ? NULL : room(r->messages, r->message_count, sizeof(*list));

	if (!list) {
		r->out_of_memory = true;
		return;
	}
	r->messages = list;
	r->messages[r->message_count++] = (struct mfk_record_message){
		.receive = m->receive, .peer = m->peer, .bytes = m->bytes};
}

void mfk_record_take(struct mfk_device *d, struct mfk_record *ret)
{
	*ret = d->record;
	d->record = (struct mfk_record){0};
}

void mfk_record_release(struct mfk_record *r)
{
	free(r->list);
	free(r->messages);
	*r = (struct mfk_record){0};
}
