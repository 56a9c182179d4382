/* numpy's generator, splits and .npy files: formats/dataset. */
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/dataset/files/npy.h"
#include "formats/dataset/random/numpy.h"
#include "formats/dataset/gpt/splits.h"
#include "tests/unit/npy_file.h"

static struct mfs_error err;

/* All from numpy 2.3.5. */
static const struct {
	uint32_t seed, words[4];
	uint32_t once[12], twice[12];
	uint64_t million; /* sum of a[i] * (i + 1) mod 1000000007, after one shuffle of 1000003 */
	uint32_t after;	  /* the next word */
	uint64_t wide[4], narrow[2], last;
} numpy[] = {
	{0,
	 {0x8c7f0aac, 0x97c4aa2f, 0xb716a675, 0xd821ccc0},
	 {6, 11, 4, 10, 2, 8, 1, 7, 9, 3, 0, 5},
	 {8, 4, 10, 2, 3, 6, 5, 7, 1, 11, 0, 9},
	 499481376123919,
	 2249438491,
	 {2546248239, 7921061056, 6973152979, 5945874162},
	 {1879422756, 6},
	 832329121254},
	{1234,
	 {0x31076b2f, 0x7f66e2d3, 0x9f428526, 0xd15ddc35},
	 {7, 8, 11, 2, 9, 10, 1, 0, 4, 5, 6, 3},
	 {0, 3, 11, 2, 8, 5, 10, 9, 7, 4, 1, 6},
	 499049490971509,
	 39715878,
	 {3512589365, 2629000564, 3312965625, 682106748},
	 {3762102042, 6},
	 1056983943678},
	{4294967295,
	 {0x18fe69a3, 0x1c924122, 0xe991ec0c, 0x900cac47},
	 {11, 8, 5, 9, 1, 10, 6, 0, 4, 7, 2, 3},
	 {5, 11, 9, 1, 8, 10, 7, 4, 0, 6, 2, 3},
	 499266493750007,
	 4063373174,
	 {2416749639, 2260532800, 5512855328, 6319244169},
	 {780684889, 4},
	 923013001745},
};

START_TEST(words_are_numpys)
{
	struct mfs_numpy_random r;

	for (unsigned i = 0; i < 3; i++) {
		mfs_numpy_random_seed(&r, numpy[i].seed);
		for (int k = 0; k < 4; k++)
			ck_assert_uint_eq(mfs_numpy_random_next32(&r), numpy[i].words[k]);
		mfs_numpy_random_seed(&r, numpy[i].seed);
		ck_assert_uint_eq(mfs_numpy_random_next64(&r),
				  (uint64_t)numpy[i].words[0] << 32 | numpy[i].words[1]);
	}
}
END_TEST

START_TEST(intervals_are_numpys)
{
	struct mfs_numpy_random r;

	for (unsigned i = 0; i < 3; i++) {
		mfs_numpy_random_seed(&r, numpy[i].seed);
		ck_assert_uint_eq(mfs_numpy_random_interval(&r, 0), 0);
		ck_assert_uint_eq(mfs_numpy_random_interval(&r, 1ull << 32), numpy[i].wide[0]);
		for (int k = 1; k < 4; k++)
			ck_assert_uint_eq(mfs_numpy_random_interval(&r, (1ull << 33) + 5),
					  numpy[i].wide[k]);
		ck_assert_uint_eq(mfs_numpy_random_interval(&r, UINT32_MAX), numpy[i].narrow[0]);
		ck_assert_uint_eq(mfs_numpy_random_interval(&r, 6), numpy[i].narrow[1]);
		ck_assert_uint_eq(mfs_numpy_random_interval(&r, 1ull << 40), numpy[i].last);
	}
}
END_TEST

START_TEST(small_shuffles)
{
	struct mfs_numpy_random r;

	for (unsigned i = 0; i < 3; i++) {
		uint32_t a[12];
		uint64_t b[12];

		for (uint32_t k = 0; k < 12; k++)
			a[k] = (uint32_t)(b[k] = k);
		mfs_numpy_random_seed(&r, numpy[i].seed);
		mfs_numpy_shuffle32(&r, a, 0);
		mfs_numpy_shuffle32(&r, a, 1);
		mfs_numpy_shuffle32(&r, a, 12);
		ck_assert_mem_eq(a, numpy[i].once, sizeof(a));
		mfs_numpy_shuffle32(&r, a, 12);
		ck_assert_mem_eq(a, numpy[i].twice, sizeof(a));
		mfs_numpy_random_seed(&r, numpy[i].seed);
		mfs_numpy_shuffle64(&r, b, 12);
		for (int k = 0; k < 12; k++)
			ck_assert_uint_eq(b[k], numpy[i].once[k]);
	}
}
END_TEST

START_TEST(large_shuffles)
{
	const uint64_t n = 1000003;
	uint32_t *a = calloc(n, sizeof(*a));
	uint64_t *b = calloc(n, sizeof(*b));
	struct mfs_numpy_random r;

	for (unsigned i = 0; i < 3; i++) {
		uint64_t sum = 0, other = 0;

		for (uint64_t k = 0; k < n; k++)
			a[k] = (uint32_t)(b[k] = k);
		mfs_numpy_random_seed(&r, numpy[i].seed);
		mfs_numpy_shuffle32(&r, a, n);
		ck_assert_uint_eq(mfs_numpy_random_next32(&r), numpy[i].after);
		mfs_numpy_random_seed(&r, numpy[i].seed);
		mfs_numpy_shuffle64(&r, b, n);
		for (uint64_t k = 0; k < n; k++) {
			other += a[k] != b[k];
			sum += a[k] * (k + 1) % 1000000007;
		}
		ck_assert_uint_eq(other, 0);
		ck_assert_uint_eq(sum, numpy[i].million);
	}
	free(a);
	free(b);
}
END_TEST

/* ---- splits ---- */

static void check_split(const char *text, uint64_t n, const uint64_t want[3][2])
{
	const struct mfs_dataset_rules rules = mfs_dataset_rules_default();
	struct mfs_splits s;
	uint64_t first, end;

	unit_ok(mfs_splits_parse(text, &rules, &s, &err), &err);
	for (enum mfs_split k = MFS_TRAIN; k < MFS_SPLITS; k++) {
		if (want[k][0] == want[k][1]) {
			unit_fails(mfs_splits_range(&s, k, n, &first, &end, &err), &err, -ENODATA,
				   mfs_split_name(k));
			continue;
		}
		unit_ok(mfs_splits_range(&s, k, n, &first, &end, &err), &err);
		ck_assert_uint_eq(first, want[k][0]);
		ck_assert_uint_eq(end, want[k][1]);
	}
}

START_TEST(splits_are_rounded_as_megatron_rounds)
{
	check_split("90,10,0", 240, (uint64_t[3][2]){{0, 216}, {216, 240}, {0, 0}});
	check_split(MFS_SPLIT_DEFAULT, 1000, (uint64_t[3][2]){{0, 969}, {969, 999}, {999, 1000}});
	check_split("99/1/0", 100, (uint64_t[3][2]){{0, 99}, {99, 100}, {0, 0}});
	check_split("1", 7, (uint64_t[3][2]){{0, 7}, {0, 0}, {0, 0}});
	check_split("-1e1", 4, (uint64_t[3][2]){{0, 2}, {2, 4}, {0, 0}}); /* signs, exponents: no */
	/* Halves go to the even side: 2.5 is 2, 3.5 is 4. */
	check_split("1,1", 5, (uint64_t[3][2]){{0, 2}, {2, 5}, {0, 0}});
	check_split("1,1", 7, (uint64_t[3][2]){{0, 4}, {4, 7}, {0, 0}});
	check_split("98,1,1", 10, (uint64_t[3][2]){{0, 10}, {0, 0}, {0, 0}});
}
END_TEST

START_TEST(splits_refused)
{
	static const char *const bad[] = {"", "0,0,0", "1,2,3,4", "1.2.3", ".", "a"};
	struct mfs_dataset_rules rules = mfs_dataset_rules_default();
	struct mfs_splits s;
	uint64_t first, end;

	for (unsigned i = 0; i < MFS_ARRAY_SIZE(bad); i++)
		unit_fails(mfs_splits_parse(bad[i], &rules, &s, &err), &err, -EINVAL, "--split");
	s = mfs_splits_whole(MFS_TEST);
	unit_ok(mfs_splits_range(&s, MFS_TEST, 9, &first, &end, &err), &err);
	ck_assert(!first && end == 9);
	unit_fails(mfs_splits_range(&s, MFS_TRAIN, 9, &first, &end, &err), &err, -ENODATA, "train");
	unit_fails(mfs_splits_range(&s, MFS_TEST, 0, &first, &end, &err), &err, -ENODATA, "test");
	/* Before core: 33.3 of 100 thrice is one too few, which all ends give. */
	rules.before_core = true;
	unit_ok(mfs_splits_parse("1,1,1", &rules, &s, &err), &err);
	unit_ok(mfs_splits_range(&s, MFS_TRAIN, 100, &first, &end, &err), &err);
	ck_assert(!first && end == 34);
	unit_ok(mfs_splits_range(&s, MFS_TEST, 100, &first, &end, &err), &err);
	ck_assert(first == 67 && end == 100);
}
END_TEST

/* ---- .npy ---- */

START_TEST(npy_as_numpy)
{
	static const struct {
		const char *name, *type;
		enum mfs_dtype dtype;
		unsigned ndim;
	} cases[] = {{"notes-train-n97-s128-sample_index.npy", "<i4", MFS_I32, 2},
		     {"notes-train-n97-s128-document_index.npy", "<i4", MFS_I32, 1},
		     {"tales-train-n226-s128-shuffle_index.npy", "<u4", MFS_U32, 1}};

	for (unsigned i = 0; i < 3; i++) {
		uint8_t header[MFS_NPY_HEADER_MAX];
		uint64_t shape[2] = {0, 2};
		char path[128];
		size_t len;
		uint8_t *bytes;

		snprintf(path, sizeof(path), "data/megatron_index/%s", cases[i].name);
		bytes = unit_slurp(unit_fixture(path), &len);
		npy_elements(bytes, len, cases[i].type, shape);
		ck_assert_uint_eq(mfs_npy_header(cases[i].dtype, shape, cases[i].ndim, header),
				  NPY_HEADER);
		ck_assert_mem_eq(header, bytes, NPY_HEADER);
		free(bytes);
	}
}
END_TEST

/* Of types that numpy calls by other letters, and of no axis. */
START_TEST(npy_types)
{
	static const struct {
		enum mfs_dtype dtype;
		unsigned ndim;
		const char *text;
	} cases[] = {
		{MFS_U8, 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }"},
		{MFS_U16, 2, "{'descr': '<u2', 'fortran_order': False, 'shape': (3, 2), }"},
		{MFS_I64, 0, "{'descr': '<i8', 'fortran_order': False, 'shape': (), }"},
		{MFS_F32, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }"},
		{MFS_BOOL, 1, "{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }"},
	};
	const uint64_t shape[] = {3, 2};

	for (unsigned i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		uint8_t header[MFS_NPY_HEADER_MAX];
		const size_t len = mfs_npy_header(cases[i].dtype, shape, cases[i].ndim, header);

		ck_assert_uint_eq(len % 64, 0);
		ck_assert_uint_eq(header[8], len - 10);
		ck_assert_mem_eq(header + 10, cases[i].text, strlen(cases[i].text));
		ck_assert_int_eq(header[len - 1], '\n');
	}
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("dataset_random");

	unit_case(s, "words", words_are_numpys);
	unit_case(s, "intervals", intervals_are_numpys);
	unit_case(s, "small shuffles", small_shuffles);
	unit_case(s, "large shuffles", large_shuffles);
	unit_case(s, "splits", splits_are_rounded_as_megatron_rounds);
	unit_case(s, "splits refused", splits_refused);
	unit_case(s, "npy as numpy's", npy_as_numpy);
	unit_case(s, "npy types", npy_types);
	return s;
}
