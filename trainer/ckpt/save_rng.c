/*
 * Random states for a Megatron run that goes on from a save of ours, which has no states itself.
 *
 * They are functions of the seed and of the iteration. So such a run does not draw again what the
 * run's first iterations would have drawn.
 *
 * MT19937 (Python, numpy, torch on the CPU) gets words that depend on both. CUDA's generators have
 * the seeds that Megatron gives them, and begin that much further in their sequences.
 *
 * Sources: megatron/training/checkpointing.py: get_rng_state; megatron/training/initialize.py:
 * _set_random_seed; core/tensor_parallel/random.py: model_parallel_cuda_manual_seed; CPython's
 * Modules/_randommodule.c: random_getstate; numpy/random/mtrand.pyx: set_state;
 * aten/src/ATen/CPUGeneratorImpl.cpp: set_state; ATen/cuda/CUDAGeneratorImpl.cpp: set_state.
 */
#include <string.h>

#include "formats/dataset/random/numpy.h"
#include "formats/megatron/write/dist_archive.h"
#include "trainer/ckpt/save_i.h"

/* Numbers of one iteration, of each thread of a kernel. A multiple of 4, as torch asks for. */
#define PHILOX_STRIDE (UINT64_C(1) << 32)

/* The state of torch's generator on the CPU (ATen/CPUGeneratorImpl.cpp:
 * CPUGeneratorImplStateLegacy, CPUGeneratorImplState). */
struct torch_state {
	uint64_t seed;
	int32_t left, seeded;
	uint64_t next;
	uint64_t words[MFS_MT_WORDS];
	double normal_x, normal_y, normal_rho;
	int32_t normal_is_valid, unused;
	float next_normal;
	bool has_next_normal;
};
_Static_assert(sizeof(struct torch_state) == 5056, "what torch.get_rng_state() gives");

struct rng {
	const struct mft_train_config *config;
	const struct mft_parallel *parallel;
	uint64_t seed; /* of the process's stage */
	uint64_t iteration;
	uint32_t words[MFS_MT_WORDS];
	struct mfs_dist_archive archive;
	struct mfs_error *err;
};

static struct mfs_pickle_writer *out(struct rng *r)
{
	return &r->archive.w;
}

/* Each byte has its highest bit, and so an integer or text of them has one length, whatever the
 * iteration: a save's files have one layout. What is drawn from such a state is not biased, since
 * each bit of the next state is the sum of several. */
static void draw_words(struct rng *r)
{
	const uint32_t seed = (uint32_t)r->seed + (uint32_t)r->iteration * 0x9e3779b9u;
	struct mfs_numpy_random mt;

	mfs_numpy_random_seed(&mt, seed);
	for (unsigned i = 0; i < MFS_MT_WORDS; i++)
		r->words[i] = mfs_numpy_random_next32(&mt) | 0x80808080u;
}

/* random.getstate(): (3, 624 words and a position, None) */
static void write_python(struct rng *r)
{
	mfs_pickle_name(out(r), "random_rng_state");
	mfs_pickle_int(out(r), 3);
	mfs_pickle_op(out(r), MFS_OP_MARK);
	for (unsigned i = 0; i < MFS_MT_WORDS; i++)
		mfs_pickle_uint(out(r), r->words[i]);
	mfs_pickle_int(out(r), MFS_MT_WORDS);
	mfs_pickle_op(out(r), MFS_OP_TUPLE);
	mfs_pickle_none(out(r));
	mfs_pickle_op(out(r), MFS_OP_TUPLE3);
}

/* numpy.dtype('<u4'), as numpy pickles it. */
static void write_dtype(struct rng *r)
{
	mfs_pickle_global(out(r), "numpy", "dtype");
	mfs_pickle_str(out(r), "u4");
	mfs_pickle_bool(out(r), false);
	mfs_pickle_bool(out(r), true);
	mfs_pickle_op(out(r), MFS_OP_TUPLE3);
	mfs_pickle_op(out(r), MFS_OP_REDUCE);
	mfs_pickle_op(out(r), MFS_OP_MARK);
	mfs_pickle_int(out(r), 3);
	mfs_pickle_str(out(r), "<");
	for (int i = 0; i < 3; i++)
		mfs_pickle_none(out(r));
	mfs_pickle_int(out(r), -1);
	mfs_pickle_int(out(r), -1);
	mfs_pickle_int(out(r), 0);
	mfs_pickle_op(out(r), MFS_OP_TUPLE);
	mfs_pickle_op(out(r), MFS_OP_BUILD);
}

static void write_array(struct rng *r)
{
	static const uint64_t none[] = {0}, shape[] = {MFS_MT_WORDS};

	mfs_pickle_global(out(r), "numpy._core.multiarray", "_reconstruct");
	mfs_pickle_global(out(r), "numpy", "ndarray");
	mfs_pickle_ints(out(r), none, 1);
	mfs_pickle_bytes(out(r), "b", 1);
	mfs_pickle_op(out(r), MFS_OP_TUPLE3);
	mfs_pickle_op(out(r), MFS_OP_REDUCE);
	mfs_pickle_op(out(r), MFS_OP_MARK);
	mfs_pickle_int(out(r), 1);
	mfs_pickle_ints(out(r), shape, 1);
	write_dtype(r);
	mfs_pickle_bool(out(r), false);
	mfs_pickle_bytes(out(r), r->words, sizeof(r->words));
	mfs_pickle_op(out(r), MFS_OP_TUPLE);
	mfs_pickle_op(out(r), MFS_OP_BUILD);
}

/* numpy.random.get_state(): ('MT19937', words, position, has_gauss, gauss) */
static void write_numpy(struct rng *r)
{
	mfs_pickle_name(out(r), "np_rng_state");
	mfs_pickle_op(out(r), MFS_OP_MARK);
	mfs_pickle_str(out(r), "MT19937");
	write_array(r);
	mfs_pickle_int(out(r), MFS_MT_WORDS);
	mfs_pickle_int(out(r), 0);
	mfs_pickle_float(out(r), 0);
	mfs_pickle_op(out(r), MFS_OP_TUPLE);
}

static int write_torch(struct rng *r)
{
	struct torch_state s = {.seed = r->seed, .left = 1, .seeded = 1};

	for (unsigned i = 0; i < MFS_MT_WORDS; i++)
		s.words[i] = r->words[i];
	mfs_pickle_name(out(r), "torch_rng_state");
	return mfs_dist_archive_bytes(&r->archive, &s, sizeof(s), r->err);
}

/* A generator of CUDA: its seed, and its place in the sequence. */
static int write_cuda(struct rng *r, const char *name, uint64_t more)
{
	const uint64_t state[] = {r->seed + more, (r->iteration & INT32_MAX) * PHILOX_STRIDE};

	mfs_pickle_name(out(r), name);
	return mfs_dist_archive_bytes(&r->archive, state, sizeof(state), r->err);
}

static int write_trackers(struct rng *r)
{
	const struct mft_parallel_sizes *place = &r->parallel->place;
	int rc;

	mfs_pickle_name(out(r), "rng_tracker_states");
	mfs_pickle_dict_begin(out(r));
	rc = write_cuda(r, "data-parallel-rng", 0);
	if (!rc)
		rc = write_cuda(r, "model-parallel-rng", 2718 + place->tp);
	if (!rc)
		rc = write_cuda(r, "expert-parallel-rng", 1024 + 100 * place->ep + place->etp);
	mfs_pickle_dict_end(out(r));
	return rc;
}

/* A list of one object: the list of one dict that a rank saves. */
static int write_all(struct rng *r)
{
	int rc;

	mfs_pickle_list_begin(out(r));
	mfs_pickle_list_begin(out(r));
	mfs_pickle_dict_begin(out(r));
	write_python(r);
	write_numpy(r);
	rc = write_torch(r);
	if (!rc)
		rc = write_cuda(r, "cuda_rng_state", 0);
	if (!rc)
		rc = write_trackers(r);
	mfs_pickle_dict_end(out(r));
	mfs_pickle_list_end(out(r));
	mfs_pickle_list_end(out(r));
	return rc;
}

int mft_save_rng(const struct mft_train_config *config, const struct mft_parallel *parallel,
		 uint64_t iteration, struct mfs_buf *buf, struct mfs_error *err)
{
	struct rng r = {.config = config,
			.parallel = parallel,
			.seed = (uint64_t)config->seed + 100 * parallel->place.pp,
			.iteration = iteration,
			.err = err};

	draw_words(&r);
	mfs_dist_archive_begin(&r.archive);
	return mfs_dist_archive_end(&r.archive, "archive", write_all(&r), buf, err);
}
