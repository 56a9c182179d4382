#include "trainer/ckpt/cast.h"

#include "formats/base/bytes.h"
#include "formats/base/half.h"

#define STEP 1024 /* elements on the stack */

bool mfs_can_cast(enum mfs_dtype from)
{
	return from == MFS_F32 || from == MFS_BF16 || from == MFS_F16 || from == MFS_F64;
}

static void widen(float *to, enum mfs_dtype type, const void *from, uint64_t first, uint64_t count)
{
	const uint16_t *half = (const uint16_t *)from + first;

	switch (type) {
	case MFS_BF16:
		for (uint64_t i = 0; i < count; i++)
			to[i] = mfs_bf16_to_float(half[i]);
		break;
	case MFS_F16:
		for (uint64_t i = 0; i < count; i++)
			to[i] = mfs_f16_to_float(half[i]);
		break;
	case MFS_F64:
		for (uint64_t i = 0; i < count; i++)
			to[i] = (float)((const double *)from)[first + i];
		break;
	default:
		memcpy(to, (const float *)from + first, count * sizeof(*to));
	}
}

static void narrow(void *to, enum mfs_dtype type, const float *from, uint64_t first, uint64_t count)
{
	uint16_t *half = (uint16_t *)to + first;

	switch (type) {
	case MFS_BF16:
		for (uint64_t i = 0; i < count; i++)
			half[i] = mfs_float_to_bf16(from[i]);
		break;
	case MFS_F16:
		for (uint64_t i = 0; i < count; i++)
			half[i] = mfs_float_to_f16(from[i]);
		break;
	default:
		memcpy((float *)to + first, from, count * sizeof(*from));
	}
}

void mfs_cast(enum mfs_dtype to_type, void *to, enum mfs_dtype from_type, const void *from,
	      uint64_t count)
{
	float step[STEP];

	for (uint64_t i = 0; i < count; i += STEP) {
		const uint64_t n = mfs_min_u64(STEP, count - i);

		widen(step, from_type, from, i, n);
		narrow(to, to_type, step, i, n);
	}
}
