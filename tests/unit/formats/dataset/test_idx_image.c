/* Rows and indexed datasets as .idx and .bin: formats/dataset/files/idx_image.h. What is expected:
 * fake_idx.h. */
#include <stdio.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/dataset/files/idx_image.h"
#include "formats/dataset/files/rows_files.h"
#include "formats/dataset/rows/rows_indexed.h"
#include "tests/unit/fake_idx.h"
#include "tests/unit/fake_rows.h"

#define ROWS 3000

static struct mfs_error err;

static void check_file(struct mfs_vfile *f, const void *want, uint64_t len)
{
	uint8_t *bytes;

	ck_assert_uint_eq(mfs_vfile_size(f), len);
	bytes = fake_slurp(f, &err);
	ck_assert_mem_eq(bytes, want, len);
	fake_check_preads(f, bytes, 300, &err);
	free(bytes);
	mfs_vfile_free(f);
}

/* ---- rows ---- */

START_TEST(an_idx_of_rows_is_megatrons)
{
	static const struct {
		enum mfs_dtype dtype;
		uint8_t code;
	} types[] = {{MFS_U8, 1},  {MFS_I8, 2},	 {MFS_I16, 3}, {MFS_I32, 4},
		     {MFS_I64, 5}, {MFS_F64, 6}, {MFS_F32, 7}, {MFS_U16, 8}};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(types); i++) {
		struct mfs_buf want = {0};
		int32_t narrow[ROWS];
		uint64_t lengths[ROWS];
		struct fake_rows *r;
		struct mfs_vfile *f;

		for (unsigned k = 0; k < ROWS; k++)
			lengths[k] = (uint64_t)(narrow[k] = rand() % 6);
		r = fake_rows_new(types[i].dtype, lengths, ROWS);
		fake_idx(&want, &(struct fake_idx){.sequences = ROWS,
						   .code = types[i].code,
						   .lengths = narrow});
		unit_ok(mfs_idx_image_idx(&r->rows, &f, &err), &err);
		check_file(f, want.data, want.len);
		unit_ok(mfs_idx_image_bin(&r->rows, &f, &err), &err);
		check_file(f, r->tokens, r->rows.tokens * r->rows.token_size);
		mfs_buf_release(&want);
		mfs_rows_free(&r->rows);
	}
}
END_TEST

START_TEST(no_rows)
{
	struct fake_rows *r = fake_rows_new(MFS_I32, NULL, 0);
	struct mfs_buf want = {0};
	struct mfs_vfile *f;

	fake_idx(&want, &(struct fake_idx){.code = 4});
	unit_ok(mfs_idx_image_idx(&r->rows, &f, &err), &err);
	check_file(f, want.data, want.len);
	unit_ok(mfs_idx_image_bin(&r->rows, &f, &err), &err);
	check_file(f, "", 0);
	mfs_buf_release(&want);
	mfs_rows_free(&r->rows);
}
END_TEST

/* Lengths that an int32 cannot hold, and pointers that no 32 bits can. */
START_TEST(long_rows)
{
	static const uint64_t lengths[] = {7, 0x7fffffff, 0x80000000, 1};
	struct fake_rows *r = fake_rows_new(MFS_U16, (const uint64_t[]){0, 0, 0, 0}, 4);
	struct mfs_vfile *f;
	uint8_t got[256];
	size_t len;

	for (unsigned i = 0; i < 4; i++)
		r->starts[i + 1] = r->starts[i] + lengths[i];
	r->rows.tokens = r->starts[4];
	unit_ok(mfs_idx_image_idx(&r->rows, &f, &err), &err);
	ck_assert_uint_eq(mfs_vfile_size(f), 34 + 12 * 4 + 8 * 5);
	unit_ok(mfs_vfile_pread(f, 34, got, 8, &len, &err), &err);
	ck_assert_uint_eq(mfs_le32(got), 7);
	ck_assert_uint_eq(mfs_le32(got + 4), 0x7fffffff);
	unit_fails(mfs_vfile_pread(f, 42, got, 1, &len, &err), &err, -EINVAL, "row 2");
	unit_ok(mfs_vfile_pread(f, 50, got, 32, &len, &err), &err);
	ck_assert_uint_eq(mfs_le64(got + 24), 2 * (7ull + 0x7fffffff + 0x80000000));
	mfs_vfile_free(f);
	r->rows.tokens = 0;
	mfs_rows_free(&r->rows);
}
END_TEST

START_TEST(types_and_counts_that_idx_has_not_are_refused)
{
	struct fake_rows *r = fake_rows_new(MFS_U32, NULL, 0);
	struct mfs_vfile *f;

	unit_fails(mfs_idx_image_idx(&r->rows, &f, &err), &err, -ENOTSUP, "uint32");
	unit_fails(mfs_idx_image_bin(&r->rows, &f, &err), &err, -ENOTSUP, "uint32");
	r->rows.dtype = MFS_I32;
	r->rows.rows = 1ull << 31;
	unit_fails(mfs_idx_image_idx(&r->rows, &f, &err), &err, -EINVAL, "2147483648 rows");
	r->rows.rows = 0;
	mfs_rows_free(&r->rows);
}
END_TEST

/* ---- indexed datasets ---- */

struct prefix {
	char path[512];
	struct mfs_buf bin;
};

static void write_prefix(struct prefix *p, const char *name, const struct fake_idx *f, uint64_t gap)
{
	struct mfs_buf idx = {0};
	char file[64];
	const uint64_t len = fake_idx(&idx, f) + gap;
	uint8_t *bin = fake_bytes(len, (unsigned)len);

	snprintf(file, sizeof(file), "%s.idx", name);
	unit_write(unit_tmpdir(), file, idx.data, idx.len);
	snprintf(file, sizeof(file), "%s.bin", name);
	unit_write(unit_tmpdir(), file, bin, len);
	snprintf(p->path, sizeof(p->path), "%s/%s", unit_tmpdir(), name);
	mfs_buf_add(&p->bin, bin, len);
	mfs_buf_release(&idx);
	free(bin);
}

/* tools/merge_datasets.py: sequences one after the other, pointers and documents shifted. Several
 * documents of several sequences, empty ones of both, modes, and an empty dataset between. */
START_TEST(merged_files_are_those_of_megatrons_tool)
{
	static const int32_t lengths[] = {3, 0, 5, 1, 2}, more[] = {4, 4};
	static const int64_t documents[] = {0, 2, 2, 5}, none[] = {0}, two[] = {0, 1, 2};
	static const int8_t modes[] = {0, 1, 0, 0, 1}, other[] = {1, 0};
	static const int32_t all[] = {3, 0, 5, 1, 2, 4, 4};
	static const int64_t all_documents[] = {0, 2, 2, 5, 6, 7};
	static const int8_t all_modes[] = {0, 1, 0, 0, 1, 1, 0};
	struct prefix p[3] = {0};
	const char *paths[] = {p[0].path, p[1].path, p[2].path};
	struct mfs_indexed_dataset *d;
	struct mfs_buf want = {0}, bin = {0};
	struct mfs_vfile *f;

	write_prefix(&p[0], "a", &(struct fake_idx){5, 4, 8, lengths, NULL, documents, modes}, 0);
	write_prefix(&p[1], "b", &(struct fake_idx){0, 1, 8, NULL, NULL, none, modes}, 0);
	write_prefix(&p[2], "c", &(struct fake_idx){2, 3, 8, more, NULL, two, other}, 0);
	fake_idx(&want, &(struct fake_idx){7, 6, 8, all, NULL, all_documents, all_modes});
	for (unsigned i = 0; i < 3; i++) {
		mfs_buf_add(&bin, p[i].bin.data, p[i].bin.len);
		mfs_buf_release(&p[i].bin);
	}
	unit_ok(mfs_indexed_dataset_open(paths, 3, &d, &err), &err);
	unit_ok(mfs_idx_image_merged_idx(d, &f, &err), &err);
	check_file(f, want.data, want.len);
	unit_ok(mfs_idx_image_merged_bin(d, &f, &err), &err);
	check_file(f, bin.data, bin.len);
	mfs_indexed_dataset_free(d);
	mfs_buf_release(&want);
	mfs_buf_release(&bin);
}
END_TEST

/* Gaps between sequences, and bytes after the last one, stay where they are: pointers count
 * them. */
START_TEST(gaps_between_sequences_stay)
{
	static const int32_t lengths[] = {3, 2, 4};
	static const int64_t pointers[] = {4, 20, 40};
	const struct fake_idx fake = {3, 0, 8, lengths, pointers, NULL, NULL};
	struct prefix p = {0};
	const char *path = p.path;
	struct mfs_indexed_dataset *d;
	struct mfs_buf want = {0};
	struct mfs_vfile *f;

	write_prefix(&p, "gaps", &fake, 100);
	fake_idx(&want, &fake);
	unit_ok(mfs_indexed_dataset_open(&path, 1, &d, &err), &err);
	unit_ok(mfs_idx_image_merged_idx(d, &f, &err), &err);
	check_file(f, want.data, want.len);
	unit_ok(mfs_idx_image_merged_bin(d, &f, &err), &err);
	check_file(f, p.bin.data, p.bin.len);
	mfs_indexed_dataset_free(d);
	mfs_buf_release(&want);
	mfs_buf_release(&p.bin);
}
END_TEST

/* An .idx that is no longer the one that was opened is not shown any more; others next to it
 * are. */
START_TEST(an_idx_that_changed_is_not_shown_any_more)
{
	static const int32_t lengths[] = {3, 2};
	struct prefix p = {0}, steady = {0};
	const char *path[] = {p.path, steady.path};
	struct mfs_indexed_dataset *d;
	struct mfs_vfile *idx, *bin, *documents;
	char byte, file[600];
	size_t len;

	write_prefix(&p, "changed",
		     &(struct fake_idx){.sequences = 2, .code = 8, .lengths = lengths}, 0);
	write_prefix(&steady, "steady",
		     &(struct fake_idx){.sequences = 2, .code = 8, .lengths = lengths}, 0);
	unit_ok(mfs_indexed_dataset_open(path, 2, &d, &err), &err);
	unit_ok(mfs_idx_image_merged_idx(d, &idx, &err), &err);
	unit_ok(mfs_idx_image_merged_bin(d, &bin, &err), &err);
	unit_ok(mfs_npy_documents(d, &documents, &err), &err);
	unit_ok(mfs_vfile_pread(idx, 40, &byte, 1, &len, &err), &err);
	snprintf(file, sizeof(file), "%s.idx", p.path);
	ck_assert_int_eq(truncate(file, 20), 0);
	/* Four sequences: lengths at 34, pointers at 50, five document entries at 82. */
	for (uint64_t off = 0; off < mfs_vfile_size(idx); off++) {
		const bool of_changed = (off >= 34 && off < 42) || (off >= 50 && off < 66) ||
					(off >= 90 && off < 106);

		if (of_changed)
			unit_fails(mfs_vfile_pread(idx, off, &byte, 1, &len, &err), &err, -ESTALE,
				   "changed.idx");
		else
			unit_ok(mfs_vfile_pread(idx, off, &byte, 1, &len, &err), &err);
	}
	/* Of five after a header of 128 bytes, two are that .idx's. */
	for (uint64_t i = 0; i < 5; i++) {
		const uint64_t off = 128 + 8 * i;

		if (i == 1 || i == 2)
			unit_fails(mfs_vfile_pread(documents, off, &byte, 1, &len, &err), &err,
				   -ESTALE, "changed.idx");
		else
			unit_ok(mfs_vfile_pread(documents, off, &byte, 1, &len, &err), &err);
	}
	snprintf(file, sizeof(file), "%s.bin", steady.path);
	ck_assert_int_eq(unlink(file), 0);
	unit_ok(mfs_vfile_pread(documents, 160, &byte, 1, &len, &err), &err);
	snprintf(file, sizeof(file), "%s.bin", p.path);
	ck_assert_int_eq(unlink(file), 0);
	unit_fails(mfs_vfile_pread(bin, 0, &byte, 1, &len, &err), &err, -ESTALE, "changed.bin");
	mfs_vfile_free(idx);
	mfs_vfile_free(bin);
	mfs_vfile_free(documents);
	mfs_indexed_dataset_free(d);
	mfs_buf_release(&p.bin);
	mfs_buf_release(&steady.bin);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("idx_image");
	TCase *c = unit_case(s, "rows", an_idx_of_rows_is_megatrons);

	tcase_add_test(c, no_rows);
	tcase_add_test(c, long_rows);
	tcase_add_test(c, types_and_counts_that_idx_has_not_are_refused);
	c = unit_case(s, "merged", merged_files_are_those_of_megatrons_tool);
	tcase_add_test(c, gaps_between_sequences_stay);
	tcase_add_test(c, an_idx_that_changed_is_not_shown_any_more);
	return s;
}
