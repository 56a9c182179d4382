/*
 * Megatron's packed qkv, split, with the norms of q and k and RoPE in between, and back.
 *
 * A head is a few lanes of a warp, and a lane has eight pairs of elements of it: RoPE turns a pair,
 * and what is not turned is paired, too. So elements stay in registers, and so do the angles, for
 * all heads of a token that a lane computes in turn.
 */
#include "kernels/cuda/ops/ops.h"
#include "kernels/cuda/ops/columns.cuh"
#include "kernels/cuda/base/reduce.cuh"
#include "kernels/cuda/base/vec.cuh"

#include <errno.h>

#define MAX_DIM (32 * 2 * MFK_N)
#define EACH	4 /* heads that a lane has at once where no sums over tokens need registers */

/* ---- who has which heads ---- */

enum part { Q, K, V };

/* Blocks come in slices: of heads_per_group + 2 blocks one has keys and one values. */
struct grid {
	int lanes;	  /* of a head, a power of two */
	uint32_t at_once; /* heads of a block */
	uint32_t slices;
	bool wide;
};

/* What a block has of one part's [T, heads]: at_once heads from `first` on, and so on in steps. */
struct share {
	enum part part;
	uint32_t block; /* of those that have this part */
	uint32_t first, step, end;
};

static __device__ __forceinline__ share share_of(const mfk_qkv &a, const grid &g)
{
	uint32_t per_group = static_cast<uint32_t>(a.heads_per_group);
	uint32_t slice = blockIdx.x / (per_group + 2), j = blockIdx.x % (per_group + 2);
	uint32_t each = j < per_group ? per_group : 1; /* blocks of a slice, heads of a group */
	share s;

	s.part = j < per_group ? Q : j == per_group ? K : V;
	s.block = slice * each + (j < per_group ? j : 0);
	s.first = s.block * g.at_once;
	s.step = g.slices * each * g.at_once;
	s.end = static_cast<uint32_t>(a.tokens * a.groups) * each;
	return s;
}

/* A head of a part: where it is in qkv, and its token. */
struct place {
	int64_t packed, token;
};

static __device__ __forceinline__ place place_of(const mfk_qkv &a, enum part part, uint32_t head)
{
	uint32_t per_group = static_cast<uint32_t>(a.heads_per_group);
	uint32_t group = part == Q ? head / per_group : head;
	uint32_t gates = static_cast<uint32_t>(a.gates);
	uint32_t j = part == Q ? head % per_group : per_group + gates + part - K;

	return {static_cast<int64_t>(group) * (per_group + gates + 2) + j,
		group / static_cast<uint32_t>(a.groups)};
}

static __device__ __forceinline__ void *of_part(enum part part, void *q, void *k, void *v)
{
	return part == Q ? q : part == K ? k : v;
}

static __device__ __forceinline__ const void *of_part(enum part part, const void *q, const void *k,
						      const void *v)
{
	return part == Q ? q : part == K ? k : v;
}

/* ---- pairs ---- */

/* A lane's pairs: pair, pair + 1, ... of a head. Those before `half` are turned. WIDE: they are two
 * vectors of the head, which 16-byte accesses can reach. */
template <bool WIDE> struct seat {
	int pair, half, dim;
	int firsts, seconds; /* pairs from here on that have such an element */
	bool interleaved;
};

struct Pairs {
	float first[MFK_N], second[MFK_N];
};

/* The same as they are in memory: two vectors. */
template <typename T> struct Packed {
	Raw<T> a, b;
};

template <bool WIDE>
static __device__ __forceinline__ seat<WIDE> seat_of(const mfk_qkv &a, const grid &g)
{
	seat<WIDE> s;

	s.pair = threadIdx.x % g.lanes * MFK_N;
	s.half = static_cast<int>(a.rotary_dim) / 2;
	s.dim = static_cast<int>(a.dim);
	s.firsts = (s.dim + 1) / 2 - s.pair;
	s.seconds = s.dim / 2 - s.pair;
	s.interleaved = a.interleaved;
	return s;
}

/* Where the first or the second element of pair k is in a head. */
template <bool WIDE>
static __device__ __forceinline__ int element(const seat<WIDE> &s, int k, bool second)
{
	int i = s.pair + k;

	if (i >= s.half)
		return s.half + i + (second ? (s.dim + 1) / 2 - s.half : 0);
	return s.interleaved ? 2 * i + second : i + (second ? s.half : 0);
}

/* Are neighbours pairs in the two vectors? */
template <bool WIDE> static __device__ __forceinline__ bool crossed(const seat<WIDE> &s)
{
	return WIDE && s.interleaved && s.pair < s.half;
}

/* Where the second vector is. */
static __device__ __forceinline__ int second_vector(const seat<true> &s)
{
	return crossed(s) ? element(s, 0, false) + MFK_N : element(s, 0, true);
}

template <typename T>
static __device__ __forceinline__ Packed<T> load_all(const T *head, seat<true> s)
{
	return {load_raw(head + element(s, 0, false), MFK_N, true),
		load_raw(head + second_vector(s), MFK_N, true)};
}

template <typename T>
static __device__ __forceinline__ Packed<T> load_all(const T *head, seat<false> s)
{
	Packed<T> p;

#pragma unroll
	for (int k = 0; k < MFK_N; k++) {
		p.a.x[k] = k < s.firsts ? head[element(s, k, false)] : from_float<T>(0.f);
		p.b.x[k] = k < s.seconds ? head[element(s, k, true)] : from_float<T>(0.f);
	}
	return p;
}

/* there: is there such a head? If not, 0. */
template <typename T, bool WIDE>
static __device__ __forceinline__ Packed<T> load_head(const T *head, const seat<WIDE> &s,
						      bool there)
{
	Packed<T> none;

	if (there && s.firsts > 0)
		return load_all(head, s);
#pragma unroll
	for (int k = 0; k < MFK_N; k++)
		none.a.x[k] = none.b.x[k] = from_float<T>(0.f);
	return none;
}

template <typename T>
static __device__ __forceinline__ void store_head(T *head, const Packed<T> &p, const seat<true> &s)
{
	if (s.firsts <= 0)
		return;
	store_raw(head + element(s, 0, false), p.a, MFK_N, true);
	store_raw(head + second_vector(s), p.b, MFK_N, true);
}

template <typename T>
static __device__ __forceinline__ void store_head(T *head, const Packed<T> &p, const seat<false> &s)
{
#pragma unroll
	for (int k = 0; k < MFK_N; k++) {
		if (k < s.firsts)
			head[element(s, k, false)] = p.a.x[k];
		if (k < s.seconds)
			head[element(s, k, true)] = p.b.x[k];
	}
}

template <typename T, bool WIDE>
static __device__ __forceinline__ Pairs pairs_of(const Packed<T> &p, const seat<WIDE> &s)
{
	float v[2 * MFK_N];
	Pairs r;

	unpack(v, p.a);
	unpack(v + MFK_N, p.b);
#pragma unroll
	for (int k = 0; k < MFK_N; k++) {
		r.first[k] = crossed(s) ? v[2 * k] : v[k];
		r.second[k] = crossed(s) ? v[2 * k + 1] : v[k + MFK_N];
	}
	return r;
}

template <typename T, bool WIDE>
static __device__ __forceinline__ Packed<T> packed_of(const Pairs &r, const seat<WIDE> &s)
{
	float v[2 * MFK_N];

#pragma unroll
	for (int k = 0; k < MFK_N; k++) {
		v[k] = !crossed(s) ? r.first[k] : k % 2 ? r.second[k / 2] : r.first[k / 2];
		v[k + MFK_N] = !crossed(s) ? r.second[k]
			       : k % 2	   ? r.second[(k + MFK_N) / 2]
					   : r.first[(k + MFK_N) / 2];
	}
	return {pack<T>(v), pack<T>(v + MFK_N)};
}

/* ---- RoPE ---- */

/* cos and sin of a lane's pairs at the position of a token. */
struct angles {
	float cos[MFK_N], sin[MFK_N];
};

template <bool WIDE>
static __device__ __forceinline__ void look_up(angles &t, const mfk_qkv &a, const seat<WIDE> &s,
					       int64_t token)
{
	const int left = WIDE ? MFK_N : s.half - s.pair;
	int64_t at;

	if (s.pair >= s.half)
		return;
	at = static_cast<int64_t>(a.positions[token]) * s.half + s.pair;
	load(t.cos, a.cos + at, left, WIDE);
	load(t.sin, a.sin + at, left, WIDE);
}

/* way: 1, or -1 to turn back */
template <bool WIDE>
static __device__ __forceinline__ void turn(Pairs &v, const angles &t, const seat<WIDE> &s,
					    float way)
{
	if (s.pair >= s.half)
		return;
#pragma unroll
	for (int k = 0; k < MFK_N; k++) {
		float x1 = v.first[k], x2 = v.second[k], sin = t.sin[k] * way;

		if (!WIDE && s.pair + k >= s.half)
			continue;
		v.first[k] = x1 * t.cos[k] - x2 * sin;
		v.second[k] = x2 * t.cos[k] + x1 * sin;
	}
}

/* ---- norms ---- */

/* The norm of a part's heads; weight NULL: there is none. */
template <typename T> struct part_norm {
	const T *weight, *bias;
	float *mean, *rstd;
};

template <typename T>
static __device__ __forceinline__ part_norm<T> norm_of(const mfk_qkv &a, enum part part)
{
	if (part == V)
		return {NULL, NULL, NULL, NULL};
	if (part == K)
		return {static_cast<const T *>(a.k_norm), static_cast<const T *>(a.k_norm_bias),
			a.k_mean, a.k_rstd};
	return {static_cast<const T *>(a.q_norm), static_cast<const T *>(a.q_norm_bias), a.q_mean,
		a.q_rstd};
}

struct statistics {
	float mean, rstd;
};

/* Average over the elements of a head of f(pair, second?); all of the warp call it. */
template <bool WIDE, typename F>
static __device__ __forceinline__ float average(const seat<WIDE> &s, const grid &g, F f)
{
	float sum = 0;

#pragma unroll
	for (int k = 0; k < MFK_N; k++) {
		sum += WIDE || k < s.firsts ? f(k, false) : 0.f;
		sum += WIDE || k < s.seconds ? f(k, true) : 0.f;
	}
	return lane_sum(s.firsts > 0 ? sum : 0.f, g.lanes) / s.dim;
}

static __device__ __forceinline__ float get(const Pairs &v, int k, bool second)
{
	return second ? v.second[k] : v.first[k];
}

template <bool WIDE>
static __device__ __forceinline__ statistics measure(const mfk_qkv &a, const seat<WIDE> &s,
						     const grid &g, const Pairs &v)
{
	statistics m = {0, 0};

	if (a.layernorm)
		m.mean = average(s, g, [&](int k, bool second) { return get(v, k, second); });
	m.rstd = rsqrtf(average(s, g,
				[&](int k, bool second) {
					float x = get(v, k, second) - m.mean;

					return x * x;
				}) +
			a.eps);
	return m;
}

static __device__ __forceinline__ void centre(Pairs &v, const statistics &m)
{
#pragma unroll
	for (int k = 0; k < MFK_N; k++) {
		v.first[k] = (v.first[k] - m.mean) * m.rstd;
		v.second[k] = (v.second[k] - m.mean) * m.rstd;
	}
}

static __device__ __forceinline__ void multiply(Pairs &v, const Pairs &w, bool zero_centered)
{
	const float more = zero_centered ? 1.f : 0.f;

#pragma unroll
	for (int k = 0; k < MFK_N; k++) {
		v.first[k] *= w.first[k] + more;
		v.second[k] *= w.second[k] + more;
	}
}

static __device__ __forceinline__ void add(Pairs &to, const Pairs &v)
{
#pragma unroll
	for (int k = 0; k < MFK_N; k++) {
		to.first[k] += v.first[k];
		to.second[k] += v.second[k];
	}
}

/* ---- forward, and backward without norms, which is forward in a mirror ---- */

enum way { FORWARD, NORMED, BACK };

template <typename T, enum way WAY, bool WIDE>
static __global__ void __launch_bounds__(MFK_THREADS, 2) qkv_kernel(mfk_qkv a, grid g)
{
	const seat<WIDE> s = seat_of<WIDE>(a, g);
	const share mine = share_of(a, g);
	const bool turned = a.rotary_dim && mine.part != V;
	const uint32_t own = mine.first + threadIdx.x / g.lanes * EACH;
	const part_norm<T> norm = norm_of<T>(a, mine.part);
	const T *from =
		static_cast<const T *>(WAY == BACK ? of_part(mine.part, a.dq, a.dk, a.dv) : a.qkv);
	T *to = static_cast<T *>(WAY == BACK ? a.dqkv : of_part(mine.part, a.q, a.k, a.v));
	place p[EACH];
	Packed<T> x[EACH];
	angles t;

#pragma unroll
	for (int i = 0; i < EACH; i++) {
		p[i] = place_of(a, mine.part, own + i);
		x[i] = load_head(from + (WAY == BACK ? own + i : p[i].packed) * s.dim, s,
				 own + i < mine.end);
	}
#pragma unroll
	for (int i = 0; i < EACH; i++) {
		uint32_t head = own + i;
		bool there = head < mine.end;
		Pairs v = pairs_of(x[i], s);

		if (turned && there && (i == 0 || p[i].token != p[i - 1].token))
			look_up(t, a, s, p[i].token);
		if (WAY == NORMED && norm.weight) {
			statistics m = measure(a, s, g, v);

			centre(v, m);
			multiply(v, pairs_of(load_head(norm.weight, s, true), s), a.zero_centered);
			if (norm.bias)
				add(v, pairs_of(load_head(norm.bias, s, true), s));
			if (there && s.pair == 0) {
				if (a.layernorm && norm.mean)
					norm.mean[head] = m.mean;
				if (norm.rstd)
					norm.rstd[head] = m.rstd;
			}
		}
		if (turned && there)
			turn(v, t, s, WAY == BACK ? -1.f : 1.f);
		if (there)
			store_head(to + (WAY == BACK ? p[i].packed : head) * s.dim,
				   packed_of<T>(v, s), s);
	}
}

/* ---- backward with norms ---- */

/* to[dim] = the sums of the block's groups of lanes, in their order. */
template <bool WIDE>
static __device__ __forceinline__ void put(float *to, const Pairs &sum, float *room,
					   const seat<WIDE> &s, int lanes)
{
	const int row = lanes * 2 * MFK_N;
	seat<WIDE> of = s;

	__syncthreads();
	store(room + threadIdx.x * 2 * MFK_N, sum.first, MFK_N, true);
	store(room + threadIdx.x * 2 * MFK_N + MFK_N, sum.second, MFK_N, true);
	__syncthreads();
	for (int i = threadIdx.x; i < row; i += MFK_THREADS) {
		int k = i % MFK_N;
		bool second = i / MFK_N % 2;
		float all = 0;

		of.pair = i / (2 * MFK_N) * MFK_N;
		if (of.pair + k >= (s.dim + !second) / 2)
			continue;
		for (int j = 0; j < MFK_THREADS / lanes; j++)
			all += room[j * row + i];
		to[element(of, k, second)] = all;
	}
}

/* A head's gradient, its elements before the norm, and what the norm has measured. */
template <typename T> struct Job {
	Packed<T> d, x;
	statistics m;
	place p;
	bool there;
};

template <typename T, bool WIDE>
static __device__ __forceinline__ void load_job(Job<T> &j, const mfk_qkv &a, const share &mine,
						const part_norm<T> &norm, const seat<WIDE> &s,
						uint32_t head)
{
	const T *d = static_cast<const T *>(of_part(mine.part, a.dq, a.dk, a.dv));

	j.there = head < mine.end;
	j.p = place_of(a, mine.part, head);
	j.d = load_head(d + static_cast<int64_t>(head) * s.dim, s, j.there);
	if (!norm.weight)
		return;
	j.x = load_head(static_cast<const T *>(a.qkv) + j.p.packed * s.dim, s, j.there);
	j.m = {0, 0};
	if (j.there)
		j.m = {a.layernorm ? norm.mean[head] : 0.f, norm.rstd[head]};
}

/* parts: of each block of q, and then of k, the sums for the gradient of the norm's weight, [dim];
 * then those for its bias. While a lane works on a head, the next is on its way. */
template <typename T, bool BIAS, bool WIDE>
static __global__ void __launch_bounds__(MFK_THREADS, 2)
	qkv_backward_kernel(mfk_qkv a, grid g, float *parts)
{
	__shared__ __align__(16) float room[MFK_THREADS * 2 * MFK_N];
	const seat<WIDE> s = seat_of<WIDE>(a, g);
	const share mine = share_of(a, g);
	const bool turned = a.rotary_dim && mine.part != V;
	const part_norm<T> norm = norm_of<T>(a, mine.part);
	const Packed<T> weight = load_head(norm.weight, s, norm.weight != NULL);
	const uint32_t own = threadIdx.x / g.lanes;
	Pairs of_weight = {}, of_bias = {};
	Job<T> next;

	load_job(next, a, mine, norm, s, mine.first + own);
	for (uint32_t base = mine.first; base < mine.end; base += mine.step) {
		const Job<T> j = next;
		Pairs v = pairs_of(j.d, s);
		angles t;

		if (base + mine.step < mine.end)
			load_job(next, a, mine, norm, s, base + mine.step + own);
		if (turned && j.there) {
			look_up(t, a, s, j.p.token);
			turn(v, t, s, -1.f);
		}
		if (norm.weight) {
			Pairs x = pairs_of(j.x, s);
			float g_mean = 0, gx_mean;

			centre(x, j.m);
			if (BIAS)
				add(of_bias, v);
#pragma unroll
			for (int k = 0; k < MFK_N; k++) {
				of_weight.first[k] += v.first[k] * x.first[k];
				of_weight.second[k] += v.second[k] * x.second[k];
			}
			multiply(v, pairs_of(weight, s), a.zero_centered);
			gx_mean = average(s, g, [&](int k, bool second) {
				return get(v, k, second) * get(x, k, second);
			});
			if (a.layernorm)
				g_mean = average(s, g, [&](int k, bool second) {
					return get(v, k, second);
				});
#pragma unroll
			for (int k = 0; k < MFK_N; k++) {
				v.first[k] =
					j.m.rstd * (v.first[k] - x.first[k] * gx_mean - g_mean);
				v.second[k] =
					j.m.rstd * (v.second[k] - x.second[k] * gx_mean - g_mean);
			}
		}
		if (j.there)
			store_head(static_cast<T *>(a.dqkv) + j.p.packed * s.dim,
				   packed_of<T>(v, s), s);
	}
	if (!norm.weight)
		return;
	parts += static_cast<int64_t>(mine.block +
				      (mine.part == K ? g.slices * a.heads_per_group : 0)) *
		 s.dim;
	put(parts, of_weight, room, s, g.lanes);
	if (BIAS)
		put(parts + g.slices * (a.heads_per_group + 1) * s.dim, of_bias, room, s, g.lanes);
}

/* ---- launches ---- */

/* each: heads of a lane. False: there are no heads, or too many or too long ones, and then the
 * context has failed. */
static bool grid_of(struct mfk_ctx *c, const struct mfk_qkv *a, int each, bool aligned,
		    struct grid *g)
{
	const int64_t groups = a->tokens * a->groups, heads = groups * (a->heads_per_group + 2);

	if (heads <= 0 || a->dim <= 0 || !mfk_cuda_begin(c))
		return false;
	if (a->dim > MAX_DIM || heads >= 1LL << 31) {
		mfk_cuda_fail(c, -EINVAL,
			      "qkv: %lld heads of %lld elements, at most 2^31 heads of %d are "
			      "possible",
			      static_cast<long long>(heads), static_cast<long long>(a->dim),
			      MAX_DIM);
		return false;
	}
	g->lanes = 1;
	while (g->lanes * 2 * MFK_N < a->dim)
		g->lanes *= 2;
	g->at_once = static_cast<uint32_t>(MFK_THREADS / g->lanes * each);
	g->slices = static_cast<uint32_t>(ceil_div(groups, g->at_once));
	/* Each lane's pairs are two whole vectors. */
	g->wide = aligned && a->rotary_dim % (2 * MFK_N) == 0 && a->dim % (2 * MFK_N) == 0;
	return true;
}

static unsigned blocks_of(const struct mfk_qkv *a, const struct grid *g)
{
	return static_cast<unsigned>(g->slices * (a->heads_per_group + 2));
}

template <enum way WAY>
static void launch(struct mfk_ctx *c, const struct mfk_qkv *a, const struct grid &g)
{
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		auto kernel = g.wide ? qkv_kernel<T, WAY, true> : qkv_kernel<T, WAY, false>;

		kernel<<<blocks_of(a, &g), MFK_THREADS, 0, c->stream>>>(*a, g);
	});
}

void mfk_cuda_qkv(struct mfk_ctx *c, const struct mfk_qkv *a)
{
	struct grid g;

	if (!grid_of(c, a, EACH,
		     aligned(a->qkv, a->q, a->k, a->v, a->q_norm, a->k_norm, a->q_norm_bias,
			     a->k_norm_bias, a->cos, a->sin),
		     &g))
		return;
	(a->q_norm || a->k_norm ? launch<NORMED> : launch<FORWARD>)(c, a, g);
	mfk_cuda_end(c, "qkv");
}

/* Gradients of norms: blocks_at_once() blocks, so that there are few sums to be added. */
template <typename T, bool BIAS>
static float *launch_normed(struct mfk_ctx *c, const struct mfk_qkv *a, struct grid *g)
{
	auto kernel =
		g->wide ? qkv_backward_kernel<T, BIAS, true> : qkv_backward_kernel<T, BIAS, false>;
	int64_t slices = blocks_at_once(c, kernel, MFK_THREADS, 0) / (a->heads_per_group + 2);
	float *parts;

	g->slices = static_cast<uint32_t>(min(static_cast<int64_t>(g->slices), max(slices, 1L)));
	parts = static_cast<float *>(mfk_cuda_scratch(
		c, g->slices * (a->heads_per_group + 1) * 2 * a->dim * sizeof(float), "qkv"));
	if (parts)
		kernel<<<blocks_of(a, g), MFK_THREADS, 0, c->stream>>>(*a, *g, parts);
	return parts;
}

static void backward_normed(struct mfk_ctx *c, const struct mfk_qkv *a, struct grid *g)
{
	const bool biased = a->dq_norm_bias || a->dk_norm_bias;
	void *const of_q[] = {a->q_norm ? a->dq_norm : NULL, a->q_norm ? a->dq_norm_bias : NULL};
	void *const of_k[] = {a->k_norm ? a->dk_norm : NULL, a->k_norm ? a->dk_norm_bias : NULL};
	float *parts = NULL;
	int64_t rows;

	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;

		parts = (biased ? launch_normed<T, true> : launch_normed<T, false>)(c, a, g);
	});
	rows = g->slices * a->heads_per_group;
	for (int i = 0; parts && i < 2; i++) {
		if (of_q[i])
			mfk_cuda_add_columns(c, a->grad, of_q[i], parts, rows, a->dim);
		parts += rows * a->dim;
		if (of_k[i])
			mfk_cuda_add_columns(c, a->grad, of_k[i], parts, g->slices, a->dim);
		parts += g->slices * a->dim;
	}
}

void mfk_cuda_qkv_backward(struct mfk_ctx *c, const struct mfk_qkv *a)
{
	const bool normed = a->q_norm || a->k_norm;
	struct grid g;

	if (!grid_of(c, a, normed ? 1 : EACH,
		     aligned(a->qkv, a->dqkv, a->dq, a->dk, a->dv, a->q_norm, a->k_norm, a->cos,
			     a->sin),
		     &g))
		return;
	if (normed)
		backward_normed(c, a, &g);
	else
		launch<BACK>(c, a, g);
	mfk_cuda_end(c, "qkv's gradient");
}
