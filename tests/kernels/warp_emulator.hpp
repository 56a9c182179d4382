/*
 * A block of CUDA threads on a CPU: the names of kernels/cuda/attention/warp.cuh, so that a kernel's
 * own source runs, and its indices are checked, where there is no GPU. C++17.
 *
 * Each thread is a coroutine. It runs until it waits for its warp or its block. What a warp does
 * together (matrices, products, exchanges) is done by the lane that comes last, for all.
 */
#ifndef WARP_EMULATOR_HPP
#define WARP_EMULATOR_HPP

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <functional>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define INFINITE ((float)INFINITY)

struct float2 {
	float x, y;
};
struct alignas(16) uint4 {
	uint32_t x, y, z, w;
};

static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
	return {x, y, z, w};
}

static inline uint32_t __umulhi(uint32_t a, uint32_t b)
{
	return (uint32_t)((uint64_t)a * b >> 32);
}

static inline int min(int a, int b)
{
	return a < b ? a : b;
}

static inline int max(int a, int b)
{
	return a > b ? a : b;
}

struct emulated_index {
	int x;
};
static emulated_index threadIdx, blockIdx, blockDim;

enum { LANES = 32, STACK = 256 << 10 };

struct emulated_barrier {
	int came, round;
};

struct emulated_copy {
	void *to;
	const void *from;
	bool valid;
};

struct emulated_thread {
	ucontext_t context;
	char *stack;
	bool done;
	const int *round; /* waits until this is no longer `seen` */
	int seen;
	std::vector<std::vector<emulated_copy>> groups;
	std::vector<emulated_copy> open;
};

struct emulated_warp {
	emulated_barrier barrier;
	const void *address[LANES];
	uint32_t a[LANES][4], b[LANES][2], matrices[LANES][4];
	float c[LANES][4];
	double value[LANES], exchanged[LANES];
};

struct emulated_block {
	std::vector<emulated_thread> threads;
	std::vector<emulated_warp> warps;
	emulated_barrier barrier;
	ucontext_t scheduler;
	unsigned char *shared;
	size_t shared_bytes;
	std::function<void()> kernel;
	/* Asynchronous copies are made at once, or as late as they may be. A kernel that is right
	 * cannot tell. */
	bool late;
};

static emulated_block emulated;

#define SHARED_MEMORY(name) unsigned char *name = emulated.shared

static inline emulated_thread &emulated_self(void)
{
	return emulated.threads[threadIdx.x];
}

static inline emulated_warp &emulated_own_warp(void)
{
	return emulated.warps[threadIdx.x / LANES];
}

/* Waits for `count` threads; the last one runs `all` first. */
template <typename F> static void emulated_meet(emulated_barrier *b, int count, F all)
{
	if (++b->came == count) {
		all();
		b->came = 0;
		b->round++;
		return;
	}
	emulated_thread &t = emulated_self();

	t.round = &b->round;
	t.seen = b->round;
	swapcontext(&t.context, &emulated.scheduler);
}

static inline void sync_warp(void)
{
	emulated_meet(&emulated_own_warp().barrier, LANES, [] {});
}

static inline void sync_block(void)
{
	emulated_meet(&emulated.barrier, blockDim.x, [] {});
}

static inline void emulated_main(void)
{
	emulated.kernel();
	emulated_self().done = true;
	swapcontext(&emulated_self().context, &emulated.scheduler);
}

/* Runs all blocks of a kernel, one behind the other. */
static void emulate(int blocks, int threads, size_t shared_bytes, bool late,
		    std::function<void()> kernel)
{
	emulated.kernel = kernel;
	emulated.late = late;
	emulated.shared_bytes = shared_bytes;
	blockDim.x = threads;
	for (int block = 0; block < blocks; block++) {
		blockIdx.x = block;
		emulated.shared = (unsigned char *)aligned_alloc(128, (shared_bytes + 127) / 128 * 128);
		memset(emulated.shared, 0xff, shared_bytes); /* NaNs */
		emulated.threads.assign(threads, {});
		emulated.warps.assign(threads / LANES, {});
		emulated.barrier = {};
		for (emulated_thread &t : emulated.threads) {
			getcontext(&t.context);
			t.stack = (char *)malloc(STACK);
			t.context.uc_stack.ss_sp = t.stack;
			t.context.uc_stack.ss_size = STACK;
			makecontext(&t.context, emulated_main, 0);
		}
		for (int left = threads; left;) {
			bool ran = false;

			for (int i = 0; i < threads; i++) {
				emulated_thread &t = emulated.threads[i];

				if (t.done || (t.round && *t.round == t.seen))
					continue;
				t.round = NULL;
				threadIdx.x = i;
				swapcontext(&emulated.scheduler, &t.context);
				ran = true;
				left -= t.done;
			}
			assert(ran); /* else threads wait for others that have ended */
		}
		for (emulated_thread &t : emulated.threads)
			free(t.stack);
		free(emulated.shared);
	}
}

/* ---- 16-bit floats ---- */

static inline float emulated_float(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, 4);
	return f;
}

static inline float from_half(bf16 x)
{
	return emulated_float((uint32_t)x.bits << 16);
}

static inline float from_half(fp16 x)
{
	int exponent = x.bits >> 10 & 31, fraction = x.bits & 1023;
	float f = exponent == 31  ? (fraction ? NAN : INFINITY)
		  : exponent == 0 ? ldexpf((float)fraction, -24)
				  : ldexpf((float)(fraction + 1024), exponent - 25);

	return x.bits & 0x8000 ? -f : f;
}

static inline void to_half(bf16 *to, float x)
{
	uint32_t u;

	memcpy(&u, &x, 4);
	to->bits = isnan(x) ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

static inline void to_half(fp16 *to, float x)
{
	uint16_t sign = signbit(x) ? 0x8000 : 0;
	float f = fabsf(x);
	int exponent;

	if (!(f < 65520)) {
		to->bits = sign | (isnan(x) ? 0x7fff : 0x7c00);
		return;
	}
	frexpf(f, &exponent);
	exponent = f == 0 || exponent < -13 ? -13 : exponent;
	/* nearbyint rounds to even; a carry goes into the exponent by itself. */
	int steps = (int)nearbyintf(ldexpf(f, 11 - exponent));

	to->bits = sign | (uint16_t)(((exponent + 13) << 10) + steps);
}

template <typename T> struct half2_of {
	static uint32_t pack(float low, float high)
	{
		T l, h;

		to_half(&l, low);
		to_half(&h, high);
		return l.bits | (uint32_t)h.bits << 16;
	}
	static float low(uint32_t x)
	{
		return from_half(T{(uint16_t)x});
	}
	static float high(uint32_t x)
	{
		return from_half(T{(uint16_t)(x >> 16)});
	}
	static void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
	{
		emulated_warp &w = emulated_own_warp();
		int lane = threadIdx.x % LANES;

		memcpy(w.a[lane], a, sizeof(a));
		memcpy(w.c[lane], c, sizeof(c));
		w.b[lane][0] = b0;
		w.b[lane][1] = b1;
		emulated_meet(&w.barrier, LANES, [&w] {
			float ma[16][16], mb[16][8];

			for (int l = 0; l < LANES; l++) {
				int g = l / 4, t = l % 4 * 2;

				for (int i = 0; i < 4; i++) {
					ma[g + i % 2 * 8][t + i / 2 * 8] = low(w.a[l][i]);
					ma[g + i % 2 * 8][t + i / 2 * 8 + 1] = high(w.a[l][i]);
				}
				for (int i = 0; i < 2; i++) {
					mb[t + i * 8][g] = low(w.b[l][i]);
					mb[t + i * 8 + 1][g] = high(w.b[l][i]);
				}
			}
			for (int l = 0; l < LANES; l++)
				for (int i = 0; i < 4; i++)
					for (int k = 0; k < 16; k++)
						w.c[l][i] += ma[l / 4 + i / 2 * 8][k] *
							     mb[k][l % 4 * 2 + i % 2];
		});
		memcpy(c, w.c[lane], sizeof(c));
	}
};

/* ---- what a warp does ---- */

static inline void emulated_matrices(uint32_t (&r)[4], const void *row, bool transposed)
{
	emulated_warp &w = emulated_own_warp();
	int lane = threadIdx.x % LANES;
	const unsigned char *at = (const unsigned char *)row;

	assert((uintptr_t)row % 16 == 0);
	assert(at >= emulated.shared && at + 16 <= emulated.shared + emulated.shared_bytes);
	w.address[lane] = row;
	emulated_meet(&w.barrier, LANES, [&w, transposed] {
		for (int l = 0; l < LANES; l++)
			for (int m = 0; m < 4; m++)
				for (int i = 0; i < 2; i++) {
					int row = transposed ? l % 4 * 2 + i : l / 4;
					int col = transposed ? l / 4 : l % 4 * 2 + i;

					((uint16_t *)&w.matrices[l][m])[i] =
						((const uint16_t *)w.address[m * 8 + row])[col];
				}
	});
	memcpy(r, w.matrices[lane], sizeof(r));
}

static inline void load_matrices(uint32_t (&r)[4], const void *row)
{
	emulated_matrices(r, row, false);
}

static inline void load_matrices_transposed(uint32_t (&r)[4], const void *row)
{
	emulated_matrices(r, row, true);
}

template <typename T> static inline T lane_xor(T x, int mask)
{
	emulated_warp &w = emulated_own_warp();
	int lane = threadIdx.x % LANES;

	w.value[lane] = x;
	emulated_meet(&w.barrier, LANES, [&w, mask] {
		for (int l = 0; l < LANES; l++)
			w.exchanged[l] = w.value[l ^ mask];
	});
	return (T)w.exchanged[lane];
}

static inline float exp2_fast(float x)
{
	return exp2f(x);
}

/* ---- asynchronous copies ---- */

static inline void emulated_do(const emulated_copy &c)
{
	if (c.valid)
		memcpy(c.to, c.from, 16);
	else
		memset(c.to, 0, 16);
}

static inline void copy_async(void *to, const void *from, bool valid)
{
	unsigned char *at = (unsigned char *)to;
	emulated_copy c = {to, from, valid};

	assert((uintptr_t)to % 16 == 0 && (!valid || (uintptr_t)from % 16 == 0));
	assert(at >= emulated.shared && at + 16 <= emulated.shared + emulated.shared_bytes);
	if (emulated.late)
		emulated_self().open.push_back(c);
	else
		emulated_do(c);
}

static inline void copy_commit(void)
{
	emulated_self().groups.push_back(emulated_self().open);
	emulated_self().open.clear();
}

template <int pending> static inline void copy_wait(void)
{
	std::vector<std::vector<emulated_copy>> &groups = emulated_self().groups;

	while (groups.size() > pending) {
		for (const emulated_copy &c : groups.front())
			emulated_do(c);
		groups.erase(groups.begin());
	}
}

#endif
