#include "formats/dataset/gpt/gpt_dataset.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/dataset/gpt/gpt_dataset_i.h"
#include "formats/io/fileset.h"

/* Memory of more than this is a mistake in the arguments. */
#define MAX_DOCUMENTS ((uint64_t)1 << 44)

/* Indices take memory and time by the tokens that sequences claim to have. Claims beyond this must
 * be in some proportion to the files: a .bin may end early, and sequences may overlap. */
#define MAX_CLAIM  ((uint64_t)1 << 26)
#define MAX_CLAIMS 16 /* of each token that the files have room for */

static int check_claims(const struct mfs_rows *data, struct mfs_error *err)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < data->set_count; i++)
		for (uint32_t file = 0; file < mfs_fileset_count(data->sets[i]); file++)
			bytes += mfs_fileset_size(data->sets[i], file);
	if (!data->set_count || data->tokens <= MAX_CLAIM ||
	    data->tokens / MAX_CLAIMS <= bytes / data->token_size)
		return 0;
	return mfs_fail(err, -EINVAL,
			"its sequences claim %llu tokens, and its files have %llu bytes: samples "
			"are made of at most %d times as many tokens as there is room for",
			(unsigned long long)data->tokens, (unsigned long long)bytes, MAX_CLAIMS);
}

/* Tokens of the rows [first, end). */
static int count_tokens(const struct mfs_rows *data, uint64_t first, uint64_t end, uint64_t *ret,
			struct mfs_error *err)
{
	uint64_t before, after;
	int rc = mfs_rows_start(data, first, &before, err);

	if (!rc)
		rc = mfs_rows_start(data, end, &after, err);
	if (!rc)
		*ret = after - before;
	return rc;
}

int mfs_gpt_dataset_new(const struct mfs_rows *data, uint64_t first, uint64_t end,
			const struct mfs_gpt_config *config, struct mfs_gpt_dataset **ret,
			struct mfs_error *err)
{
	struct mfs_gpt_dataset *g;
	struct mfs_gpt_sizes sizes;
	uint64_t tokens, documents;
	int rc;

	if (data->rows > MFS_MAX_SEQUENCES)
		return mfs_fail(err, -EINVAL,
				"%s: %llu sequences; Megatron numbers them in 32 bits, up to %d",
				data->name, (unsigned long long)data->rows, MFS_MAX_SEQUENCES);
	if (first >= end)
		return mfs_fail(err, -ENODATA, "the split has no sequence");
	rc = check_claims(data, err);
	if (!rc)
		rc = count_tokens(data, first, end, &tokens, err);
	if (!rc)
		rc = mfs_gpt_sizes(tokens, config, &sizes, err);
	if (rc)
		return rc;
	if (mfs_mul_overflows(sizes.epochs, end - first, &documents) || documents > MAX_DOCUMENTS)
		return mfs_fail(err, -EINVAL, "%llu epochs of %llu sequences are too many",
				(unsigned long long)sizes.epochs,
				(unsigned long long)(end - first));
	g = calloc(1, sizeof(*g));
	if (!g)
		return mfs_fail_nomem(err);
	g->data = data;
	g->first = first;
	g->end = end;
	g->config = *config;
	g->sizes = sizes;
	g->documents = documents;
	g->extra = config->no_extra_token ? 0 : 1;
	pthread_mutex_init(&g->building, NULL);
	*ret = g;
	return 0;
}

void mfs_gpt_dataset_free(struct mfs_gpt_dataset *g)
{
	if (!g)
		return;
	mfs_gpt_drop_indices(g);
	pthread_mutex_destroy(&g->building);
	free(g);
}

const struct mfs_gpt_sizes *mfs_gpt_dataset_sizes(const struct mfs_gpt_dataset *g)
{
	return &g->sizes;
}

const struct mfs_gpt_config *mfs_gpt_dataset_config(const struct mfs_gpt_dataset *g)
{
	return &g->config;
}

const struct mfs_rows *mfs_gpt_dataset_rows(const struct mfs_gpt_dataset *g)
{
	return g->data;
}

uint64_t mfs_gpt_dataset_documents(const struct mfs_gpt_dataset *g)
{
	return g->documents;
}

uint64_t mfs_gpt_dataset_bytes(const struct mfs_gpt_dataset *g)
{
	return 4 * g->documents + 8 * mfs_gpt_sum_count(g) +
	       g->sizes.samples * mfs_gpt_dataset_shuffle_index_width(g);
}

unsigned mfs_gpt_dataset_shuffle_index_width(const struct mfs_gpt_dataset *g)
{
	return g->sizes.samples >= UINT32_MAX - 1 ? 8 : 4;
}

/* Megatron looks at the longest sequence too. Its length is an int32, so that it never decides. */
unsigned mfs_gpt_dataset_sample_index_width(const struct mfs_gpt_dataset *g)
{
	return g->documents > INT32_MAX ? 8 : 4;
}

bool mfs_gpt_dataset_built(const struct mfs_gpt_dataset *g)
{
	return atomic_load_explicit(&g->built, memory_order_acquire);
}

/* Under the lock. */
static int build(struct mfs_gpt_dataset *g, unsigned threads, struct mfs_error *err)
{
	struct mfs_error why = g->failure;
	int rc = why.code;

	if (!rc)
		rc = mfs_gpt_build_indices(g, threads ? threads : 1, &why);
	if (!rc) {
		atomic_store_explicit(&g->built, true, memory_order_release);
		return 0;
	}
	mfs_gpt_drop_indices(g);
	if (rc == -EINVAL)
		g->failure = why;
	if (err)
		*err = why;
	return rc;
}

int mfs_gpt_dataset_build(struct mfs_gpt_dataset *g, unsigned threads, struct mfs_error *err)
{
	int rc = 0;

	if (mfs_gpt_dataset_built(g))
		return 0;
	pthread_mutex_lock(&g->building);
	if (!atomic_load_explicit(&g->built, memory_order_relaxed))
		rc = build(g, threads, err);
	pthread_mutex_unlock(&g->building);
	return rc;
}

/* ---- parts of Megatron's arrays ---- */

/* Built, and the range inside. */
static int ready(struct mfs_gpt_dataset *g, const char *what, uint64_t first, uint64_t count,
		 uint64_t total, struct mfs_error *err)
{
	if (!mfs_range_ok(first, count, total))
		return mfs_fail(err, -EINVAL, "%s %llu+%llu are not among the %llu there are", what,
				(unsigned long long)first, (unsigned long long)count,
				(unsigned long long)total);
	return mfs_gpt_dataset_build(g, 1, err);
}

int mfs_gpt_dataset_document_index(struct mfs_gpt_dataset *g, uint64_t first, uint64_t count,
				   int32_t *ret, struct mfs_error *err)
{
	int rc = ready(g, "documents", first, count, g->documents, err);

	if (!rc)
		memcpy(ret, g->document_index + first, 4 * count);
	return rc;
}

int mfs_gpt_dataset_shuffle_index(struct mfs_gpt_dataset *g, uint64_t first, uint64_t count,
				  uint64_t *ret, struct mfs_error *err)
{
	int rc = ready(g, "samples", first, count, g->sizes.samples, err);

	if (rc)
		return rc;
	if (mfs_gpt_dataset_shuffle_index_width(g) == 8)
		memcpy(ret, (uint64_t *)g->shuffle_index + first, 8 * count);
	else
		for (uint64_t i = 0; i < count; i++)
			ret[i] = ((uint32_t *)g->shuffle_index)[first + i];
	return 0;
}

/*
 * Row k is where sample k begins: after the last token of sample k - 1, or x tokens before that.
 * Megatron walks there and stops in the document of that token, be it its last. A row that would
 * lie past the end of the stream (last partial samples) is x tokens before the end of the last
 * document.
 */
static int row_after_the_end(struct mfs_gpt_dataset *g, int64_t ret[2], struct mfs_error *err)
{
	const int32_t sequence = (int32_t)g->document_index[g->documents - 1];
	int32_t length;
	int rc = mfs_rows_gather_lengths(g->data, &sequence, 1, &length, err);

	if (rc)
		return rc;
	ret[0] = (int64_t)g->documents - 1;
	ret[1] = (int64_t)length - g->extra;
	return 0;
}

/* w stands where the row before this one led it, if began is set. */
static int sample_row(struct mfs_gpt_walk *w, struct mfs_gpt_dataset *g, uint64_t k, bool *began,
		      int64_t ret[2], struct mfs_error *err)
{
	const uint64_t start = k * g->config.seq_length;
	int rc;

	if (!k) {
		ret[0] = ret[1] = 0;
		return 0;
	}
	if (start + g->extra > g->sizes.tokens)
		return row_after_the_end(g, ret, err);
	if (*began)
		rc = mfs_gpt_advance(w, g->config.seq_length, err);
	else
		rc = mfs_gpt_seek(w, g, start + g->extra - 1, err);
	if (rc)
		return rc;
	*began = true;
	ret[0] = (int64_t)w->document;
	ret[1] = (int64_t)w->offset + 1 - g->extra;
	return 0;
}

int mfs_gpt_dataset_sample_index(struct mfs_gpt_dataset *g, uint64_t first, uint64_t count,
				 int64_t (*ret)[2], struct mfs_error *err)
{
	struct mfs_gpt_walk w;
	bool began = false;
	int rc = ready(g, "samples", first, count, g->sizes.samples + 1, err);

	for (uint64_t i = 0; i < count && !rc; i++)
		rc = sample_row(&w, g, first + i, &began, ret[i], err);
	return rc;
}
