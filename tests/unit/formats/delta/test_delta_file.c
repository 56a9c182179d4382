/* Files of versions, made when they are read: formats/delta/delta_file.h. */
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/delta/delta_file.h"
#include "formats/delta/delta_write.h"
#include "formats/io/whole.h"

#define HEADER	 100u
#define TENSORS	 16u
#define BYTES	 60000u /* of a tensor */
#define SIZE	 (HEADER + TENSORS * BYTES)
#define VERSIONS 18u /* more than one pass applies */
#define THREADS	 4
#define READS	 (UNIT_TSAN ? 10 : 150)

static struct mfs_error err;

/* All states of one file, and the chain of their deltas. */
static uint8_t states[VERSIONS + 1][SIZE];
static char names[TENSORS][8];
static struct mfs_delta *deltas[VERSIONS];
static struct mfs_delta_part parts[TENSORS + 1];

/* Each version changes every third tensor, but the last one, which stays. */
static void change(uint32_t version)
{
	uint8_t *to = states[version];

	memcpy(to, states[version - 1], SIZE);
	for (uint32_t t = version % 3; t < TENSORS - 1; t += 3)
		for (uint32_t i = version; i < BYTES; i += 50 + version)
			to[HEADER + t * BYTES + i] += (uint8_t)version;
}

static void write_version(uint32_t version)
{
	const struct mfs_delta_meta meta = {.version = version,
					    .base_version = version - 1,
					    .encoding = (enum mfs_delta_encoding_kind)(version % 2),
					    .sum = (enum mfs_delta_sum_kind)(version % 3 == 0)};
	struct mfs_delta_tensor tensors[TENSORS];
	struct mfs_delta_writer *w;
	char path[600];

	change(version);
	for (uint32_t t = 0; t < TENSORS; t++)
		tensors[t] = (struct mfs_delta_tensor){
			.name = names[t],
			.bytes = BYTES,
			.memory = {states[version - 1] + HEADER + t * BYTES,
				   states[version] + HEADER + t * BYTES}};
	unit_ok(mfs_delta_writer_new(unit_tmpdir(), &meta, 1, &w, &err), &err);
	unit_ok(mfs_delta_write_shard(w, 0, tensors, TENSORS, NULL, &err), &err);
	unit_ok(mfs_delta_writer_finish(w, &err), &err);
	mfs_delta_writer_free(w);
	snprintf(path, sizeof path, "%s/weight_v%06u", unit_tmpdir(), version);
	unit_ok(mfs_delta_open(path, &deltas[version - 1], &err), &err);
}

static void make_chain(void)
{
	for (uint32_t i = 0; i < SIZE; i++)
		states[0][i] = (uint8_t)(i * 2654435761u >> 11);
	parts[0] = (struct mfs_delta_part){.bytes = HEADER};
	for (uint32_t t = 0; t < TENSORS; t++) {
		snprintf(names[t], sizeof names[t], "t%u", t);
		parts[t + 1] = (struct mfs_delta_part){
			.name = names[t], .offset = HEADER + t * BYTES, .bytes = BYTES};
	}
	for (uint32_t v = 1; v <= VERSIONS; v++)
		write_version(v);
}

static void free_chain(void)
{
	for (uint32_t v = 0; v < VERSIONS; v++)
		mfs_delta_free(deltas[v]);
}

static int read_base(void *arg, uint64_t off, void *buf, size_t len, struct mfs_error *e)
{
	(void)arg, (void)e;
	memcpy(buf, states[0] + off, len);
	return 0;
}

static const struct mfs_delta_base_file base = {.name = "model.safetensors",
						.size = SIZE,
						.parts = parts,
						.count = TENSORS + 1,
						.sum = MFS_DELTA_ADLER32,
						.read = read_base};

/* Two versions share the room. */
struct opened {
	struct mfs_delta_room *room;
	struct mfs_delta_file *files[2];
	struct mfs_backing backings[2];
	uint32_t version[2];
	int dirfd;
};

static struct opened open_files(uint64_t room)
{
	struct opened o = {.version = {VERSIONS, 5}};

	o.dirfd = open(unit_tmpdir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	unit_ok(mfs_delta_room_new(o.dirfd, room, &o.room, &err), &err);
	for (uint32_t i = 0; i < 2; i++) {
		unit_ok(mfs_delta_file_new(o.room, &base, (const struct mfs_delta *const *)deltas,
					   o.version[i], i, &o.files[i], &err),
			&err);
		o.backings[i] = mfs_delta_file_as_backing(o.files[i], i);
	}
	return o;
}

static void close_files(struct opened *o)
{
	mfs_delta_file_free(o->files[0]);
	mfs_delta_file_free(o->files[1]);
	mfs_delta_room_free(o->room);
	close(o->dirfd);
}

struct reader {
	const struct opened *o;
	unsigned seed;
	int failures;
};

/* Ranges of any length, whose bytes stay while they are pinned. */
static void *read_ranges(void *arg)
{
	struct reader *r = arg;
	uint8_t *bytes = malloc(SIZE);

	for (int i = 0; i < READS; i++) {
		const int which = rand_r(&r->seed) % 2;
		const struct mfs_backing *b = &r->o->backings[which];
		const uint64_t off = (uint64_t)rand_r(&r->seed) % SIZE;
		const uint64_t len = 1 + (uint64_t)rand_r(&r->seed) % (SIZE - off) / 4;
		uint32_t pin;
		int fd;

		if (b->ops->acquire(b->object, off, len, &pin, NULL)) {
			r->failures++;
			continue;
		}
		if (b->ops->open(b->object, &fd, NULL)) {
			r->failures++;
		} else {
			r->failures += mfs_pread_whole(fd, off, bytes, len) ||
				       memcmp(bytes, states[r->o->version[which]] + off, len);
			close(fd);
		}
		b->ops->release(b->object, pin);
	}
	free(bytes);
	return NULL;
}

START_TEST(threads_in_little_room_read_their_bytes)
{
	struct reader readers[THREADS];
	pthread_t threads[THREADS];
	struct opened o;

	make_chain();
	o = open_files(_i ? 3 * BYTES : 0);
	for (unsigned i = 0; i < THREADS; i++) {
		readers[i] = (struct reader){&o, i + 1, 0};
		ck_assert(!pthread_create(&threads[i], NULL, read_ranges, &readers[i]));
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		ck_assert_int_eq(readers[i].failures, 0);
	}
	close_files(&o);
	free_chain();
}
END_TEST

START_TEST(what_is_kept_stays)
{
	struct opened o;
	uint8_t *bytes = malloc(SIZE);
	const struct mfs_backing *b;
	int fd;

	make_chain();
	o = open_files(1);
	b = &o.backings[0];
	unit_ok(b->ops->keep(b->object, &err), &err);
	unit_ok(b->ops->keep(b->object, &err), &err);
	unit_ok(b->ops->open(b->object, &fd, &err), &err);
	ck_assert_int_eq(mfs_pread_whole(fd, 0, bytes, SIZE), 0);
	ck_assert(!memcmp(bytes, states[VERSIONS], SIZE));
	close(fd);
	close_files(&o);
	free_chain();
	free(bytes);
}
END_TEST

/* A tensor that no version changes is compared with the base's own sum, if that is known. */
START_TEST(another_base_is_no_base)
{
	const uint64_t off = HEADER + (TENSORS - 1) * BYTES;
	const struct mfs_backing *b;
	struct opened o;
	uint32_t pin;

	make_chain();
	o = open_files(SIZE);
	b = &o.backings[0];
	parts[TENSORS].sum = "00000000";
	unit_fails(b->ops->acquire(b->object, off, 1, &pin, &err), &err, -EIO,
		   "tensor 't15' of the base has the checksum ");
	parts[TENSORS].sum = NULL;
	unit_ok(b->ops->acquire(b->object, off, 1, &pin, &err), &err);
	b->ops->release(b->object, pin);
	states[0][HEADER + 7] ^= 1;
	unit_fails(
		b->ops->acquire(b->object, 0, SIZE, &pin, &err), &err, -EIO,
		"weight_v000003/model-00000-of-00001.safetensors: tensor 't0' has the checksum ");
	close_files(&o);
	free_chain();
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("delta_file");
	TCase *c = tcase_create("delta_file");

	tcase_add_loop_test(c, threads_in_little_room_read_their_bytes, 0, 2);
	tcase_add_test(c, what_is_kept_stays);
	tcase_add_test(c, another_base_is_no_base);
	suite_add_tcase(s, c);
	return s;
}
