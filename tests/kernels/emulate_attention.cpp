/*
 * The flash attention kernels' own source, on an emulated block of threads, against softmax
 * attention and its gradients in double precision. So fragments, tiles, masks, steps and the order
 * of copies are tested where there is no GPU. The launches and the compiler's work are not.
 *
 *	emulate_attention	a line for each case; 1 if one fails
 */
#define MFK_EMULATE
#include "kernels/cuda/attention/flash.cuh"
#include "kernels/cuda/attention/flash_launch.cuh"

#include <stdio.h>

struct shape {
	const char *name;
	int batch, seq, heads, kv_heads, qk_dim, v_dim;
	bool causal;
	int first; /* of first_key: 0: none, 1: documents, > 1: a window of so many keys */
	float dropout;
};

/* An offset that is a multiple of four has its own path. */
enum { SEED = 77, OFFSET = 1000 };

static uint64_t state = 1;

/* [-1, 1), xorshift64* */
static float drawn(void)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return (float)((double)(state * UINT64_C(2685821657736338717) >> 11) / (1ull << 52) - 1);
}

template <typename T> static std::vector<T> random_halves(size_t n, float by)
{
	std::vector<T> v(n);

	for (T &x : v)
		to_half(&x, drawn() * by);
	return v;
}

template <typename T> static std::vector<T> poison(size_t n)
{
	std::vector<T> v(n);

	memset(v.data(), 0xff, n * sizeof(T));
	return v;
}

static std::vector<int32_t> first_keys(const shape &s)
{
	std::vector<int32_t> v;

	for (int b = 0; b < s.batch; b++)
		for (int i = 0, document = 0; i < s.seq; i++) {
			if (s.first == 1 && drawn() > 0.96f)
				document = i;
			v.push_back(s.first == 1 ? document : max(i - s.first + 1, 0));
		}
	return v;
}

struct oracle {
	std::vector<double> out, lse, dq, dk, dv;
};

template <typename T> struct inputs {
	std::vector<T> q, k, v, dout;
	std::vector<int32_t> first;
};

template <typename T> static oracle expected(const shape &s, const inputs<T> &in, double scale)
{
	size_t tokens = (size_t)s.batch * s.seq;
	oracle r = {std::vector<double>(tokens * s.heads * s.v_dim),
		    std::vector<double>(tokens * s.heads),
		    std::vector<double>(tokens * s.heads * s.qk_dim),
		    std::vector<double>(tokens * s.kv_heads * s.qk_dim),
		    std::vector<double>(tokens * s.kv_heads * s.v_dim)};
	std::vector<double> p(s.seq), dp(s.seq);

	for (int b = 0; b < s.batch; b++)
		for (int h = 0; h < s.heads; h++)
			for (int i = 0; i < s.seq; i++) {
				size_t row = ((size_t)b * s.seq + i) * s.heads + h;
				int kh = h / (s.heads / s.kv_heads);
				int from = s.first && s.causal ? in.first[b * s.seq + i] : 0;
				int to = s.causal ? i + 1 : s.seq;
				double top = -INFINITY, sum = 0, dot = 0;
				auto at = [&](int j) {
					return ((size_t)b * s.seq + j) * s.kv_heads + kh;
				};

				for (int j = from; j < to; j++) {
					p[j] = 0;
					for (int c = 0; c < s.qk_dim; c++)
						p[j] += (double)from_half(
								in.q[row * s.qk_dim + c]) *
							from_half(in.k[at(j) * s.qk_dim + c]);
					p[j] *= scale;
					top = fmax(top, p[j]);
				}
				auto kept = [&](int j) {
					uint64_t head = (uint64_t)b * s.heads + h;
					uint64_t n = OFFSET + (head * s.seq + i) * s.seq + j;

					return dropout_keeps(philox1(n, SEED), s.dropout)
						       ? 1 / (1 - (double)s.dropout)
						       : 0;
				};

				for (int j = from; j < to; j++)
					sum += p[j] = exp(p[j] - top);
				r.lse[((size_t)b * s.heads + h) * s.seq + i] = top + log(sum);
				for (int j = from; j < to; j++) {
					p[j] /= sum;
					dp[j] = 0;
					for (int c = 0; c < s.v_dim; c++) {
						double d = from_half(in.dout[row * s.v_dim + c]);
						double v = from_half(in.v[at(j) * s.v_dim + c]);

						r.out[row * s.v_dim + c] += p[j] * kept(j) * v;
						r.dv[at(j) * s.v_dim + c] += p[j] * kept(j) * d;
						dp[j] += d * v * kept(j);
					}
					dot += p[j] * dp[j];
				}
				for (int j = from; j < to; j++)
					for (int c = 0; c < s.qk_dim; c++) {
						double ds = p[j] * (dp[j] - dot) * scale;

						r.dq[row * s.qk_dim + c] +=
							ds * from_half(in.k[at(j) * s.qk_dim + c]);
						r.dk[at(j) * s.qk_dim + c] +=
							ds * from_half(in.q[row * s.qk_dim + c]);
					}
			}
	return r;
}

static double value_of(float x)
{
	return x;
}

template <typename T> static double value_of(T x)
{
	return from_half(x);
}

/* |found - expected| / |expected|, of zeros |found|; a NaN stays one. */
template <typename T>
static double error_of(const std::vector<T> &found, const std::vector<double> &right)
{
	double difference = 0, norm = 0;

	for (size_t i = 0; i < right.size(); i++) {
		double x = value_of(found[i]) - right[i];

		difference += x * x;
		norm += right[i] * right[i];
	}
	return sqrt(difference / (norm > 0 ? norm : 1));
}

template <typename T, int DQ, int DV, bool DROP>
static bool check(const shape &s, const char *type, bool late)
{
	using kernels = flash_kernels<T, DQ, DV, DROP>;
	using sizes = typename kernels::sizes;
	size_t tokens = (size_t)s.batch * s.seq;
	float scale = 1 / sqrtf((float)s.qk_dim);
	inputs<T> in = {random_halves<T>(tokens * s.heads * s.qk_dim, 3),
			random_halves<T>(tokens * s.kv_heads * s.qk_dim, 3),
			random_halves<T>(tokens * s.kv_heads * s.v_dim, 1),
			random_halves<T>(tokens * s.heads * s.v_dim, 1), first_keys(s)};
	oracle right = expected(s, in, scale);
	std::vector<T> out = poison<T>(tokens * s.heads * s.v_dim),
		       dq = poison<T>(tokens * s.heads * s.qk_dim),
		       dk = poison<T>(tokens * s.kv_heads * s.qk_dim),
		       dv = poison<T>(tokens * s.kv_heads * s.v_dim);
	std::vector<float> lse = poison<float>(tokens * s.heads);
	flash f = {};

	f.q = in.q.data();
	f.k = in.k.data();
	f.v = in.v.data();
	f.out = f.to = out.data();
	f.dout = in.dout.data();
	f.dq = dq.data();
	f.dk = dk.data();
	f.dv = dv.data();
	f.lse = lse.data();
	f.first_key = s.first ? in.first.data() : NULL;
	f.batch = s.batch;
	f.seq = s.seq;
	f.heads = s.heads;
	f.kv_heads = s.kv_heads;
	f.qk_dim = s.qk_dim;
	f.v_dim = s.v_dim;
	f.causal = s.causal;
	f.scale = scale;
	f.scale_log2 = scale * 1.44269504088896341f;
	f.dropout = s.dropout;
	f.kept_scale = 1 / (1 - s.dropout);
	f.seed = SEED;
	f.offset = OFFSET;
	f.section = s.heads / s.kv_heads;
	f.seq_padded = (s.seq + 127) / 128 * 128;

	using forward = typename kernels::forward_tile;
	using q_tile = typename kernels::q_tile;
	using kv_tile = typename kernels::kv_tile;

	emulate((int)tiles_of(s.seq, forward::rows) * s.heads * s.batch, forward::threads,
		forward::bytes, late,
		[&] { flash_forward<T, DQ, DV, sizes::forward_m, sizes::forward_n, DROP>(f); });

	size_t rows = (size_t)s.batch * s.heads * f.seq_padded;
	std::vector<float> lse_log2 = poison<float>(rows), dot = poison<float>(rows);

	f.steps = (int)tiles_of(s.seq, kv_tile::rows);
	std::vector<int32_t> least = poison<int32_t>(s.batch * f.steps),
			     greatest = poison<int32_t>(s.batch * f.steps);

	f.lse_log2 = lse_log2.data();
	f.dot = dot.data();
	f.step_least = least.data();
	f.step_greatest = greatest.data();
	emulate((int)rows / DOT_ROWS, 128, 1, late, [&] { flash_dot<T>(f); });
	if (s.first && s.causal)
		emulate((s.batch * f.steps + 127) / 128, 128, 1, late,
			[&] { flash_steps(f, kv_tile::rows); });
	emulate((int)tiles_of(s.seq, q_tile::rows) * s.heads * s.batch, q_tile::threads,
		q_tile::bytes, late,
		[&] { flash_backward_q<T, DQ, DV, sizes::q_m, sizes::q_n, DROP>(f); });
	f.section = 1;
	emulate((int)tiles_of(s.seq, kv_tile::keys) * s.kv_heads * s.batch, kv_tile::threads,
		kv_tile::bytes, late, [&] {
			flash_backward_kv<T, DQ, DV, sizes::kv_warps, sizes::kv_m, sizes::kv_n,
					  DROP>(f);
		});

	double error[] = {error_of(out, right.out), error_of(lse, right.lse),
			  error_of(dq, right.dq), error_of(dk, right.dk), error_of(dv, right.dv)};
	double limit = sizeof(T) == 2 && !strcmp(type, "bf16") ? 8e-3 : 1e-3;
	bool good = error[1] < 1e-4;

	for (double e : error)
		good = good && e < limit;
	printf("%-4s %-28s %s out %.1e lse %.1e dq %.1e dk %.1e dv %.1e\n", good ? "ok" : "FAIL",
	       s.name, type, error[0], error[1], error[2], error[3], error[4]);
	fflush(stdout);
	return good;
}

/* Kernels with dropout are tested in two sizes: of two layouts of the owners of keys. */
template <typename T> static bool check_type(const shape &s, const char *type, bool late)
{
	switch (flash_size_of(s.qk_dim, s.v_dim)) {
	case 0:
		return check<T, 32, 32, false>(s, type, late);
	case 1:
		return s.dropout > 0 ? check<T, 64, 64, true>(s, type, late)
				     : check<T, 64, 64, false>(s, type, late);
	case 2:
		return s.dropout > 0 ? check<T, 128, 128, true>(s, type, late)
				     : check<T, 128, 128, false>(s, type, late);
	default:
		return check<T, 192, 128, false>(s, type, late);
	}
}

int main(void)
{
	static const shape shapes[] = {
		{"24/16 causal 70", 1, 70, 2, 1, 24, 16, true, 0, 0},
		{"32 full 150", 1, 150, 1, 1, 32, 32, false, 0, 0},
		{"64 causal 197, groups", 1, 197, 2, 1, 64, 64, true, 0, 0},
		{"64 documents 200", 2, 200, 1, 1, 64, 64, true, 1, 0},
		{"64 window 40 of 290", 1, 290, 1, 1, 64, 64, true, 40, 0},
		{"96 causal 130", 1, 130, 1, 1, 96, 96, true, 0, 0},
		{"128 full 77", 1, 77, 1, 1, 128, 128, false, 0, 0},
		{"128 documents 260", 1, 260, 1, 1, 128, 128, true, 1, 0},
		{"192/128 window 9 of 140", 1, 140, 2, 1, 192, 128, true, 9, 0},
		{"64 causal 200, dropout", 1, 200, 2, 1, 64, 64, true, 0, 0.1f},
		{"64 documents 101, dropout", 1, 101, 1, 1, 64, 64, true, 1, 0.5f},
		{"128 causal 132, dropout", 1, 132, 1, 1, 128, 128, true, 0, 0.3f},
		{"64 one token", 1, 1, 1, 1, 64, 64, true, 0, 0},
	};
	int failed = 0, n = 0;

	for (const shape &s : shapes) {
		failed += !(n % 2 ? check_type<fp16>(s, "fp16", n % 4 < 2)
				  : check_type<bf16>(s, "bf16", n % 4 < 2));
		n++;
	}
	return failed > 0;
}
