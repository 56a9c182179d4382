/*
 * Attention by cuDNN's backend graph API: a graph of products, pointwise operations and reductions
 * that cuDNN recognises and compiles into one kernel. What the graphs must look like is known from
 * NVIDIA's cudnn-frontend (node/scaled_dot_product_flash_attention.h, node/softmax.h); single
 * operations for attention exist only from 9.21 on with a causal mask.
 *
 * The library is opened when it is first needed, so that the backend loads where there is none.
 */
#include "kernels/cuda/attention/cudnn.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#if __has_include(<cudnn.h>)

#include <dlfcn.h>
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include <cudnn.h>

#include "kernels/cuda/attention/graph.h"

/* ---- the library ---- */

static struct cudnn_api api;
static char api_why[MFK_WHY]; /* why there is none */

static void api_open(void)
{
	static const struct {
		const char *name;
		void *at;
	} symbols[] = {
#define SYMBOL(name) {"cudnn" #name, &api.name}
		SYMBOL(GetVersion),
		SYMBOL(GetErrorString),
		SYMBOL(GetLastErrorString),
		SYMBOL(Create),
		SYMBOL(SetStream),
		SYMBOL(BackendCreateDescriptor),
		SYMBOL(BackendDestroyDescriptor),
		SYMBOL(BackendSetAttribute),
		SYMBOL(BackendGetAttribute),
		SYMBOL(BackendFinalize),
		SYMBOL(BackendExecute),
#undef SYMBOL
	};
	void *library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		snprintf(api_why, MFK_WHY, "%s", dlerror());
		return;
	}
	for (size_t i = 0; i < sizeof(symbols) / sizeof(*symbols); i++) {
		void *p = dlsym(library, symbols[i].name);

		if (!p) {
			snprintf(api_why, MFK_WHY, "libcudnn.so.9 has no %s", symbols[i].name);
			dlclose(library);
			return;
		}
		memcpy(symbols[i].at, &p, sizeof(p));
	}
	api.version = api.GetVersion();
	if (api.version < 90000 || api.version == 91000 || api.version == 91001) {
		snprintf(api_why, MFK_WHY, "cuDNN %zu is not usable: its attention has known bugs",
			 api.version);
		api.version = 0;
	}
}

static bool api_is_there(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, api_open);
	return api.version > 0;
}

size_t mfk_cudnn_version(void)
{
	return api_is_there() ? api.version : 0;
}

/* ---- the graphs ---- */

/* Numbers of the tensors that have memory. The last ones are by value, or in scratch. */
enum {
	Q = 1,
	K,
	V,
	OUT,
	STATS,
	DOUT,
	DQ,
	DK,
	DV,
	SCALE,
	MASKED,
	ONE,
	ROW_SUMS,
	DQ_SUM,
	FIRST_VIRTUAL,
};

/*
 * What one run of a graph does: some sequences and some groups of heads of the whole. Backward
 * without atomics keeps the scores in scratch, 2 bytes each, so it is done part by part.
 */
struct part {
	const struct mfk_attention *a; /* the whole */
	int64_t batch, heads, kv_heads;
};

/* A [batch, seq, heads, dim] tensor as [batch, heads, seq, dim], and transposed in its last two. */
static cudnnBackendDescriptor_t rows(struct graph *g, int64_t id, const struct part *p, bool keys,
				     int64_t dim)
{
	int64_t heads = keys ? p->a->kv_heads : p->a->heads;
	int64_t dims[] = {p->batch, keys ? p->kv_heads : p->heads, p->a->seq, dim};
	int64_t strides[] = {p->a->seq * heads * dim, dim, heads * dim, 1};

	return graph_tensor(g, id, g->io, dims, strides);
}

static cudnnBackendDescriptor_t columns(struct graph *g, int64_t id, const struct part *p,
					int64_t dim)
{
	int64_t dims[] = {p->batch, p->kv_heads, dim, p->a->seq};
	int64_t strides[] = {p->a->seq * p->a->kv_heads * dim, dim, 1, p->a->kv_heads * dim};

	return graph_tensor(g, id, g->io, dims, strides);
}

/* One number for each row of scores; heads: of the tensor in memory. */
static cudnnBackendDescriptor_t per_row(struct graph *g, int64_t id, const struct part *p,
					int64_t heads)
{
	int64_t dims[] = {p->batch, p->heads, p->a->seq, 1};
	int64_t strides[] = {heads * p->a->seq, p->a->seq, 1, 1};

	return graph_tensor(g, id, CUDNN_DATA_FLOAT, dims, strides);
}

static cudnnBackendDescriptor_t scores(struct graph *g, const struct part *p, cudnnDataType_t type)
{
	int64_t dims[] = {p->batch, p->heads, p->a->seq, p->a->seq};
	int64_t strides[] = {p->heads * p->a->seq * p->a->seq, p->a->seq * p->a->seq, p->a->seq, 1};

	return graph_tensor(g, graph_virtual(g), type, dims, strides);
}

static cudnnBackendDescriptor_t scores_transposed(struct graph *g, const struct part *p)
{
	int64_t dims[] = {p->batch, p->heads, p->a->seq, p->a->seq};
	int64_t strides[] = {p->heads * p->a->seq * p->a->seq, p->a->seq * p->a->seq, 1, p->a->seq};

	return graph_tensor(g, graph_virtual(g), g->io, dims, strides);
}

/* What a pointwise operation makes of scores is scores. */
static cudnnBackendDescriptor_t pointwise(struct graph *g, const struct part *p,
					  cudnnPointwiseMode_t mode, cudnnBackendDescriptor_t x,
					  cudnnBackendDescriptor_t b)
{
	cudnnBackendDescriptor_t y = scores(g, p, CUDNN_DATA_FLOAT);

	graph_pointwise(g, mode, CUDNN_DATA_FLOAT, -1, x, b, NULL, y);
	return y;
}

/* Keys after the query get a score of -infinity (the least float, before 9.10). */
static cudnnBackendDescriptor_t causal(struct graph *g, const struct part *p,
				       cudnnBackendDescriptor_t s)
{
	cudnnBackendDescriptor_t masked = graph_scalar(g, MASKED);
	cudnnBackendDescriptor_t row = scores(g, p, CUDNN_DATA_INT32);
	cudnnBackendDescriptor_t column = scores(g, p, CUDNN_DATA_INT32);
	cudnnBackendDescriptor_t seen = scores(g, p, CUDNN_DATA_BOOLEAN);
	cudnnBackendDescriptor_t y = scores(g, p, CUDNN_DATA_FLOAT);

	graph_pointwise(g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 2, s, NULL, NULL, row);
	graph_pointwise(g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 3, s, NULL, NULL, column);
	graph_pointwise(g, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, -1, row, column, NULL, seen);
	graph_pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1, s, masked, seen, y);
	return y;
}

/* scale q k^T */
static cudnnBackendDescriptor_t scaled_scores(struct graph *g, const struct part *p,
					      cudnnBackendDescriptor_t q,
					      cudnnBackendDescriptor_t k,
					      cudnnBackendDescriptor_t scale)
{
	cudnnBackendDescriptor_t s = scores(g, p, CUDNN_DATA_FLOAT);

	graph_matmul(g, q, k, s);
	return pointwise(g, p, CUDNN_POINTWISE_MUL, s, scale);
}

static void forward_graph(struct graph *g, const struct part *p)
{
	cudnnBackendDescriptor_t q = rows(g, Q, p, false, p->a->qk_dim);
	cudnnBackendDescriptor_t k = columns(g, K, p, p->a->qk_dim);
	cudnnBackendDescriptor_t v = rows(g, V, p, true, p->a->v_dim);
	cudnnBackendDescriptor_t out = rows(g, OUT, p, false, p->a->v_dim);
	cudnnBackendDescriptor_t stats = per_row(g, STATS, p, p->a->heads);
	cudnnBackendDescriptor_t s = scaled_scores(g, p, q, k, graph_scalar(g, SCALE));

	if (p->a->causal)
		s = causal(g, p, s);

	cudnnBackendDescriptor_t top = per_row(g, graph_virtual(g), p, p->heads);
	cudnnBackendDescriptor_t sum = per_row(g, graph_virtual(g), p, p->heads);
	cudnnBackendDescriptor_t log = per_row(g, graph_virtual(g), p, p->heads);
	cudnnBackendDescriptor_t weights = scores(g, p, g->io);

	graph_reduce(g, CUDNN_REDUCE_TENSOR_MAX, s, top);
	s = pointwise(g, p, CUDNN_POINTWISE_SUB, s, top);
	s = pointwise(g, p, CUDNN_POINTWISE_EXP, s, NULL);
	graph_reduce(g, CUDNN_REDUCE_TENSOR_ADD, s, sum);
	graph_pointwise(g, CUDNN_POINTWISE_LOG, CUDNN_DATA_FLOAT, -1, sum, NULL, NULL, log);
	graph_pointwise(g, CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, -1, top, log, NULL, stats);
	graph_pointwise(g, CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT, -1, s, sum, NULL, weights);
	graph_matmul(g, weights, v, out);
}

/* to [kv_heads] = x^T y, x of scores: of each query head, then summed over those of a group. */
static void weight_gradient(struct graph *g, const struct part *p, cudnnBackendDescriptor_t x,
			    cudnnBackendDescriptor_t y, int64_t dim, cudnnBackendDescriptor_t to)
{
	cudnnBackendDescriptor_t t = scores_transposed(g, p);

	graph_reshape(g, x, t);
	if (p->heads == p->kv_heads) {
		graph_matmul(g, t, y, to);
		return;
	}

	int64_t dims[] = {p->batch, p->heads, p->a->seq, dim};
	int64_t strides[] = {p->heads * p->a->seq * dim, p->a->seq * dim, dim, 1};
	cudnnBackendDescriptor_t heads = graph_tensor(g, graph_virtual(g), g->io, dims, strides);

	graph_matmul(g, t, y, heads);
	graph_reduce(g, CUDNN_REDUCE_TENSOR_ADD, heads, to);
}

/* The sums of dout * out of each row. */
static cudnnBackendDescriptor_t row_sums(struct graph *g, const struct part *p,
					 cudnnBackendDescriptor_t dout)
{
	int64_t dims[] = {p->batch, p->heads, p->a->seq, p->a->v_dim};
	int64_t strides[] = {p->heads * p->a->seq * p->a->v_dim, p->a->seq * p->a->v_dim,
			     p->heads * p->a->v_dim, 1};
	cudnnBackendDescriptor_t out = rows(g, OUT, p, false, p->a->v_dim);
	cudnnBackendDescriptor_t product =
		graph_tensor(g, graph_virtual(g), CUDNN_DATA_FLOAT, dims, strides);
	cudnnBackendDescriptor_t sum = per_row(g, graph_virtual(g), p, p->heads);
	cudnnBackendDescriptor_t one = graph_scalar(g, ONE);
	cudnnBackendDescriptor_t to = per_row(g, ROW_SUMS, p, p->heads);

	graph_pointwise(g, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, -1, dout, out, NULL, product);
	graph_reduce(g, CUDNN_REDUCE_TENSOR_ADD, product, sum);
	/* cuDNN looks for the scale of dropout here. */
	graph_pointwise(g, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, -1, sum, one, NULL, to);
	return to;
}

/* dq = ds k; with atomics through a sum in fp32. */
static void query_gradient(struct graph *g, const struct part *p, cudnnBackendDescriptor_t ds,
			   cudnnBackendDescriptor_t k, bool atomics)
{
	int64_t k_dims[] = {p->batch, p->kv_heads, p->a->seq, p->a->qk_dim};
	int64_t row = p->a->kv_heads * p->a->qk_dim;
	int64_t k_strides[] = {p->a->seq * row, p->a->qk_dim, row, 1};
	cudnnBackendDescriptor_t k_rows =
		graph_tensor(g, graph_virtual(g), CUDNN_DATA_FLOAT, k_dims, k_strides);
	cudnnBackendDescriptor_t dq = rows(g, DQ, p, false, p->a->qk_dim);

	graph_reshape(g, k, k_rows);
	if (!atomics) {
		graph_matmul(g, ds, k_rows, dq);
		return;
	}

	int64_t dims[] = {p->batch, p->heads, p->a->seq, p->a->qk_dim};
	int64_t strides[] = {p->heads * p->a->seq * p->a->qk_dim, p->a->seq * p->a->qk_dim,
			     p->a->qk_dim, 1};
	cudnnBackendDescriptor_t sum = graph_tensor(g, DQ_SUM, CUDNN_DATA_FLOAT, dims, strides);

	graph_matmul(g, ds, k_rows, sum);
	graph_pointwise(g, CUDNN_POINTWISE_IDENTITY, CUDNN_DATA_FLOAT, -1, sum, NULL, NULL, dq);
}

static void backward_graph(struct graph *g, const struct part *p, bool atomics)
{
	cudnnBackendDescriptor_t q = rows(g, Q, p, false, p->a->qk_dim);
	cudnnBackendDescriptor_t k = columns(g, K, p, p->a->qk_dim);
	cudnnBackendDescriptor_t v = columns(g, V, p, p->a->v_dim);
	cudnnBackendDescriptor_t dout = rows(g, DOUT, p, false, p->a->v_dim);
	cudnnBackendDescriptor_t dk = rows(g, DK, p, true, p->a->qk_dim);
	cudnnBackendDescriptor_t dv = rows(g, DV, p, true, p->a->v_dim);
	cudnnBackendDescriptor_t scale = graph_scalar(g, SCALE);
	cudnnBackendDescriptor_t sums = row_sums(g, p, dout);
	cudnnBackendDescriptor_t s = scaled_scores(g, p, q, k, scale);

	s = pointwise(g, p, CUDNN_POINTWISE_SUB, s, per_row(g, STATS, p, p->a->heads));
	if (p->a->causal)
		s = causal(g, p, s);
	s = pointwise(g, p, CUDNN_POINTWISE_EXP, s, NULL);
	weight_gradient(g, p, s, dout, p->a->v_dim, dv);

	cudnnBackendDescriptor_t ds = scores(g, p, CUDNN_DATA_FLOAT);

	graph_matmul(g, dout, v, ds);
	ds = pointwise(g, p, CUDNN_POINTWISE_SUB, ds, sums);
	ds = pointwise(g, p, CUDNN_POINTWISE_MUL, ds, s);
	ds = pointwise(g, p, CUDNN_POINTWISE_MUL, ds, scale);
	weight_gradient(g, p, ds, q, p->a->qk_dim, dk);
	query_gradient(g, p, ds, k, atomics);
}

/* ---- plans ---- */

struct key {
	int device, dtype;
	int64_t batch, seq, heads, kv_heads, qk_dim, v_dim;
	int64_t scores_most;
	bool causal, backward, atomics;
};

struct mfk_cudnn_plan {
	struct key key;
	int64_t batch, kv_heads;	   /* of a part */
	cudnnHandle_t handle;		   /* of the device */
	cudnnBackendDescriptor_t compiled; /* NULL: cuDNN does not do it */
	size_t workspace;
	char why[MFK_WHY];
	struct mfk_cudnn_plan *next;
};

enum { DEVICES = 64, ALIGN = 256, SCORES_MIB = 512 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mfk_cudnn_plan *plans;
static cudnnHandle_t handles[DEVICES];

/* Bytes of scores that a part may have. MFK_ATTENTION_SCRATCH says how many MiB. */
static int64_t scores_most(void)
{
	const char *text = getenv("MFK_ATTENTION_SCRATCH");
	long mib = text ? strtol(text, NULL, 10) : 0;

	return (int64_t)(mib > 0 && mib < 1 << 20 ? mib : SCORES_MIB) << 20;
}

static struct key key_of(const struct mfk_device *d, const struct mfk_attention *a, bool backward,
			 bool atomics)
{
	struct key k;

	memset(&k, 0, sizeof(k)); /* they are compared as bytes */
	k.device = d->index;
	k.dtype = (int)a->dtype;
	k.batch = a->batch;
	k.seq = a->seq;
	k.heads = a->heads;
	k.kv_heads = a->kv_heads;
	k.qk_dim = a->qk_dim;
	k.v_dim = a->v_dim;
	k.causal = a->causal;
	k.backward = backward;
	k.atomics = backward && atomics;
	k.scores_most = scores_most();
	return k;
}

/* NULL: cuDNN has no such attention. */
static const cudnnDataType_t *type_of(enum mfk_dtype dtype)
{
	static const struct {
		enum mfk_dtype dtype;
		cudnnDataType_t type;
	} all[] = {{MFK_BF16, CUDNN_DATA_BFLOAT16}, {MFK_F16, CUDNN_DATA_HALF}};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i].dtype == dtype)
			return &all[i].type;
	return NULL;
}

/* What is known before cuDNN is asked (cudnn-frontend's node/sdpa_support_surface.h). */
static const char *refused(const struct mfk_attention *a, bool backward)
{
	if (!type_of(a->dtype))
		return mfk_dtype_row(a->dtype)->word;
	if (mfk_is_part(a))
		return "parts of a sequence";
	if (a->dropout > 0)
		return "dropout, whose random numbers are its own";
	if (a->first_key && a->causal)
		return "documents or windows";
	if (a->qk_dim % 8 || a->v_dim % 8 || a->qk_dim > 256 || a->v_dim > 256)
		return "a head dimension that is no multiple of 8, or above 256";
	if (backward && api.version <= 91500 && a->seq % 128)
		return "backward of a sequence that is no multiple of 128 (cuDNN 9.15 and before)";
	if (a->seq < 2)
		return "a sequence of one token";
	return NULL;
}

/* Halves of the sequences, then of the heads, until the scores of a part take at most so many
 * bytes: one such part keeps all of a GPU busy. */
static void divide(struct mfk_cudnn_plan *p)
{
	const struct key *k = &p->key;
	int64_t group = k->heads / k->kv_heads, each = group * k->seq * k->seq * 2;

	p->batch = k->batch;
	p->kv_heads = k->kv_heads;
	if (!k->backward || k->atomics)
		return;
	while (p->batch % 2 == 0 && p->batch * p->kv_heads * each > k->scores_most)
		p->batch /= 2;
	while (p->kv_heads % 2 == 0 && p->batch * p->kv_heads * each > k->scores_most)
		p->kv_heads /= 2;
}

static void build(struct mfk_cudnn_plan *p, const struct mfk_attention *a)
{
	struct graph g;
	struct part part;

	if (!handles[p->key.device]) {
		/* A handle is of the thread's device. */
		cudaError_t cuda = cudaSetDevice(p->key.device);
		cudnnStatus_t rc = cuda ? CUDNN_STATUS_EXECUTION_FAILED_CUDART
					: api.Create(&handles[p->key.device]);

		if (rc) {
			snprintf(p->why, MFK_WHY, "cudnnCreate: %s", api.GetErrorString(rc));
			handles[p->key.device] = NULL;
			return;
		}
	}
	p->handle = handles[p->key.device];
	graph_init(&g, &api, p->handle, *type_of(a->dtype), FIRST_VIRTUAL);
	divide(p);
	part = (struct part){a, p->batch, p->kv_heads * (a->heads / a->kv_heads), p->kv_heads};
	if (p->key.backward)
		backward_graph(&g, &part, p->key.atomics);
	else
		forward_graph(&g, &part);
	p->compiled = graph_compile(&g, &p->workspace);
	snprintf(p->why, MFK_WHY, "%s", g.why);
	graph_release(&g);
}

const struct mfk_cudnn_plan *mfk_cudnn_plan(const struct mfk_device *d,
					    const struct mfk_attention *a, bool backward,
					    bool atomics, char *why)
{
	struct key key = key_of(d, a, backward, atomics);
	struct mfk_cudnn_plan *p;
	const char *no;

	if (!api_is_there()) {
		snprintf(why, MFK_WHY, "%s", api_why);
		return NULL;
	}
	no = d->index < 0 || d->index >= DEVICES ? "so many devices" : refused(a, backward);
	if (no) {
		snprintf(why, MFK_WHY, "cuDNN does not do %s", no);
		return NULL;
	}
	pthread_mutex_lock(&lock);
	for (p = plans; p; p = p->next)
		if (!memcmp(&p->key, &key, sizeof(key)))
			break;
	if (!p && (p = calloc(1, sizeof(*p)))) {
		p->key = key;
		build(p, a);
		p->next = plans;
		plans = p;
	}
	pthread_mutex_unlock(&lock);
	if (!p || !p->compiled) {
		snprintf(why, MFK_WHY, "%s", p ? p->why : "out of memory");
		return NULL;
	}
	return p;
}

static size_t aligned(size_t bytes)
{
	return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Scratch: cuDNN's workspace, then a part's row sums, then its dq in fp32. */
static size_t rows_bytes(const struct mfk_cudnn_plan *p, int64_t dim)
{
	int64_t heads = p->kv_heads * (p->key.heads / p->key.kv_heads);

	return aligned((size_t)(p->batch * heads * p->key.seq * dim) * 4);
}

size_t mfk_cudnn_scratch(const struct mfk_cudnn_plan *p)
{
	return aligned(p->workspace) + (p->key.backward ? rows_bytes(p, 1) : 0) +
	       (p->key.atomics ? rows_bytes(p, p->key.qk_dim) : 0);
}

/* ---- running ---- */

/* The part that begins at a sequence and a key head: all pointers moved there. */
static struct mfk_attention part_at(const struct mfk_attention *a, int64_t batch, int64_t kv_head)
{
	struct mfk_attention p = *a;
	int64_t head = kv_head * (a->heads / a->kv_heads);
	int64_t q = (batch * a->seq * a->heads + head) * 2;
	int64_t k = (batch * a->seq * a->kv_heads + kv_head) * 2;

#define MOVE(pointer, bytes)                                                                       \
	if (a->pointer)                                                                            \
	p.pointer = (char *)a->pointer + (bytes)
	MOVE(q, q * a->qk_dim);
	MOVE(k, k * a->qk_dim);
	MOVE(v, k * a->v_dim);
	MOVE(out, q * a->v_dim);
	MOVE(dout, q * a->v_dim);
	MOVE(dq, q * a->qk_dim);
	MOVE(dk, k * a->qk_dim);
	MOVE(dv, k * a->v_dim);
#undef MOVE
	p.lse = a->lse + (batch * a->heads + head) * a->seq;
	return p;
}

/* why gets a sentence if it fails. */
static void run_part(cudaStream_t stream, const struct mfk_cudnn_plan *p,
		     const struct mfk_attention *a, char *why)
{
	bool backward = p->key.backward, atomics = p->key.atomics;
	float scale = a->scale, one = 1;
	float masked = api.version < 91000 ? -FLT_MAX : -INFINITY;
	char *workspace = a->scratch, *row_sums = workspace + aligned(p->workspace);
	char *dq_sum = row_sums + rows_bytes(p, 1);
	const struct {
		int64_t id;
		const void *at;
		bool used;
	} all[] = {
		{Q, a->q, true},
		{K, a->k, true},
		{V, a->v, true},
		{OUT, a->out, true},
		{STATS, a->lse, true},
		{SCALE, &scale, true},
		{MASKED, &masked, a->causal},
		{DOUT, a->dout, backward},
		{DQ, a->dq, backward},
		{DK, a->dk, backward},
		{DV, a->dv, backward},
		{ONE, &one, backward},
		{ROW_SUMS, row_sums, backward},
		{DQ_SUM, dq_sum, atomics},
	};
	int64_t ids[sizeof(all) / sizeof(*all)];
	const void *pointers[sizeof(all) / sizeof(*all)];
	int count = 0;

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (all[i].used) {
			ids[count] = all[i].id;
			pointers[count++] = all[i].at;
		}
	/* cuDNN 9.5 and before add to what is there. */
	if (atomics && api.version < 90600 &&
	    cudaMemsetAsync(dq_sum, 0, rows_bytes(p, p->key.qk_dim), stream))
		snprintf(why, MFK_WHY, "dq in fp32 could not be zeroed");
	else
		graph_run(&api, p->handle, stream, p->compiled, count, ids, pointers, workspace,
			  why);
}

void mfk_cudnn_run(struct mfk_ctx *c, const struct mfk_cudnn_plan *p, const struct mfk_attention *a)
{
	const char *what = p->key.backward ? "attention_backward" : "attention";
	char why[MFK_WHY] = "";

	if (!mfk_cuda_begin(c))
		return;
	pthread_mutex_lock(&lock); /* a handle has one stream at a time */
	for (int64_t b = 0; b < a->batch && !*why; b += p->batch)
		for (int64_t h = 0; h < a->kv_heads && !*why; h += p->kv_heads) {
			struct mfk_attention part = part_at(a, b, h);

			run_part(c->stream, p, &part, why);
		}
	pthread_mutex_unlock(&lock);
	if (*why)
		mfk_cuda_fail(c, -EIO, "%s: %s", what, why);
	else
		mfk_cuda_end(c, what);
}

#else

size_t mfk_cudnn_version(void)
{
	return 0;
}

const struct mfk_cudnn_plan *mfk_cudnn_plan(const struct mfk_device *d,
					    const struct mfk_attention *a, bool backward,
					    bool atomics, char *why)
{
	(void)d, (void)a, (void)backward, (void)atomics;
	snprintf(why, MFK_WHY, "this program was built without cuDNN's headers");
	return NULL;
}

size_t mfk_cudnn_scratch(const struct mfk_cudnn_plan *p)
{
	(void)p;
	return 0;
}

void mfk_cudnn_run(struct mfk_ctx *c, const struct mfk_cudnn_plan *p, const struct mfk_attention *a)
{
	(void)p, (void)a;
	mfk_cuda_fail(c, -ENOSYS, "attention: this program was built without cuDNN's headers");
}

#endif
