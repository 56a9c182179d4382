/*
 * Prints what formats/dataset computes, for tests/interop/test_gpt_dataset.py, which compiles it.
 * Commands come on stdin, a line each, words divided by tabs; each is answered by a line "ok BYTES"
 * and so many bytes, or by "error CODE SENTENCE".
 *
 *   gpt PREFIX[,PREFIX] FIRST END SAMPLES|none S SEED EXTRA PARTIAL SEPARATE THREADS
 *                                 six u64 (documents, samples, epochs, separate, widths), i32
 *                                   document index,
 *                                 i64 sample index, u64 shuffle index
 *   tokens PAD I                  i64 tokens of sample I of the last gpt
 *   split TEXT VERSION N          three pairs of u64, (0, 0) for none
 *   blend SIZE WEIGHT...          i16 datasets, i64 samples; weights as C99 hexadecimal
 *   exhaustive SIZE...
 *   sizes VERSION SAMPLES WEIGHT...  doubles: weights as BlendedDataset gets them; u64: samples of
 *     each; u64 size
 *   args WORD...                  words as a line each: prefixes, then weights as hexadecimal
 *   shuffle SEED BITS COUNT TIMES 0..COUNT-1 shuffled so often
 *   interval SEED MAX COUNT       u64
 *   npy DTYPE SIZE...             a header
 *   idx PREFIX...                 the .idx of the prefixes together
 *   copy FROM TO                  through the writer; nothing
 *   set NUMBER SAMPLES|none S SEED PREFIX...   i64 tokens of all samples of that validation set
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/buf.h"
#include "formats/dataset/gpt/blend.h"
#include "formats/dataset/gpt/blend_args.h"
#include "formats/dataset/gpt/gpt_dataset.h"
#include "formats/dataset/files/npy.h"
#include "formats/dataset/random/numpy.h"
#include "formats/dataset/gpt/gpt_run.h"
#include "formats/dataset/gpt/samples.h"
#include "formats/dataset/rows/rows_indexed.h"
#include "formats/dataset/gpt/splits.h"
#include "formats/indexed/indexed_dataset.h"
#include "formats/indexed/indexed_dataset_write.h"
#include "tests/unit/gpt_tokens.h"

#define WORDS 40000

static struct mfs_error err;
static struct mfs_indexed_dataset *data;
static struct mfs_rows *rows;
static struct mfs_gpt_dataset *gpt;

static uint64_t number(const char *word)
{
	return strtoull(word, NULL, 10);
}

static int open_list(char *list, struct mfs_indexed_dataset **ret)
{
	const char *prefixes[256];
	size_t n = 0;

	for (char *p = strtok_r(list, ",", &list); p && n < 256; p = strtok_r(NULL, ",", &list))
		prefixes[n++] = p;
	return mfs_indexed_dataset_open(prefixes, n, ret, &err);
}

static int print_indices(struct mfs_buf *out)
{
	const struct mfs_gpt_sizes *s = mfs_gpt_dataset_sizes(gpt);
	const uint64_t documents = mfs_gpt_dataset_documents(gpt);
	const uint64_t head[6] = {documents,
				  s->samples,
				  s->epochs,
				  s->separate,
				  mfs_gpt_dataset_sample_index_width(gpt),
				  mfs_gpt_dataset_shuffle_index_width(gpt)};
	int32_t *d = malloc(4 * documents);
	int64_t(*rows)[2] = malloc(sizeof(*rows) * (s->samples + 1));
	uint64_t *shuffle = malloc(8 * s->samples);
	int rc = mfs_gpt_dataset_document_index(gpt, 0, documents, d, &err);

	if (!rc)
		rc = mfs_gpt_dataset_sample_index(gpt, 0, s->samples + 1, rows, &err);
	if (!rc)
		rc = mfs_gpt_dataset_shuffle_index(gpt, 0, s->samples, shuffle, &err);
	mfs_buf_add(out, head, sizeof(head));
	mfs_buf_add(out, d, 4 * documents);
	mfs_buf_add(out, rows, sizeof(*rows) * (s->samples + 1));
	mfs_buf_add(out, shuffle, 8 * s->samples);
	free(d);
	free(rows);
	free(shuffle);
	return rc;
}

static void close_last(void)
{
	mfs_gpt_dataset_free(gpt);
	mfs_rows_free(rows);
	mfs_indexed_dataset_free(data);
	gpt = NULL;
	rows = NULL;
	data = NULL;
}

static int do_gpt(char **w, size_t n, struct mfs_buf *out)
{
	struct mfs_gpt_config c;
	int rc;

	close_last();
	if (n != 11)
		return -EINVAL;
	c = (struct mfs_gpt_config){.seq_length = (uint32_t)number(w[5]),
				    .seed = (uint32_t)number(w[6]),
				    .samples =
					    strcmp(w[4], "none") ? number(w[4]) : MFS_GPT_ONE_EPOCH,
				    .no_extra_token = !number(w[7]),
				    .keep_last_partial = number(w[8]),
				    .separate_last_epoch = number(w[9])};
	rc = open_list(w[1], &data);
	if (!rc)
		rc = mfs_rows_indexed(data, &rows, &err);
	if (!rc)
		rc = mfs_gpt_dataset_new(rows, number(w[2]), number(w[3]), &c, &gpt, &err);
	if (!rc)
		rc = mfs_gpt_dataset_build(gpt, (unsigned)number(w[10]), &err);
	return rc ? rc : print_indices(out);
}

static int do_tokens(char **w, size_t n, struct mfs_buf *out)
{
	int64_t *tokens;
	uint64_t count;
	int rc;

	if (n != 3 || !gpt)
		return -EINVAL;
	count = mfs_gpt_dataset_config(gpt)->seq_length + 1 -
		mfs_gpt_dataset_config(gpt)->no_extra_token;
	tokens = malloc(8 * count);
	rc = gpt_tokens(gpt, number(w[2]), strtoll(w[1], NULL, 10), tokens, &err);
	mfs_buf_add(out, tokens, 8 * count);
	free(tokens);
	return rc;
}

/* The dataset of a prefix, in the place of the last one: a set has one alone. */
static int open_rows(void *arg, const char *prefix, const struct mfs_rows **ret,
		     struct mfs_error *e)
{
	int rc = mfs_indexed_dataset_open(&prefix, 1, &data, e);

	(void)arg;
	if (!rc)
		rc = mfs_rows_indexed(data, &rows, e);
	*ret = rows;
	return rc;
}

static int print_set(struct mfs_samples *s, struct mfs_buf *out)
{
	struct mfs_gpt_dataset *of = mfs_samples_member(s, 0)->gpt;
	const uint64_t length = mfs_samples_length(s);
	int64_t *tokens = malloc(8 * length);
	int rc = mfs_samples_members(s) == 1 ? mfs_samples_build(s, NULL, 0, 1, &err) : -EINVAL;

	for (uint64_t i = 0; i < mfs_samples_count(s) && !rc; i++) {
		rc = gpt_tokens(of, i, 0, tokens, &err);
		mfs_buf_add(out, tokens, 8 * length);
	}
	free(tokens);
	return rc;
}

static int do_set(char **w, size_t n, struct mfs_buf *out)
{
	struct mfs_run run = {.multiple_validation_sets = true};
	struct mfs_samples *s = NULL;
	struct mfs_blend_args a;
	struct mfs_run_set one;
	int rc =
		n < 6 ? -EINVAL : mfs_blend_args_parse((const char *const *)w + 5, n - 5, &a, &err);

	if (rc)
		return rc;
	close_last();
	run.rules = mfs_dataset_rules_default();
	run.per_split[MFS_VALID] = &a;
	run.samples[MFS_VALID] = strcmp(w[2], "none") ? number(w[2]) : MFS_GPT_ONE_EPOCH;
	run.seq_length = (uint32_t)number(w[3]);
	run.seed = (uint32_t)number(w[4]);
	if (number(w[1]) >= mfs_run_sets(&run, MFS_VALID))
		rc = mfs_fail(&err, -EINVAL, "there is no such set");
	if (!rc) {
		mfs_run_set(&run, MFS_VALID, (uint32_t)number(w[1]), &one);
		rc = mfs_samples_new(&one.run, MFS_VALID, open_rows, NULL, &s, &err);
	}
	if (!rc)
		rc = print_set(s, out);
	mfs_samples_free(s);
	mfs_blend_args_release(&a);
	return rc;
}

static int do_split(char **w, size_t n, struct mfs_buf *out)
{
	struct mfs_dataset_rules rules;
	struct mfs_splits splits;
	int rc = n == 4 ? mfs_dataset_rules_of(w[2], &rules, &err) : -EINVAL;

	if (!rc)
		rc = mfs_splits_parse(w[1], &rules, &splits, &err);
	for (enum mfs_split s = MFS_TRAIN; s < MFS_SPLITS && !rc; s++) {
		uint64_t range[2] = {0};

		rc = mfs_splits_range(&splits, s, number(w[3]), &range[0], &range[1], &err);
		if (rc == -ENODATA)
			rc = 0;
		mfs_buf_add(out, range, sizeof(range));
	}
	return rc;
}

static int print_blend(struct mfs_blend *b, struct mfs_buf *out)
{
	const uint64_t size = mfs_blend_size(b);
	int16_t *d = malloc(2 * size + 1);
	int64_t *s = malloc(8 * size + 1);
	int rc = 0;

	/* From the end on, so that checkpoints are used. */
	for (uint64_t at = size, n; at && !rc; at -= n) {
		n = at < 100000 ? at : 100000;
		rc = mfs_blend_read(b, at - n, n, d + at - n, s + at - n, &err);
	}
	mfs_buf_add(out, d, 2 * size);
	mfs_buf_add(out, s, 8 * size);
	free(d);
	free(s);
	mfs_blend_free(b);
	return rc;
}

static int do_blend(char **w, size_t n, struct mfs_buf *out)
{
	static double weights[WORDS];
	struct mfs_blend *b;
	int rc;

	for (size_t i = 2; i < n; i++)
		weights[i - 2] = strtod(w[i], NULL);
	rc = n < 3 ? -EINVAL : mfs_blend_new(weights, n - 2, number(w[1]), &b, &err);
	return rc ? rc : print_blend(b, out);
}

static int do_exhaustive(char **w, size_t n, struct mfs_buf *out)
{
	static uint64_t sizes[WORDS];
	struct mfs_blend *b;
	int rc;

	for (size_t i = 1; i < n; i++)
		sizes[i - 1] = number(w[i]);
	rc = mfs_blend_new_exhaustive(sizes, n - 1, &b, &err);
	return rc ? rc : print_blend(b, out);
}

static int do_sizes(char **w, size_t n, struct mfs_buf *out)
{
	static double weights[WORDS];
	static uint64_t build[WORDS];
	struct mfs_dataset_rules rules;
	uint64_t size;
	int rc = n < 4 ? -EINVAL : mfs_dataset_rules_of(w[1], &rules, &err);

	for (size_t i = 3; i < n; i++)
		weights[i - 3] = strtod(w[i], NULL);
	if (!rc)
		rc = mfs_blend_normalize_first(weights, n - 3, &rules, &err);
	if (!rc)
		rc = mfs_blend_sizes(weights, n - 3, number(w[2]), &rules, build, &size, &err);
	if (rc)
		return rc;
	mfs_buf_add(out, weights, 8 * (n - 3));
	mfs_buf_add(out, build, 8 * (n - 3));
	mfs_buf_add(out, &size, 8);
	return 0;
}

static int do_args(char **w, size_t n, struct mfs_buf *out)
{
	struct mfs_blend_args a;
	int rc = mfs_blend_args_parse((const char *const *)w + 1, n - 1, &a, &err);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < a.count; i++)
		mfs_buf_printf(out, "%s\n", a.prefixes[i]);
	for (uint32_t i = 0; a.weights && i < a.count; i++)
		mfs_buf_printf(out, "%a\n", a.weights[i]);
	mfs_blend_args_release(&a);
	return 0;
}

static int do_shuffle(char **w, size_t n, struct mfs_buf *out)
{
	const uint64_t count = n == 5 ? number(w[3]) : 0;
	struct mfs_numpy_random r;
	uint64_t *wide = calloc(count + 1, sizeof(*wide));
	uint32_t *narrow = calloc(count + 1, sizeof(*narrow));

	if (n != 5)
		return -EINVAL;
	mfs_numpy_random_seed(&r, (uint32_t)number(w[1]));
	for (uint64_t i = 0; i < count; i++)
		wide[i] = narrow[i] = (uint32_t)i;
	for (uint64_t t = number(w[4]); t; t--) {
		if (number(w[2]) == 64)
			mfs_numpy_shuffle64(&r, wide, count);
		else
			mfs_numpy_shuffle32(&r, narrow, count);
	}
	if (number(w[2]) == 64)
		mfs_buf_add(out, wide, 8 * count);
	else
		mfs_buf_add(out, narrow, 4 * count);
	free(wide);
	free(narrow);
	return 0;
}

static int do_interval(char **w, size_t n, struct mfs_buf *out)
{
	struct mfs_numpy_random r;

	if (n != 4)
		return -EINVAL;
	mfs_numpy_random_seed(&r, (uint32_t)number(w[1]));
	for (uint64_t i = number(w[3]); i; i--) {
		const uint64_t v = mfs_numpy_random_interval(&r, number(w[2]));

		mfs_buf_add(out, &v, 8);
	}
	return 0;
}

static int do_npy(char **w, size_t n, struct mfs_buf *out)
{
	uint8_t header[MFS_NPY_HEADER_MAX];
	uint64_t shape[MFS_MAX_DIMS];

	for (size_t i = 2; i < n && i < 4; i++)
		shape[i - 2] = number(w[i]);
	mfs_buf_add(out, header,
		    mfs_npy_header(mfs_dtype_from_torch(w[1]), shape, (unsigned)n - 2, header));
	return 0;
}

static int do_idx(char **w, size_t n, struct mfs_buf *out)
{
	struct mfs_indexed_dataset *d;
	uint64_t size;
	uint8_t *bytes;
	int rc = mfs_indexed_dataset_open((const char *const *)w + 1, n - 1, &d, &err);

	if (rc)
		return rc;
	size = mfs_indexed_dataset_idx_size(d);
	bytes = malloc(size);
	/* In pieces that begin and end anywhere. */
	for (uint64_t at = 0, k; at < size && !rc; at += k) {
		k = at * 7 % 4099 + 1 < size - at ? at * 7 % 4099 + 1 : size - at;
		rc = mfs_indexed_dataset_idx_read(d, at, bytes + at, k, &err);
	}
	mfs_buf_add(out, bytes, size);
	free(bytes);
	mfs_indexed_dataset_free(d);
	return rc;
}

static int copy_sequences(const struct mfs_indexed_dataset *d, struct mfs_indexed_writer *w)
{
	const struct mfs_indexed_info *info = mfs_indexed_dataset_info(d);
	uint64_t i = 0;
	int rc = 0;

	for (uint64_t e = 1; e < info->document_entries && !rc; e++) {
		int64_t end;

		rc = mfs_indexed_dataset_documents(d, e, 1, &end, &err);
		for (; !rc && i < (uint64_t)end; i++) {
			struct mfs_sequence s;
			int8_t mode = 0;
			uint8_t *tokens;

			rc = mfs_indexed_dataset_sequence(d, i, &s, &err);
			if (rc)
				return rc;
			tokens = malloc(s.length * info->token_size + 1);
			rc = mfs_indexed_dataset_read(d, i, 0, s.length, tokens, &err);
			if (!rc && info->multimodal)
				rc = mfs_indexed_dataset_modes(d, i, 1, &mode, &err);
			if (!rc)
				rc = mfs_indexed_writer_add(w, tokens, s.length, &err);
			if (!rc)
				rc = mfs_indexed_writer_end_sequence(w, mode, &err);
			free(tokens);
		}
		if (!rc)
			rc = mfs_indexed_writer_end_document(w, &err);
	}
	return rc;
}

static int do_copy(char **w, size_t n, struct mfs_buf *out)
{
	const char *from = n == 3 ? w[1] : "";
	struct mfs_indexed_writer_config config = {0};
	struct mfs_indexed_dataset *d;
	struct mfs_indexed_writer *writer;
	int rc = mfs_indexed_dataset_open(&from, 1, &d, &err);

	(void)out;
	if (rc)
		return rc;
	config.dtype = mfs_indexed_dataset_info(d)->dtype;
	config.multimodal = mfs_indexed_dataset_info(d)->multimodal;
	rc = mfs_indexed_writer_open(w[2], &config, &writer, &err);
	if (!rc) {
		rc = copy_sequences(d, writer);
		if (rc)
			mfs_indexed_writer_free(writer);
		else
			rc = mfs_indexed_writer_finish(writer, &err);
	}
	mfs_indexed_dataset_free(d);
	return rc;
}

static const struct {
	const char *name;
	int (*run)(char **words, size_t count, struct mfs_buf *out);
} commands[] = {
	{"gpt", do_gpt},     {"tokens", do_tokens},   {"split", do_split},
	{"blend", do_blend}, {"sizes", do_sizes},     {"exhaustive", do_exhaustive},
	{"args", do_args},   {"npy", do_npy},	      {"idx", do_idx},
	{"copy", do_copy},   {"shuffle", do_shuffle}, {"interval", do_interval},
	{"set", do_set},
};

static void answer(char **words, size_t count)
{
	struct mfs_buf out = {0};
	int rc = -ENOSYS;

	err = (struct mfs_error){0};
	for (size_t i = 0; count && i < MFS_ARRAY_SIZE(commands); i++)
		if (!strcmp(words[0], commands[i].name))
			rc = commands[i].run(words, count, &out);
	if (rc)
		printf("error %d %s\n", rc, err.msg);
	else
		printf("ok %zu\n", out.len);
	if (!rc && out.len)
		fwrite(out.data, 1, out.len, stdout);
	fflush(stdout);
	mfs_buf_release(&out);
}

int main(void)
{
	static char *words[WORDS];
	char *line = NULL;
	size_t room = 0;
	ssize_t len;

	while ((len = getline(&line, &room, stdin)) > 0) {
		char *rest = line;
		size_t count = 0;

		line[len - 1] = '\0';
		for (char *p = strsep(&rest, "\t"); p && count < WORDS; p = strsep(&rest, "\t"))
			words[count++] = p;
		answer(words, count);
	}
	free(line);
	close_last();
	return 0;
}
