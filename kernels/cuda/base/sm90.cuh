/*
 * What sm_90a has of its own: barriers in shared memory, copies of tiles by the tensor memory
 * accelerator, and products of a warpgroup. Source: the PTX ISA, "wgmma" and "cp.async.bulk".
 */
#ifndef MFK_CUDA_HOPPER_CUH
#define MFK_CUDA_HOPPER_CUH

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

static __device__ __forceinline__ uint32_t shared_address(const void *p)
{
	return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/* ---- barriers ---- */

static __device__ __forceinline__ void barrier_init(uint64_t *bar, uint32_t arrivals)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)),
		     "r"(arrivals));
}

/* Call it after barrier_init(): copies and other blocks of the cluster see the barriers. */
static __device__ __forceinline__ void barriers_begin()
{
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint64_t *bar)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar))
		     : "memory");
}

/* The same barrier of block `rank` of the cluster. */
static __device__ __forceinline__ void barrier_arrive_at(uint64_t *bar, uint32_t rank)
{
	asm volatile("{\n"
		     ".reg .b32 there;\n"
		     "mapa.shared::cluster.u32 there, %0, %1;\n"
		     "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
		     "}" ::"r"(shared_address(bar)),
		     "r"(rank)
		     : "memory");
}

/* Arrives, and the phase ends when so many bytes have been copied, too. */
static __device__ __forceinline__ void barrier_expect(uint64_t *bar, uint32_t bytes)
{
	asm volatile(
		"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)),
		"r"(bytes)
		: "memory");
}

/* Until the phase of that parity has ended. Of a new barrier, that of parity 1 has. */
static __device__ __forceinline__ void barrier_wait(uint64_t *bar, uint32_t parity)
{
	asm volatile("{\n"
		     ".reg .pred done;\n"
		     "again:\n"
		     "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
		     "@done bra over;\n"
		     "bra again;\n"
		     "over:\n"
		     "}" ::"r"(shared_address(bar)),
		     "r"(parity)
		     : "memory");
}

/* Until all threads of the cluster are here. */
static __device__ __forceinline__ void cluster_wait()
{
	asm volatile("barrier.cluster.arrive.release;\n"
		     "barrier.cluster.wait.acquire;" ::
			     : "memory");
}

/* ---- copies ---- */

/* The box of the map that begins at (x, y, z); what lies outside of the tensor is zero. */
static __device__ __forceinline__ void copy_box(void *to, const CUtensorMap *map, uint64_t *bar,
						int x, int y, int z)
{
	asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::"
		     "bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(to)),
		     "l"(map), "r"(shared_address(bar)), "r"(x), "r"(y), "r"(z)
		     : "memory");
}

/* The same to each block of the cluster whose bit is set, at the same places of its memory. */
static __device__ __forceinline__ void
copy_box_to(uint16_t blocks, void *to, const CUtensorMap *map, uint64_t *bar, int x, int y, int z)
{
	asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::"
		     "bytes.multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(
			     shared_address(to)),
		     "l"(map), "r"(shared_address(bar)), "r"(x), "r"(y), "r"(z), "h"(blocks)
		     : "memory");
}

/* Copies contiguous bytes; addresses and their number are multiples of 16. */
static __device__ __forceinline__ void copy_bytes(void *to, const void *from, uint64_t *bar,
						  uint32_t bytes)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
		     "[%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
		     "l"(from), "r"(bytes), "r"(shared_address(bar))
		     : "memory");
}

/* The box of shared memory to the tensor, or added to it. What lies outside is left out. */
static __device__ __forceinline__ void store_box(const CUtensorMap *map, const void *from, int x,
						 int y, int z)
{
	asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group "
		     "[%0, {%2, %3, %4}], [%1];" ::"l"(map),
		     "r"(shared_address(from)), "r"(x), "r"(y), "r"(z)
		     : "memory");
}

static __device__ __forceinline__ void add_box(const CUtensorMap *map, const void *from, int x,
					       int y, int z)
{
	asm volatile("cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group "
		     "[%0, {%2, %3, %4}], [%1];" ::"l"(map),
		     "r"(shared_address(from)), "r"(x), "r"(y), "r"(z)
		     : "memory");
}

static __device__ __forceinline__ void stores_commit()
{
	asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Until at most N of the thread's groups of stores have yet to read shared memory. */
template <int N> static __device__ __forceinline__ void stores_wait_read()
{
	asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

/* Until they are done. */
static __device__ __forceinline__ void stores_wait()
{
	asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* What threads have written to shared memory is seen by products and copies that follow. */
static __device__ __forceinline__ void fence_async()
{
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- registers ---- */

/* From now on a thread of the warpgroup has N registers: more or fewer. */
template <int N> static __device__ __forceinline__ void registers_more()
{
	asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> static __device__ __forceinline__ void registers_fewer()
{
	asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* Lane q of four gets word q of each: a transposition. */
static __device__ __forceinline__ void exchange(uint32_t (&w)[4])
{
#pragma unroll
	for (int by = 1; by <= 2; by *= 2) {
		const bool upper = threadIdx.x & by;

#pragma unroll
		for (int i = 0; i < 4; i++) {
			uint32_t other;

			if (i & by)
				continue;
			other = __shfl_xor_sync(0xffffffffu, upper ? w[i] : w[i + by], by);
			if (upper)
				w[i] = other;
			else
				w[i + by] = other;
		}
	}
}

/* ---- products of a warpgroup ---- */

static __device__ __forceinline__ void products_begin()
{
	asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void products_commit()
{
	asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Until at most N groups of products are under way. */
template <int N> static __device__ __forceinline__ void products_wait()
{
	asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Call it after products_wait(): no read of d is moved before it. */
template <int N> static __device__ __forceinline__ void products_done(float (&d)[N])
{
#pragma unroll
	for (int i = 0; i < N; i++)
		asm volatile("" : "+f"(d[i])::"memory");
}

/*
 * A matrix in shared memory of rows of 128 bytes, swizzled as the copies do: 8 rows after 8 rows.
 * next: bytes to the next 64 columns, where columns are not summed over.
 */
static __device__ __forceinline__ uint64_t matrix_at(const void *p, uint32_t next)
{
	const uint64_t eight_rows = 1024, swizzle_128 = 1;

	return (static_cast<uint64_t>(shared_address(p)) & 0x3ffff) >> 4 |
	       static_cast<uint64_t>(next >> 4) << 16 | (eight_rows >> 4) << 32 | swizzle_128 << 62;
}

#define D4(i)  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D16(i) D4(i), D4(i + 4), D4(i + 8), D4(i + 12)
#define D64(i) D16(i), D16(i + 16), D16(i + 32), D16(i + 48)
#define WGMMA(columns, type, names, a_at, b_at, ta_at, tb_at, ...)                                 \
	asm volatile("{\n"                                                                         \
		     ".reg .pred add;\n"                                                           \
		     "setp.eq.u32 add, 1, 1;\n"                                                    \
		     "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type          \
		     " {" names "}, " a_at ", " b_at ", add, 1, 1, " ta_at ", " tb_at ";\n"        \
		     "}"                                                                           \
		     : __VA_ARGS__                                                                 \
		     : "l"(a), "l"(b), "n"(TRANS_A), "n"(TRANS_B))
#define NAMES_128                                                                                  \
	"%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                   \
	"%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"                         \
	"%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                         \
	"%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define NAMES_256                                                                                  \
	NAMES_128                                                                                  \
	",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"                        \
	"%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"                         \
	"%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"             \
	"%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define WGMMA_128(type) WGMMA("128", type, NAMES_128, "%64", "%65", "%66", "%67", D64(0))
#define WGMMA_256(type)                                                                            \
	WGMMA("256", type, NAMES_256, "%128", "%129", "%130", "%131", D64(0), D64(64))

/* d[64, N] += a[64, 16] b[16, N], N: 128 or 256. Rows of memory are rows of a, or of b transposed;
 * with TRANS they are its columns. */
template <typename T, int TRANS_A, int TRANS_B> struct Product;

template <int TRANS_A, int TRANS_B> struct Product<__nv_bfloat16, TRANS_A, TRANS_B> {
	static __device__ __forceinline__ void add(float (&d)[64], uint64_t a, uint64_t b)
	{
		WGMMA_128("bf16");
	}
	static __device__ __forceinline__ void add(float (&d)[128], uint64_t a, uint64_t b)
	{
		WGMMA_256("bf16");
	}
};

template <int TRANS_A, int TRANS_B> struct Product<__half, TRANS_A, TRANS_B> {
	static __device__ __forceinline__ void add(float (&d)[64], uint64_t a, uint64_t b)
	{
		WGMMA_128("f16");
	}
	static __device__ __forceinline__ void add(float (&d)[128], uint64_t a, uint64_t b)
	{
		WGMMA_256("f16");
	}
};

#undef WGMMA_256
#undef WGMMA_128
#undef NAMES_256
#undef NAMES_128
#undef WGMMA
#undef D64
#undef D16
#undef D4

#endif
