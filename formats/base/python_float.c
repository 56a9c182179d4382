#include "formats/base/python_float.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS 17 /* always enough for a double */

/* value = 0.d1d2d3... * 10^point; digits without trailing zeros. */
struct decimal {
	char digits[DIGITS + 1];
	int count, point;
};

static double decimal_value(const struct decimal *d)
{
	char text[DIGITS + 16];

	snprintf(text, sizeof(text), "0.%se%d", d->digits, d->point);
	return strtod(text, NULL);
}

/* The nearest to value with so many digits. */
static void round_to(double value, int count, struct decimal *ret)
{
	char text[DIGITS + 16];

	snprintf(text, sizeof(text), "%.*e", count - 1, value);
	ret->digits[0] = text[0];
	memcpy(ret->digits + 1, text + 2, (size_t)count - 1);
	ret->digits[count] = '\0';
	ret->count = count;
	ret->point = atoi(strchr(text, 'e') + 1) + 1;
}

/* The next larger one with as many digits. */
static void next_up(struct decimal *d)
{
	int i = d->count;

	while (i && d->digits[i - 1] == '9')
		d->digits[--i] = '0';
	if (i) {
		d->digits[i - 1]++;
		return;
	}
	d->digits[0] = '1';
	d->point++;
}

/*
 * The fewest digits that read back as value (above 0). At a power of two the doubles below lie
 * closer than those above: there the nearest decimal, if it is below, may read back as another
 * double while the next one up, though farther away, reads back as value.
 */
static void shortest(double value, struct decimal *ret)
{
	for (int count = 1; count <= DIGITS; count++) {
		round_to(value, count, ret);
		if (decimal_value(ret) == value)
			break;
		next_up(ret);
		if (decimal_value(ret) == value)
			break;
	}
	while (ret->count > 1 && ret->digits[ret->count - 1] == '0')
		ret->digits[--ret->count] = '\0';
}

/* float_repr_style "short": an exponent from 1e16 on and below 1e-4. */
static int format_decimal(const struct decimal *d, char *ret, size_t size)
{
	const int count = d->count, point = d->point;

	if (point > 16 || point <= -4)
		return snprintf(ret, size, "%c%s%se%c%02d", d->digits[0], count > 1 ? "." : "",
				d->digits + 1, point > 0 ? '+' : '-', abs(point - 1));
	if (point <= 0)
		return snprintf(ret, size, "0.%.*s%s", -point, "0000", d->digits);
	if (point >= count)
		return snprintf(ret, size, "%s%.*s.0", d->digits, point - count,
				"0000000000000000");
	return snprintf(ret, size, "%.*s.%s", point, d->digits, d->digits + point);
}

void mfs_python_repr(double value, char ret[MFS_PYTHON_REPR_SIZE])
{
	struct decimal d;
	const char *sign = signbit(value) ? "-" : "";

	if (isnan(value)) {
		strcpy(ret, "NaN");
		return;
	}
	if (isinf(value) || value == 0) {
		snprintf(ret, MFS_PYTHON_REPR_SIZE, "%s%s", sign, value == 0 ? "0.0" : "Infinity");
		return;
	}
	shortest(fabs(value), &d);
	strcpy(ret, sign);
	format_decimal(&d, ret + strlen(sign), MFS_PYTHON_REPR_SIZE - 1);
}
