#include "trainer/loop/peak.h"

#include "formats/base/clock.h"

#define SMALLEST 512
#define LARGEST	 8192
#define LONG_NS	 1000000 /* a product that takes so long shows the peak */
#define RUNS	 8	 /* the first ones choose how to compute, and wake the device */

struct bench {
	const struct mfk_backend *backend;
	struct mfk_ctx *ctx;
	enum mfk_dtype type;
};

static int time_product(const struct bench *b, const struct mfk_gemm *product, uint64_t *ret_ns,
			struct mfs_error *err)
{
	char why[MFK_WHY] = "";
	const int64_t from = mfs_now_ns();
	int rc;

	b->backend->ops->gemm(b->ctx, product);
	rc = b->backend->device->sync(b->ctx, why);
	*ret_ns = (uint64_t)(mfs_now_ns() - from);
	return rc ? mfs_fail(err, rc, "%s: %s", b->backend->name, why) : 0;
}

/* The least time of a product of two squares in x, into the square that follows them. Zeros would
 * be multiplied faster than what a model has. */
static int best_time(const struct bench *b, int64_t n, unsigned char *x, uint64_t *ret_ns,
		     struct mfs_error *err)
{
	const size_t square = (size_t)(n * n) * mfk_dtype_size(b->type);
	const struct mfk_gemm product = {
		.m = n,
		.n = n,
		.k = n,
		.trans_b = true,
		.dtype_a = b->type,
		.dtype_b = b->type,
		.dtype_c = b->type,
		.a = x,
		.b = x + square,
		.c = x + 2 * square,
		.lda = n,
		.ldb = n,
		.ldc = n,
		.alpha = 1,
	};
	int rc = 0;

	b->backend->ops->fill_normal(b->ctx, b->type, x, 2 * n * n, 0, 1, 1, 0);
	*ret_ns = UINT64_MAX;
	for (int i = 0; i < RUNS && !rc; i++) {
		uint64_t ns;

		rc = time_product(b, &product, &ns, err);
		if (ns < *ret_ns)
			*ret_ns = ns;
	}
	return rc;
}

int mft_peak_measure(const struct mfk_backend *backend, struct mfk_device *device,
		     struct mfk_ctx *ctx, enum mfk_dtype type, struct mft_peak *ret,
		     struct mfs_error *err)
{
	const struct bench b = {backend, ctx, type};
	uint64_t ns = 0;
	int rc = 0;

	*ret = (struct mft_peak){0};
	for (int64_t n = SMALLEST; !rc && n <= LARGEST && ns < LONG_NS; n *= 2) {
		const double flops = 2.0 * (double)n * (double)n * (double)n;
		void *x =
			backend->device->alloc(device, (size_t)(3 * n * n) * mfk_dtype_size(type));

		if (!x)
			break;
		rc = best_time(&b, n, x, &ns, err);
		backend->device->free(device, x);
		if (!rc && flops / (double)ns * 1e9 > ret->flops)
			*ret = (struct mft_peak){flops / (double)ns * 1e9, n};
	}
	return rc;
}
