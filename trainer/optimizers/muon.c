/*
 * Muon: the momentum of a matrix, whose singular values an iteration of Newton and Schulz moves to
 * about 1. AdamW updates what is no matrix, and the embedding and the head.
 *
 * A matrix that processes divide is gathered, and each computes all of it ("duplicated", and
 * "distributed", which is the same but for rounding), or each takes its part for a matrix
 * ("blockwise"). The processes of data have the same gradients, and compute the same.
 *
 * Sources: megatron/core/optimizer/muon.py, emerging_optimizers.py: TensorParallelMuon;
 * NVIDIA-NeMo/Emerging-Optimizers: orthogonalized_optimizers. The coefficients are published:
 * kellerjordan.github.io/posts/muon, leloykun.github.io/ponder/muon-opt-coeffs, arXiv:2505.16932
 * (divided by 1.01, 1.01^3 and 1.01^5), arXiv:2506.10935, github.com/thib-s/flash-newton-schulz,
 * DeepSeek-V4's report, arXiv:2606.00371.
 */
#include <errno.h>
#include <math.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/base/str.h"
#include "formats/optim/rules/optim_rules.h"
#include "trainer/optimizers/optimizer_i.h"

/* ---- its arguments ---- */

/* optimizer/muon.py: get_megatron_muon_optimizer; arguments.py: validate_args. */
static const struct mft_dests refuses = {{
	FP16,
	USE_MEGATRON_FSDP,
	USE_TORCH_FSDP2,
	USE_PRECISION_AWARE_OPTIMIZER,
	USE_MUP,
	OPTIMIZER_CPU_OFFLOAD,
}};

/* x' = a x + (b x x^T + c (x x^T)^2) x. After the last step the steps begin again with the first
 * one, or the last one is repeated, or there are no more. */
enum after_last { BEGINS_AGAIN, REPEATS_LAST, ENDS };

struct coefficients {
	const char *type;
	enum after_last after;
	unsigned count;
	float step[10][3];
};

static const struct coefficients all_coefficients[] = {
	{"simple", BEGINS_AGAIN, 1, {{3.4445f, -4.7750f, 2.0315f}}},
	{"quintic",
	 BEGINS_AGAIN,
	 5,
	 {{4.0848f, -6.8946f, 2.9270f},
	  {3.9505f, -6.3029f, 2.6377f},
	  {3.7418f, -5.5913f, 2.3037f},
	  {2.8769f, -3.1427f, 1.2046f},
	  {2.8366f, -3.0525f, 1.2012f}}},
	{"polar_express",
	 REPEATS_LAST,
	 8,
	 {{8.2051f, -22.9019f, 16.4607f},
	  {4.0664f, -2.8612f, 0.5184f},
	  {3.9096f, -2.8234f, 0.5250f},
	  {3.2856f, -2.4153f, 0.4853f},
	  {2.2779f, -1.6198f, 0.3985f},
	  {1.8726f, -1.2307f, 0.3585f},
	  {1.8564f, -1.2132f, 0.3568f},
	  {1.8750f, -1.2500f, 0.3750f}}},
	{"cans",
	 REPEATS_LAST,
	 5,
	 {{8.4703f, -25.1081f, 18.6293f},
	  {4.1828f, -3.1087f, 0.5806f},
	  {3.9619f, -2.9541f, 0.5630f},
	  {3.2866f, -2.4647f, 0.5074f},
	  {2.2737f, -1.6447f, 0.4162f}}},
	{"aol",
	 BEGINS_AGAIN,
	 4,
	 {{4.0098f, -7.0585f, 2.4635f},
	  {3.4585f, -5.5479f, 2.5959f},
	  {2.7573f, -3.2939f, 1.4254f},
	  {2.7215f, -3.0494f, 1.3169f}}},
	{"deepseekv4",
	 REPEATS_LAST,
	 10,
	 {{3.4445f, -4.7750f, 2.0315f},
	  {3.4445f, -4.7750f, 2.0315f},
	  {3.4445f, -4.7750f, 2.0315f},
	  {3.4445f, -4.7750f, 2.0315f},
	  {3.4445f, -4.7750f, 2.0315f},
	  {3.4445f, -4.7750f, 2.0315f},
	  {3.4445f, -4.7750f, 2.0315f},
	  {3.4445f, -4.7750f, 2.0315f},
	  {2, -1.5f, 0.5f},
	  {2, -1.5f, 0.5f}}},
	{"cubic5",
	 ENDS,
	 5,
	 {{3.3656576f, -3.3420992f, 0},
	  {2.5744352f, -1.4957376f, 0},
	  {2.5368962f, -1.4312570f, 0},
	  {2.4418906f, -1.2764040f, 0},
	  {2.2230472f, -0.9630650f, 0}}},
};

/* NULL: there are no such ones. */
static const struct coefficients *coefficients_of(const char *type)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(all_coefficients); i++)
		if (mfs_str_is(type, all_coefficients[i].type))
			return &all_coefficients[i];
	return NULL;
}

static const float *coefficients_at(const struct coefficients *c, int64_t step)
{
	const int64_t last = c->count - 1;

	if (c->after == REPEATS_LAST)
		return c->step[step < last ? step : last];
	return c->step[step % c->count];
}

static int check(const struct mft_flag_values *v, struct mfs_error *err)
{
	const double momentum = mft_flag_real(v, name_of(MUON_MOMENTUM), 0);
	const int64_t steps = mft_flag_number(v, name_of(MUON_NUM_NS_STEPS), 0);
	const char *type = mft_flag_text(v, name_of(MUON_COEFFICIENT_TYPE));
	const struct coefficients *all = coefficients_of(type);

	if (!(momentum >= 0 && momentum <= 1))
		return mfs_fail(err, -EINVAL, "--muon-momentum: expected 0 to 1, found %g",
				momentum);
	if (steps < 1 || steps > 100)
		return mfs_fail(err, -EINVAL, "--muon-num-ns-steps: expected 1 to 100, found %lld",
				(long long)steps);
	if (!all)
		return mfs_fail(err, -ENOTSUP,
				"--muon-coefficient-type %.40s is not supported; use simple, "
				"quintic, polar_express, cans, aol, deepseekv4 or cubic5",
				type);
	if (all->after == ENDS && steps != all->count)
		return mfs_fail(err, -EINVAL,
				"--muon-num-ns-steps: expected %u with --muon-coefficient-type %s, "
				"found %lld",
				all->count, type, (long long)steps);
	return 0;
}

/* checkpointing.py: save_checkpoint: layer_wise_optimizer_N.pt of data-parallel rank N; those of
 * ranks that share contexts are overwritten. Which experts a rank has is known where it has as many
 * of their parts as of the others'. */
static int check_files(const struct mft_flag_values *v, struct mfs_error *err)
{
	const int64_t tp = mft_flag_number(v, name_of(TENSOR_MODEL_PARALLEL_SIZE), 1);

	if (!mfs_str_is(mft_flag_text(v, name_of(CKPT_FORMAT)), "torch") ||
	    !mfs_str_is(mft_flag_text(v, name_of(OPTIMIZER)), "dist_muon"))
		return 0;
	if (mft_flag_number(v, name_of(CONTEXT_PARALLEL_SIZE), 1) > 1 ||
	    mft_flag_number(v, name_of(EXPERT_TENSOR_PARALLEL_SIZE), tp) != tp)
		return mfs_fail(err, -ENOTSUP,
				"--ckpt-format torch: expected torch_dist with --optimizer "
				"dist_muon and --context-parallel-size or "
				"--expert-tensor-parallel-size");
	return 0;
}

/* arguments.py: validate_args: with the distributed optimizer it is the layer-wise one. Here each
 * process of data keeps all of the state, and computes it, which gives the same numbers. */
static int settle(struct mft_flag_values *v, struct mfs_error *err)
{
	int rc;

	if (mft_flag_truth(v, name_of(USE_DISTRIBUTED_OPTIMIZER)))
		mft_flag_set_text(v, name_of(OPTIMIZER), "dist_muon");
	mft_flag_set_truth(v, name_of(USE_DISTRIBUTED_OPTIMIZER), false);
	mft_flag_set_truth(v, name_of(OVERLAP_PARAM_GATHER), false);
	rc = check(v, err);
	return rc ? rc : check_files(v, err);
}

static enum mfs_dtype momentum_type(const struct mft_train_config *c)
{
	(void)c;
	return MFS_F32;
}

/* ---- a matrix, and its parts ---- */

/* The matrix while it is updated. */
struct muon {
	const struct mft_matrix_place *at;
	const struct mft_matrix *m;
	enum mfk_dtype type; /* of products */
	uint32_t rank, size; /* of those who have the others' parts */
	int64_t part;	     /* elements of what each has */
	float *update;	     /* [size][part] */
	char *x, *y, *gram,
		*b;	 /* in the type of products; x, y: the matrix; the others: its side^2 */
	double *squares; /* [PARTS][2] */
};

/* Queries, keys and values are updated as three matrices. */
#define PARTS 3

/*
 * A part of the update that is one matrix, and where it lies: in each process's block, from an
 * element on, rows of so many neighbours. The blocks of the matrix follow each other, below or next
 * to one another.
 */
struct part {
	int64_t rows, cols;		  /* of the matrix */
	int64_t first;			  /* element of a block */
	int64_t runs, length, run_step;	  /* in a block */
	int64_t x_run_step, x_block_step; /* in the matrix */
};

static uint32_t processes(const struct mft_train_config *c, const struct mft_parallel *parallel,
			  const struct mft_matrix *m)
{
	return m->axis < 0 || mfs_str_is(c->muon.tp_mode, "blockwise")
		       ? 1
		       : parallel->group[m->among].size;
}

/* The whole of it. */
static struct part whole_part(const struct muon *u)
{
	const int64_t rows = u->m->rows, cols = u->m->cols;

	if (u->size > 1 && u->m->axis == 1)
		return (struct part){.rows = rows,
				     .cols = cols * u->size,
				     .runs = rows,
				     .length = cols,
				     .run_step = cols,
				     .x_run_step = cols * u->size,
				     .x_block_step = cols};
	return (struct part){.rows = rows * u->size,
			     .cols = cols,
			     .runs = 1,
			     .length = rows * cols,
			     .run_step = rows * cols,
			     .x_run_step = rows * cols,
			     .x_block_step = rows * cols};
}

/* Rows [from, from + rows) of each query group. */
static struct part rows_part(const struct muon *u, int64_t group_rows, int64_t from, int64_t rows)
{
	const int64_t groups = u->m->rows / group_rows, cols = u->m->cols;

	return (struct part){.rows = groups * rows * u->size,
			     .cols = cols,
			     .first = from * cols,
			     .runs = groups,
			     .length = rows * cols,
			     .run_step = group_rows * cols,
			     .x_run_step = rows * cols,
			     .x_block_step = groups * rows * cols};
}

/* What is divided otherwise than by groups is not split (emerging_optimizers.py). */
static unsigned parts_of(const struct muon *u, struct part parts[PARTS])
{
	const struct mfs_megatron_args *a = &u->at->config->model;
	const int64_t head = a->kv_channels;
	const int64_t queries = a->num_attention_heads / a->num_query_groups * head;
	const int64_t rows = queries + 2 * head;

	if (!u->m->is_qkv || !u->at->config->muon.split_qkv || u->m->rows % rows) {
		parts[0] = whole_part(u);
		return 1;
	}
	parts[0] = rows_part(u, rows, 0, queries);
	parts[1] = rows_part(u, rows, queries, head);
	parts[2] = rows_part(u, rows, queries + head, head);
	return PARTS;
}

/* ---- an update ---- */

static void momentum(const struct muon *u, const struct mft_update_piece *p)
{
	const struct mft_train_config *c = u->at->config;
	const struct mfk_momentum a = {
		.grad_type = p->grad_type,
		.count = p->count,
		.grad = p->grad,
		.m = p->slot[MFT_SLOT_KEPT],
		.update = u->update + u->rank * u->part,
		.momentum = (float)c->muon.momentum,
		.rest = (float)(1 - c->muon.momentum),
		.grad_scale = p->grad_scale,
		.nesterov = c->muon.nesterov,
	};

	u->at->backend->ops->momentum(u->at->ctx, &a);
}

static void add_squares(const struct muon *u, const struct part *p, double *squares)
{
	const struct mfk_ops *ops = u->at->backend->ops;
	const bool neighbours = p->length == p->run_step;
	const int64_t runs = neighbours ? 1 : p->runs;
	const int64_t length = neighbours ? p->runs * p->length : p->length;

	for (uint32_t block = 0; block < u->size; block++)
		for (int64_t i = 0; i < runs; i++)
			ops->sum_squares(u->at->ctx, MFK_F32,
					 u->update + block * u->part + p->first + i * p->run_step,
					 length, squares);
}

/* Divided by its norm, in the type of products. F.normalize of torch has the least of norms. */
static void normalize(const struct muon *u, const struct part *p, double *squares)
{
	add_squares(u, p, squares);
	for (uint32_t block = 0; block < u->size; block++) {
		const struct mfk_copy_rows a = {
			.from_type = MFK_F32,
			.to_type = u->type,
			.rows = p->runs,
			.cols = p->length,
			.ld_from = p->run_step,
			.ld_to = p->x_run_step,
			.from = u->update + block * u->part + p->first,
			.to = u->x + (size_t)(block * p->x_block_step) * mfk_dtype_size(u->type),
			.squares = squares,
			.least = 1e-15f,
			.scale = 1,
		};

		u->at->backend->ops->copy_rows(u->at->ctx, &a);
	}
}

/* muon.py: get_muon_scale_factor. */
static double scale_of(const struct mft_train_config *c, const struct part *p)
{
	const double rows = (double)p->rows, cols = (double)p->cols;
	const char *mode = c->muon.scale_mode;
	const double by = mfs_str_is(mode, "spectral")	      ? fmax(rows, cols)
			  : mfs_str_is(mode, "unit_rms_norm") ? rows / cols
							      : fmax(1, rows / cols);

	return sqrt(by) * c->muon.extra_scale_factor;
}

/* The process's rows go back to where they came from. */
static void take_own(const struct muon *u, const struct part *p)
{
	const struct mfk_copy_rows a = {
		.from_type = u->type,
		.to_type = MFK_F32,
		.rows = p->runs,
		.cols = p->length,
		.ld_from = p->x_run_step,
		.ld_to = p->run_step,
		.from = u->x + (size_t)(u->rank * p->x_block_step) * mfk_dtype_size(u->type),
		.to = u->update + u->rank * u->part + p->first,
		.scale = (float)scale_of(u->at->config, p),
	};

	u->at->backend->ops->copy_rows(u->at->ctx, &a);
}

/* c = alpha op(a) op(b) + beta c, all in the type of products, with m, n, k and leading sizes. */
static void multiply(const struct muon *u, struct mfk_gemm g)
{
	g.dtype_a = g.dtype_b = g.dtype_c = u->type;
	u->at->backend->ops->gemm(u->at->ctx, &g);
}

/* u->b becomes b gram + c gram^2. */
static void square_gram(const struct muon *u, int64_t side, const float by[3])
{
	u->at->backend->device->copy(u->at->ctx, u->b, u->gram,
				     (size_t)(side * side) * mfk_dtype_size(u->type));
	multiply(u, (struct mfk_gemm){.m = side,
				      .n = side,
				      .k = side,
				      .a = u->gram,
				      .b = u->gram,
				      .c = u->b,
				      .lda = side,
				      .ldb = side,
				      .ldc = side,
				      .alpha = by[2],
				      .beta = by[1]});
}

/* A step on x, which is taller than wide or not: its Gram matrix is of its shorter side. Without a
 * square it is multiplied by b in the last product. */
static void iterate(struct muon *u, const struct part *p, const float by[3])
{
	const bool tall = p->rows > p->cols;
	const int64_t side = tall ? p->cols : p->rows, cols = p->cols;
	const size_t size = mfk_dtype_size(u->type);
	const struct mfk_device_ops *device = u->at->backend->device;
	char *symmetric = by[2] != 0 ? u->b : u->gram;
	struct mfk_gemm g = {.m = side,
			     .n = side,
			     .k = tall ? p->rows : p->cols,
			     .trans_a = tall,
			     .trans_b = !tall,
			     .a = u->x,
			     .b = u->x,
			     .c = u->gram,
			     .lda = cols,
			     .ldb = cols,
			     .ldc = side,
			     .alpha = 1};
	char *y = u->y;

	multiply(u, g);
	if (by[2] != 0)
		square_gram(u, side, by);
	device->copy(u->at->ctx, y, u->x, (size_t)(p->rows * cols) * size);
	g = (struct mfk_gemm){.m = p->rows,
			      .n = cols,
			      .k = side,
			      .trans_b = tall,
			      .a = tall ? u->x : symmetric,
			      .b = tall ? symmetric : u->x,
			      .c = y,
			      .lda = side,
			      .ldb = tall ? side : cols,
			      .ldc = cols,
			      .alpha = by[2] != 0 ? 1 : by[1],
			      .beta = by[0]};
	multiply(u, g);
	u->y = u->x;
	u->x = y;
}

static void orthogonalize(struct muon *u, const struct part *p, double *squares)
{
	const struct mft_train_config *c = u->at->config;
	const struct coefficients *all = coefficients_of(c->muon.coefficient_type);

	normalize(u, p, squares);
	for (int64_t i = 0; i < c->muon.num_ns_steps; i++)
		iterate(u, p, coefficients_at(all, i));
	take_own(u, p);
}

/* Decay that is decoupled, and the update: what SGD without momentum does. */
static void apply(const struct muon *u, const struct mft_update_piece *p)
{
	const struct mfk_sgd a = {
		.weight_type = p->weight_type,
		.grad_type = MFK_F32,
		.main_type = p->slot_type[MFT_SLOT_MAIN],
		.count = p->count,
		.weight = p->weight,
		.main = p->slot[MFT_SLOT_MAIN],
		.grad = u->update + u->rank * u->part,
		.lr = p->lr,
		.wd = p->wd,
		.grad_scale = 1,
	};

	u->at->backend->ops->sgd(u->at->ctx, &a);
}

/* ---- its memory ---- */

#define ALIGN 256

struct sizes {
	uint64_t update, matrix, side; /* bytes */
	enum mfk_dtype type;
};

static struct sizes sizes_of(const struct mft_train_config *c, const struct mft_parallel *parallel,
			     const struct mft_matrix *m)
{
	const uint64_t size = processes(c, parallel, m);
	const uint64_t rows = (uint64_t)m->rows * (m->axis == 1 ? 1 : size);
	const uint64_t cols = (uint64_t)m->cols * (m->axis == 1 ? size : 1);
	const uint64_t side = mfs_min_u64(rows, cols);
	struct sizes s = {.type = mfs_str_is(c->muon.fp32_matmul_prec, "medium") ? MFK_BF16
										 : MFK_F32};

	s.update = mfs_round_up(rows * cols * sizeof(float), ALIGN);
	s.matrix = mfs_round_up(rows * cols * mfk_dtype_size(s.type), ALIGN);
	s.side = mfs_round_up(side * side * mfk_dtype_size(s.type), ALIGN);
	return s;
}

static uint64_t scratch(const struct mft_train_config *c, const struct mft_parallel *parallel,
			const struct mft_matrix *m)
{
	const struct sizes s = sizes_of(c, parallel, m);

	return s.update + 2 * s.matrix + 2 * s.side + ALIGN;
}

static void place(struct muon *u)
{
	const struct sizes s = sizes_of(u->at->config, u->at->parallel, u->m);
	char *at = u->at->scratch;

	u->type = s.type;
	u->squares = (double *)at;
	u->update = (float *)(at += ALIGN);
	u->x = at += s.update;
	u->y = at += s.matrix;
	u->gram = at += s.matrix;
	u->b = at + s.side;
}

static void step_matrix(const struct mft_matrix_place *at, const struct mft_update_piece *p,
			const struct mft_matrix *m)
{
	struct muon u = {.at = at, .m = m, .size = processes(at->config, at->parallel, m)};
	struct part parts[PARTS];
	unsigned count;

	u.rank = u.size > 1 ? at->parallel->group[m->among].rank : 0;
	u.part = m->rows * m->cols;
	place(&u);
	count = parts_of(&u, parts);
	at->backend->device->zero(at->ctx, u.squares, 2 * PARTS * sizeof(*u.squares));
	momentum(&u, p);
	if (u.size > 1)
		mft_parallel_all_gather(at->parallel, m->among, at->ctx, MFK_F32, u.update,
					u.update + u.rank * u.part, (uint64_t)u.part);
	for (unsigned i = 0; i < count; i++)
		orthogonalize(&u, &parts[i], u.squares + 2 * i);
	apply(&u, p);
}

/* emerging_optimizers' groups of 0.1, and of 0.2 and later. */
static void save_group(struct mfs_pickle_writer *w, const struct mft_train_config *c, bool mup)
{
	(void)mup;
	mft_group_real(w, "momentum", c->muon.momentum);
	mft_group_real(w, "momentum_beta", c->muon.momentum);
}

const struct mft_optimizer_kind mft_muon = {
	.name = "muon",
	.kept = {{MFS_STATE_MOMENTUM, momentum_type}},
	.refuses = &refuses,
	.settle = settle,
	.takes = mfs_optim_muon_takes,
	.others = &mft_adam,
	.scratch = scratch,
	.step_matrix = step_matrix,
	.save_group = save_group,
};
