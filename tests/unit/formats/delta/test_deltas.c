/* Deltas of weights, written and read: formats/delta/delta_write.h, delta_index.h,
 * delta_apply.h. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/delta/delta_apply.h"
#include "formats/delta/delta_base.h"
#include "formats/delta/delta_index.h"
#include "formats/delta/delta_write.h"

#define BYTES (3u << 20) /* of a tensor: several windows */

static struct mfs_error err;

/* Two states of a tensor: every step-th byte differs; step 0: none does. */
struct states {
	uint8_t *side[2];
	uint64_t bytes;
};

static struct states make_states(uint64_t bytes, uint64_t step)
{
	struct states s = {{malloc(bytes + 1), malloc(bytes + 1)}, bytes};

	for (uint64_t i = 0; i < bytes; i++)
		s.side[0][i] = s.side[1][i] = (uint8_t)(i * 2654435761u >> 13);
	for (uint64_t i = step / 2; step && i < bytes; i += step)
		s.side[1][i] ^= (uint8_t)(1 + i % 255);
	return s;
}

static struct mfs_delta_tensor tensor_of(const char *name, const struct states *s)
{
	return (struct mfs_delta_tensor){
		.name = name, .bytes = s->bytes, .memory = {s->side[0], s->side[1]}};
}

static void free_states(struct states *s)
{
	free(s->side[0]);
	free(s->side[1]);
}

static void check_applied(const struct mfs_delta *d, const struct mfs_delta_tensor *t,
			  size_t window)
{
	const struct mfs_delta_change *c = mfs_delta_find(d, t->name);
	struct mfs_delta_apply *a;
	uint8_t *bytes = malloc(t->bytes);

	ck_assert_ptr_nonnull(c);
	ck_assert_str_eq(c->sum, t->sums[MFS_DELTA_NEW]);
	memcpy(bytes, t->memory[MFS_DELTA_OLD], t->bytes);
	unit_ok(mfs_delta_apply_new(c, d->meta.encoding, t->bytes, &a, &err), &err);
	for (uint64_t at = 0; at < t->bytes; at += window) {
		const size_t len = window < t->bytes - at ? window : t->bytes - at;

		unit_ok(mfs_delta_apply_next(a, bytes + at, len, &err), &err);
	}
	unit_ok(mfs_delta_apply_end(a, &err), &err);
	mfs_delta_apply_free(a);
	ck_assert(!memcmp(bytes, t->memory[MFS_DELTA_NEW], t->bytes));
	free(bytes);
}

/* Of each encoding and sum: tensors that change everywhere, here and there, at one byte, nowhere,
 * and one without bytes; in three shards, of which nothing changes in one. */
START_TEST(what_is_written_gives_the_new_bytes)
{
	const struct mfs_delta_meta meta = {.version = 12,
					    .base_version = 11,
					    .encoding = (enum mfs_delta_encoding_kind)(_i % 2),
					    .sum = (enum mfs_delta_sum_kind)(_i / 2)};
	struct states s[] = {make_states(BYTES, 1), make_states(BYTES, 97),
			     make_states(BYTES, 2 * BYTES - 2), make_states(BYTES, 0),
			     make_states(0, 1)};
	struct mfs_delta_tensor t[] = {tensor_of("all", &s[0]), tensor_of("same", &s[3]),
				       tensor_of("some\"", &s[1]), tensor_of("none", &s[4]),
				       tensor_of("one", &s[2])};
	struct mfs_delta_writer *w;
	struct mfs_delta *d;
	char path[600];
	bool is_delta = false;

	unit_ok(mfs_delta_writer_new(unit_tmpdir(), &meta, 3, &w, &err), &err);
	unit_ok(mfs_delta_write_shard(w, 0, t, 1, NULL, &err), &err);
	unit_ok(mfs_delta_write_shard(w, 2, t + 2, 3, NULL, &err), &err);
	unit_ok(mfs_delta_write_shard(w, 1, t + 1, 1, NULL, &err), &err);
	unit_ok(mfs_delta_writer_finish(w, &err), &err);
	mfs_delta_writer_free(w);
	ck_assert_uint_eq(t[0].changed, BYTES);
	ck_assert_uint_eq(t[4].changed, 1);
	ck_assert_uint_eq(t[1].changed + t[1].stored + t[3].stored, 0);
	unit_fails(mfs_delta_writer_new(unit_tmpdir(), &meta, 1, &w, &err), &err, -EEXIST,
		   "has weight_v000012 already");

	snprintf(path, sizeof path, "%s/weight_v000012", unit_tmpdir());
	unit_ok(mfs_delta_looks_like_one(path, &is_delta, &err), &err);
	ck_assert(is_delta);
	unit_ok(mfs_delta_open(path, &d, &err), &err);
	ck_assert(!memcmp(&d->meta, &meta, sizeof meta));
	ck_assert_uint_eq(d->count, 3);
	ck_assert_ptr_null(mfs_delta_find(d, "same"));
	check_applied(d, &t[0], 1u << 20);
	check_applied(d, &t[2], 4099);
	check_applied(d, &t[4], BYTES);
	mfs_delta_free(d);
	for (size_t i = 0; i < 5; i++)
		free_states(&s[i]);
}
END_TEST

/* Sums of b"mcorefs", as xxhash and zlib of Python print them. */
START_TEST(sums_are_those_of_python)
{
	static const char *const want[] = {"5728c6067dc1228795e86b383450f4a4", "0bb502f0"};
	char text[MFS_DELTA_SUM_TEXT];
	struct mfs_delta_sum sum;

	unit_ok(mfs_delta_sum_init(&sum, (enum mfs_delta_sum_kind)_i, &err), &err);
	mfs_delta_sum_add(&sum, "mco", 3);
	mfs_delta_sum_begin(&sum);
	mfs_delta_sum_add(&sum, "mcor", 4);
	mfs_delta_sum_add(&sum, "efs", 3);
	ck_assert_str_eq(mfs_delta_sum_text(&sum, text), want[_i]);
	mfs_delta_sum_release(&sum);
}
END_TEST

/* A version that is not finished is not there, nor is a killed process's, which the next one
 * removes. */
START_TEST(a_version_appears_whole)
{
	const struct mfs_delta_meta meta = {.version = 1};
	struct states s = make_states(1000, 10);
	struct mfs_delta_tensor t = tensor_of("t", &s);
	struct mfs_delta_writer *w, *other;
	uint32_t *list, count;
	char path[600];

	snprintf(path, sizeof path, "%s/.weight_v000001.partial", unit_tmpdir());
	mkdir(path, 0755);
	unit_write(path, "model-00007-of-00009.safetensors", "old", 3);
	unit_ok(mfs_delta_writer_new(unit_tmpdir(), &meta, 1, &w, &err), &err);
	unit_ok(mfs_delta_write_shard(w, 0, &t, 1, NULL, &err), &err);
	unit_fails(mfs_delta_writer_new(unit_tmpdir(), &meta, 1, &other, &err), &err, -EBUSY,
		   "another process writes");
	unit_ok(mfs_delta_versions(unit_tmpdir(), &list, &count, &err), &err);
	ck_assert_uint_eq(count, 0);
	free(list);
	mfs_delta_writer_free(w);
	ck_assert_int_eq(access(path, F_OK), -1);

	mkdir(path, 0755);
	unit_write(path, "model-00007-of-00009.safetensors", "old", 3);
	unit_ok(mfs_delta_writer_new(unit_tmpdir(), &meta, 1, &w, &err), &err);
	unit_ok(mfs_delta_write_shard(w, 0, &t, 1, NULL, &err), &err);
	unit_ok(mfs_delta_writer_finish(w, &err), &err);
	mfs_delta_writer_free(w);
	unit_ok(mfs_delta_versions(unit_tmpdir(), &list, &count, &err), &err);
	ck_assert_uint_eq(count, 1);
	ck_assert_uint_eq(list[0], 1);
	free(list);
	snprintf(path, sizeof path, "%s/weight_v000001/model-00007-of-00009.safetensors",
		 unit_tmpdir());
	ck_assert_int_eq(access(path, F_OK), -1);
	free_states(&s);
}
END_TEST

/* What another process does between the opening of a directory and its lock. */
static char moved_from[600], moved_to[600];
static bool no_locks;

/* Instead of libc's, in the library, too. */
int flock(int fd, int operation)
{
	if (*moved_from)
		ck_assert_int_eq(rename(moved_from, moved_to), 0);
	*moved_from = 0;
	if (no_locks) {
		errno = ENOSYS;
		return -1;
	}
	return (int)syscall(SYS_flock, fd, operation);
}

/* It is finished meanwhile, or moved. */
START_TEST(a_version_that_is_overtaken_stays_whole)
{
	const struct mfs_delta_meta meta = {.version = 1};
	struct mfs_delta_writer *w;
	char path[700];

	snprintf(path, sizeof path, "%s/.weight_v000001.partial", unit_tmpdir());
	snprintf(moved_to, sizeof moved_to, "%s/%s", unit_tmpdir(),
		 _i ? "elsewhere" : "weight_v000001");
	mkdir(path, 0755);
	unit_write(path, "model-00001-of-00001.safetensors", "whole", 5);
	snprintf(moved_from, sizeof moved_from, "%s", path);
	unit_fails(mfs_delta_writer_new(unit_tmpdir(), &meta, 1, &w, &err), &err, -EBUSY,
		   "another process writes");
	snprintf(path, sizeof path, "%s/model-00001-of-00001.safetensors", moved_to);
	ck_assert_int_eq(access(path, F_OK), 0);
}
END_TEST

START_TEST(without_locks_none_is_written)
{
	const struct mfs_delta_meta meta = {.version = 1};
	struct mfs_delta_writer *w;
	char path[600];

	no_locks = true;
	unit_fails(mfs_delta_writer_new(unit_tmpdir(), &meta, 1, &w, &err), &err, -ENOLCK,
		   "is on a file system without locks of directories");
	no_locks = false;
	snprintf(path, sizeof path, "%s/.weight_v000001.partial", unit_tmpdir());
	ck_assert_int_eq(access(path, F_OK), -1);
}
END_TEST

static int read_bytes(const struct mfs_source *s, uint64_t off, void *buf, size_t len,
		      struct mfs_error *e)
{
	(void)e;
	memcpy(buf, (const uint8_t *)s->object + off, len);
	return 0;
}

/* Headers of zstd's frames: a window of 2^23 and 3 eighths; one segment of 300 bytes; a window of
 * 2^25, which is refused; no frame; a cut one. */
START_TEST(room_is_what_the_frame_asks_for)
{
	static const struct {
		uint8_t bytes[18];
		size_t size;
		uint64_t want;
	} rows[] = {{{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x6b}, 18, 11 << 20},
		    {{0x28, 0xb5, 0x2f, 0xfd, 0x60, 0x2c, 0x00}, 18, 300},
		    {{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x78}, 18, 16 << 20},
		    {{0x28, 0xb5, 0x2f, 0xfe, 0x00, 0x6b}, 18, 0},
		    {{0x28, 0xb5, 0x2f, 0xfd}, 4, 0}};
	static const struct mfs_source_ops ops = {read_bytes};
	uint64_t room;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(rows); i++) {
		const struct mfs_delta_change c = {.bytes = {.ops = &ops,
							     .size = rows[i].size,
							     .object = (void *)rows[i].bytes}};

		unit_ok(mfs_delta_apply_room(&c, MFS_DELTA_XOR, &room, &err), &err);
		ck_assert_uint_eq(room, rows[i].want);
		unit_ok(mfs_delta_apply_room(&c, MFS_DELTA_OVERWRITE, &room, &err), &err);
		ck_assert_uint_eq(room, 2 * rows[i].want);
	}
}
END_TEST

START_TEST(names_of_versions)
{
	static const char *const none[] = {"weight_v00001",
					   "weight_v0000001",
					   "weight_v",
					   "weight_v00001a",
					   "weight_v-00001",
					   "weight_v4294967296",
					   "weight_v99999999999999999999",
					   "iter_0000001"};
	char name[MFS_DELTA_DIR_SIZE];
	uint32_t version;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(none); i++)
		ck_assert_msg(!mfs_delta_dir_version(none[i], &version), "%s", none[i]);
	ck_assert(mfs_delta_dir_version("weight_v1000000", &version) && version == 1000000);
	ck_assert(mfs_delta_dir_version("weight_v4294967295", &version) && version == UINT32_MAX);
	ck_assert_str_eq(mfs_delta_dir_name(7, name), "weight_v000007");
}
END_TEST

START_TEST(the_base_is_what_was_written)
{
	struct mfs_delta_base_sum sums[] = {{"b", "00000001"}, {"a\"", "00000002"}};
	const struct mfs_delta_base base = {.source = "/runs/\xc3\xa4",
					    .view = "hf-bf16",
					    .sum = MFS_DELTA_ADLER32,
					    .sums = sums,
					    .count = 2};
	struct mfs_delta_base read;

	unit_fails(mfs_delta_base_read(unit_tmpdir(), &read, &err), &err, -ENOENT, NULL);
	unit_ok(mfs_delta_base_write(unit_tmpdir(), &base, &err), &err);
	unit_ok(mfs_delta_base_read(unit_tmpdir(), &read, &err), &err);
	ck_assert_str_eq(read.source, base.source);
	ck_assert_str_eq(read.view, base.view);
	ck_assert_int_eq(read.sum, base.sum);
	ck_assert_str_eq(mfs_delta_base_find(&read, "a\""), "00000002");
	ck_assert_str_eq(mfs_delta_base_find(&read, "b"), "00000001");
	ck_assert_ptr_null(mfs_delta_base_find(&read, "c"));
	mfs_delta_base_release(&read);
	unit_write(unit_tmpdir(), MFS_DELTA_BASE_FILE, "{\"base\": 1}", 11);
	unit_fails(mfs_delta_base_read(unit_tmpdir(), &read, &err), &err, -ENODATA, "no 'base'");
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("deltas");
	TCase *c = tcase_create("deltas");

	tcase_add_loop_test(c, what_is_written_gives_the_new_bytes, 0, 4);
	tcase_add_loop_test(c, sums_are_those_of_python, 0, 2);
	tcase_add_test(c, a_version_appears_whole);
	tcase_add_loop_test(c, a_version_that_is_overtaken_stays_whole, 0, 2);
	tcase_add_test(c, without_locks_none_is_written);
	tcase_add_test(c, room_is_what_the_frame_asks_for);
	tcase_add_test(c, names_of_versions);
	tcase_add_test(c, the_base_is_what_was_written);
	suite_add_tcase(s, c);
	return s;
}
