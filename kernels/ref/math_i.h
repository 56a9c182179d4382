/*
 * Functions that loops can take as vectors: no branches, no calls, no errno. Each comment gives the
 * greatest errors, found by comparing with libm's doubles.
 */
#ifndef MFK_REF_MATH_I_H
#define MFK_REF_MATH_I_H

#include <math.h>
#include <string.h>

#include "kernels/ref/ref_i.h"

/* e^x: 2^n e^r, where n is the nearest whole number of x / ln 2. Error 2e-7 of the value. Below
 * 2^-126 it is 0, above 2^128 infinite. A NaN stays one. */
MFK_INLINE float mfk_exp(float x)
{
	const float round = 12582912.0f; /* 1.5 2^23: the sum's last bits are a whole number */
	float clamped = x > 89.0f ? 89.0f : x < -88.0f ? -88.0f : x;
	float shifted = clamped * 1.44269504f + round;
	float n = shifted - round;
	float r = clamped - n * 0.693145752f - n * 1.42860677e-6f;
	float p = 1.0f / 720;
	float half, value;
	uint32_t bits;

	p = p * r + 1.0f / 120;
	p = p * r + 1.0f / 24;
	p = p * r + 1.0f / 6;
	p = p * r + 0.5f;
	p = p * r * r + r + 1.0f;
	/* 2^(n-1) p 2, since 2^128 is no float. */
	memcpy(&bits, &shifted, 4);
	bits = (bits - 0x4b400000u + 126u) << 23;
	bits = n < -125.0f ? 0 : bits;
	memcpy(&half, &bits, 4);
	value = p * half * 2.0f;
	return x == x ? value : x;
}

/* 1 / (1 + e^-x), and what it lacks to 1, which is as exact. Error 3e-7 of the value. Below -80 it
 * is that of -80, 2e-35. */
MFK_INLINE float mfk_sigmoid(float x, float *rest)
{
	float e = mfk_exp(x < -80.0f ? 80.0f : -x);
	float s = 1.0f / (1.0f + e);

	*rest = e * s;
	return s;
}

#endif
