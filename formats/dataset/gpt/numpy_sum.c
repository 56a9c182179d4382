#include "formats/dataset/gpt/numpy_sum.h"

#define BLOCK 128

double mfs_numpy_sum(const double *v, size_t count)
{
	double r[8], sum;
	size_t i;

	if (count < 8) {
		sum = 0;
		for (i = 0; i < count; i++)
			sum += v[i];
		return sum;
	}
	if (count > BLOCK) {
		const size_t half = count / 2 / 8 * 8;

		sum = mfs_numpy_sum(v, half);
		return sum + mfs_numpy_sum(v + half, count - half);
	}
	for (i = 0; i < 8; i++)
		r[i] = v[i];
	for (; i + 8 <= count; i += 8)
		for (size_t k = 0; k < 8; k++)
			r[k] += v[i + k];
	sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
	for (; i < count; i++)
		sum += v[i];
	return sum;
}
