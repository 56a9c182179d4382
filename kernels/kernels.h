/*
 * The computations of a training step on plain memory, and the device that they run on.
 *
 * There are two backends: mfk_cpu (kernels/ref/cpu.h: threads and OpenBLAS; its operations are the
 * reference), and CUDA, a plugin that mfk_cuda_load() finds. Both are one struct of functions, so
 * that a caller never names one. This folder includes nothing of checkpoints or files; comments say
 * which of Megatron's layouts an operation is for.
 *
 * Matrices are row-major. T is the number of tokens of a microbatch: its sequences follow each
 * other, T = batch * seq. "io type" is the element type of weights and activations: fp32, bf16 or
 * fp16. Statistics, reductions and everything named float are fp32. An operation computes in fp32
 * and rounds once, to nearest even, when it stores.
 *
 * Operations of one context run in order. They are deterministic: the same inputs give the same
 * bits, whatever the number of threads. Outputs may hold anything before, except where a comment
 * says that an operation adds to them. An operation that fails makes its context failed; the next
 * mfk_sync() says why. Pointers are to the device's memory unless a comment says "host".
 */
#ifndef MFK_KERNELS_H
#define MFK_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/dtypes.h"

/* ---- devices ---- */

struct mfk_device; /* its memory and processors */
struct mfk_ctx;	   /* a stream of operations, one after the other */
struct mfk_event;  /* a place in a stream */

struct mfk_device_info {
	char name[128];	       /* "NVIDIA H200", or the processor's */
	uint64_t memory, free; /* bytes */
	unsigned units;	       /* multiprocessors, or threads */
	unsigned capability;   /* 90 for sm_90; 0: no GPU */
};

/* All functions that return int return 0 or -errno. why, of MFK_WHY bytes, gets a sentence. */
#define MFK_WHY 256

struct mfk_device_ops {
	/* An operation has run when its call returns, in whatever context: no two run at the same
	 * time. */
	bool at_once;
	/* index: of the GPU; threads: of the CPU, 0: one a processor. -ENODEV: there is none. */
	int (*open)(int index, unsigned threads, struct mfk_device **ret, char *why);
	void (*close)(struct mfk_device *d);
	void (*info)(struct mfk_device *d, struct mfk_device_info *ret);
	/* Device memory, aligned to 256 bytes. NULL: there is not enough. */
	void *(*alloc)(struct mfk_device *d, size_t bytes);
	void (*free)(struct mfk_device *d, void *p);
	/* Host memory that copies to and from the device need not stage (pinned), aligned to a
	 * page. */
	void *(*host_alloc)(struct mfk_device *d, size_t bytes);
	void (*host_free)(struct mfk_device *d, void *p, size_t bytes);

	/* background: operations and copies that give way to those of other contexts. A context is
	 * used by one thread at a time. */
	int (*ctx_new)(struct mfk_device *d, bool background, struct mfk_ctx **ret, char *why);
	void (*ctx_free)(struct mfk_ctx *c);
	/* Waits for all operations of the context. Fails with the first error of any of them. */
	int (*sync)(struct mfk_ctx *c, char *why);
	/* The operations that are submitted to c up to now. An event may be recorded again. Any
	 * thread may wait. Waiting for an event that was never recorded returns at once. */
	int (*event_new)(struct mfk_device *d, struct mfk_event **ret);
	void (*event_free)(struct mfk_event *e);
	void (*event_record)(struct mfk_ctx *c, struct mfk_event *e);
	void (*event_wait)(struct mfk_ctx *c,
			   struct mfk_event *e);	   /* later operations of c wait for e */
	int (*event_sync)(struct mfk_event *e, char *why); /* the caller waits for e */
	/* Writes when the context gets there, to pinned host memory: ns of a clock that the
	 * device's contexts share. A device that computes nothing writes nothing. */
	void (*stamp)(struct mfk_ctx *c, int64_t *ns);

	void (*copy)(struct mfk_ctx *c, void *to, const void *from, size_t bytes);
	void (*copy_in)(struct mfk_ctx *c, void *to, const void *host, size_t bytes);
	void (*copy_out)(struct mfk_ctx *c, void *host, const void *from, size_t bytes);
	void (*zero)(struct mfk_ctx *c, void *p, size_t bytes);
};

/* ---- matrices of 8 bits ---- */

/* What a matrix of 8-bit elements q was made with: q = x * scale, so that x is about q * inverse.
 * Device memory, aligned to 16 bytes as it is. */
struct mfk_scale {
	float inverse; /* 1 / scale */
	float scale;
	float amax; /* the greatest |x| that was seen */
	float unused;
};

/*
 * x becomes 8-bit elements: x * scale in fp32, rounded to nearest even. What is beyond the largest
 * element, an infinity too, becomes the largest; a NaN becomes 0x7f. Formulas are in eight_bits.h.
 *
 * qt is q transposed, as products of sums over rows want it. Its columns from rows on, up to the
 * next multiple of MFK_SCALED_STEP, become 0, so that such a sum may go over them.
 *
 * Rows of several groups (experts' tokens) have a scale for each. Their columns in qt begin
 * at mfk_group_column(), each group's with zeros up to such a multiple.
 */
struct mfk_quantise {
	enum mfk_dtype from, to; /* from: of x, fp32, bf16 or fp16; to: e4m3 or e5m2 */
	int64_t rows, cols, ld;	 /* ld: elements between rows of x */
	const void *x;
	void *q;		  /* [rows, cols]; NULL: not wanted */
	void *qt;		  /* [cols, rows], rows of ld_qt elements; NULL: not wanted */
	int64_t ld_qt;		  /* a multiple of MFK_SCALED_STEP */
	int64_t groups;		  /* 0: all rows have one scale */
	const int64_t *offsets;	  /* [groups + 1], as of struct mfk_gemm_grouped; offsets[groups] is
				   rows */
	struct mfk_scale *scales; /* one, or [groups] */
	/* The scales are used as they are, and quantise raises their amax. Otherwise it makes
	 * scale and inverse of amax. */
	bool given;
};

/*
 * Delayed scaling: the next scales follow from the amax of this pass and of those before. Of each
 * of count scales, with m = seen.amax and h its history:
 *
 *   a = m, or with greatest the greatest of m and h[1], ..., h[length - 1]; 0 where m is 0
 *   if a is above 0 and finite: scale = most / a, at most FLT_MAX, and inverse = 1 / scale
 *   if m is not 0: h = [0, h[2], ..., h[length - 1], m]
 *
 * amax of scales and of seen become 0. Source: TransformerEngine,
 * common/recipe/delayed_scaling.cu: kernel_bulk.
 */
struct mfk_update_scales {
	int64_t count, length;
	float most; /* the largest element of the format, times 2^-margin */
	bool greatest;
	struct mfk_scale *scales, *seen; /* [count]; may be the same */
	float *history;			 /* [length, count] */
};

/* ---- matrix products ---- */

/* What scales operands of 8 bits have. */
enum mfk_scaling {
	MFK_SCALING_NONE,   /* operands have more bits */
	MFK_SCALING_TENSOR, /* one for each matrix */
};

/*
 * c[m,n] = alpha op(a) op(b) + beta c (+ bias[n]). op(a) is [m,k] and op(b) [k,n]; with trans_a the
 * memory is [k,m], with trans_b [n,k]. ld: elements between rows in memory. With beta 0, c is not
 * read.
 *
 *   forward   y[T,N]  = x[T,K] w[N,K]^T        trans_b
 *   backward  dx[T,K] = dy[T,N] w[N,K]
 *             dw[N,K] += dy[T,N]^T x[T,K]      trans_a, beta 1, c fp32 (main gradients)
 *
 * alike: a row of c has the same bits whatever m is and wherever the row is, so far as the backend
 * can: the CPU's can, and computes few rows at a time. Not with trans_a.
 *
 * Operands of 8 bits are both of 8 bits, and not both e5m2; rows of their memory are along k: not
 * trans_a, and trans_b. mfk_gemm_refusal() (eight_bits.h) has their other rules, and a
 * backend fails where it refuses. Then op(a) op(b) is multiplied by inverse of both scales, too.
 */
struct mfk_gemm {
	int64_t m, n, k;
	bool trans_a, trans_b;
	enum mfk_dtype dtype_a, dtype_b; /* the same, or 8 bits both */
	enum mfk_dtype dtype_c, dtype_bias;
	const void *a, *b;
	void *c;
	int64_t lda, ldb, ldc;
	const void *bias; /* NULL: none */
	float alpha, beta;
	bool alike;
	enum mfk_scaling scaling;
	const struct mfk_scale *scale_a, *scale_b; /* with scaling */
	/* Sums of products of 8 bits may be as inexact as the device's fastest ones. */
	bool fast_accumulate;
};

/*
 * One product for each group g, of the rows [offsets[g], offsets[g+1]) of the tokens. A group
 * without rows has no product; of a weight gradient with beta 0 its part is zeroed.
 *
 * Forward and backward for inputs: the rows are those of a and c, and b of group g begins at b + g
 * * stride elements. Weight gradients (trans_a): the rows are k, of a and b, and c of group g
 * begins at c + g * stride. base.m, or k, is all rows: offsets[groups].
 *
 * Of 8-bit operands group g has the scales scale_a[g] and scale_b[g], and weight gradients (along_k
 * instead of trans_a) are of transposed matrices, as quantise gives them: a [m, k], b [n, k], where
 * group g has the columns from mfk_group_column() on.
 */
struct mfk_gemm_grouped {
	struct mfk_gemm base;
	bool along_k;
	int64_t groups;
	const int64_t *offsets; /* [groups + 1] */
	/* The same on the host, where the operation wants them: gemm_grouped_wants_host(). NULL: it
	 * fetches them, and waits. */
	const int64_t *host_offsets;
	int64_t stride; /* elements */
};

/* ---- norms ---- */

/* y = norm(x) * weight (+ bias); with zero_centered the weight is stored as weight - 1. With
 * residual, sum = x + residual, rounded to the io type, and sum is what is normalised. */
struct mfk_norm {
	enum mfk_dtype dtype;
	int64_t rows, cols;
	bool layernorm; /* else RMSNorm */
	bool zero_centered;
	float eps;
	const void *x, *residual;  /* residual NULL: none */
	const void *weight, *bias; /* [cols]; bias NULL: none */
	void *sum;		   /* [rows, cols]; may be x or residual */
	void *y;		   /* [rows, cols] */
	float *mean, *rstd;	   /* [rows]; mean of LayerNorm alone */
};

/* dx = gradient through the norm (+ dresidual); dweight and dbias are added to. */
struct mfk_norm_backward {
	enum mfk_dtype dtype, grad; /* grad: of dweight and dbias */
	int64_t rows, cols;
	bool layernorm, zero_centered;
	const void *x; /* what was normalised: sum, if there was a residual */
	const void *weight, *dy;
	const void *dresidual; /* NULL: none; may be dx */
	const float *mean, *rstd;
	void *dx;
	void *dweight, *dbias; /* dbias NULL: none */
};

/* ---- queries, keys and values ---- */

/*
 * Splits Megatron's packed qkv into q, k and v, normalises q and k (Qwen3), and turns them (RoPE).
 *
 *   qkv [T, groups, heads_per_group + gates + 2, dim]   q, ..., q, gates, k, v of each group
 *   q   [T, groups * heads_per_group, dim]              k, v [T, groups, dim]
 *
 * Elements [0, rotary_dim) of a head are turned: halves (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1
 * sin), or neighbours if interleaved. rotary_dim 0: none are. cos and sin: [positions, rotary_dim /
 * 2].
 */
struct mfk_qkv {
	enum mfk_dtype dtype, grad; /* grad: of the gradients of norms */
	int64_t tokens, groups, heads_per_group, dim, rotary_dim;
	int64_t gates; /* heads of each group that are neither read nor written: see mfk_gate */
	bool interleaved;
	const float *cos, *sin;
	const int32_t *positions; /* [T] */
	bool layernorm, zero_centered;
	float eps;
	const void *q_norm, *k_norm;	       /* [dim]; NULL: no norms */
	const void *q_norm_bias, *k_norm_bias; /* NULL: none */
	/* [T, heads] for q, [T, groups] for k; kept for backward */
	float *q_mean, *q_rstd, *k_mean, *k_rstd;
	const void *qkv;
	void *q, *k, *v;
	/* backward: dqkv from dq, dk, dv; the four last are added to */
	const void *dq, *dk, *dv;
	void *dqkv;
	void *dq_norm, *dk_norm, *dq_norm_bias, *dk_norm_bias;
};

/* ---- attention ---- */

/*
 * out = dropout(softmax(scale q k^T)) v for each head; a group of heads / kv_heads heads shares a
 * key head. Query i of a sequence sees keys first_key[i] to i; first_key NULL: from 0. So documents
 * and sliding windows are one thing. Not causal: all keys.
 *
 * Queries and keys may be parts of a longer sequence (context parallelism): of its positions they
 * have query_at[i] and key_at[j], both ascending, and a query sees the keys whose positions are in
 * [first_key[i], query_at[i]]. One that sees none has an out of 0 and an lse of -infinity. Backward
 * of some of the keys, with the out and lse of all, gives what these keys add to dq.
 */
struct mfk_attention {
	enum mfk_dtype dtype;
	int64_t batch, seq, heads, kv_heads, qk_dim, v_dim; /* seq: queries of a sequence */
	int64_t keys, whole;	 /* keys of a sequence, and its positions; 0: both are seq */
	const int32_t *query_at; /* [seq]; NULL: i */
	const int32_t *key_at;	 /* [keys]; NULL: j */
	float scale;
	bool causal;
	const int32_t *first_key; /* [batch, seq], in the sequence */
	/* backward may add up in no fixed order, where that is faster: not the same bits twice */
	bool atomics;
	float dropout;
	uint64_t seed, offset; /* of dropout: element e of [batch, heads, whole, whole] (positions
				  of query and key) has number offset + e */
	const void *q, *k,
		*v; /* [batch, seq, heads, qk_dim], [batch, keys, kv_heads, qk_dim or v_dim] */
	void *out;  /* [batch, seq, heads, v_dim] */
	float *lse; /* [batch, heads, seq]: logarithm of the sum of exponentials; for backward */
	const void *dout;
	void *dq, *dk, *dv;
	void *scratch; /* of attention_scratch() bytes */
};

static inline bool mfk_is_part(const struct mfk_attention *a)
{
	return a->keys || a->query_at || a->key_at;
}

/*
 * Attention to some of the keys (part, part_lse) joins what attention to others gave: out becomes
 * the values' sum over all of them, and lse the logarithm of the sum of all exponentials. Where
 * lse is -infinity there are no keys yet, and out may hold anything.
 */
struct mfk_attention_join {
	enum mfk_dtype dtype; /* of part */
	int64_t batch, seq, heads, v_dim;
	const void *part;      /* [batch, seq, heads, v_dim] */
	const float *part_lse; /* [batch, heads, seq] */
	float *out;	       /* [batch, seq, heads, v_dim] */
	float *lse;	       /* [batch, heads, seq] */
};

/*
 * Attention of tokens that go on with sequences, whose earlier keys and values lie in a cache:
 * token t is at a position of a sequence. All tokens' keys and values are put into the cache first.
 * Then
 *
 *   out[t] = softmax(scale q[t] k^T) v
 *
 * of the cached keys at positions 0 to position[t], or of the last window of them. So several
 * tokens of a sequence may be there at once. A token whose sequence is negative is none: its out is
 * 0. What one token gets does not depend on the others.
 */
struct mfk_attention_cached {
	enum mfk_dtype dtype;
	int64_t tokens, heads, kv_heads, qk_dim, v_dim;
	int64_t length; /* positions that a sequence has room for */
	int64_t window; /* 0: all keys */
	float scale;
	const int32_t *sequence, *position; /* [T] */
	const void *q, *k, *v;		    /* [T, heads, qk_dim], [T, kv_heads, qk_dim or v_dim] */
	void *keys, *values;		    /* [sequences, length, kv_heads, qk_dim or v_dim] */
	void *out;			    /* [T, heads, v_dim] */
};

/*
 * y = x f(gate), where f is the sigmoid (output gates of attention) or SiLU (those of a gated delta
 * net). Rows of gates and of dgate begin ld elements apart. y may be x, and dx may be dy.
 */
struct mfk_gate {
	enum mfk_dtype dtype;
	bool silu;
	int64_t rows, cols, ld;
	const void *x, *gate;
	void *y; /* [rows, cols] */
	const void *dy;
	void *dx, *dgate;
};

/* ---- the gated delta net ---- */

/*
 * A gated delta net computes, in two operations, outputs of the rows of one product:
 *
 *   packed [T, 2 K + 2 V + 2 value_heads]   K = key_heads * key_dim, V = value_heads * value_dim
 *                                           q, k, v, z, b and a of each token; z is not looked at
 *
 * delta_inputs: each column of q, k and v is convolved along its sequence with the width elements
 * that conv has for it, the last of which is the token's own, and before a sequence there are
 * zeros. SiLU follows. Heads of q and k are divided by sqrt(sum of squares + MFK_DELTA_EPS). And
 *
 *   decay = -exp(a_log) softplus(a + dt_bias)     beta = sigmoid(b)
 *
 * delta_rule: a head of values has a state S [key_dim, value_dim], zeros before a sequence, and
 * uses the q and k of head h key_heads / value_heads. With each token
 *
 *   S = exp(decay) S;   S += k (beta (v - S^T k))^T;   out = scale S^T q
 *
 * S is fp32. Backward of the rule computes the states again. Both backward operations work in
 * scratch, of delta_scratch() bytes.
 *
 * Source: megatron/core/ssm/gated_delta_net.py.
 */
#define MFK_DELTA_EPS 1e-6f

struct mfk_delta {
	enum mfk_dtype dtype, grad; /* grad: of dconv, da_log and ddt_bias */
	int64_t batch, seq, key_heads, value_heads, key_dim, value_dim, width;
	float scale;
	const void *packed;
	const void *conv;	     /* [2 K + V, width] */
	const void *a_log, *dt_bias; /* [value_heads] */
	void *q, *k, *v;	     /* [T, K], [T, K], [T, V] */
	float *decay, *beta;	     /* [T, value_heads] */
	void *out;		     /* [T, V] */
	/* backward of the rule writes these, and that of the inputs reads them */
	const void *dout;
	void *dq, *dk, *dv;
	float *ddecay, *dbeta;
	void *scratch;
	/* backward of the inputs: dpacked without its z; the three last are added to */
	void *dpacked;
	void *dconv, *da_log, *ddt_bias;
};

/* Backward cuts a sequence into chunks of so many tokens: it has the states that chunks begin with,
 * and those of one chunk. */
static inline int64_t mfk_delta_chunk(int64_t seq)
{
	int64_t chunk = 1;

	while (chunk * chunk < seq)
		chunk++;
	return chunk;
}

/* ---- mixture of experts ---- */

enum mfk_score { MFK_SCORE_SOFTMAX, MFK_SCORE_SIGMOID, MFK_SCORE_SQRT_SOFTPLUS };

/*
 * The experts of each token, and their probabilities, of the router's logits. Scores are fp32:
 *
 *   softmax               chosen by logits; probabilities: softmax of those that are chosen
 *   softmax, pre_softmax  chosen by the softmax of all, which is the probability
 *   sigmoid, ...          chosen by the score (+ bias); probabilities: scores without bias, which
 *                         are divided by their sum if top_k > 1
 *
 * All probabilities are multiplied by scale and rounded to the type of logits. Of equal experts the
 * one with the lower number is chosen. With groups of experts, only those of the group_top_k groups
 * are chosen whose best top_k / group_top_k experts have the greatest sum.
 *
 * Losses, for each token, to be added up; sequences of balance_tokens tokens are balanced. Scores
 * are normalised (softmax of all; sigmoid, ... divided by the sum of all):
 *
 *   load[s, e]   tokens of sequence s that would choose e by scores, without bias and groups
 *   balance[t]   sum over e of score[t, e] weight[s, e]. route_balance() adds it after route(), of
 *                weights that struct mfk_balance makes of loads
 *   z[t]         z_factor * (logarithm of the sum of exponentials of logits)^2
 *
 * Source: megatron/core/transformer/moe/moe_utils.py: topk_routing_with_score_function,
 * switch_load_balancing_loss_func, z_loss_func.
 */
struct mfk_route {
	enum mfk_dtype dtype; /* of logits */
	enum mfk_score score;
	bool pre_softmax;
	int64_t tokens, experts, top_k;
	int64_t groups, group_top_k; /* groups 0: none */
	float scale;
	const void *logits; /* [T, experts] */
	const float *bias;  /* [experts]; NULL: none */
	const float *key;   /* [T, experts]: experts are chosen by these instead; NULL: not */
	int32_t *expert;    /* [T, top_k], ascending */
	float *prob;	    /* [T, top_k] */
	int64_t balance_tokens;
	float z_factor;
	int32_t *load;	     /* [T / balance_tokens, experts]; NULL: they are not counted */
	float *z;	     /* [T]; NULL: no such loss */
	const float *weight; /* [T / balance_tokens, experts]; of route_balance() and backward */
	float *balance;	     /* [T]; of route_balance() */
	/* backward: the gradient of the sum of dprob prob, dbalance score[t, e] weight[s, e] and dz
	 * lse[t]^2, where weight is a constant. dprob of choice i (token * top_k + k) is at row[i];
	 * row[i] below 0: it is 0 */
	const float *dprob;
	const int32_t *row; /* [T, top_k]; NULL: dprob is in the order of choices */
	float dbalance, dz;
	void *dlogits; /* [T, experts] */
};

/*
 * Keys by which tokens choose all experts alike: key[t, e] = d1[e] e^logit[t, e] d0[t], where d0
 * and d1 begin as ones and become, in turns,
 *
 *   d0[t] = 1 / T / (sum over e of d1[e] e^logit[t, e] + eps)
 *   d1[e] = 1 / experts / (sum over t of d0[t] e^logit[t, e] + eps)
 *
 * with eps = 1e-8, until the mean of |d1's change| is at most 1e-4, or for MFK_SINKHORN_TURNS.
 * Tokens are [sequences, length], and each group of positions, as struct mfk_drop's are, has T
 * tokens, a d0 and a d1 of its own. All is in fp32.
 *
 * Source: megatron/core/transformer/moe/moe_utils.py: sinkhorn.
 */
#define MFK_SINKHORN_TURNS     1000
#define MFK_SINKHORN_TOLERANCE 1e-4f
#define MFK_SINKHORN_EPS       1e-8f

struct mfk_sinkhorn {
	enum mfk_dtype dtype;
	int64_t sequences, length, groups, experts;
	const void *logits; /* [sequences * length, experts] */
	float *key;	    /* [sequences * length, experts] */
};

/*
 * Loads become weights of a loss that balances experts, in two operations, so that processes can
 * add up sums between them:
 *
 *   balance_sum     sum[s, e] = load[s, e], or, if not apart, sum[e] = that of all sequences
 *   balance_weigh   weight[s, e] = factor * sum; total[s, e] (+)= coeff * weight
 *
 * With running, sums are those of one microbatch of several, and weights are of the mean so far:
 * running[e] += sum[e], running[experts] += 1, and running[e] / running[experts] is taken.
 *
 * Source: megatron/core/transformer/moe/router.py: _apply_aux_loss, _apply_seq_aux_loss,
 * _apply_global_aux_loss.
 */
struct mfk_balance {
	int64_t sequences, experts;
	bool apart;
	const int32_t *load; /* [sequences, experts] */
	float *sum;	     /* [sequences, experts], or [experts] */
	float *running;	     /* [experts + 1]; NULL: none. Not with apart */
	float factor, coeff;
	float *weight, *total; /* [sequences, experts] */
	bool adds;	       /* to total */
};

/*
 * Experts have room for a number of choices of each group of tokens; others are dropped. Tokens are
 * [sequences, length], and group g has the positions [g, g + 1) * length / groups of all sequences.
 * An expert takes those of the greatest probability, or the first; of equal ones the first, which
 * is that of the lower position, then of the lower sequence.
 *
 * Source: megatron/core/transformer/moe/moe_utils.py: apply_router_token_dropping.
 */
struct mfk_drop {
	int64_t sequences, length, groups, experts, top_k;
	int64_t capacity; /* of an expert, for a group */
	bool by_prob;
	const int32_t *expert; /* [T, top_k] */
	const float *prob;     /* [T, top_k] */
	int32_t *taken;	       /* [T, top_k]: expert, or -1: it is dropped */
};

/*
 * Sorts choices by expert, those of one expert in the order of tokens. Row r of the sorted is
 * choice from[r], and choice i is row row[i]. A choice that was dropped has row -1. After the last
 * expert's rows from is -1 and row_prob 0.
 */
struct mfk_dispatch {
	int64_t tokens, experts, top_k;
	const int32_t *expert; /* [T, top_k]; below 0: it was dropped */
	const float *prob;     /* [T, top_k] */
	int64_t *offsets;      /* [experts + 1]: the first row of each expert */
	int32_t *row, *from;   /* [T * top_k] */
	float *row_prob;       /* [T * top_k]: prob of from[r] */
	int32_t *totals;       /* [experts]: choices of each are added; NULL: not wanted */
};

/*
 * Rows from where a map says. gather: y[r] = x[map[r] / each]. combine: y[r] = residual[r] + sum
 * over k < each of x[map[r * each + k]], rounded once. Each is the other's gradient. Where the map
 * is negative there is no row: gather leaves y[r] as it is, and combine adds nothing.
 */
struct mfk_rows {
	enum mfk_dtype dtype;
	int64_t rows, cols, each; /* of y */
	const int32_t *map;
	const void *x;
	const void *residual; /* combine; NULL: none; may be y */
	void *y;
};

/*
 * Biases of experts, of rows that are sorted by expert: rows [offsets[g], offsets[g + 1]) have that
 * of group g, which begins at bias + g * stride elements. Rows from offsets[groups] on have none.
 *
 *   forward    y[r] += scale[r] bias[g], rounded once
 *   backward   dbias[g] += sum over its rows of scale[r] dy[r]; dscale[r] += dy[r] . bias[g]
 *
 * Source: megatron/core/transformer/moe/experts.py: TEGroupedMLP._apply_bias.
 */
struct mfk_group_bias {
	enum mfk_dtype dtype, grad; /* grad: of dbias */
	int64_t rows, cols, groups;
	const int64_t *offsets; /* [groups + 1] */
	int64_t stride;
	const float *scale; /* [rows]; NULL: 1 */
	const void *bias;
	void *y; /* [rows, cols] */
	/* backward */
	const void *dy;
	void *dbias;   /* as bias lies */
	float *dscale; /* [rows]; NULL: not wanted */
};

/* ---- multi-latent attention ---- */

/*
 * Queries, keys and values of what the up-projections give. Elements [nope, nope + rotary_dim) of a
 * head of q, and all heads' shared k_rope, are turned: pairs of neighbours (x1, x2) -> x1 cos - x2
 * sin in the first half of rotary_dim, x2 cos + x1 sin in the second.
 *
 *   q_up [T, heads, nope + rope]   kv_up [T, heads, nope + v_dim]   k_rope [T, rope]
 *   q, k [T, heads, nope + rope]   v [T, heads, v_dim]
 *
 * Source: megatron/core/transformer/multi_latent_attention.py; rope_utils.py:
 * _apply_rotary_pos_emb_bshd with multi_latent_attention.
 */
struct mfk_mla {
	enum mfk_dtype dtype;
	int64_t tokens, heads, nope, rope, rotary_dim, v_dim;
	const float *cos, *sin;	  /* [positions, rotary_dim / 2] */
	const int32_t *positions; /* [T] */
	const void *q_up, *kv_up, *k_rope;
	void *q, *k, *v;
	/* backward */
	const void *dq, *dk, *dv;
	void *dq_up, *dkv_up, *dk_rope;
};

/* ---- activations ---- */

enum mfk_activation {
	MFK_GELU_TANH,
	MFK_GELU_ERF,
	MFK_SILU,
	MFK_RELU_SQUARED,
	MFK_QUICK_GELU, /* x sigmoid(1.702 x) */
};

/* y[T,F] = f(x[T,F]), or gated: y[T,F] = f(x[:, :F]) * x[:, F:] of x [T,2F]. x is rounded already
 * and has its bias. row_scale: [T] fp32 or NULL: y is multiplied by it (a routed token's
 * probability). */
struct mfk_act {
	enum mfk_dtype dtype;
	enum mfk_activation kind;
	bool gated;
	int64_t rows, cols; /* of y */
	const float *row_scale;
	const void *x;
	void *y;
	/* backward */
	const void *dy;
	void *dx;	   /* may be x, or dy if nothing is gated */
	float *drow_scale; /* [T]; NULL: not wanted */
};

/* ---- embedding ---- */

/*
 * y[t] = wte[token] (+ wpe[position]). A token outside of [0, vocab) makes the context failed.
 *
 * Of a table that is divided, wte has the vocab rows from row first on, of all of them: tokens of
 * other rows have zeros there, and no gradient. Source: megatron/core/tensor_parallel/layers.py:
 * VocabParallelEmbedding.
 */
struct mfk_embedding {
	enum mfk_dtype dtype, grad;
	int64_t tokens, cols, vocab, positions_max;
	int64_t first, all;		/* all 0: wte is the whole table */
	const int32_t *ids, *positions; /* [T] */
	const void *wte, *wpe;		/* wpe NULL: none */
	void *y;
	/* backward: dwte and dwpe are added to, each row by one thread in the order of tokens.
	 * order: numbers of tokens, sorted by id and then by number; position_order: by position.
	 */
	const int32_t *order, *position_order;
	const void *dy;
	void *dwte, *dwpe;
};

/* ---- loss ---- */

/*
 * Cross entropy of rows of logits. All columns take part in the softmax, padded ones too, as in
 * Megatron. loss[t] = lse - logit[label]. With dlogits: (softmax - onehot) * scale[t] in the io
 * type; it may be logits.
 *
 * Logits whose columns are divided are gone through twice: cross_entropy_part() says of the columns
 * here what cross_entropy_join() needs of all parts. Labels are numbers of the whole vocabulary.
 * Source: megatron/core/tensor_parallel/cross_entropy.py: VocabParallelCrossEntropy.
 */
struct mfk_cross_entropy {
	enum mfk_dtype dtype;
	int64_t rows, vocab, ld;
	const void *logits;    /* [rows, ld] */
	const int32_t *labels; /* [rows] */
	const float *scale;    /* [rows] */
	float *loss;	       /* [rows] */
	float *lse;	       /* [rows]; NULL: not wanted */
	void *dlogits;	       /* NULL: no gradient is wanted */
	/* of divided columns: the first one here, and how many all parts have */
	int64_t first, all;
	int64_t part, parts;
	/* [parts][3][rows]: the greatest logit; the sum of e^(logit - greatest); the label's logit,
	 * or 0 where another part has it. cross_entropy_part() writes [part]. */
	float *stats;
};

/*
 * Log-probs of labels, and entropies, of rows of logits. With z = by * logit:
 *
 *   log_prob = z[label] - log(sum of e^z)       entropy = -sum of p log p
 *
 * Of the columns of the whole vocabulary the first `known` ones take part. Those after them are
 * padding: nothing is looked at there, and their gradient is 0. Three operations, so that what
 * follows from log_prob and entropy can be computed before the gradient is:
 *
 *   log_probs_part      stats of the columns here
 *   log_probs_join      log_prob and entropy, from the stats of all parts
 *   log_probs_backward  dlogits = by (dlog_prob (onehot - p) - dentropy p (log p + entropy)), from
 *                       the stats of all parts and from entropy
 */
struct mfk_log_probs {
	enum mfk_dtype dtype;
	int64_t rows, vocab, ld;
	float by;	       /* 1 / temperature */
	const void *logits;    /* [rows, ld] */
	const int32_t *labels; /* [rows], numbers of the whole vocabulary, below known */
	int64_t first, known;  /* the first column here; columns that are no padding */
	int64_t part, parts;
	/* [parts][4][rows]: the greatest z; the sum of e^(z - greatest); the label's z, or 0 where
	 * another part has it; the sum of e^(z - greatest) (z - greatest). log_probs_part() writes
	 * [part]. A part without known columns has -infinity, 0, 0, 0. */
	float *stats;
	float *log_prob, *entropy; /* [rows] */
	const float *dlog_prob;	   /* [rows] */
	const float *dentropy;	   /* [rows]; NULL: 0 */
	void *dlogits;		   /* [rows, ld], in the io type; may be logits */
};

/*
 * The loss of a policy, of tokens that it has sampled. delta is log_prob - old; with sequence_ratio
 * it is the mean of that over the counted tokens of a response. Of each kind
 * (kernels/policy_row.h has the formulas, which both backends compile):
 *
 *   clip   max(-A r, -A clip(r, least, most)), and at most -A dual where A < 0; r = e^delta
 *   cispo  -clip(r, least, most) A log_prob, where the factors of log_prob have no gradient
 *   plain  -A log_prob
 *
 * loss = weight * that + kl_weight * KL - entropy_weight * entropy. weight has no gradient. With
 * corrects it is e^(old - rollout), held in [weight_least, weight_most] or, with weight_masks, 0
 * outside of it. Otherwise it is 1.
 */
enum mfk_policy_kind { MFK_POLICY_CLIP, MFK_POLICY_CISPO, MFK_POLICY_PLAIN };
/* Of d = log_prob - reference: d, d^2 / 2, e^-d + d - 1. */
enum mfk_kl_kind { MFK_KL_K1, MFK_KL_K2, MFK_KL_K3 };
/* What is reported of each token. */
enum mfk_policy_term {
	MFK_POLICY_LOSS,
	MFK_POLICY_KL,
	MFK_POLICY_RATIO,
	MFK_POLICY_ENTROPY,
	MFK_POLICY_ABOVE, /* 1 where the ratio is above most */
	MFK_POLICY_BELOW, /* 1 where it is below least */
	MFK_POLICY_DRIFT, /* |rollout - old| */
	MFK_POLICY_WEIGHT,
	MFK_POLICY_TERMS
};

struct mfk_policy_rule {
	enum mfk_policy_kind kind;
	enum mfk_kl_kind kl;
	bool sequence_ratio, corrects, weight_masks;
	float least, most, dual; /* dual: INFINITY for none */
	float kl_weight, entropy_weight;
	float weight_least, weight_most;
};

/* Rows are tokens [first, first + rows) of a microbatch; arrays begin at token first. A row whose
 * mask is 0 counts nowhere: all that is written of it is 0, whatever its values are. */
struct mfk_policy {
	struct mfk_policy_rule rule;
	int64_t rows, first;
	const float *log_prob, *entropy;
	const float *old;	/* NULL: log_prob itself, without a gradient */
	const float *reference; /* NULL: there is no KL */
	const float *rollout, *advantage, *mask;
	const float *scale;		/* of the gradients */
	float *terms[MFK_POLICY_TERMS]; /* [rows] each; NULL: not wanted */
	float *dlog_prob, *dentropy;	/* scale * the loss's derivatives; NULL: not wanted */
	/* Of sequence_ratio: the response of each row, number[row] in its sample, of `length` rows
	 * each, a sample after the other; and of each response, [samples][limit][2], the sum of
	 * log_prob - old over the rows whose mask is not 0, and how many these are. A number is
	 * below limit; the rows of a number that is negative are no response's. */
	const int32_t *number;
	int64_t length, limit;
	float *sums;
};

/*
 * Tokens drawn of rows of logits, which may lie in parts, [parts][rows, ld], with so many columns
 * of the vocabulary each. Columns from vocab on are padding. Number i is drawn of row[i]:
 *
 *   z        logits / temperature; temperature 0: logits, and the token is the greatest one's
 *   top_k    those are left whose z is at least the top_k greatest; 0: all
 *   top_p    of these those are left whose z is at least t, where t is as great as possible and the
 *            probabilities of what is left sum up to at least top_p of those of all; 1: all
 *   token    the first, by number, up to which and including which the probabilities of what is
 *            left sum up to more than u of their sum
 *
 * Of equal greatest the first is taken; equal ones are left or not together. u = (a 2^21 + b /
 * 2^11) / 2^53 (a whole division), of the Philox numbers a and b, 2 number[i] and 2 number[i] + 1,
 * of seed[i]. log_prob[i] is the logarithm of softmax(z) at the token, over the whole vocabulary,
 * before anything is left out. Where a row has a NaN or no greatest number that is finite, the
 * token is -1.
 */
struct mfk_sample {
	enum mfk_dtype dtype;
	int64_t count;			      /* of tokens */
	int64_t rows, vocab, parts, cols, ld; /* parts * cols is at least vocab */
	const void *logits;
	float temperature, top_p;
	int64_t top_k;
	const int32_t *row;	       /* [count] */
	const uint64_t *seed, *number; /* [count] */
	int32_t *token;		       /* [count] */
	float *log_prob;	       /* [count] */
};

/*
 * The operations of losses, which go through rows of logits and may leave their gradient there:
 * ROW(OP, NAME, ARGS, ALONE, GRADIENT). They take a struct mfk_ARGS, which has dtype, rows, vocab
 * and dlogits. ALONE, GRADIENT: how many times they read or write all logits, without dlogits and
 * with it.
 */
#define MFK_LOSS_OPS(ROW, OP)                                                                      \
	ROW(OP, cross_entropy, cross_entropy, 1, 2)                                                \
	ROW(OP, cross_entropy_part, cross_entropy, 1, 1)                                           \
	ROW(OP, cross_entropy_join, cross_entropy, 0, 2)                                           \
	ROW(OP, log_probs_part, log_probs, 1, 1)                                                   \
	ROW(OP, log_probs_join, log_probs, 0, 0)                                                   \
	ROW(OP, log_probs_backward, log_probs, 0, 2)
#define MFK_LOSS_OP(OP, name, ...) OP(name)

/* ---- random numbers ---- */

/*
 * Philox4x32-10 (Salmon and others, SC 2011), with the halves of the seed as its key. Number n is
 * word n % 4 of counter n / 4, so any thread can compute number n from n alone, in any order.
 *
 * Dropout keeps element e if the upper 24 bits of number offset + e are at least p 2^24.
 *
 *   dropout   y = residual + x * mask / (1 - p); residual NULL: none
 *   backward  y = x * mask / (1 - p), of x = dy; residual is not looked at
 */
struct mfk_dropout {
	enum mfk_dtype dtype;
	int64_t count;
	float p;
	uint64_t seed, offset;
	const void *x, *residual;
	void *y;
};

/* ---- optimizer ---- */

/*
 * AdamW on a range of flat buffers (Megatron: decoupled decay, bias correction, eps outside of the
 * root): g = grad * grad_scale; m, v; main -= lr * (mhat / (sqrt(vhat) + eps) + wd * main); weight
 * = main rounded. main NULL: the weights are fp32 and their own main parameters.
 */
struct mfk_adamw {
	enum mfk_dtype weight_type, grad_type, main_type, m_type, v_type;
	int64_t count;
	void *weight, *main, *m, *v;
	const void *grad;
	float lr, beta1, beta2, eps, wd;
	float correction1, correction2; /* 1 - beta^step */
	float grad_scale;
	/* plain Adam: decay is added to the gradient instead (--no-... decoupled_weight_decay
	 * false) */
	bool l2;
};

/*
 * SGD on a range of flat buffers (torch.optim.SGD and Apex' FusedSGD, without dampening and not
 * nesterov): g = grad * grad_scale + wd * main; m = momentum * m + g; main -= lr * m; weight = main
 * rounded. m NULL: there is no momentum, and main -= lr * g. main NULL: as of AdamW.
 */
struct mfk_sgd {
	enum mfk_dtype weight_type, grad_type, main_type, m_type;
	int64_t count;
	void *weight, *main, *m;
	const void *grad;
	float lr, momentum, wd;
	float grad_scale;
};

/*
 * The momentum of a range of gradients as a mean, and the update that follows from it: g = grad *
 * grad_scale; m += rest (g - m), where rest is 1 - momentum; update = m, or with nesterov g +
 * momentum (m - g).
 */
struct mfk_momentum {
	enum mfk_dtype grad_type;
	int64_t count;
	const void *grad;
	float *m, *update;
	float momentum, rest, grad_scale;
	bool nesterov;
};

/*
 * Rows of one matrix into another one, rounded to its type: to = scale * from / max(sqrt(*squares),
 * least). squares NULL: nothing divides. ld: elements between rows in memory.
 */
struct mfk_copy_rows {
	enum mfk_dtype from_type, to_type;
	int64_t rows, cols, ld_from, ld_to;
	const void *from;
	void *to;
	const double *squares;
	float least, scale;
};

/*
 * x[i] = low + (high - low) u, or the logarithm of that: u = (a / 2^8 + 1) / 2^24, where a is the
 * Philox number offset + i (a whole division by 2^8).
 */
struct mfk_uniform {
	enum mfk_dtype dtype;
	void *x;
	int64_t count;
	float low, high;
	bool logarithm;
	uint64_t seed, offset;
};

struct mfk_ops {
	void (*gemm)(struct mfk_ctx *c, const struct mfk_gemm *a);
	void (*gemm_grouped)(struct mfk_ctx *c, const struct mfk_gemm_grouped *a);
	/* Whether products of a shape want host_offsets; pointers are not looked at. */
	bool (*gemm_grouped_wants_host)(struct mfk_device *d, const struct mfk_gemm_grouped *a);
	/* bias gradient: db[n] += sum over rows of dy[rows, n] */
	void (*bias_backward)(struct mfk_ctx *c, enum mfk_dtype dtype, enum mfk_dtype grad,
			      void *db, const void *dy, int64_t rows, int64_t cols);

	void (*norm)(struct mfk_ctx *c, const struct mfk_norm *a);
	void (*norm_backward)(struct mfk_ctx *c, const struct mfk_norm_backward *a);
	void (*qkv)(struct mfk_ctx *c, const struct mfk_qkv *a);
	void (*qkv_backward)(struct mfk_ctx *c, const struct mfk_qkv *a);

	/* Bytes of scratch that a shape needs; pointers are not looked at. */
	size_t (*attention_scratch)(struct mfk_device *d, const struct mfk_attention *a,
				    bool backward);
	void (*attention)(struct mfk_ctx *c, const struct mfk_attention *a);
	void (*attention_backward)(struct mfk_ctx *c, const struct mfk_attention *a);
	void (*attention_join)(struct mfk_ctx *c, const struct mfk_attention_join *a);
	/* max[head], which is not negative, becomes the largest of itself and of the head's scores
	 * scale q k^T that count. a: of whole sequences, without out and lse. */
	void (*attention_max)(struct mfk_ctx *c, const struct mfk_attention *a, float *max);
	void (*attention_cached)(struct mfk_ctx *c, const struct mfk_attention_cached *a);

	void (*gate)(struct mfk_ctx *c, const struct mfk_gate *a);
	void (*gate_backward)(struct mfk_ctx *c, const struct mfk_gate *a);

	/* Bytes of scratch that backward needs; pointers are not looked at. */
	size_t (*delta_scratch)(struct mfk_device *d, const struct mfk_delta *a);
	void (*delta_inputs)(struct mfk_ctx *c, const struct mfk_delta *a);
	void (*delta_inputs_backward)(struct mfk_ctx *c, const struct mfk_delta *a);
	void (*delta_rule)(struct mfk_ctx *c, const struct mfk_delta *a);
	void (*delta_rule_backward)(struct mfk_ctx *c, const struct mfk_delta *a);

	void (*mla)(struct mfk_ctx *c, const struct mfk_mla *a);
	void (*mla_backward)(struct mfk_ctx *c, const struct mfk_mla *a);

	void (*route)(struct mfk_ctx *c, const struct mfk_route *a);
	void (*route_backward)(struct mfk_ctx *c, const struct mfk_route *a);
	void (*route_balance)(struct mfk_ctx *c, const struct mfk_route *a);
	void (*sinkhorn)(struct mfk_ctx *c, const struct mfk_sinkhorn *a);
	void (*balance_sum)(struct mfk_ctx *c, const struct mfk_balance *a);
	void (*balance_weigh)(struct mfk_ctx *c, const struct mfk_balance *a);
	void (*drop)(struct mfk_ctx *c, const struct mfk_drop *a);
	void (*dispatch)(struct mfk_ctx *c, const struct mfk_dispatch *a);
	void (*gather)(struct mfk_ctx *c, const struct mfk_rows *a);
	void (*combine)(struct mfk_ctx *c, const struct mfk_rows *a);
	void (*group_bias)(struct mfk_ctx *c, const struct mfk_group_bias *a);
	void (*group_bias_backward)(struct mfk_ctx *c, const struct mfk_group_bias *a);
	/* bias[e] += rate * sign of what totals[e] lacks to the mean of totals; totals become 0. */
	void (*balance_bias)(struct mfk_ctx *c, float *bias, int32_t *totals, int64_t experts,
			     float rate);

	void (*act)(struct mfk_ctx *c, const struct mfk_act *a);
	void (*act_backward)(struct mfk_ctx *c, const struct mfk_act *a);
	/* gemm and then act, of its c as x; or gemm and then act_backward, of its c as dy. A
	 * backend may do both as one. Then what was not rounded is activated, and dy has nothing
	 * afterwards. */
	void (*gemm_act)(struct mfk_ctx *c, const struct mfk_gemm *g, const struct mfk_act *a);
	void (*gemm_act_backward)(struct mfk_ctx *c, const struct mfk_gemm *g,
				  const struct mfk_act *a);
	void (*embedding)(struct mfk_ctx *c, const struct mfk_embedding *a);
	void (*embedding_backward)(struct mfk_ctx *c, const struct mfk_embedding *a);
#define OP(unused, name, args, ...) void (*name)(struct mfk_ctx *, const struct mfk_##args *);
	MFK_LOSS_OPS(OP, )
#undef OP
	void (*policy)(struct mfk_ctx *c, const struct mfk_policy *a);
	/* Writes sums, of all samples' rows: first is 0, and rows is a multiple of length. */
	void (*policy_sums)(struct mfk_ctx *c, const struct mfk_policy *a);
	void (*sample)(struct mfk_ctx *c, const struct mfk_sample *a);
	void (*dropout)(struct mfk_ctx *c, const struct mfk_dropout *a);
	void (*dropout_backward)(struct mfk_ctx *c, const struct mfk_dropout *a);

	/* y = a + b; y may be either. */
	void (*add)(struct mfk_ctx *c, enum mfk_dtype dtype, void *y, const void *a, const void *b,
		    int64_t count);
	void (*scale)(struct mfk_ctx *c, enum mfk_dtype dtype, void *x, float by, int64_t count);
	void (*cast)(struct mfk_ctx *c, enum mfk_dtype to_type, void *to, enum mfk_dtype from_type,
		     const void *from, int64_t count);
	/* x[i] = mean + std * normal(offset + i). Of Philox numbers a and b, 2n and 2n + 1, Box and
	 * Muller make the normal numbers 2n and 2n + 1: r cos(2 pi v), r sin(2 pi v), where r =
	 * sqrt(-2 ln u), u = (a / 2^8 + 1) / 2^24 and v = (b / 2^8) / 2^24 (whole divisions by
	 * 2^8). */
	void (*fill_normal)(struct mfk_ctx *c, enum mfk_dtype dtype, void *x, int64_t count,
			    float mean, float std, uint64_t seed, uint64_t offset);
	void (*fill_uniform)(struct mfk_ctx *c, const struct mfk_uniform *a);
	void (*fill)(struct mfk_ctx *c, enum mfk_dtype dtype, void *x, int64_t count, float value);

	/* sums[0] += sum of x^2, in a fixed order, as double; sums[1] is set to 1 if an x is NaN or
	 * infinite. sums is device memory of two doubles. */
	void (*sum_squares)(struct mfk_ctx *c, enum mfk_dtype dtype, const void *x, int64_t count,
			    double *sums);
	/* *zeros += how many x are 0 or -0; device memory of one double */
	void (*count_zeros)(struct mfk_ctx *c, enum mfk_dtype dtype, const void *x, int64_t count,
			    double *zeros);
	/* *sum += sum of x[i] * weight[i], as double; weight NULL: 1 */
	void (*weighted_sum)(struct mfk_ctx *c, const float *x, const float *weight, int64_t count,
			     double *sum);
	void (*adamw)(struct mfk_ctx *c, const struct mfk_adamw *a);
	void (*sgd)(struct mfk_ctx *c, const struct mfk_sgd *a);
	void (*momentum)(struct mfk_ctx *c, const struct mfk_momentum *a);
	void (*copy_rows)(struct mfk_ctx *c, const struct mfk_copy_rows *a);
	/* Writes amax of the scales: the greatest |x|, where NaNs are passed over; 0: there is no
	 * row. q, qt and to are not looked at. */
	void (*amax)(struct mfk_ctx *c, const struct mfk_quantise *a);
	void (*quantise)(struct mfk_ctx *c, const struct mfk_quantise *a);
	void (*update_scales)(struct mfk_ctx *c, const struct mfk_update_scales *a);
};

/* Their names, in this order: backends make declarations and tables of it. */
#define MFK_OPS(OP)                                                                                \
	OP(gemm)                                                                                   \
	OP(gemm_grouped)                                                                           \
	OP(gemm_grouped_wants_host)                                                                \
	OP(bias_backward)                                                                          \
	OP(norm)                                                                                   \
	OP(norm_backward)                                                                          \
	OP(qkv)                                                                                    \
	OP(qkv_backward)                                                                           \
	OP(attention_scratch)                                                                      \
	OP(attention)                                                                              \
	OP(attention_backward)                                                                     \
	OP(attention_join)                                                                         \
	OP(attention_max)                                                                          \
	OP(attention_cached)                                                                       \
	OP(gate)                                                                                   \
	OP(gate_backward)                                                                          \
	OP(delta_scratch)                                                                          \
	OP(delta_inputs)                                                                           \
	OP(delta_inputs_backward)                                                                  \
	OP(delta_rule)                                                                             \
	OP(delta_rule_backward)                                                                    \
	OP(mla)                                                                                    \
	OP(mla_backward)                                                                           \
	OP(route)                                                                                  \
	OP(route_backward)                                                                         \
	OP(route_balance)                                                                          \
	OP(sinkhorn)                                                                               \
	OP(balance_sum)                                                                            \
	OP(balance_weigh)                                                                          \
	OP(drop)                                                                                   \
	OP(dispatch)                                                                               \
	OP(gather)                                                                                 \
	OP(combine)                                                                                \
	OP(group_bias)                                                                             \
	OP(group_bias_backward)                                                                    \
	OP(balance_bias)                                                                           \
	OP(act)                                                                                    \
	OP(act_backward)                                                                           \
	OP(gemm_act)                                                                               \
	OP(gemm_act_backward)                                                                      \
	OP(embedding)                                                                              \
	OP(embedding_backward)                                                                     \
	MFK_LOSS_OPS(MFK_LOSS_OP, OP)                                                              \
	OP(policy)                                                                                 \
	OP(policy_sums)                                                                            \
	OP(sample)                                                                                 \
	OP(dropout)                                                                                \
	OP(dropout_backward)                                                                       \
	OP(add)                                                                                    \
	OP(scale)                                                                                  \
	OP(cast)                                                                                   \
	OP(fill_normal)                                                                            \
	OP(fill_uniform)                                                                           \
	OP(fill)                                                                                   \
	OP(sum_squares)                                                                            \
	OP(count_zeros)                                                                            \
	OP(weighted_sum)                                                                           \
	OP(adamw)                                                                                  \
	OP(sgd)                                                                                    \
	OP(momentum)                                                                               \
	OP(copy_rows)                                                                              \
	OP(amax)                                                                                   \
	OP(quantise)                                                                               \
	OP(update_scales)

/* ---- groups of processes ---- */

/* Processes that compute together, each on a device of its own. */
struct mfk_comm;

/* A group as a host net sees it: processes that say the same number, which is no other group's. */
struct mfk_host_group {
	uint64_t id;
	unsigned rank, size;
};

/*
 * What processes say to each other in host memory, however they were started: for backends whose
 * library has none. One thread of a process asks for sums; all functions but look wait for the
 * group.
 */
struct mfk_host_net_ops {
	/* Sums in the order of ranks. */
	int (*sum)(struct mfk_host_net_ops *n, const struct mfk_host_group *g, double *values,
		   unsigned count, char *why);
	/* to [size][bytes] = all processes' from [bytes] */
	int (*gather)(struct mfk_host_net_ops *n, const struct mfk_host_group *g, void *to,
		      const void *from, size_t bytes, char *why);
	/* Whether the others are still there. -EIO: one of them has ended or failed, and why says
	 * which. Any thread. */
	int (*look)(struct mfk_host_net_ops *n, char *why);
	/* Tells the others to end, and ends this process. */
	void (*end_all)(struct mfk_host_net_ops *n, int code);
};

struct mfk_world {
	unsigned rank, size;
	struct mfk_host_net_ops *net; /* of a backend that wants one */
};

enum mfk_reduce { MFK_SUM, MFK_MAX };

/* Device memory that goes to another process of the group, or comes from it. */
struct mfk_message {
	bool receive;
	unsigned peer; /* rank */
	void *data;
	size_t bytes;
};

/*
 * Every process of a group calls the same functions in the same order; what takes a context is one
 * of its operations, and fails as those do. All processes get the same bits of a sum, and get them
 * again from the same values in the same processes on the same machines. Of 16-bit types MPI's sums
 * are added up in fp32, in the order of ranks, and rounded once; NCCL's may be rounded at each
 * addition, in an order that it chooses by the machines, as Megatron's are. The greatest of values
 * of which one is NaN is unspecified.
 *
 * Parts of a group are in the order of ranks: part r of n elements is that of rank r, and has n /
 * size of them.
 */
struct mfk_comm_ops {
	const char *name;    /* "MPI", "NCCL" */
	bool wants_host_net; /* in the world */
	/* All processes that were started together. -EINVAL: they are others than w says. */
	int (*world)(struct mfk_device *d, const struct mfk_world *w, struct mfk_comm **ret,
		     char *why);
	/* Those of from that name the same color, in the order of their keys. */
	int (*split)(struct mfk_comm *from, unsigned color, unsigned key, struct mfk_comm **ret,
		     char *why);
	/* All processes free their groups in the same order. After the last one no process may wait
	 * for another. */
	void (*free)(struct mfk_comm *g);
	/* Ends all processes of the world at once, this one with the exit status code. */
	void (*end_all)(int code);

	/* data = the sum, or the greatest, of all processes' data. */
	void (*all_reduce)(struct mfk_ctx *c, struct mfk_comm *g, enum mfk_reduce op,
			   enum mfk_dtype dtype, void *data, int64_t count);
	/* to [size][count] = all processes' from [count]. from may be its own part of to. */
	void (*all_gather)(struct mfk_ctx *c, struct mfk_comm *g, enum mfk_dtype dtype, void *to,
			   const void *from, int64_t count);
	/* to [count] = this rank's part of the sum of all processes' from [size][count]. to may be
	 * that part of from; the other parts of from may hold parts of sums then, and are zero
	 * where all processes' are. */
	void (*reduce_scatter)(struct mfk_ctx *c, struct mfk_comm *g, enum mfk_dtype dtype,
			       void *to, void *from, int64_t count);
	/* All messages at once. Those from one process to another arrive in their order; the sizes
	 * at both ends are the same. A process may send to itself. */
	void (*exchange)(struct mfk_ctx *c, struct mfk_comm *g, const struct mfk_message *list,
			 unsigned count);

	/* Host memory; these wait. */
	int (*host_sum)(struct mfk_comm *g, double *values, unsigned count, char *why);
	/* to [size][bytes] = all processes' from [bytes] */
	int (*host_gather)(struct mfk_comm *g, void *to, const void *from, size_t bytes, char *why);
};

struct mfk_backend {
	const char *name; /* "cpu", "cuda" */
	const struct mfk_device_ops *device;
	const struct mfk_ops *ops;
	const struct mfk_comm_ops *comm;
};

/* The CUDA backend: libmcorefs-cuda.so at path. -ENOENT: there is no such file; -ENODEV: it cannot
 * be used here, and why says what is missing. It stays loaded. */
int mfk_cuda_load(const char *path, const struct mfk_backend **ret, char *why);

#endif
