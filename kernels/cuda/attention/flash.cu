/* Flash attention as an operation of the backend: what the kernels take, and their scratch. */
#include "kernels/cuda/attention/flash.h"
#include "kernels/cuda/attention/flash_launch.cuh"

/* The kernels of a type of elements. */
struct kernels {
	enum mfk_dtype dtype;
	cudaError_t (*run)(const flash &f, bool back, cudaStream_t stream);
	cudaError_t (*run_dropout)(const flash &f, bool back, cudaStream_t stream);
	void (*dot)(const flash f);
};

/* NULL: there are none of this type. */
static const struct kernels *kernels_of(enum mfk_dtype dtype)
{
	static const struct kernels all[] = {
		{MFK_BF16, flash_run_bf16, flash_run_bf16_dropout, flash_dot<bf16>},
		{MFK_F16, flash_run_fp16, flash_run_fp16_dropout, flash_dot<fp16>},
	};

	for (const struct kernels &k : all)
		if (k.dtype == dtype)
			return &k;
	return NULL;
}

/* Bytes of shared memory of a size, of forward or of backward. */
static int shared_bytes(int size, bool backward)
{
	switch (size) {
	case 0:
		return flash_kernels<bf16, 32, 32, false>::shared_bytes(backward);
	case 1:
		return flash_kernels<bf16, 64, 64, false>::shared_bytes(backward);
	case 2:
		return flash_kernels<bf16, 128, 128, false>::shared_bytes(backward);
	default:
		return flash_kernels<bf16, 192, 128, false>::shared_bytes(backward);
	}
}

static bool aligned(const struct mfk_attention *a, bool backward)
{
	uintptr_t all = (uintptr_t)a->q | (uintptr_t)a->k | (uintptr_t)a->v | (uintptr_t)a->out;

	if (backward)
		all |= (uintptr_t)a->dout | (uintptr_t)a->dq | (uintptr_t)a->dk | (uintptr_t)a->dv |
		       (uintptr_t)a->scratch;
	return all % 16 == 0;
}

bool mfk_cuda_flash_can(const struct mfk_device *d, const struct mfk_attention *a, bool backward,
			bool pointers, const char **why)
{
	int size = flash_size_of(a->qk_dim, a->v_dim);

	if (!kernels_of(a->dtype))
		*why = mfk_dtype_row(a->dtype)->word;
	else if (mfk_is_part(a))
		*why = "parts of a sequence";
	else if (a->dropout >= 1)
		*why = "dropout of everything";
	else if (a->qk_dim % 8 || a->v_dim % 8)
		*why = "a head dimension that is no multiple of 8";
	else if (size < 0)
		*why = "a head dimension above 192 (q, k) or 128 (v)";
	else if (d->capability < 80)
		*why = "a GPU before sm_80";
	else if ((size_t)shared_bytes(size, backward) > d->shared_optin)
		*why = "a GPU with too little shared memory";
	else if (a->seq >= 1 << 24 || a->batch * a->heads * a->seq >= INT64_C(1) << 34)
		*why = "a sequence that is too long";
	else if (pointers && !aligned(a, backward))
		*why = "a pointer that is no multiple of 16";
	else
		return true;
	return false;
}

static int64_t padded(int64_t seq)
{
	return (seq + 127) / 128 * 128;
}

/* dot, lse_log2, and first_key's least and greatest of each 32 queries. */
size_t mfk_cuda_flash_scratch(const struct mfk_attention *a, bool backward)
{
	return backward ? (size_t)(2 * a->batch * (a->heads + 1) * padded(a->seq)) * 4 : 0;
}

/* As many heads at a time as have their keys and values in half of a small L2, 16 MiB; whole
 * groups. */
static int section_of(const struct mfk_attention *a)
{
	int64_t group = a->heads / a->kv_heads, bytes = a->seq * (a->qk_dim + a->v_dim) * 2;
	int64_t all = a->batch * a->heads, n = (16 << 20) / bytes * group;

	n = n < group ? group : n;
	return (int)(n < all ? n : all);
}

flash flash_of(const struct mfk_attention *a)
{
	flash f = {};

	f.q = a->q;
	f.k = a->k;
	f.v = a->v;
	f.out = a->out;
	f.to = a->out;
	f.lse = a->lse;
	f.dout = a->dout;
	f.dq = a->dq;
	f.dk = a->dk;
	f.dv = a->dv;
	f.first_key = a->first_key;
	f.batch = (int)a->batch;
	f.seq = (int)a->seq;
	f.heads = (int)a->heads;
	f.kv_heads = (int)a->kv_heads;
	f.qk_dim = (int)a->qk_dim;
	f.v_dim = (int)a->v_dim;
	f.causal = a->causal;
	f.scale = a->scale;
	f.scale_log2 = a->scale * 1.44269504088896341f;
	f.dropout = a->dropout;
	f.kept_scale = 1 / (1 - a->dropout);
	f.seed = a->seed;
	f.offset = a->offset;
	f.section = section_of(a);
	f.seq_padded = (int)padded(a->seq);
	return f;
}

flash flash_backward_of(const struct mfk_attention *a)
{
	flash f = flash_of(a);
	int64_t rows = (int64_t)f.batch * f.heads * f.seq_padded;

	f.lse_log2 = (float *)a->scratch;
	f.dot = f.lse_log2 + rows;
	f.step_least = (int32_t *)(f.dot + rows);
	f.step_greatest = f.step_least + (int64_t)f.batch * f.seq_padded;
	return f;
}

cudaError_t flash_run_dot(const flash &f, enum mfk_dtype dtype, cudaStream_t stream)
{
	int64_t blocks = (int64_t)f.batch * f.heads * f.seq_padded / DOT_ROWS;

	return flash_launch(kernels_of(dtype)->dot, blocks, 128, 0, f, stream);
}

static void run(struct mfk_ctx *c, const struct mfk_attention *a, const flash &f, bool backward)
{
	const char *what = backward ? "attention_backward" : "attention";

	if (!mfk_cuda_begin(c))
		return;

	const struct kernels *k = kernels_of(a->dtype);
	cudaError_t rc = backward ? flash_run_dot(f, a->dtype, c->stream) : cudaSuccess;

	if (!rc)
		rc = (a->dropout > 0 ? k->run_dropout : k->run)(f, backward, c->stream);

	if (mfk_cuda_check(c, rc, what))
		mfk_cuda_end(c, what);
}

void mfk_cuda_flash(struct mfk_ctx *c, const struct mfk_attention *a)
{
	run(c, a, flash_of(a), false);
}

void mfk_cuda_flash_backward(struct mfk_ctx *c, const struct mfk_attention *a)
{
	run(c, a, flash_backward_of(a), true);
}
