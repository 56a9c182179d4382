/*
 * Which samples need rows that cannot be read. Every sample is looked at once, where a dataset has
 * such rows.
 */
#include <errno.h>
#include <stdlib.h>

#include "formats/base/bytes.h"
#include "formats/dataset/gpt/rows_samples_i.h"

#define CHUNK	    4096	/* documents, samples, tokens looked at together */
#define LOOK_CLOSER (64u << 20) /* tokens of samples that are read to see whether they can be */

/* Whether sample k of a dataset's stream is bad. */
struct marks {
	uint8_t *stream; /* NULL: none is */
	uint64_t samples;
};

/* Sample k is tokens [k S, k S + S + x): marks those that have one of [first, end). */
static void mark_tokens(struct marks *m, struct mfs_gpt_dataset *g, uint64_t first, uint64_t end)
{
	const struct mfs_gpt_config *c = mfs_gpt_dataset_config(g);
	const uint64_t tokens = mfs_gpt_dataset_sizes(g)->tokens, extra = !c->no_extra_token;
	const uint64_t length = c->seq_length + extra, last = (end - 1) / c->seq_length;
	uint64_t k = first < length ? 0 : (first - length) / c->seq_length + 1;

	for (; k <= last && k < m->samples; k++)
		m->stream[k] = 1;
	/* Megatron may count a last partial sample too many, which is the stream's last token. */
	if (end == tokens && (m->samples - 1) * c->seq_length + extra > tokens)
		m->stream[m->samples - 1] = 1;
}

/* Of a dataset that has samples. */
static int mark(const struct mfs_samples_member *member, struct marks *m, struct mfs_error *err)
{
	const uint64_t documents = mfs_gpt_dataset_documents(member->gpt);
	int32_t rows[CHUNK], lengths[CHUNK];
	uint64_t at = 0, token = 0, n;
	int rc = 0;

	m->samples = mfs_gpt_dataset_sizes(member->gpt)->samples;
	m->stream = calloc(m->samples, 1);
	if (!m->stream)
		return mfs_fail_nomem(err);
	for (; at < documents && !rc; at += n) {
		n = mfs_min_u64(CHUNK, documents - at);
		rc = mfs_gpt_dataset_document_index(member->gpt, at, n, rows, err);
		if (!rc)
			rc = mfs_rows_gather_lengths(member->rows, rows, n, lengths, err);
		for (uint64_t i = 0; i < n && !rc; i++) {
			const uint64_t end = token + (uint64_t)lengths[i];

			if (lengths[i] && mfs_row_ranges_have(&member->rows->bad, (uint64_t)rows[i],
							      (uint64_t)rows[i] + 1))
				mark_tokens(m, member->gpt, token, end);
			token = end;
		}
	}
	return rc;
}

/* A bad row may have tokens that can be read: a .bin ends in its middle, or one token is outside
 * of the vocabulary. The first samples of such rows are read, and those that can be read are not
 * bad. */
struct closer_look {
	uint64_t left; /* tokens */
	void *tokens;  /* CHUNK of them; NULL: nobody looks */
};

static bool can_be_read(const struct mfs_sample_rows *x, uint64_t sample, struct closer_look *l)
{
	const uint64_t length = x->rows.row_length, first = sample * length, end = first + length;

	if (l->left < length || !l->tokens)
		return false;
	l->left -= length;
	for (uint64_t at = first, n; at < end; at += n) {
		n = mfs_min_u64(CHUNK, end - at);
		if (mfs_sample_rows_read(&x->rows, at, n, l->tokens, NULL))
			return false;
	}
	return true;
}

static int look_at_samples(struct mfs_sample_rows *x, const struct marks *marks,
			   struct mfs_error *err)
{
	struct mfs_samples *s = x->samples;
	struct closer_look closer = {LOOK_CLOSER, malloc(CHUNK * x->rows.token_size)};
	int16_t member[CHUNK];
	int64_t sample[CHUNK];
	int rc = 0;

	for (uint64_t at = 0, n; at < x->rows.rows && !rc; at += n) {
		n = mfs_min_u64(CHUNK, x->rows.rows - at);
		rc = mfs_samples_locate(s, at, n, member, sample, err);
		for (uint64_t i = 0; i < n && !rc; i++) {
			struct mfs_gpt_dataset *g = mfs_samples_member(s, (uint32_t)member[i])->gpt;
			uint64_t k;

			if (!marks[member[i]].stream)
				continue;
			rc = mfs_gpt_dataset_shuffle_index(g, (uint64_t)sample[i], 1, &k, err);
			if (!rc && marks[member[i]].stream[k] && !can_be_read(x, at + i, &closer))
				rc = mfs_row_ranges_add(&x->rows.bad, at + i, at + i + 1);
		}
	}
	free(closer.tokens);
	if (rc == -ENOMEM)
		return mfs_fail_nomem(err);
	/* One document makes many samples bad in many epochs. Those that the list has no room
	 * for share pages with others, and only these pages cannot be read. */
	return rc == -ENOSPC ? 0 : rc;
}

static bool any_bad(const struct mfs_samples *s)
{
	for (uint32_t i = 0; i < mfs_samples_members(s); i++)
		if (mfs_samples_member(s, i)->rows->bad.count)
			return true;
	return false;
}

int mfs_sample_rows_find_bad(struct mfs_sample_rows *x, struct mfs_error *err)
{
	struct mfs_samples *s = x->samples;
	const uint32_t members = mfs_samples_members(s);
	struct marks *marks;
	int rc = 0;

	if (!any_bad(s))
		return 0;
	marks = calloc(members, sizeof(*marks));
	if (!marks)
		rc = mfs_fail_nomem(err);
	for (uint32_t i = 0; i < members && !rc; i++) {
		const struct mfs_samples_member *member = mfs_samples_member(s, i);

		if (!member->rows->bad.count || !mfs_gpt_dataset_sizes(member->gpt)->samples)
			continue;
		rc = mfs_samples_build(s, &(int16_t){(int16_t)i}, 1, 0, err);
		if (!rc)
			rc = mark(member, &marks[i], err);
	}
	if (!rc)
		rc = look_at_samples(x, marks, err);
	for (uint32_t i = 0; marks && i < members; i++)
		free(marks[i].stream);
	free(marks);
	return rc;
}
