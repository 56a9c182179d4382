/* The gradient of attention on sm_90 as an operation of the backend: what the kernels take. */
#include "kernels/cuda/attention/hopper.h"

#include <errno.h>

#include "kernels/cuda/attention/flash.h"
#include "kernels/cuda/attention/hopper_launch.cuh"
#include "kernels/cuda/base/hopper_map.h"

#ifdef MFK_SM90A

bool mfk_cuda_hopper_can(const struct mfk_device *d, const struct mfk_attention *a, bool pointers,
			 const char **why)
{
	if (d->capability != 90)
		*why = "a GPU that is not sm_90";
	else if (a->qk_dim != a->v_dim || (a->v_dim != 64 && a->v_dim != 128))
		*why = "head dimensions other than 64 and 128";
	else if (a->first_key)
		*why = "a first key";
	else if (a->dropout > 0)
		*why = "dropout";
	else
		return mfk_cuda_flash_can(d, a, true, pointers, why);
	return false;
}

size_t mfk_cuda_hopper_scratch(const struct mfk_attention *a)
{
	return mfk_cuda_flash_scratch(a, true);
}

static bool map(struct mfk_ctx *c, const struct mfk_attention *a, const void *p, int64_t heads,
		CUtensorMap *ret)
{
	const int64_t cols = heads * a->qk_dim;
	const struct mfk_cuda_matrix m = {a->dtype, p,	  cols,		 a->seq,
					  a->batch, cols, a->seq * cols, BOX_ROWS};

	return mfk_cuda_map(c, &m, ret);
}

typedef cudaError_t hopper_runner(const flash &f, const hopper_maps &m, cudaStream_t stream);

/* For a type that flash attention has kernels of. */
static hopper_runner *runner_of(enum mfk_dtype dtype)
{
	static const struct {
		enum mfk_dtype dtype;
		hopper_runner *run;
	} all[] = {{MFK_BF16, hopper_run_bf16}, {MFK_F16, hopper_run_fp16}};
	int i = 0;

	while (all[i].dtype != dtype)
		i++;
	return all[i].run;
}

void mfk_cuda_hopper_backward(struct mfk_ctx *c, const struct mfk_attention *a)
{
	const char *what = "attention_backward";
	flash f = flash_backward_of(a);
	hopper_maps m;

	if (!mfk_cuda_begin(c) || !map(c, a, a->q, a->heads, &m.q) ||
	    !map(c, a, a->k, a->kv_heads, &m.k) || !map(c, a, a->v, a->kv_heads, &m.v) ||
	    !map(c, a, a->dout, a->heads, &m.dout) ||
	    !mfk_cuda_check(c, flash_run_dot(f, a->dtype, c->stream), what) ||
	    !mfk_cuda_check(c, runner_of(a->dtype)(f, m, c->stream), what))
		return;
	mfk_cuda_end(c, what);
}

#else

bool mfk_cuda_hopper_can(const struct mfk_device *d, const struct mfk_attention *a, bool pointers,
			 const char **why)
{
	(void)d, (void)a, (void)pointers;
	*why = "anything: this program was built without sm_90a";
	return false;
}

size_t mfk_cuda_hopper_scratch(const struct mfk_attention *a)
{
	(void)a;
	return 0;
}

void mfk_cuda_hopper_backward(struct mfk_ctx *c, const struct mfk_attention *a)
{
	(void)a;
	mfk_cuda_fail(c, -ENOSYS, "attention: this program was built without sm_90a");
}

#endif
