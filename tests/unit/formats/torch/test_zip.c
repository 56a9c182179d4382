/* ZIP archives as torch writes them: formats/torch/zip.h. Damaged ones: tests/fuzz/reject/zip. */
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/torch/zip.h"

static struct mfs_error err;

static const char *record_name(const char *name)
{
	static char text[128];

	snprintf(text, sizeof text, "model_optim_rng/%s", name);
	return text;
}

/* Every record of a real checkpoint: names, sizes, and payloads that start at multiples of 64. */
START_TEST(real_checkpoint)
{
	static const char *const records[] = {
		"data.pkl", ".format_version", ".storage_alignment",	"byteorder", "data/0",
		"data/13",  "version",	       ".data/serialization_id"};
	size_t len;
	uint8_t *bytes =
		unit_slurp(unit_fixture("weights/llama-torch-tp2-pp2/iter_0000040/mp_rank_01_001/"
					"model_optim_rng.pt"),
			   &len);
	struct mfs_source src = mfs_source_memory(bytes, len, "file");
	struct mfs_zip zip;
	uint64_t at;

	unit_ok(mfs_zip_open(&src, &zip, &err), &err);
	ck_assert_uint_eq(zip.count, 20);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(records); i++)
		ck_assert_ptr_nonnull(mfs_zip_find(&zip, record_name(records[i])));
	ck_assert_ptr_null(mfs_zip_find(&zip, "data.pkl"));
	ck_assert_uint_eq(mfs_zip_find(&zip, record_name("data/13"))->size, 65536);
	for (uint32_t i = 0; i < zip.count; i++) {
		unit_ok(mfs_zip_locate(&src, &zip.entries[i], &at, &err), &err);
		ck_assert_uint_eq(at % 64, 0);
		/* torch puts a data descriptor right after the payload */
		ck_assert_uint_eq(mfs_le32(bytes + at + zip.entries[i].size), 0x08074b50);
	}
	mfs_zip_release(&zip);
	free(bytes);
}
END_TEST

/* An archive in the middle of a larger source, at an odd offset, as in .distcp files. */
START_TEST(item_of_a_distcp)
{
	size_t len;
	uint8_t *seed = unit_slurp("tests/fuzz/corpus/zip/ok-item-of-tensor", &len);
	uint8_t *bytes = malloc(len + 1000);
	struct mfs_source all, src;
	struct mfs_zip zip;
	uint64_t at;

	memset(bytes, 'P', len + 1000);
	memcpy(bytes + 333, seed, len);
	all = mfs_source_memory(bytes, len + 1000, "all");
	src = mfs_source_range(&all, 333, len);
	unit_ok(mfs_zip_open(&src, &zip, &err), &err);
	unit_ok(mfs_zip_locate(&src, mfs_zip_find(&zip, "archive/data/0"), &at, &err), &err);
	ck_assert_uint_eq(at % 64, 0);
	mfs_zip_release(&zip);
	free(bytes);
	free(seed);
}
END_TEST

/* A comment as long as the format allows, with what looks like end records inside of it. */
START_TEST(long_comment)
{
	size_t len;
	uint8_t *seed = unit_slurp("tests/fuzz/corpus/zip/ok-empty", &len);
	uint8_t *bytes = calloc(1, len + 65535);
	struct mfs_source src = mfs_source_memory(bytes, len + 65535, "commented");
	struct mfs_zip zip;

	memcpy(bytes, seed, len);
	bytes[len - 2] = bytes[len - 1] = 0xff;
	for (size_t i = len; i + 22 < len + 65535; i += 4096)
		memcpy(bytes + i, seed + len - 22, 20);
	unit_ok(mfs_zip_open(&src, &zip, &err), &err);
	ck_assert_uint_eq(zip.count, 0);
	mfs_zip_release(&zip);
	free(bytes);
	free(seed);
}
END_TEST

static void put16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
}

static void put32(uint8_t *p, uint32_t v)
{
	put16(p, v & 0xffff);
	put16(p + 2, v >> 16);
}

/* A source that claims 5 GiB: zeros, with a few bytes at the front and at the end. */
struct sparse {
	uint64_t size, tail;
	uint8_t head[64], end[400];
};

static int sparse_read(const struct mfs_source *s, uint64_t off, void *buf, size_t len,
		       struct mfs_error *e)
{
	const struct sparse *sparse = s->object;
	uint8_t *out = buf;

	(void)e;
	for (size_t i = 0; i < len; i++, off++)
		out[i] = off < sizeof sparse->head ? sparse->head[off]
			 : off >= sparse->tail	   ? sparse->end[off - sparse->tail]
						   : 0;
	return 0;
}

/* One entry "a" of 5 GiB and one entry "b" after it: all three ZIP64 fields, and each alone. */
static size_t big_directory(uint8_t *p, uint64_t first, uint64_t second)
{
	memcpy(p, "PK\1\2", 4);
	put32(p + 20, UINT32_MAX);
	put32(p + 24, UINT32_MAX);
	put16(p + 28, 1);
	put16(p + 30, 20);
	p[46] = 'a';
	put16(p + 47, 1);
	put16(p + 49, 16);
	mfs_put_le64(p + 51, first);
	mfs_put_le64(p + 59, first);
	p += 67;
	memcpy(p, "PK\1\2", 4);
	put32(p + 20, 2);
	put32(p + 24, 2);
	put16(p + 28, 1);
	put16(p + 30, 12);
	put32(p + 42, UINT32_MAX);
	p[46] = 'b';
	put16(p + 47, 1);
	put16(p + 49, 8);
	mfs_put_le64(p + 51, second);
	return 67 + 59;
}

START_TEST(entries_beyond_4_gib_are_found)
{
	static const struct mfs_source_ops ops = {.read = sparse_read};
	const uint64_t first = 5ull << 30, second = 31 + first + 24;
	struct sparse s = {.tail = second - 24};
	struct mfs_source src = {.ops = &ops, .name = "big", .object = &s};
	uint64_t at, directory = second + 31 + 2 + 24;
	size_t len;
	struct mfs_zip zip;
	uint8_t *p;

	memcpy(s.head, "PK\3\4", 4);
	put16(s.head + 6, 8); /* a data descriptor of 64-bit sizes follows, as torch writes it */
	put16(s.head + 26, 1);
	s.head[30] = 'a';
	p = s.end;
	memcpy(p, "PK\7\10", 4);
	p += 24;
	memcpy(p, "PK\3\4", 4);
	put16(p + 6, 8);
	put16(p + 26, 1);
	p[30] = 'b';
	memcpy(p + 33, "PK\7\10", 4);
	p = s.end + 24 + (directory - second);
	len = big_directory(p, first, second);
	p += len;
	memcpy(p, "PK\6\6", 4);
	mfs_put_le64(p + 32, 2);
	mfs_put_le64(p + 40, len);
	mfs_put_le64(p + 48, directory);
	memcpy(p + 56, "PK\6\7", 4);
	mfs_put_le64(p + 64, directory + len);
	put32(p + 72, 1);
	memcpy(p + 76, "PK\5\6", 4);
	put16(p + 86, 2);
	put32(p + 88, (uint32_t)len);
	put32(p + 92, UINT32_MAX);
	src.size = s.size = directory + len + 98;
	unit_ok(mfs_zip_open(&src, &zip, &err), &err);
	ck_assert_uint_eq(zip.count, 2);
	ck_assert_uint_eq(mfs_zip_find(&zip, "a")->size, first);
	ck_assert_uint_eq(mfs_zip_find(&zip, "b")->header, second);
	unit_ok(mfs_zip_locate(&src, mfs_zip_find(&zip, "a"), &at, &err), &err);
	ck_assert_uint_eq(at, 31);
	unit_ok(mfs_zip_locate(&src, mfs_zip_find(&zip, "b"), &at, &err), &err);
	ck_assert_uint_eq(at, second + 31);
	/* A longer extra field would move the payload: it must not go unnoticed. */
	put16(s.head + 28, 8); /* leaves room for a descriptor of the other kind */
	unit_fails(mfs_zip_locate(&src, mfs_zip_find(&zip, "a"), &at, &err), &err, -EINVAL,
		   "its place");
	mfs_zip_release(&zip);
}
END_TEST

static const struct {
	const char *input, *words;
	int code;
} refused[] = {
	{"nothing", "input", -EINVAL},
	{"no-end-record", "no end record", -EINVAL},
	{"compressed", "archive/data.pkl", -ENOTSUP},
	{"encrypted", "archive/data.pkl", -ENOTSUP},
	{"several-disks", "several disks", -ENOTSUP},
	{"duplicate-names", "archive/version", -EINVAL},
	{"payload-over-next-entry", "archive/data.pkl", -EINVAL},
	{"payload-over-directory", "archive/version", -EINVAL},
	{"directory-outside", "central directory", -EINVAL},
	{"two-sizes", "sizes", -EINVAL},
};

START_TEST(refused_with_a_reason)
{
	struct mfs_zip zip = {.count = 77};
	struct mfs_source src;
	char path[128];
	uint8_t *bytes;
	size_t len;

	snprintf(path, sizeof path, "tests/fuzz/reject/zip/%s", refused[_i].input);
	bytes = unit_slurp(path, &len);
	src = mfs_source_memory(bytes, len, "input");
	unit_fails(mfs_zip_open(&src, &zip, &err), &err, refused[_i].code, refused[_i].words);
	ck_assert_uint_eq(zip.count, 77);
	free(bytes);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("zip");
	TCase *c = unit_case(s, "good", real_checkpoint);

	tcase_add_test(c, item_of_a_distcp);
	tcase_add_test(c, long_comment);
	tcase_add_test(c, entries_beyond_4_gib_are_found);
	c = tcase_create("refused");
	suite_add_tcase(s, c);
	tcase_add_loop_test(c, refused_with_a_reason, 0, MFS_ARRAY_SIZE(refused));
	return s;
}
