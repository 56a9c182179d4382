/* Samples of a GPT dataset: which tokens of which sequences. */
#include <errno.h>

#include "formats/base/bytes.h"
#include "formats/base/search.h"
#include "formats/dataset/gpt/gpt_dataset_i.h"

/* Reads lengths of the documents from position `at` on, as many as fit. */
static int read_lengths(struct mfs_gpt_walk *w, uint64_t at, struct mfs_error *err)
{
	w->batch = at;
	return mfs_rows_gather_lengths(w->g->data, (const int32_t *)w->g->document_index + at,
				       mfs_min_u64(MFS_GPT_STRIDE, w->g->documents - at),
				       w->lengths, err);
}

static int length_here(struct mfs_gpt_walk *w, uint64_t *ret, struct mfs_error *err)
{
	int rc = 0;

	if (w->document - w->batch >= MFS_GPT_STRIDE)
		rc = read_lengths(w, w->document, err);
	if (!rc)
		*ret = (uint64_t)w->lengths[w->document - w->batch];
	return rc;
}

int mfs_gpt_advance(struct mfs_gpt_walk *w, uint64_t tokens, struct mfs_error *err)
{
	const struct mfs_gpt_dataset *g = w->g;
	uint64_t length;

	for (w->offset += tokens;; w->offset -= length) {
		int rc;

		if (w->document == g->documents)
			return mfs_fail(err, -ESTALE,
					"sequences have become shorter since they were counted");
		/* A block that is passed as a whole need not be looked at. */
		if (w->document % MFS_GPT_STRIDE == 0) {
			const uint64_t *sum = &g->sums[w->document / MFS_GPT_STRIDE];

			length = sum[1] - sum[0];
			if (w->offset >= length) {
				w->document +=
					mfs_min_u64(MFS_GPT_STRIDE, g->documents - w->document);
				continue;
			}
		}
		rc = length_here(w, &length, err);
		if (rc || w->offset < length)
			return rc;
		w->document++;
	}
}

int mfs_gpt_seek(struct mfs_gpt_walk *w, struct mfs_gpt_dataset *g, uint64_t t,
		 struct mfs_error *err)
{
	/* The last block that begins at or before t: those of no token before it begin there
	 * too. */
	const uint64_t block = mfs_last_while(i, mfs_gpt_sum_count(g) - 1, g->sums[i] <= t);
	int rc;

	w->g = g;
	w->document = block * MFS_GPT_STRIDE;
	w->offset = t - g->sums[block];
	rc = read_lengths(w, w->document, err);
	return rc ? rc : mfs_gpt_advance(w, 0, err);
}

/* The tokens [*ret_start, *ret_start + *ret_count) of sample k. The last ones may be partial; what
 * Megatron's float count has too many begins x tokens before the end. */
static void tokens_of(const struct mfs_gpt_dataset *g, uint64_t k, uint64_t *ret_start,
		      uint64_t *ret_count)
{
	const uint64_t tokens = g->sizes.tokens;
	uint64_t start = k * g->config.seq_length;

	if (k && start + g->extra > tokens)
		start = tokens - g->extra;
	*ret_start = start;
	*ret_count = mfs_min_u64(g->config.seq_length + (uint64_t)g->extra, tokens - start);
}

static int walk_pieces(struct mfs_gpt_walk *w, uint64_t count, mfs_gpt_piece_fn *fn, void *arg,
		       struct mfs_error *err)
{
	while (count) {
		uint64_t length, n;
		int rc = length_here(w, &length, err);

		if (rc)
			return rc;
		n = w->offset < length ? mfs_min_u64(count, length - w->offset) : 0;
		if (n) {
			const struct mfs_gpt_piece piece = {w->g->document_index[w->document],
							    (uint32_t)w->offset, (uint32_t)n};

			rc = fn(arg, &piece, err);
			if (rc)
				return rc;
		}
		count -= n;
		w->offset = 0;
		if (++w->document == w->g->documents && count)
			return mfs_fail(err, -ESTALE,
					"sequences have become shorter since they were counted");
	}
	return 0;
}

/* Tokens [from, from+count) of sample k of the stream. */
static int stream_pieces_in(struct mfs_gpt_dataset *g, uint64_t k, uint32_t from, uint32_t count,
			    mfs_gpt_piece_fn *fn, void *arg, uint32_t *ret_padding,
			    struct mfs_error *err)
{
	struct mfs_gpt_walk w;
	uint64_t start, there;
	int rc;

	tokens_of(g, k, &start, &there);
	there = from < there ? mfs_min_u64(count, there - from) : 0;
	*ret_padding = (uint32_t)(count - there);
	rc = there ? mfs_gpt_seek(&w, g, start + from, err) : 0;
	return rc ? rc : walk_pieces(&w, there, fn, arg, err);
}

int mfs_gpt_stream_pieces(struct mfs_gpt_dataset *g, uint64_t k, mfs_gpt_piece_fn *fn, void *arg,
			  uint32_t *ret_padding, struct mfs_error *err)
{
	int rc;

	if (k >= g->sizes.samples)
		return mfs_fail(err, -EINVAL, "there is no sample %llu: the dataset has %llu",
				(unsigned long long)k, (unsigned long long)g->sizes.samples);
	rc = mfs_gpt_dataset_build(g, 1, err);
	return rc ? rc
		  : stream_pieces_in(g, k, 0, g->config.seq_length + g->extra, fn, arg, ret_padding,
				     err);
}

int mfs_gpt_dataset_pieces_in(struct mfs_gpt_dataset *g, uint64_t i, uint32_t from, uint32_t count,
			      mfs_gpt_piece_fn *fn, void *arg, uint32_t *ret_padding,
			      struct mfs_error *err)
{
	const uint32_t length = g->config.seq_length + g->extra;
	uint64_t k;
	int rc;

	if (!mfs_range_ok(from, count, length))
		return mfs_fail(err, -EINVAL, "tokens %u+%u are not among a sample's %u", from,
				count, length);
	rc = mfs_gpt_dataset_shuffle_index(g, i, 1, &k, err);
	return rc ? rc : stream_pieces_in(g, k, from, count, fn, arg, ret_padding, err);
}

int mfs_gpt_dataset_pieces(struct mfs_gpt_dataset *g, uint64_t i, mfs_gpt_piece_fn *fn, void *arg,
			   uint32_t *ret_padding, struct mfs_error *err)
{
	return mfs_gpt_dataset_pieces_in(g, i, 0, g->config.seq_length + g->extra, fn, arg,
					 ret_padding, err);
}
