/*
 * Which samples need rows that cannot be read. Found by a look at every sample, once, and only where a dataset
 * has such rows: a .bin that ends early.
 */
#include <errno.h>
#include <stdlib.h>

#include "formats/base/bytes.h"
#include "formats/dataset/rows_samples_i.h"

#define CHUNK	4096 /* documents, samples looked at together */
#define MAX_BAD 4096 /* runs of unreadable samples, each of which costs a view some pages */

/* Of one dataset: whether sample k of its stream is bad. */
struct marks {
	uint8_t *stream; /* NULL: none is */
	uint64_t samples;
};

static bool is_bad(const struct mfs_rows *r, uint64_t row)
{
	size_t lo = 0, hi = r->bad_count;

	while (lo < hi) {
		const size_t mid = lo + (hi - lo) / 2;

		if (row < r->bad[mid].first)
			hi = mid;
		else if (row >= r->bad[mid].end)
			lo = mid + 1;
		else
			return true;
	}
	return false;
}

/* Sample k is tokens [k S, k S + S + x): marks those that have one of [first, end). */
static void mark_tokens(struct marks *m, struct mfs_gpt_dataset *g, uint64_t first, uint64_t end)
{
	const struct mfs_gpt_config *c = mfs_gpt_dataset_config(g);
	const uint64_t tokens = mfs_gpt_dataset_sizes(g)->tokens, extra = !c->no_extra_token;
	const uint64_t length = c->seq_length + extra, last = (end - 1) / c->seq_length;
	uint64_t k = first < length ? 0 : (first - length) / c->seq_length + 1;

	for (; k <= last && k < m->samples; k++)
		m->stream[k] = 1;
	/* A last partial sample that Megatron counts too many is the stream's last token. */
	if (end == tokens && (m->samples - 1) * c->seq_length + extra > tokens)
		m->stream[m->samples - 1] = 1;
}

static int mark(const struct mfs_samples_part *part, struct marks *m, struct mfs_error *err)
{
	const uint64_t documents = mfs_gpt_dataset_documents(part->gpt);
	int32_t rows[CHUNK], lengths[CHUNK];
	uint64_t at = 0, token = 0, n;
	int rc = 0;

	m->samples = mfs_gpt_dataset_sizes(part->gpt)->samples;
	m->stream = calloc(m->samples, 1);
	if (!m->stream)
		return mfs_fail_nomem(err);
	for (; at < documents && !rc; at += n) {
		n = mfs_min_u64(CHUNK, documents - at);
		rc = mfs_gpt_dataset_document_index(part->gpt, at, n, rows, err);
		if (!rc)
			rc = mfs_rows_gather_lengths(part->rows, rows, n, lengths, err);
		for (uint64_t i = 0; i < n && !rc; i++) {
			const uint64_t end = token + (uint64_t)lengths[i];

			if (lengths[i] && is_bad(part->rows, (uint64_t)rows[i]))
				mark_tokens(m, part->gpt, token, end);
			token = end;
		}
	}
	return rc;
}

static int add_bad(struct mfs_sample_rows *x, uint64_t sample, struct mfs_error *err)
{
	struct mfs_rows *r = &x->rows;

	if (r->bad_count && x->bad[r->bad_count - 1].end == sample) {
		x->bad[r->bad_count - 1].end++;
		return 0;
	}
	if (r->bad_count == MAX_BAD)
		return mfs_fail(err, -EIO,
				"%s: more than %d runs of samples need tokens that cannot be read",
				r->name, MAX_BAD);
	x->bad[r->bad_count++] = (struct mfs_row_range){sample, sample + 1};
	return 0;
}

static int look_at_samples(struct mfs_sample_rows *x, const struct marks *marks,
			   struct mfs_error *err)
{
	struct mfs_samples *s = x->samples;
	int16_t part[CHUNK];
	int64_t sample[CHUNK];
	int rc = 0;

	for (uint64_t at = 0, n; at < x->rows.rows && !rc; at += n) {
		n = mfs_min_u64(CHUNK, x->rows.rows - at);
		rc = mfs_samples_locate(s, at, n, part, sample, err);
		for (uint64_t i = 0; i < n && !rc; i++) {
			struct mfs_gpt_dataset *g = mfs_samples_part(s, (uint32_t)part[i])->gpt;
			uint64_t k;

			if (!marks[part[i]].stream)
				continue;
			rc = mfs_gpt_dataset_shuffle_index(g, (uint64_t)sample[i], 1, &k, err);
			if (!rc && marks[part[i]].stream[k])
				rc = add_bad(x, at + i, err);
		}
	}
	return rc;
}

static bool any_bad(const struct mfs_samples *s)
{
	for (uint32_t i = 0; i < mfs_samples_parts(s); i++)
		if (mfs_samples_part(s, i)->rows->bad_count)
			return true;
	return false;
}

int mfs_sample_rows_find_bad(struct mfs_sample_rows *x, struct mfs_error *err)
{
	struct mfs_samples *s = x->samples;
	const uint32_t parts = mfs_samples_parts(s);
	struct marks *marks;
	int rc = 0;

	if (!any_bad(s))
		return 0;
	marks = calloc(parts, sizeof(*marks));
	x->bad = calloc(MAX_BAD, sizeof(*x->bad));
	if (!marks || !x->bad)
		rc = mfs_fail_nomem(err);
	for (uint32_t i = 0; i < parts && !rc; i++) {
		const struct mfs_samples_part *part = mfs_samples_part(s, i);

		if (part->rows->bad_count)
			rc = mfs_samples_build(s, &(int16_t){(int16_t)i}, 1, 0, err);
		if (!rc && part->rows->bad_count)
			rc = mark(part, &marks[i], err);
	}
	if (!rc)
		rc = look_at_samples(x, marks, err);
	for (uint32_t i = 0; marks && i < parts; i++)
		free(marks[i].stream);
	free(marks);
	x->rows.bad = x->bad;
	return rc;
}
