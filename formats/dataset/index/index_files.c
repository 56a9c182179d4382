#include "formats/dataset/index/index_files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/threads.h"
#include "formats/dataset/files/npy.h"

#define CHUNK	    1024 /* rows that are computed at once */
#define MAX_THREADS 64

/* What a file computes its bytes from. */
struct index_file {
	struct mfs_gpt_dataset *gpt; /* or */
	struct mfs_blend *blend;
	enum mfs_index_array array;
	uint64_t rows;
	unsigned columns, width; /* bytes of one number */
};

static const char *const names[MFS_INDEX_ARRAYS] = {
	[MFS_INDEX_DOCUMENTS] = "document_index.npy",
	[MFS_INDEX_SAMPLES] = "sample_index.npy",
	[MFS_INDEX_SHUFFLE] = "shuffle_index.npy",
	[MFS_INDEX_DATASET] = "dataset_index.npy",
	[MFS_INDEX_DATASET_SAMPLE] = "dataset_sample_index.npy",
};

const char *mfs_index_array_name(enum mfs_index_array array)
{
	return names[array];
}

/* ---- numbers ---- */

/* 64-bit numbers become 32-bit ones in their place. */
static void narrow(uint64_t *numbers, uint64_t count)
{
	uint32_t *to = (uint32_t *)(void *)numbers;

	for (uint64_t i = 0; i < count; i++) {
		const uint32_t n = (uint32_t)numbers[i];

		memcpy(&to[i], &n, sizeof(n));
	}
}

/* Rows [first, first+count) as the file has them; ret has room for 16 bytes a row. */
static int compute(struct index_file *s, uint64_t first, uint64_t count, void *ret,
		   struct mfs_error *err)
{
	int rc = 0;

	switch (s->array) {
	case MFS_INDEX_DOCUMENTS:
		return mfs_gpt_dataset_document_index(s->gpt, first, count, ret, err);
	case MFS_INDEX_SAMPLES:
		rc = mfs_gpt_dataset_sample_index(s->gpt, first, count, ret, err);
		break;
	case MFS_INDEX_SHUFFLE:
		rc = mfs_gpt_dataset_shuffle_index(s->gpt, first, count, ret, err);
		break;
	case MFS_INDEX_DATASET:
		return mfs_blend_read(s->blend, first, count, ret, NULL, err);
	default:
		return mfs_blend_read(s->blend, first, count, NULL, ret, err);
	}
	if (!rc && s->width == 4)
		narrow(ret, count * s->columns);
	return rc;
}

/* A blend's numbers come from no file. */
static int ready(struct index_file *s, struct mfs_error *err)
{
	int rc = 0;

	if (s->gpt)
		rc = mfs_rows_check(mfs_gpt_dataset_rows(s->gpt), err);
	if (!rc && s->gpt)
		rc = mfs_gpt_dataset_build(s->gpt, mfs_threads_count(0, MAX_THREADS), err);
	return rc;
}

static int read_bytes(void *object, uint64_t off, void *buf, size_t len, struct mfs_error *err)
{
	struct index_file *s = object;
	const unsigned row = s->columns * s->width;
	uint64_t numbers[2 * CHUNK];
	uint8_t *to = buf;
	int rc = ready(s, err);

	for (size_t n; len && !rc; to += n, off += n, len -= n) {
		const uint64_t first = off / row, skip = off % row;
		const uint64_t count = mfs_min_u64((skip + len + row - 1) / row, CHUNK);

		n = mfs_min_u64(len, count * row - skip);
		rc = compute(s, first, count, numbers, err);
		if (!rc)
			memcpy(to, (const uint8_t *)numbers + skip, n);
	}
	return rc;
}

/* ---- files ---- */

static const struct mfs_computed_ops computed = {.read = read_bytes};

static int new_file(const struct index_file *what, enum mfs_dtype dtype, struct mfs_vfile **ret,
		    struct mfs_error *err)
{
	struct index_file *s = malloc(sizeof(*s));
	uint64_t shape[2];
	int rc;

	if (!s)
		return mfs_fail_nomem(err);
	*s = *what;
	shape[0] = s->rows;
	shape[1] = s->columns;
	rc = mfs_npy_file(dtype, shape, s->columns, &computed, s, ret, err);
	if (rc)
		free(s);
	else
		mfs_vfile_keep(*ret, s, free);
	return rc;
}

static unsigned sample_width(const struct mfs_gpt_dataset *g, const struct mfs_dataset_rules *rules)
{
	if (rules->core < 8)
		return 4;
	return rules->core < 10 ? 8 : mfs_gpt_dataset_sample_index_width(g);
}

int mfs_index_file_gpt(struct mfs_gpt_dataset *g, enum mfs_index_array array,
		       const struct mfs_dataset_rules *rules, struct mfs_vfile **ret,
		       struct mfs_error *err)
{
	const uint64_t samples = mfs_gpt_dataset_sizes(g)->samples;
	struct index_file s = {.gpt = g, .array = array, .columns = 1, .width = 4};
	enum mfs_dtype dtype = MFS_I32;

	switch (array) {
	case MFS_INDEX_DOCUMENTS:
		s.rows = mfs_gpt_dataset_documents(g);
		break;
	case MFS_INDEX_SAMPLES:
		s.rows = samples + 1;
		s.columns = 2;
		s.width = sample_width(g, rules);
		dtype = s.width == 8 ? MFS_I64 : MFS_I32;
		break;
	case MFS_INDEX_SHUFFLE:
		s.rows = samples;
		s.width = mfs_gpt_dataset_shuffle_index_width(g);
		dtype = s.width == 8 ? MFS_I64 : MFS_U32;
		break;
	default:
		return mfs_fail(err, -EINVAL, "a GPT dataset has no %s", names[array]);
	}
	return new_file(&s, dtype, ret, err);
}

int mfs_index_file_blend(struct mfs_blend *b, enum mfs_index_array array, struct mfs_vfile **ret,
			 struct mfs_error *err)
{
	struct index_file s = {.blend = b, .array = array, .rows = mfs_blend_size(b), .columns = 1};

	switch (array) {
	case MFS_INDEX_DATASET:
		s.width = 2;
		return new_file(&s, MFS_I16, ret, err);
	case MFS_INDEX_DATASET_SAMPLE:
		s.width = 8;
		return new_file(&s, MFS_I64, ret, err);
	default:
		return mfs_fail(err, -EINVAL, "a blend has no %s", names[array]);
	}
}
