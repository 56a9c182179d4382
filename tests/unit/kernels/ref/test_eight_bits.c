/* Elements of 8 bits as their formats define them: every code, every bf16 number, and what lies
 * around the middles; scales; and which products are refused. */
#include "tests/unit/unit.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/eight_bits.h"
#include "kernels/ref/cpu.h"

struct format {
	const char *name;
	int bias, bits, most; /* bits: of the mantissa; most: the code of the largest */
	float (*from)(uint8_t v);
	uint8_t (*to)(float x);
	enum mfk_dtype type;
};

static float from_e4m3(uint8_t v)
{
	return mfk_from_e4m3(v);
}

static uint8_t to_e4m3(float x)
{
	return mfk_to_e4m3(x);
}

static float from_e5m2(uint8_t v)
{
	return mfk_from_e5m2(v);
}

static uint8_t to_e5m2(float x)
{
	return mfk_to_e5m2(x);
}

static const struct format formats[2] = {
	{"e4m3", 7, 3, 0x7e, from_e4m3, to_e4m3, MFK_E4M3},
	{"e5m2", 15, 2, 0x7b, from_e5m2, to_e5m2, MFK_E5M2},
};

/* Of a finite code, by arithmetic. */
static double value_of(const struct format *f, int code)
{
	const int e = code >> f->bits, m = code & ((1 << f->bits) - 1);

	return e ? ldexp((1 << f->bits) + m, e - f->bias - f->bits)
		 : ldexp(m, 1 - f->bias - f->bits);
}

/* The nearest code of a magnitude, the even one of two, the largest of what is beyond. */
static int nearest(const struct format *f, double x)
{
	int low = 0, high = f->most;

	if (x >= value_of(f, high))
		return high;
	while (high - low > 1) {
		const int middle = (low + high) / 2;

		if (value_of(f, middle) <= x)
			low = middle;
		else
			high = middle;
	}
	if (x - value_of(f, low) == value_of(f, high) - x)
		return low % 2 ? high : low;
	return x - value_of(f, low) < value_of(f, high) - x ? low : high;
}

static void check_number(const struct format *f, float x)
{
	const int sign = signbit(x) ? 0x80 : 0;
	const int want = isnan(x) ? 0x7f : sign | nearest(f, fabs((double)x));

	ck_assert_msg(f->to(x) == want, "%s of %.9g is %02x instead of %02x", f->name, (double)x,
		      f->to(x), want);
}

START_TEST(every_code_is_worth_what_its_format_says)
{
	for (int i = 0; i < 2; i++)
		for (int v = 0; v < 256; v++) {
			const struct format *f = &formats[i];
			const float x = f->from((uint8_t)v);
			const int code = v & 0x7f;
			const bool infinite = f->type == MFK_E5M2 && code == 0x7c;

			if (code <= f->most)
				ck_assert(fabs((double)x) == value_of(f, code));
			else
				ck_assert(infinite ? isinf(x) : isnan(x));
			ck_assert(!signbit(x) == !(v & 0x80));
			if (code <= f->most)
				ck_assert_uint_eq(f->to(x), v);
		}
	ck_assert(mfk_from_e4m3(0x7e) == mfk_scaled_most(MFK_E4M3));
	ck_assert(mfk_from_e5m2(0x7b) == mfk_scaled_most(MFK_E5M2));
}
END_TEST

START_TEST(every_bf16_number_becomes_the_nearest_code)
{
	for (int i = 0; i < 2; i++)
		for (uint32_t u = 0; u < 65536; u++)
			check_number(&formats[i], mfk_bits_float(u << 16));
}
END_TEST

START_TEST(ties_go_to_even_codes_and_what_is_too_large_to_the_largest)
{
	for (int i = 0; i < 2; i++) {
		const struct format *f = &formats[i];

		for (int code = 0; code < f->most; code++) {
			const float x = (float)value_of(f, code);
			const float middle =
				(float)((value_of(f, code) + value_of(f, code + 1)) / 2);
			const float around[] = {x, middle};

			for (int k = 0; k < 2; k++) {
				check_number(f, around[k]);
				check_number(f, -around[k]);
				check_number(f, nextafterf(around[k], 0));
				check_number(f, -nextafterf(around[k], INFINITY));
			}
		}
		ck_assert_uint_eq(f->to(nextafterf((float)value_of(f, f->most), INFINITY)),
				  f->most);
		ck_assert_uint_eq(f->to(FLT_MAX), f->most);
		ck_assert_uint_eq(f->to(-INFINITY), f->most | 0x80);
		ck_assert_uint_eq(f->to(-NAN), 0x7f);
	}
}
END_TEST

START_TEST(scales_are_quotients_and_1_where_there_is_none)
{
	const float one[] = {0, INFINITY, NAN};
	const struct mfk_scale s = mfk_scale_of(MFK_E4M3, 3);

	for (int i = 0; i < 3; i++) {
		const struct mfk_scale t = mfk_scale_of(MFK_E5M2, one[i]);

		ck_assert(t.scale == 1 && t.inverse == 1);
	}
	ck_assert(s.amax == 3 && s.scale == 448.f / 3 && s.inverse == 1 / (448.f / 3));
	ck_assert(mfk_scale_of(MFK_E4M3, 448).scale == 1);
	ck_assert(mfk_scale_of(MFK_E4M3, nextafterf(448, 0)).scale == 0x1.000002p0f);
	ck_assert(mfk_scale_of(MFK_E5M2, FLT_MAX).scale == 57344 / FLT_MAX);
	/* The quotient is infinite: the scale is the largest, and its inverse is subnormal. */
	ck_assert(mfk_scale_of(MFK_E4M3, 0x1p-149f).scale == FLT_MAX);
	ck_assert(mfk_scale_of(MFK_E4M3, 0x1p-149f).inverse == 1 / FLT_MAX);
	ck_assert(mfk_scale_of(MFK_E4M3, 1e-37f).scale == FLT_MAX);
}
END_TEST

START_TEST(columns_of_groups_begin_at_steps_and_do_not_meet)
{
	for (int64_t rows = 0; rows < 40; rows++)
		for (int64_t first = 0; first < 40; first++) {
			const int64_t at = mfk_group_column(first, 3);

			ck_assert_int_eq(at % MFK_SCALED_STEP, 0);
			ck_assert_int_le(at + mfk_scaled_round(rows),
					 mfk_group_column(first + rows, 4));
		}
}
END_TEST

static struct mfk_gemm legal(void)
{
	static const struct mfk_scale scale = {.inverse = 1};

	return (struct mfk_gemm){.m = 3,
				 .n = 16,
				 .k = 32,
				 .trans_b = true,
				 .dtype_a = MFK_E5M2,
				 .dtype_b = MFK_E4M3,
				 .dtype_c = MFK_BF16,
				 .lda = 32,
				 .ldb = 48,
				 .ldc = 16,
				 .alpha = 1,
				 .scaling = MFK_SCALING_TENSOR,
				 .scale_a = &scale,
				 .scale_b = &scale};
}

START_TEST(products_that_a_gpu_does_not_have_are_refused)
{
	struct mfk_gemm g = legal();

	ck_assert(!mfk_gemm_refusal(&g));
	g.trans_b = false;
	ck_assert_str_eq(mfk_gemm_refusal(&g), "rows of an operand of 8 bits are not along k");
	g = legal();
	g.trans_a = true;
	ck_assert(mfk_gemm_refusal(&g));
	g = legal();
	g.dtype_b = MFK_E5M2;
	ck_assert_str_eq(mfk_gemm_refusal(&g), "both operands are e5m2");
	g = legal();
	g.dtype_b = MFK_BF16;
	ck_assert(mfk_gemm_refusal(&g));
	g = legal();
	g.k = 24;
	ck_assert(mfk_gemm_refusal(&g));
	g = legal();
	g.a = (const char *)NULL + 8;
	ck_assert(mfk_gemm_refusal(&g));
	g = legal();
	g.scaling = MFK_SCALING_NONE;
	ck_assert(mfk_gemm_refusal(&g));
	g = legal();
	g.dtype_a = g.dtype_b = MFK_BF16;
	ck_assert(mfk_gemm_refusal(&g));
	g.scaling = MFK_SCALING_NONE;
	g.k = 5;
	ck_assert(!mfk_gemm_refusal(&g));
}
END_TEST

/* The reference refuses what a GPU would, so that no test on a CPU passes without one. */
START_TEST(a_refused_product_makes_its_context_fail)
{
	struct mfk_device *device;
	struct mfk_ctx *ctx;
	struct mfk_gemm g = legal();
	char why[MFK_WHY];

	ck_assert_int_eq(mfk_cpu.device->open(0, 1, &device, why), 0);
	ck_assert_int_eq(mfk_cpu.device->ctx_new(device, false, &ctx, why), 0);
	g.trans_b = false;
	mfk_cpu.ops->gemm(ctx, &g);
	ck_assert_int_ne(mfk_cpu.device->sync(ctx, why), 0);
	ck_assert_str_eq(why, "a product of [3, 32] and [32, 16]: rows of an operand of 8 bits are "
			      "not along k");
	mfk_cpu.device->ctx_free(ctx);
	mfk_cpu.device->close(device);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("eight_bits");

	unit_case(s, "codes", every_code_is_worth_what_its_format_says);
	unit_case(s, "numbers", every_bf16_number_becomes_the_nearest_code);
	unit_case(s, "ties", ties_go_to_even_codes_and_what_is_too_large_to_the_largest);
	unit_case(s, "scales", scales_are_quotients_and_1_where_there_is_none);
	unit_case(s, "columns", columns_of_groups_begin_at_steps_and_do_not_meet);
	unit_case(s, "refusals", products_that_a_gpu_does_not_have_are_refused);
	unit_case(s, "failure", a_refused_product_makes_its_context_fail);
	return s;
}
