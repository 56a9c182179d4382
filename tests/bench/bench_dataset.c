/*
 * What tests/bench/bench_dataset.sh measures of formats/dataset. Each command prints one line of
 * numbers.
 *
 *   make PREFIX DOCUMENTS            an .idx with as many documents of 1 to 2000 tokens, and a
 *                                    sparse .bin
 *   sparse PREFIX DOCUMENTS          an .idx of zeros and a .bin of nothing
 *   open PREFIX                      seconds, resident MiB
 *   index PREFIX S SAMPLES THREADS   seconds of the three indices (SAMPLES 0: one epoch), seconds
 *                                    of CPU
 *   shuffle COUNT                    nanoseconds per element
 *   sample PREFIX S SAMPLES READS    nanoseconds to find the pieces of a random sample
 *   read PREFIX S SAMPLES MIB        nanoseconds of CPU per token of samples, read in order, 1 MiB
 *                                    at a time
 *   blend SIZE WEIGHT...             nanoseconds per sample
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/dataset/gpt/blend.h"
#include "formats/dataset/gpt/gpt_dataset.h"
#include "formats/dataset/gpt/index_memory.h"
#include "formats/dataset/random/numpy.h"
#include "formats/dataset/rows/rows_indexed.h"
#include "formats/dataset/gpt/rows_samples.h"
#include "formats/io/guard.h"

static struct mfs_error err;

static double seconds_of(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double now(void)
{
	return seconds_of(CLOCK_MONOTONIC);
}

static double cpu(void)
{
	return seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

static void check(int rc)
{
	if (!rc)
		return;
	fprintf(stderr, "bench_dataset: %s\n", err.msg);
	exit(1);
}

static FILE *create(const char *prefix, const char *suffix)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s%s", prefix, suffix);
	f = fopen(path, "wb");
	if (!f) {
		perror(path);
		exit(1);
	}
	return f;
}

static FILE *create_idx(const char *prefix, uint64_t documents)
{
	uint8_t head[MFS_IDX_HEADER] = "MMIDIDX\0";
	FILE *f = create(prefix, ".idx");

	mfs_put_le64(head + 9, 1);
	head[17] = 4;
	mfs_put_le64(head + 18, documents);
	mfs_put_le64(head + 26, documents + 1);
	fwrite(head, 1, sizeof(head), f);
	return f;
}

static void do_make(char **a)
{
	const uint64_t n = strtoull(a[1], NULL, 10);
	FILE *f = create_idx(a[0], n), *bin = create(a[0], ".bin");
	int64_t pointer = 0;

	for (int pass = 0; pass < 2; pass++) {
		uint64_t x = 88172645463325252ull;

		for (uint64_t i = 0; i < n; i++) {
			int32_t length;

			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			length = (int32_t)(1 + x % 2000);
			if (!pass)
				fwrite(&length, sizeof(length), 1, f);
			else
				fwrite(&pointer, sizeof(pointer), 1, f), pointer += 4 * length;
		}
	}
	for (uint64_t i = 0; i <= n; i++)
		fwrite(&i, sizeof(i), 1, f);
	if (fclose(f) || ftruncate(fileno(bin), pointer) || fclose(bin)) {
		perror(a[0]);
		exit(1);
	}
}

static void do_sparse(char **a)
{
	const uint64_t n = strtoull(a[1], NULL, 10);
	FILE *f = create_idx(a[0], n);

	fclose(create(a[0], ".bin"));
	fseeko(f, (off_t)(MFS_IDX_HEADER + 12 * n + 8 * n), SEEK_SET);
	fwrite(&n, sizeof(n), 1, f);
	fclose(f);
}

static struct mfs_indexed_dataset *open_prefix(const char *prefix)
{
	struct mfs_indexed_dataset *d;

	check(mfs_indexed_dataset_open(&prefix, 1, &d, &err));
	return d;
}

static void do_open(char **a)
{
	const double start = now();
	struct mfs_indexed_dataset *d = open_prefix(a[0]);
	const double taken = now() - start;
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	printf("%.6f %.1f\n", taken, (double)u.ru_maxrss / 1024);
	mfs_indexed_dataset_free(d);
}

static struct mfs_rows *rows_of(const struct mfs_indexed_dataset *d)
{
	struct mfs_rows *rows;

	check(mfs_rows_indexed(d, &rows, &err));
	return rows;
}

static struct mfs_gpt_dataset *new_gpt(const struct mfs_rows *rows, char **a)
{
	const uint64_t samples = strtoull(a[1], NULL, 10);
	const struct mfs_gpt_config c = {.seq_length = (uint32_t)atoi(a[0]),
					 .seed = 1234,
					 .samples = samples ? samples : MFS_GPT_ONE_EPOCH,
					 .separate_last_epoch = true};
	struct mfs_gpt_dataset *g;

	check(mfs_gpt_dataset_new(rows, 0, rows->rows, &c, &g, &err));
	return g;
}

static void do_index(char **a)
{
	struct mfs_indexed_dataset *d = open_prefix(a[0]);
	struct mfs_rows *rows = rows_of(d);
	const double start = now(), start_cpu = cpu();
	struct mfs_gpt_dataset *g = new_gpt(rows, a + 1);

	check(mfs_gpt_dataset_build(g, (unsigned)atoi(a[3]), &err));
	printf("%.4f %.4f\n", now() - start, cpu() - start_cpu);
	mfs_gpt_dataset_free(g);
	mfs_rows_free(rows);
	mfs_indexed_dataset_free(d);
}

static void do_shuffle(char **a)
{
	const uint64_t n = strtoull(a[0], NULL, 10);
	uint32_t *v = mfs_index_alloc(4 * n);
	struct mfs_numpy_random r;
	double start;

	for (uint64_t i = 0; i < n; i++)
		v[i] = (uint32_t)i;
	mfs_numpy_random_seed(&r, 1234);
	start = cpu();
	mfs_numpy_shuffle32(&r, v, n);
	printf("%.2f\n", 1e9 * (cpu() - start) / (double)n);
}

static int count_piece(void *arg, const struct mfs_gpt_piece *piece, struct mfs_error *e)
{
	(void)e;
	*(uint64_t *)arg += piece->count;
	return 0;
}

static void do_sample(char **a)
{
	struct mfs_indexed_dataset *d = open_prefix(a[0]);
	struct mfs_rows *rows = rows_of(d);
	struct mfs_gpt_dataset *g = new_gpt(rows, a + 1);
	const uint64_t reads = strtoull(a[3], NULL, 10);
	uint64_t tokens = 0;
	uint32_t padding;
	double start;

	check(mfs_gpt_dataset_build(g, 1, &err));
	start = cpu();
	for (uint64_t i = 0; i < reads; i++)
		check(mfs_gpt_dataset_pieces(g, i % mfs_gpt_dataset_sizes(g)->samples, count_piece,
					     &tokens, &padding, &err));
	printf("%.1f\n", 1e9 * (cpu() - start) / (double)reads);
	mfs_gpt_dataset_free(g);
	mfs_rows_free(rows);
	mfs_indexed_dataset_free(d);
}

static int the_rows(void *arg, const char *prefix, const struct mfs_rows **ret, struct mfs_error *e)
{
	(void)prefix, (void)e;
	*ret = arg;
	return 0;
}

static void do_read(char **a)
{
	enum { MIB = 1 << 20 };
	struct mfs_indexed_dataset *d = open_prefix(a[0]);
	struct mfs_rows *data = rows_of(d), *rows;
	const char *prefix = a[0];
	const struct mfs_blend_args args = {.count = 1, .prefixes = &prefix};
	const uint64_t samples = strtoull(a[2], NULL, 10), mib = strtoull(a[3], NULL, 10);
	const struct mfs_run run = {.per_split = {&args},
				    .seq_length = (uint32_t)atoi(a[1]),
				    .seed = MFS_RUN_SEED,
				    .samples = {samples ? samples : MFS_GPT_ONE_EPOCH},
				    .rules = mfs_dataset_rules_default()};
	struct mfs_samples *s;
	void *buf = malloc(MIB);
	uint64_t at = 0, tokens;
	double start;

	check(mfs_samples_new(&run, MFS_TRAIN, the_rows, data, &s, &err));
	check(mfs_rows_samples(s, "bench", 0, &rows, &err));
	check(mfs_samples_build(s, NULL, 0, 0, &err));
	tokens = MIB / rows->token_size;
	start = cpu();
	for (uint64_t i = 0; i < mib; i++, at += tokens)
		check(mfs_rows_read(rows, at % (rows->tokens - tokens), tokens, buf, &err));
	printf("%.3f\n", 1e9 * (cpu() - start) / (double)(mib * tokens));
	mfs_rows_free(rows);
	mfs_samples_free(s);
	mfs_rows_free(data);
	mfs_indexed_dataset_free(d);
	free(buf);
}

static void do_blend(char **a, int count)
{
	const uint64_t size = strtoull(a[0], NULL, 10);
	double *weights = calloc((size_t)count, sizeof(*weights));
	int16_t *dataset = malloc(sizeof(*dataset) * MFS_BLEND_BLOCK);
	int64_t *sample = malloc(sizeof(*sample) * MFS_BLEND_BLOCK);
	struct mfs_blend *b;
	double start;

	for (int i = 1; i < count; i++)
		weights[i - 1] = strtod(a[i], NULL);
	check(mfs_blend_new(weights, (size_t)count - 1, size, &b, &err));
	start = cpu();
	for (uint64_t at = 0; at < size; at += MFS_BLEND_BLOCK)
		check(mfs_blend_read(b, at, mfs_min_u64(MFS_BLEND_BLOCK, size - at), dataset,
				     sample, &err));
	printf("%.2f\n", 1e9 * (cpu() - start) / (double)size);
	mfs_blend_free(b);
	free(weights);
	free(dataset);
	free(sample);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int arguments;
		void (*run)(char **a);
	} commands[] = {
		{"make", 2, do_make},	{"sparse", 2, do_sparse},   {"open", 1, do_open},
		{"index", 4, do_index}, {"shuffle", 1, do_shuffle}, {"sample", 4, do_sample},
		{"read", 4, do_read},
	};

	mfs_guard_install();
	for (size_t i = 0; argc > 1 && i < MFS_ARRAY_SIZE(commands); i++)
		if (!strcmp(argv[1], commands[i].name) && argc == 2 + commands[i].arguments) {
			commands[i].run(argv + 2);
			return 0;
		}
	if (argc > 3 && !strcmp(argv[1], "blend")) {
		do_blend(argv + 2, argc - 2);
		return 0;
	}
	fprintf(stderr, "see the head of tests/bench/bench_dataset.c\n");
	return 2;
}
