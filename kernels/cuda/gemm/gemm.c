/*
 * Matrix products by cublasLt.
 *
 * cublasLt knows columns first; a row-major matrix is its own transpose there, so c = op(a) op(b)
 * is computed as c^T = op(b)^T op(a)^T. Which algorithm a shape gets is asked once, by heuristic:
 * never by time, which would give other bits in the next run.
 *
 * A product may apply an activation, or an activation's gradient, in its epilogue (`act`, where
 * functions have one; NULL: none).
 */
#include "kernels/cuda/base/operations.h"

#include <cublasLt.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/base/cuda_dtypes.h"
#include "kernels/cuda/gemm/gemm_hopper.h"
#include "kernels/cuda/ops/ops.h"
#include "kernels/eight_bits.h"

#define WORKSPACE ((size_t)64 << 20)
#define SLOTS	  1024 /* of the table of algorithms, a power of two */
#define LANES	  4    /* streams that the products of groups run in */

/* What an algorithm depends on. Without holes, since it is compared as bytes. */
struct shape {
	int64_t m, n, k, lda, ldb, ldc;
	uint32_t dtypes; /* of a, b, c and bias, a byte each */
	uint32_t flags;	 /* trans_a, trans_b, bias, beta, epilogue, and alignment of the pointers,
			    scaling, fast_accumulate */
};

struct slot {
	struct shape shape;
	bool used, none; /* none: cublasLt has no algorithm */
	cublasLtMatmulAlgo_t algo;
};

/* A product of few rows leaves most of a GPU idle, so groups run at the same time. */
struct lane {
	cudaStream_t stream;
	cudaEvent_t done;
	void *workspace;
};

struct mfk_cuda_gemm {
	cublasLtHandle_t lt;
	struct lane own;	  /* the context's stream; done: what the other lanes wait for */
	struct lane lanes[LANES]; /* made by the first product of groups */
	struct slot slots[SLOTS];
	unsigned used;
};

static bool check(struct mfk_ctx *c, cublasStatus_t rc, const struct mfk_gemm *a)
{
	if (rc == CUBLAS_STATUS_SUCCESS)
		return true;
	mfk_cuda_fail(c, rc == CUBLAS_STATUS_ALLOC_FAILED ? -ENOMEM : -EIO,
		      "a product of [%lld, %lld] and [%lld, %lld] by cublasLt: %s", (long long)a->m,
		      (long long)a->k, (long long)a->k, (long long)a->n,
		      cublasLtGetStatusString(rc));
	return false;
}

static void lane_free(struct lane *l, bool stream)
{
	cudaFree(l->workspace);
	if (l->done)
		cudaEventDestroy(l->done);
	if (stream && l->stream)
		cudaStreamDestroy(l->stream);
}

static void gemm_free(struct mfk_ctx *c)
{
	struct mfk_cuda_gemm *g = c->gemm;

	if (!g)
		return;
	if (g->lt)
		cublasLtDestroy(g->lt);
	lane_free(&g->own, false);
	for (int i = 0; i < LANES; i++)
		lane_free(&g->lanes[i], true);
	free(g);
	c->gemm = NULL;
}

static struct mfk_cuda_gemm *state(struct mfk_ctx *c)
{
	struct mfk_cuda_gemm *g = c->gemm;
	cublasStatus_t rc;

	if (g)
		return g;
	g = calloc(1, sizeof(*g));
	if (!g) {
		mfk_cuda_fail(c, -ENOMEM, "out of memory");
		return NULL;
	}
	c->gemm = g;
	c->gemm_free = gemm_free;
	rc = cublasLtCreate(&g->lt);
	g->own.stream = c->stream;
	if (rc != CUBLAS_STATUS_SUCCESS)
		mfk_cuda_fail(c, -EIO, "cublasLt does not start: %s", cublasLtGetStatusString(rc));
	else
		mfk_cuda_check(c, cudaMalloc(&g->own.workspace, WORKSPACE), "cublasLt's workspace");
	if (!c->rc)
		return g;
	gemm_free(c);
	return NULL;
}

static bool make_event(struct mfk_ctx *c, cudaEvent_t *ret)
{
	return *ret || mfk_cuda_check(c, cudaEventCreateWithFlags(ret, cudaEventDisableTiming),
				      "a product's event");
}

static bool make_lanes(struct mfk_ctx *c, struct mfk_cuda_gemm *g)
{
	int priority = 0;
	bool ok = make_event(c, &g->own.done) &&
		  mfk_cuda_check(c, cudaStreamGetPriority(c->stream, &priority), "a stream");

	for (int i = 0; i < LANES && ok; i++) {
		struct lane *l = &g->lanes[i];

		ok = make_event(c, &l->done) &&
		     (l->stream ||
		      mfk_cuda_check(c,
				     cudaStreamCreateWithPriority(&l->stream, cudaStreamNonBlocking,
								  priority),
				     "a product's stream")) &&
		     (l->workspace || mfk_cuda_check(c, cudaMalloc(&l->workspace, WORKSPACE),
						     "cublasLt's workspace"));
	}
	return ok;
}

/* ---- what cublasLt is told ---- */

struct call {
	cublasLtMatmulDesc_t op;
	cublasLtMatrixLayout_t a, b, c; /* as cublasLt sees them: a is our b */
};

/* What a product becomes: of an activation or its gradient what that becomes. */
static void *result_of(const struct mfk_gemm *a, const struct mfk_act *act)
{
	return !act ? a->c : act->dy ? act->dx : act->y;
}

static cublasLtEpilogue_t epilogue_of(const struct mfk_gemm *a, const struct mfk_act *act)
{
	if (!act)
		return CUBLASLT_EPILOGUE_BIAS;
	if (act->dy)
		return CUBLASLT_EPILOGUE_DGELU;
	return a->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
}

static cublasStatus_t describe_act(struct call *l, const struct mfk_gemm *a,
				   const struct mfk_act *act)
{
	int64_t ld = a->ldc;
	cublasStatus_t rc = cublasLtMatmulDescSetAttribute(
		l->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &act->x, sizeof(act->x));

	if (!rc)
		rc = cublasLtMatmulDescSetAttribute(l->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
						    &ld, sizeof(ld));
	return rc;
}

/* cublasLt's a is our b. */
static cublasStatus_t describe_scales(struct call *l, const struct mfk_gemm *a)
{
	const float *of_a = &a->scale_b->inverse, *of_b = &a->scale_a->inverse;
	const int8_t fast = a->fast_accumulate;
	cublasStatus_t rc = cublasLtMatmulDescSetAttribute(
		l->op, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &of_a, sizeof(of_a));

	if (!rc)
		rc = cublasLtMatmulDescSetAttribute(l->op, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
						    &of_b, sizeof(of_b));
	if (!rc)
		rc = cublasLtMatmulDescSetAttribute(l->op, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast,
						    sizeof(fast));
	return rc;
}

static cublasStatus_t describe_op(struct call *l, const struct mfk_gemm *a,
				  const struct mfk_act *act)
{
	cublasOperation_t ta = a->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
	cublasOperation_t tb = a->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
	cublasLtEpilogue_t epilogue = epilogue_of(a, act);
	cudaDataType_t bias_type = mfk_cuda_dtype(a->dtype_bias)->blas;
	cublasStatus_t rc = cublasLtMatmulDescCreate(&l->op, CUBLAS_COMPUTE_32F, CUDA_R_32F);

	if (!rc)
		rc = cublasLtMatmulDescSetAttribute(l->op, CUBLASLT_MATMUL_DESC_TRANSA, &ta,
						    sizeof(ta));
	if (!rc)
		rc = cublasLtMatmulDescSetAttribute(l->op, CUBLASLT_MATMUL_DESC_TRANSB, &tb,
						    sizeof(tb));
	if (!rc && a->scaling)
		rc = describe_scales(l, a);
	if (rc || (!a->bias && !act))
		return rc;
	rc = cublasLtMatmulDescSetAttribute(l->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
					    sizeof(epilogue));
	if (!rc && act)
		rc = describe_act(l, a, act);
	if (rc || !a->bias)
		return rc;
	rc = cublasLtMatmulDescSetAttribute(l->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &a->bias,
					    sizeof(a->bias));
	if (!rc)
		rc = cublasLtMatmulDescSetAttribute(l->op, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
						    &bias_type, sizeof(bias_type));
	return rc;
}

static cublasStatus_t describe(struct call *l, const struct mfk_gemm *a, const struct mfk_act *act)
{
	cudaDataType_t of_a = mfk_cuda_dtype(a->dtype_a)->blas;
	cudaDataType_t of_b = mfk_cuda_dtype(a->dtype_b)->blas;
	uint64_t m = (uint64_t)a->m, n = (uint64_t)a->n, k = (uint64_t)a->k;
	cublasStatus_t rc = describe_op(l, a, act);

	if (!rc)
		rc = cublasLtMatrixLayoutCreate(&l->a, of_b, a->trans_b ? k : n, a->trans_b ? n : k,
						a->ldb);
	if (!rc)
		rc = cublasLtMatrixLayoutCreate(&l->b, of_a, a->trans_a ? m : k, a->trans_a ? k : m,
						a->lda);
	if (!rc)
		rc = cublasLtMatrixLayoutCreate(&l->c, mfk_cuda_dtype(a->dtype_c)->blas, n, m,
						a->ldc);
	return rc;
}

static void forget(struct call *l)
{
	if (l->op)
		cublasLtMatmulDescDestroy(l->op);
	if (l->a)
		cublasLtMatrixLayoutDestroy(l->a);
	if (l->b)
		cublasLtMatrixLayoutDestroy(l->b);
	if (l->c)
		cublasLtMatrixLayoutDestroy(l->c);
}

/* ---- algorithms ---- */

/* Bytes, a power of two up to 16, that p is a multiple of: no load is wider. */
static uint32_t alignment(const void *p)
{
	uintptr_t low = (uintptr_t)p & -(uintptr_t)p;

	return low && low < 16 ? (uint32_t)low : 16;
}

static struct shape shape_of(const struct mfk_gemm *a, const struct mfk_act *act)
{
	struct shape s;

	memset(&s, 0, sizeof(s));
	s.m = a->m;
	s.n = a->n;
	s.k = a->k;
	s.lda = a->lda;
	s.ldb = a->ldb;
	s.ldc = a->ldc;
	s.dtypes = (uint32_t)a->dtype_a | (uint32_t)a->dtype_b << 8 | (uint32_t)a->dtype_c << 16 |
		   (uint32_t)(a->bias ? a->dtype_bias : 0) << 24;
	s.flags = (uint32_t)a->trans_a | (uint32_t)a->trans_b << 1 |
		  (uint32_t)(a->bias != NULL) << 2 | (uint32_t)(a->beta != 0) << 3 |
		  (uint32_t)__builtin_ctz(alignment(a->a)) << 4 |
		  (uint32_t)__builtin_ctz(alignment(a->b)) << 8 |
		  (uint32_t)__builtin_ctz(alignment(a->c)) << 12 | (uint32_t)(act != NULL) << 16 |
		  (uint32_t)(act && act->dy) << 17 | (uint32_t)a->fast_accumulate << 18 |
		  (uint32_t)a->scaling << 20;
	return s;
}

/* FNV-1a */
static uint64_t hash(const struct shape *s)
{
	const unsigned char *p = (const unsigned char *)s;
	uint64_t h = 0xcbf29ce484222325u;

	for (size_t i = 0; i < sizeof(*s); i++)
		h = (h ^ p[i]) * 0x100000001b3u;
	return h ^ h >> 32;
}

/* The shape's slot, or the free one where it belongs. */
static struct slot *find(struct mfk_cuda_gemm *g, const struct shape *s)
{
	uint64_t i = hash(s) % SLOTS;

	while (g->slots[i].used && memcmp(&g->slots[i].shape, s, sizeof(*s)))
		i = (i + 1) % SLOTS;
	return &g->slots[i];
}

static cublasStatus_t prefer(cublasLtMatmulPreference_t p, const struct mfk_gemm *a)
{
	/* Sums of parts of k in fp32, whatever the type of c. */
	uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
	uint32_t of_a = alignment(a->b), of_b = alignment(a->a), of_c = alignment(a->c);
	size_t workspace = WORKSPACE;
	const struct {
		cublasLtMatmulPreferenceAttributes_t name;
		const void *value;
		size_t size;
	} all[] = {
		{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace)},
		{CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof(schemes)},
		{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &of_a, sizeof(of_a)},
		{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &of_b, sizeof(of_b)},
		{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &of_c, sizeof(of_c)},
		{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &of_c, sizeof(of_c)},
	};
	cublasStatus_t rc = CUBLAS_STATUS_SUCCESS;

	for (unsigned i = 0; !rc && i < sizeof(all) / sizeof(*all); i++)
		rc = cublasLtMatmulPreferenceSetAttribute(p, all[i].name, all[i].value,
							  all[i].size);
	return rc;
}

static cublasStatus_t ask(struct mfk_cuda_gemm *g, const struct call *l, const struct mfk_gemm *a,
			  cublasLtMatmulAlgo_t *ret)
{
	cublasLtMatmulHeuristicResult_t found;
	cublasLtMatmulPreference_t p;
	cublasStatus_t rc = cublasLtMatmulPreferenceCreate(&p);
	int count = 0;

	if (rc)
		return rc;
	rc = prefer(p, a);
	if (!rc)
		rc = cublasLtMatmulAlgoGetHeuristic(g->lt, l->op, l->a, l->b, l->c, l->c, p, 1,
						    &found, &count);
	cublasLtMatmulPreferenceDestroy(p);
	if (!rc && !count)
		rc = CUBLAS_STATUS_NOT_SUPPORTED;
	if (!rc)
		*ret = found.algo;
	return rc;
}

/* The algorithm of products like a. A full table is emptied. */
static cublasStatus_t algorithm(struct mfk_cuda_gemm *g, const struct mfk_gemm *a,
				const struct mfk_act *act, const cublasLtMatmulAlgo_t **ret)
{
	struct shape s = shape_of(a, act);
	struct slot *slot = find(g, &s);
	struct call l = {0};
	cublasStatus_t rc;

	if (slot->used) {
		*ret = &slot->algo;
		return slot->none ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
	}
	if (g->used >= SLOTS * 3 / 4) {
		memset(g->slots, 0, sizeof(g->slots));
		g->used = 0;
		slot = find(g, &s);
	}
	rc = describe(&l, a, act);
	if (!rc)
		rc = ask(g, &l, a, &slot->algo);
	forget(&l);
	slot->none = rc == CUBLAS_STATUS_NOT_SUPPORTED;
	if (rc && !slot->none)
		return rc;
	slot->shape = s;
	slot->used = true;
	g->used++;
	*ret = &slot->algo;
	return rc;
}

/* ---- products ---- */

/* With the algorithm of products like `like`. */
static cublasStatus_t multiply_as(struct mfk_cuda_gemm *g, const struct lane *lane,
				  const struct mfk_gemm *a, const struct mfk_gemm *like,
				  const struct mfk_act *act)
{
	void *result = result_of(a, act);
	const cublasLtMatmulAlgo_t *algo = NULL;
	struct call l = {0};
	cublasStatus_t rc = algorithm(g, like, act, &algo);

	if (!rc)
		rc = describe(&l, a, act);
	if (!rc)
		rc = cublasLtMatmul(g->lt, l.op, &a->alpha, a->b, l.a, a->a, l.b, &a->beta, result,
				    l.c, result, l.c, algo, lane->workspace, WORKSPACE,
				    lane->stream);
	forget(&l);
	return rc;
}

static void multiply_whole(struct mfk_ctx *c, const struct mfk_gemm *a)
{
	struct mfk_cuda_gemm *g = state(c);

	if (g)
		check(c, multiply_as(g, &g->own, a, a, NULL), a);
}

static void *at(enum mfk_dtype t, const void *base, int64_t element)
{
	return base ? (char *)(uintptr_t)base + element * (int64_t)mfk_dtype_size(t) : NULL;
}

/* ---- odd sizes ---- */

/*
 * cublasLt has fast kernels of 16-bit types for rows of a multiple of 16 bytes alone, also where
 * the rows begin there: others are ten times slower. So what is over, fewer than 8 of a vocabulary
 * of 50257, is a product of its own.
 */
enum { EVEN = 8, SMALL = 64 };

static bool is_odd(int64_t size)
{
	return size > SMALL && size % EVEN != 0;
}

/* Whether it would help: no row of a, b and c begins elsewhere than at 16 bytes. */
static bool rows_are_even(const struct mfk_gemm *a)
{
	return !mfk_is_exact(a->dtype_a) && (a->lda | a->ldb | a->ldc) % EVEN == 0;
}

/* k is the length of a row of memory. */
static bool has_odd_k(const struct mfk_gemm *a)
{
	return (!a->trans_a || a->trans_b) && is_odd(a->k) && rows_are_even(a);
}

/* a without its first m rows, n columns and k of what is summed over. */
static struct mfk_gemm rest_of(const struct mfk_gemm *a, int64_t m, int64_t n, int64_t k)
{
	struct mfk_gemm rest = *a;

	rest.m -= m;
	rest.n -= n;
	rest.k -= k;
	rest.a = at(a->dtype_a, a->a, a->trans_a ? k * a->lda + m : m * a->lda + k);
	rest.b = at(a->dtype_b, a->b, a->trans_b ? n * a->ldb + k : k * a->ldb + n);
	rest.c = at(a->dtype_c, a->c, m * a->ldc + n);
	rest.bias = at(a->dtype_bias, a->bias, n);
	return rest;
}

static void multiply(struct mfk_ctx *c, const struct mfk_gemm *a)
{
	const bool even = rows_are_even(a);
	struct mfk_gemm most = *a, rest;

	if (even && a->trans_a && is_odd(a->m)) {
		most.m -= a->m % EVEN;
		rest = rest_of(a, most.m, 0, 0);
	} else if (even && is_odd(a->n)) {
		most.n -= a->n % EVEN;
		rest = rest_of(a, 0, most.n, 0);
	} else if (mfk_is_exact(a->dtype_c) && has_odd_k(a)) {
		most.k -= a->k % EVEN;
		rest = rest_of(a, 0, 0, most.k);
		rest.beta = 1;
		rest.bias = NULL;
	} else {
		multiply_whole(c, a);
		return;
	}
	multiply(c, &most);
	multiply(c, &rest);
}

/* Where rows do not begin at 16 bytes, cublasLt rounds the product before it adds the bias, and
 * rounds again (seen with bf16 on an H200: 17 x 129 x 33, 129 x 64 x 65). */
static bool rounds_twice(const struct mfk_gemm *a)
{
	int64_t all = a->n | a->k | a->lda | a->ldb | a->ldc;

	return a->bias && !mfk_is_exact(a->dtype_c) && all % 8 != 0;
}

static void multiply_then_add(struct mfk_ctx *c, const struct mfk_gemm *a)
{
	struct mfk_gemm product = *a;

	product.c = mfk_cuda_scratch(c, (size_t)(a->m * a->n) * sizeof(float), "product");
	if (!product.c)
		return;
	product.dtype_c = MFK_F32;
	product.ldc = a->n;
	product.beta = 0;
	product.bias = NULL;
	multiply(c, &product);
	mfk_cuda_gemm_bias(c, a, product.c);
}

/* cublasLt adds a bias of c's type alone. */
static bool convert_bias(struct mfk_ctx *c, struct mfk_gemm *a)
{
	void *room;

	if (!a->bias || a->dtype_bias == a->dtype_c)
		return true;
	room = mfk_cuda_scratch(c, (size_t)a->n * mfk_dtype_size(a->dtype_c), "bias");
	if (!room)
		return false;
	mfk_cuda_cast(c, a->dtype_c, room, a->dtype_bias, a->bias, a->n);
	a->bias = room;
	a->dtype_bias = a->dtype_c;
	return !c->rc;
}

/* True: 8-bit operands are not as they must be, and the context has failed. */
static bool refuse(struct mfk_ctx *c, const struct mfk_gemm *a)
{
	const char *refusal = mfk_gemm_refusal(a);

	if (refusal)
		mfk_cuda_fail(c, -EINVAL, "a product of [%lld, %lld] and [%lld, %lld]: %s",
			      (long long)a->m, (long long)a->k, (long long)a->k, (long long)a->n,
			      refusal);
	return refusal != NULL;
}

void mfk_cuda_gemm(struct mfk_ctx *c, const struct mfk_gemm *a)
{
	struct mfk_gemm one = *a;

	if (a->m <= 0 || a->n <= 0 || !mfk_cuda_begin(c) || refuse(c, a))
		return;
	if (a->k <= 0)
		mfk_cuda_gemm_bias(c, a, NULL);
	else if (rounds_twice(a) || (!mfk_is_exact(a->dtype_c) && has_odd_k(a)))
		multiply_then_add(c, a);
	else if (convert_bias(c, &one))
		multiply(c, &one);
}

/* ---- activations ---- */

/* cublasLt's GELU is the one of tanh. Its tanh is good enough for bf16. */
static bool has_epilogue(const struct mfk_gemm *a, const struct mfk_act *act)
{
	const void *x = act->dy ? act->dy : act->x;
	const int64_t all = a->n | a->k | a->lda | a->ldb;
	const bool aligned = alignment(a->a) == 16 && alignment(a->b) == 16 &&
			     alignment(act->x) == 16 && alignment(result_of(a, act)) == 16;

	return act->kind == MFK_GELU_TANH && !act->gated && !act->row_scale && !act->drow_scale &&
	       a->dtype_a == MFK_BF16 && a->dtype_c == MFK_BF16 && act->dtype == MFK_BF16 &&
	       a->beta == 0 && a->c == x && a->m == act->rows && a->n == act->cols &&
	       a->ldc == a->n && a->k > 0 && all % EVEN == 0 && aligned;
}

/* False: there is no such algorithm, or it failed, which the context knows. */
static bool multiply_and_act(struct mfk_ctx *c, const struct mfk_gemm *a, const struct mfk_act *act)
{
	struct mfk_cuda_gemm *g;
	struct mfk_gemm one = *a;
	cublasStatus_t rc;

	if (a->m <= 0 || !has_epilogue(a, act) || result_of(a, act) == act->x || !mfk_cuda_begin(c))
		return false;
	g = state(c);
	if (!g || !convert_bias(c, &one))
		return false;
	rc = multiply_as(g, &g->own, &one, &one, act);
	return rc != CUBLAS_STATUS_NOT_SUPPORTED && check(c, rc, a);
}

void mfk_cuda_gemm_act(struct mfk_ctx *c, const struct mfk_gemm *g, const struct mfk_act *a)
{
	struct mfk_act forward = *a;

	forward.dy = NULL;
	forward.dx = NULL;
	forward.drow_scale = NULL;
	if (multiply_and_act(c, g, &forward))
		return;
	mfk_cuda_gemm(c, g);
	mfk_cuda_act(c, &forward);
}

void mfk_cuda_gemm_act_backward(struct mfk_ctx *c, const struct mfk_gemm *g,
				const struct mfk_act *a)
{
	if (multiply_and_act(c, g, a))
		return;
	mfk_cuda_gemm(c, g);
	mfk_cuda_act_backward(c, a);
}

/* The product of group g. */
static struct mfk_gemm group_of(const struct mfk_gemm_grouped *a, const int64_t *offsets, int64_t g)
{
	struct mfk_gemm one = a->base;
	int64_t from = offsets[g], rows = offsets[g + 1] - from;

	if (a->along_k) {
		one.k = mfk_scaled_round(rows);
		one.a = at(one.dtype_a, one.a, mfk_group_column(from, g));
		one.b = at(one.dtype_b, one.b, mfk_group_column(from, g));
		one.c = at(one.dtype_c, one.c, g * a->stride);
	} else if (one.trans_a) {
		one.k = rows;
		one.a = at(one.dtype_a, one.a, from * one.lda);
		one.b = at(one.dtype_b, one.b, from * one.ldb);
		one.c = at(one.dtype_c, one.c, g * a->stride);
	} else {
		one.m = rows;
		one.a = at(one.dtype_a, one.a, from * one.lda);
		one.b = at(one.dtype_b, one.b, g * a->stride);
		one.c = at(one.dtype_c, one.c, from * one.ldc);
	}
	if (one.scaling) {
		one.scale_a += g;
		one.scale_b += g;
	}
	return one;
}

/* Rows of groups are others in each step: up to an eighth more are one shape. */
static int64_t round_rows(int64_t rows)
{
	int64_t step = 8;

	while (step * 16 <= rows)
		step *= 2;
	return (rows + step - 1) / step * step;
}

/* along_k: the rows are what is summed over. */
static void multiply_group(struct mfk_ctx *c, const struct lane *lane, const struct mfk_gemm *a,
			   bool along_k)
{
	struct mfk_gemm like = *a;
	cublasStatus_t rc;

	if (along_k)
		like.k = round_rows(a->k);
	else
		like.m = round_rows(a->m);
	rc = multiply_as(c->gemm, lane, a, &like, NULL);
	if (rc == CUBLAS_STATUS_NOT_SUPPORTED || rc == CUBLAS_STATUS_INVALID_VALUE)
		rc = multiply_as(c->gemm, lane, a, a, NULL);
	check(c, rc, a);
}

/* The lanes wait for the context's stream, or it for them. */
static void fork_lanes(struct mfk_ctx *c, struct mfk_cuda_gemm *g)
{
	mfk_cuda_check(c, cudaEventRecord(g->own.done, c->stream), "products");
	for (int i = 0; i < LANES; i++)
		mfk_cuda_check(c, cudaStreamWaitEvent(g->lanes[i].stream, g->own.done, 0),
			       "products");
}

static void join_lanes(struct mfk_ctx *c, struct mfk_cuda_gemm *g)
{
	for (int i = 0; i < LANES; i++) {
		mfk_cuda_check(c, cudaEventRecord(g->lanes[i].done, g->lanes[i].stream),
			       "products");
		mfk_cuda_check(c, cudaStreamWaitEvent(c->stream, g->lanes[i].done, 0), "products");
	}
}

/* A product for each group, in turn in the lanes. base: with a bias of c's type. */
static void multiply_groups(struct mfk_ctx *c, const struct mfk_gemm_grouped *a,
			    const int64_t *offsets)
{
	struct mfk_cuda_gemm *g = state(c);
	int next = 0;

	if (!g || !make_lanes(c, g))
		return;
	fork_lanes(c, g);
	for (int64_t i = 0; i < a->groups && !c->rc; i++) {
		struct mfk_gemm one = group_of(a, offsets, i);

		if (one.m <= 0)
			continue;
		if (refuse(c, &one))
			break;
		if (one.k <= 0)
			mfk_cuda_gemm_bias(c, &one, NULL);
		else
			multiply_group(c, &g->lanes[next++ % LANES], &one,
				       a->along_k || one.trans_a);
	}
	join_lanes(c, g);
}

/* The offsets on the host; free() them. NULL: the context has failed. */
static int64_t *fetch_offsets(struct mfk_ctx *c, const struct mfk_gemm_grouped *a)
{
	const size_t bytes = ((size_t)a->groups + 1) * sizeof(int64_t);
	int64_t *offsets = malloc(bytes);

	if (!offsets) {
		mfk_cuda_fail(c, -ENOMEM, "out of memory");
		return NULL;
	}
	if (mfk_cuda_check(
		    c,
		    cudaMemcpyAsync(offsets, a->offsets, bytes, cudaMemcpyDeviceToHost, c->stream),
		    "rows of groups") &&
	    mfk_cuda_wait_all(c, "rows of groups"))
		return offsets;
	free(offsets);
	return NULL;
}

bool mfk_cuda_gemm_grouped_wants_host(struct mfk_device *d, const struct mfk_gemm_grouped *a)
{
	return !mfk_cuda_gemm_hopper_can(d, a);
}

void mfk_cuda_gemm_grouped(struct mfk_ctx *c, const struct mfk_gemm_grouped *a)
{
	struct mfk_gemm_grouped own = *a;
	int64_t *fetched = NULL;

	if (a->base.n <= 0 || !mfk_cuda_begin(c))
		return;
	if (mfk_cuda_gemm_hopper_can(c->device, a) && mfk_cuda_gemm_hopper_aligned(a)) {
		mfk_cuda_gemm_hopper(c, a);
		return;
	}
	if (!convert_bias(c, &own.base))
		return;
	if (!a->host_offsets) {
		fetched = fetch_offsets(c, a);
		if (!fetched)
			return;
	}
	multiply_groups(c, &own, fetched ? fetched : a->host_offsets);
	free(fetched);
}
