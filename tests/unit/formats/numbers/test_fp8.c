/* Loops of numbers/fp8.h against its single elements, bit for bit. */
#include "tests/unit/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/numbers/cast.h"
#include "formats/numbers/fp8.h"

#define COUNT 4099u

static const enum mfs_dtype types[] = {MFS_F32, MFS_BF16, MFS_F16};

/* Every value is the nearest to itself, and halfway between two it is the even one. */
START_TEST(every_value_rounds_to_the_nearest_even)
{
	for (unsigned v = 0; v < 0x7f; v++) {
		const float f = mfs_e4m3_to_float((uint8_t)v);
		const float next = v == 0x7e ? 480 : mfs_e4m3_to_float((uint8_t)(v + 1));
		const float middle = (f + next) / 2;

		ck_assert_uint_eq(mfs_float_to_e4m3(f), v);
		ck_assert_uint_eq(mfs_float_to_e4m3(-f), v | 0x80);
		ck_assert_uint_eq(mfs_float_to_e4m3(nextafterf(middle, 0)), v);
		ck_assert_uint_eq(mfs_float_to_e4m3(middle), v + (v & 1));
		ck_assert_uint_eq(mfs_float_to_e4m3(nextafterf(middle, 1000)), v + 1);
	}
	ck_assert(mfs_e4m3_to_float(1) == 0x1p-9f && mfs_e4m3_to_float(8) == 0x1p-6f);
	ck_assert(mfs_e4m3_to_float(0x7e) == 448 && isnan(mfs_e4m3_to_float(0xff)));
	ck_assert_uint_eq(mfs_float_to_e4m3(INFINITY), 0x7f);
	ck_assert_uint_eq(mfs_float_to_e4m3(-NAN), 0xff);
	ck_assert(mfs_fp8_scale(0) == 1 && mfs_fp8_scale(1) == 1);
	ck_assert(mfs_fp8_scale(mfs_float_to_bits(448)) == 1);
}
END_TEST

static float value(enum mfs_dtype type, const uint8_t *p)
{
	float f;

	mfs_cast(MFS_F32, &f, type, p, 1);
	return f;
}

/* Scales: ordinary ones, and what overflows, vanishes or is no number. */
static float *make_scales(void)
{
	static const float odd[] = {1, 0x1p-149f, 1e38f, INFINITY, NAN, 0.0123f, 3e-5f};
	float *scales = malloc(COUNT * sizeof(*scales));

	for (uint32_t i = 0; i < COUNT; i++)
		scales[i] = i % 3 ? (float)rand() / (float)RAND_MAX * 0.01f : odd[i / 3 % 7];
	return scales;
}

static bool same_bits(enum mfs_dtype type, const uint8_t *a, const uint8_t *b)
{
	return !memcmp(a, b, mfs_dtype_size(type)) ||
	       (isnan(value(type, a)) && isnan(value(type, b)));
}

static void check_dequantised(const struct mfs_fp8_run *run, enum mfs_dtype type,
			      const uint8_t *from, const float *scales)
{
	void (*const all[])(const struct mfs_fp8_run *, enum mfs_dtype, void *, const uint8_t *,
			    const float *) = {mfs_fp8_dequantise, mfs_fp8_dequantise_portable};
	const unsigned size = mfs_dtype_size(type);
	uint8_t *to = malloc(run->count * size + 2), one[4];

	for (int k = 0; k < 2; k++) {
		to[0] = to[run->count * size + 1] = 0x5a;
		all[k](run, type, to + 1, from, scales);
		for (uint64_t i = 0; i < run->count; i++) {
			const float f =
				mfs_e4m3_to_float(from[i]) * scales[(run->first + i) / run->block];

			mfs_cast_portable(type, one, MFS_F32, &f, 1);
			ck_assert_msg(same_bits(type, to + 1 + i * size, one), "%s: %02x * %g",
				      mfs_dtype_name(type), from[i],
				      scales[(run->first + i) / run->block]);
		}
		ck_assert(to[0] == 0x5a && to[run->count * size + 1] == 0x5a);
	}
	free(to);
}

static void check_quantised(const struct mfs_fp8_run *run, enum mfs_dtype type, const uint8_t *from,
			    const float *scales)
{
	void (*const all[])(const struct mfs_fp8_run *, uint8_t *, enum mfs_dtype, const void *,
			    const float *) = {mfs_fp8_quantise, mfs_fp8_quantise_portable};
	const unsigned size = mfs_dtype_size(type);
	uint8_t *to = malloc(run->count + 1);

	for (int k = 0; k < 2; k++) {
		to[run->count] = 0x5a;
		all[k](run, to, type, from, scales);
		for (uint64_t i = 0; i < run->count; i++) {
			const uint64_t b = (run->first + i) / run->block;
			const float f = value(type, from + i * size);

			ck_assert_msg(
				to[i] == mfs_float_to_e4m3(f / scales[b]) || isnan(f / scales[b]),
				"%s: %g / %g is %02x", mfs_dtype_name(type), f, scales[b], to[i]);
			ck_assert(!isnan(f / scales[b]) || (to[i] & 0x7f) == 0x7f);
		}
		ck_assert(to[run->count] == 0x5a);
	}
	free(to);
}

/* Two rows, of which the second has a NaN. */
static void check_largest(enum mfs_dtype type, const uint8_t *from, uint64_t count)
{
	void (*const all[])(enum mfs_dtype, void *, const void *,
			    uint64_t) = {mfs_fp8_raise, mfs_fp8_raise_portable};
	const unsigned size = mfs_dtype_size(type);

	for (int k = 0; k < 2; k++) {
		uint8_t *most = calloc(count + 1, size);
		float want = 0;
		bool nan = false;

		for (uint64_t row = 0; row < 2; row++)
			all[k](type, most, from + row * count * size, count);
		for (uint64_t i = 0; i < 2 * count; i++) {
			const float f = fabsf(value(type, from + i * size));

			nan |= isnan(f);
			want = f > want ? f : want;
		}
		if (nan)
			ck_assert(isnan(mfs_bits_to_float(mfs_fp8_largest(type, most, count))));
		else
			ck_assert_uint_eq(mfs_fp8_largest(type, most, count),
					  mfs_float_to_bits(want));
		ck_assert_uint_eq(most[count * size], 0);
		free(most);
	}
}

START_TEST(runs_are_scaled_block_by_block)
{
	static const uint64_t blocks[] = {1, 7, 128, 1000000};
	uint8_t *bytes = malloc(COUNT * 4 + 1);
	float *scales;

	srand(8);
	scales = make_scales();
	for (uint32_t i = 0; i < COUNT * 4 + 1; i++)
		bytes[i] = (uint8_t)(rand() >> 5);
	for (unsigned b = 0; b < 4; b++)
		for (unsigned t = 0; t < 3; t++)
			for (unsigned n = 0; n < 40; n++) {
				const struct mfs_fp8_run run = {
					.first = n % blocks[b],
					.block = blocks[b],
					.count = n < 38 ? n * (blocks[b] == 128 ? 17 : 1)
							: COUNT - 128,
				};

				check_dequantised(&run, types[t], bytes + 1, scales);
				check_quantised(&run, types[t], bytes + 1, scales);
				check_largest(types[t], bytes + 1 + n, run.count / 2);
			}
	free(bytes);
	free(scales);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("fp8");
	TCase *c = unit_case(s, "float8_e4m3fn", every_value_rounds_to_the_nearest_even);

	tcase_add_test(c, runs_are_scaled_block_by_block);
	return s;
}
