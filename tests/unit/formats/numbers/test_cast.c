/* Casts of numbers/cast.h against the single elements of numbers/half.h, bit for bit. */
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/numbers/cast.h"
#include "formats/numbers/half.h"

#define HALVES 65536u
#define FLOATS (1u << 20)

static const enum mfs_dtype types[] = {MFS_F32, MFS_BF16, MFS_F16};

#define TYPES (int)(MFS_ARRAY_SIZE(types))

static uint32_t get(enum mfs_dtype type, const uint8_t *p)
{
	uint32_t v = 0;

	memcpy(&v, p, mfs_dtype_size(type));
	return v;
}

static uint32_t one(enum mfs_dtype to, enum mfs_dtype from, uint32_t v)
{
	const float f = from == MFS_BF16  ? mfs_bf16_to_float((uint16_t)v)
			: from == MFS_F16 ? mfs_f16_to_float((uint16_t)v)
					  : mfs_bits_to_float(v);

	return to == MFS_BF16  ? mfs_float_to_bf16(f)
	       : to == MFS_F16 ? mfs_float_to_f16(f)
			       : mfs_float_to_bits(f);
}

/* Casts count elements at any address, with all loops, and compares each; nothing beyond them may
 * change. */
static void compare(enum mfs_dtype to, enum mfs_dtype from, const uint8_t *src, uint32_t count)
{
	void (*const casts[])(enum mfs_dtype, void *, enum mfs_dtype, const void *,
			      uint64_t) = {mfs_cast, mfs_cast_portable};
	const unsigned size = mfs_dtype_size(to), step = mfs_dtype_size(from);
	uint8_t *room = malloc(count * size + 2), *in = malloc(count * step + 1);

	memcpy(in + 1, src, count * step);
	for (int k = 0; k < 2; k++) {
		room[0] = room[1 + count * size] = 0x5a;
		casts[k](to, room + 1, from, in + 1, count);
		for (uint32_t i = 0; i < count; i++) {
			const uint32_t v = get(from, in + 1 + i * step);

			ck_assert_msg(get(to, room + 1 + i * size) == one(to, from, v),
				      "%s to %s: %08x is %08x, expected %08x", mfs_dtype_name(from),
				      mfs_dtype_name(to), v, get(to, room + 1 + i * size),
				      one(to, from, v));
		}
		ck_assert(room[0] == 0x5a && room[1 + count * size] == 0x5a);
	}
	free(room);
	free(in);
}

/* Every value of both 16-bit types, and numbers of elements that do not fill vectors. */
START_TEST(all_halves)
{
	uint16_t *all = malloc(HALVES * sizeof(*all));

	for (uint32_t v = 0; v < HALVES; v++)
		all[v] = (uint16_t)v;
	for (int from = 1; from < TYPES; from++)
		for (int to = 0; to < TYPES; to++)
			if (to != from) {
				compare(types[to], types[from], (uint8_t *)all, HALVES);
				for (uint32_t n = 0; n < 40; n++)
					compare(types[to], types[from], (uint8_t *)(all + 0x7b80),
						n);
			}
	free(all);
}
END_TEST

/* Random bits, and each place where a rounding changes: 16-bit values, the ties after them, and
 * what is next to these. */
START_TEST(many_floats)
{
	uint32_t *v = malloc(FLOATS * sizeof(*v)), n = 0;

	srand(3);
	for (uint32_t h = 0; h < HALVES; h += 3) {
		const uint32_t ties[] = {h << 16, h << 16 | 0x8000,
					 mfs_float_to_bits(mfs_f16_to_float((uint16_t)h)) + 0x1000};

		for (int i = 0; i < 3; i++)
			for (uint32_t k = 0; k < 3; k++)
				v[n++] = ties[i] + k - 1;
	}
	while (n < FLOATS)
		v[n++] = (uint32_t)rand() << 16 ^ (uint32_t)rand();
	compare(MFS_BF16, MFS_F32, (uint8_t *)v, FLOATS);
	compare(MFS_F16, MFS_F32, (uint8_t *)v, FLOATS);
	free(v);
}
END_TEST

/* float64 goes through float32; equal types are copied; others are reported to be impossible. */
START_TEST(other_types)
{
	const double doubles[] = {1.0, 65520.0, -1e300, 1.00390625000001};
	float floats[4];
	uint16_t halves[4];

	mfs_cast(MFS_F16, halves, MFS_F64, doubles, 4);
	ck_assert_uint_eq(halves[0], 0x3c00);
	ck_assert_uint_eq(halves[1], 0x7c00);
	ck_assert_uint_eq(halves[2], 0xfc00);
	mfs_cast(MFS_F32, floats, MFS_F64, doubles, 4);
	ck_assert(floats[1] == 65520 && floats[3] == 1.00390625f);
	mfs_cast(MFS_F16, halves + 2, MFS_F16, halves, 2);
	ck_assert_uint_eq(halves[3], 0x7c00);
	ck_assert(mfs_cast_is_possible(MFS_F64, MFS_BF16));
	ck_assert(!mfs_cast_is_possible(MFS_BF16, MFS_F64));
	ck_assert(!mfs_cast_is_possible(MFS_I32, MFS_F32));
	ck_assert(!mfs_cast_is_possible(MFS_F32, MFS_F8_E4M3));
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("cast");
	TCase *c = unit_case(s, "Casts", all_halves);

	tcase_add_test(c, many_floats);
	tcase_add_test(c, other_types);
	return s;
}
