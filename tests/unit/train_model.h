/*
 * A model on the CPU, ready to run, and microbatches for it. All of its memory that is not
 * parameters begins as NaN, so that what is read before it is written shows.
 */
#ifndef MFS_TESTS_UNIT_TRAIN_MODEL_H
#define MFS_TESTS_UNIT_TRAIN_MODEL_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/numbers/half.h"
#include "formats/ckpt/target.h"
#include "formats/plan/vfile.h"
#include "kernels/ref/cpu.h"
#include "tests/unit/unit.h"
#include "trainer/model/net.h"

/* ---- random numbers ---- */

static inline uint64_t train_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* In [-1, 1). */
static inline float train_uniform(uint64_t *state)
{
	return (float)((double)(train_random(state) >> 11) / (double)(UINT64_C(1) << 52) - 1);
}

/* ---- a model ---- */

/* RMSNorm, RoPE, one process: everything else is off, and sizes are for the caller to say. */
static inline struct mfs_megatron_args train_plain_model(void)
{
	return (struct mfs_megatron_args){
		.make_vocab_size_divisible_by = 32,
		.norm_epsilon = 1e-5,
		.position_embedding_type = "rope",
		.rotary_base = 100,
		.rotary_percent = 1,
		.rope_scaling_factor = 8,
		.window_size = MFS_ABSENT,
		.num_experts = MFS_ABSENT,
		.moe_shared_expert_intermediate_size = MFS_ABSENT,
		.moe_router_score_function = "softmax",
		.moe_router_num_groups = MFS_ABSENT,
		.moe_router_group_topk = MFS_ABSENT,
		.moe_mlp_glu_interleave_size = MFS_ABSENT,
		.moe_shared_expert_glu_interleave_size = MFS_ABSENT,
		.q_lora_rank = MFS_ABSENT,
		.init_method_std = 0.02,
		.tensor_model_parallel_size = 1,
		.pipeline_model_parallel_size = 1,
		.virtual_pipeline_model_parallel_size = 1,
		.expert_model_parallel_size = 1,
		.expert_tensor_parallel_size = 1,
		.first_stage_layers = MFS_ABSENT,
		.last_stage_layers = MFS_ABSENT,
		.local_spec = true,
	};
}

/* What config needs in addition to the model and the batch's sizes. */
static inline void train_config_types(struct mft_train_config *c, enum mfs_dtype io)
{
	c->params_dtype = io;
	c->main_grads_dtype = c->main_params_dtype = MFS_F32;
	c->exp_avg_dtype = c->exp_avg_sq_dtype = MFS_F32;
	c->embedding_init_method_std = -1;
	c->decoupled_lr = -1;
	c->seed = 1234;
}

struct train_model {
	struct mft_train_config config;
	struct mft_params *params;
	struct mft_memory memory;
	struct mft_parallel parallel;
	struct mfk_device *device;
	struct mfk_ctx *ctx;
	struct mft_net *net;
	struct mfs_error err;
};

/* Parameters in memory: weights zero, gradients zero. */
static inline void train_model_place(struct train_model *m)
{
	struct mft_params *p = m->params;
	const uint64_t weight = mfs_dtype_size(p->weight_type), grad = mfs_dtype_size(p->grad_type);
	const uint64_t weight_bytes = mft_params_weight_elements(p) * weight;
	const uint64_t grad_bytes = mft_params_grad_elements(p) * grad;
	const uint64_t weights = mft_memory_add(&m->memory, MFT_MEMORY_WEIGHTS, weight_bytes);
	const uint64_t grads = mft_memory_add(&m->memory, MFT_MEMORY_GRADIENTS, grad_bytes);
	const uint64_t buffers =
		mft_memory_add(&m->memory, MFT_MEMORY_WEIGHTS, p->buffer_elements * 4);

	unit_ok(mft_net_new(&m->config, p, &m->memory, &mfk_cpu, m->device, &m->parallel, &m->net,
			    &m->err),
		&m->err);
	unit_ok(mft_memory_place(&m->memory, &mfk_cpu, m->device, &m->err), &m->err);
	memset(m->memory.base, 0xff, m->memory.total);
	p->weights = mft_memory_at(&m->memory, weights);
	p->grads = mft_memory_at(&m->memory, grads);
	p->buffers = mft_memory_at(&m->memory, buffers);
	memset(p->weights, 0, weight_bytes);
	memset(p->grads, 0, grad_bytes);
	memset(p->buffers, 0, p->buffer_elements * 4);
}

/* What a process at a place has of a model. parallel NULL: one that has all of it. */
static inline struct train_model *train_model_at(const struct mft_train_config *config,
						 const struct mft_parallel *parallel)
{
	struct train_model *m = calloc(1, sizeof(*m));
	char why[MFK_WHY] = "";

	m->config = *config;
	mft_parallel_one(&m->parallel);
	if (parallel)
		m->parallel = *parallel;
	ck_assert_msg(!mfk_cpu.device->open(0, 2, &m->device, why), "%s", why);
	ck_assert_msg(!mfk_cpu.device->ctx_new(m->device, false, &m->ctx, why), "%s", why);
	unit_ok(mft_params_new(&m->config, parallel, &m->params, &m->err), &m->err);
	train_model_place(m);
	unit_ok(mft_net_begin(m->net, m->ctx, &m->err), &m->err);
	return m;
}

static inline struct train_model *train_model_new(const struct mft_train_config *config)
{
	return train_model_at(config, NULL);
}

static inline void train_model_sync(struct train_model *m)
{
	char why[MFK_WHY] = "";

	ck_assert_msg(!mfk_cpu.device->sync(m->ctx, why), "%s", why);
}

static inline void train_model_free(struct train_model *m)
{
	train_model_sync(m);
	mft_net_free(m->net);
	mft_memory_release(&m->memory, &mfk_cpu, m->device);
	mft_params_free(m->params);
	mfk_cpu.device->ctx_free(m->ctx);
	mfk_cpu.device->close(m->device);
	free(m);
}

/* ---- weights ---- */

static inline void train_put_weight(const struct mft_params *p, uint64_t at, float v)
{
	const uint16_t half =
		p->weight_type == MFS_F16 ? mfs_float_to_f16(v) : mfs_float_to_bf16(v);

	if (p->weight_type == MFS_F32)
		((float *)p->weights)[at] = v;
	else
		((uint16_t *)p->weights)[at] = half;
}

/* Numbers in [-spread, spread); norms are near what they begin with. */
static inline void train_model_random(struct train_model *m, uint64_t seed, float spread)
{
	const struct mft_params *p = m->params;

	for (uint32_t i = 0; i < p->count; i++)
		for (uint64_t e = 0; e < p->list[i].elements; e++) {
			const float v = spread * train_uniform(&seed);
			const bool norm = p->list[i].init_std < 0;

			train_put_weight(p, p->list[i].start + e,
					 norm ? p->list[i].init_value + v : v);
		}
}

static inline float train_to_float(enum mfs_dtype type, const void *from, uint64_t i)
{
	if (type == MFS_F32)
		return ((const float *)from)[i];
	ck_assert(type == MFS_BF16 || type == MFS_F16);
	return type == MFS_BF16 ? mfs_bf16_to_float(((const uint16_t *)from)[i])
				: mfs_f16_to_float(((const uint16_t *)from)[i]);
}

/* The elements of a tensor of a checkpoint, in fp32; to be freed. */
static inline float *train_read_tensor(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t,
				       uint64_t *ret_count)
{
	struct mfs_error err;
	struct mfs_whole_target whole;
	struct mfs_vfile *f;
	size_t len;
	void *raw;
	float *v;

	mfs_whole_target_init(&whole, ckpt, t);
	unit_ok(mfs_vfile_new(&f, &err), &err);
	unit_ok(mfs_vfile_add_tensor(f, &whole.base, &err), &err);
	raw = malloc(whole.base.bytes);
	unit_ok(mfs_vfile_pread(f, 0, raw, whole.base.bytes, &len, &err), &err);
	mfs_vfile_free(f);
	*ret_count = whole.base.bytes / mfs_dtype_size(t->dtype);
	v = malloc(*ret_count * sizeof(*v));
	for (uint64_t i = 0; i < *ret_count; i++)
		v[i] = train_to_float(t->dtype, raw, i);
	free(raw);
	return v;
}

/* The weights and buffers of a checkpoint of the same model. */
static inline void train_model_load(struct train_model *m, struct mfs_ckpt *ckpt)
{
	const struct mft_params *p = m->params;

	for (uint32_t i = 0; i < p->count + p->buffer_count; i++) {
		const bool param = i < p->count;
		const struct mft_model_buffer *b = param ? NULL : &p->buffer_list[i - p->count];
		const struct mfs_global_tensor *t = param ? p->list[i].tensor : b->tensor;
		uint64_t count;
		float *v;

		t = mfs_ckpt_find(ckpt, t->name, t->layer, t->expert);
		ck_assert_ptr_nonnull(t);
		v = train_read_tensor(ckpt, t, &count);
		ck_assert_uint_eq(count, param ? p->list[i].elements : b->elements);
		for (uint64_t e = 0; e < count; e++)
			if (param)
				train_put_weight(p, p->list[i].start + e, v[e]);
			else
				p->buffers[b->start + e] = v[e];
		free(v);
	}
}

/* ---- microbatches ---- */

static const int32_t *train_sorted_ids;

static inline int train_compare(const void *a, const void *b)
{
	const int32_t i = *(const int32_t *)a, k = *(const int32_t *)b;
	const int32_t x = train_sorted_ids[i], y = train_sorted_ids[k];

	return x != y ? (x > y) - (x < y) : (i > k) - (i < k);
}

static inline void train_sort(int32_t *order, const int32_t *ids, int64_t count)
{
	for (int64_t t = 0; t < count; t++)
		order[t] = (int32_t)t;
	train_sorted_ids = ids;
	qsort(order, (size_t)count, sizeof(*order), train_compare);
}

/* After tokens, labels, positions or masks were changed. */
static inline void train_batch_finish(struct mft_batch *b, int64_t tokens)
{
	b->counted = 0;
	b->documents = false;
	train_sort(b->order, b->tokens, tokens);
	train_sort(b->position_order, b->positions, tokens);
	for (int64_t t = 0; t < tokens; t++) {
		b->counted += b->loss_mask[t] != 0;
		b->documents |= b->first_key[t] != 0;
	}
}

/* Random tokens and labels below vocab; one document a sequence; every loss counts. */
static inline struct mft_batch *train_batch_new(int64_t batch, int64_t seq, int64_t vocab,
						uint64_t seed)
{
	const int64_t n = batch * seq;
	struct mft_batch *b = calloc(1, sizeof(*b));

	b->block = calloc(1, mft_batch_bytes((uint64_t)n, MFT_MTP_MOST, false));
	mft_batch_place(b, (uint64_t)n, 0, false, b->block);
	for (int64_t t = 0; t < n; t++) {
		b->tokens[t] = (int32_t)(train_random(&seed) % (uint64_t)vocab);
		b->labels[t] = (int32_t)(train_random(&seed) % (uint64_t)vocab);
		b->positions[t] = (int32_t)(t % seq);
		b->loss_mask[t] = 1;
	}
	train_batch_finish(b, n);
	return b;
}

/* Each sequence becomes two documents, the second from position `at` on; the last loss of the first
 * one does not count. */
static inline void train_batch_split(struct mft_batch *b, int64_t batch, int64_t seq, int64_t at)
{
	for (int64_t t = 0; t < batch * seq; t++) {
		const int64_t s = t % seq;

		if (s >= at) {
			b->first_key[t] = (int32_t)at;
			b->positions[t] = (int32_t)(s - at);
		}
		b->loss_mask[t] = s != at - 1;
	}
	train_batch_finish(b, batch * seq);
}

/* For a model with so many MTP layers; after the last change of tokens, labels and masks. */
static inline void train_batch_look_ahead(struct mft_batch *b, int64_t batch, int64_t seq,
					  int64_t layers)
{
	const int64_t n = batch * seq;

	mft_batch_place(b, (uint64_t)n, (uint32_t)layers, false, b->block);
	for (int64_t k = 0; k < layers; k++) {
		struct mft_batch_ahead *a = &b->ahead[k];

		a->counted = 0;
		for (int64_t t = 0; t < n; t++) {
			const bool inside = t % seq + k + 1 < seq;
			const int64_t from = inside ? t + k + 1 : t;

			a->tokens[t] = inside ? b->tokens[from] : 0;
			a->labels[t] = inside ? b->labels[from] : 0;
			a->positions[t] = inside ? b->positions[from] : 0;
			a->loss_mask[t] = inside ? b->loss_mask[from] : 0;
			a->counted += a->loss_mask[t] != 0;
		}
		train_sort(a->order, a->tokens, n);
		train_sort(a->position_order, a->positions, n);
	}
}

/* The arrays of a policy loss (--perform-rl-step): two responses in each sequence, each after
 * tokens that do not count. */
static inline void train_batch_add_policy(struct mft_batch *b, int64_t batch, int64_t seq,
					  uint64_t seed)
{
	const int64_t n = batch * seq;
	struct mft_batch was = *b;

	b->block = calloc(1, mft_batch_bytes((uint64_t)n, 0, true));
	mft_batch_place(b, (uint64_t)n, 0, true, b->block);
	memcpy(b->block, was.block, was.bytes);
	free(was.block);
	for (int64_t t = 0; t < n; t++) {
		const int64_t at = t % seq, half = seq < 2 ? 1 : seq / 2;

		b->sequence[t] = at % half < 2 && half > 2 ? -1 : (int32_t)(at / half);
		b->loss_mask[t] = b->sequence[t] < 0 ? 0 : 0.01f * (float)(1 + b->sequence[t]);
		b->old[t] = -3.9f + 0.2f * train_uniform(&seed);
		b->reference[t] = b->old[t] + 0.3f * train_uniform(&seed);
		b->rollout[t] = b->old[t] + 0.2f * train_uniform(&seed);
		b->advantage[t] = (t / seq + b->sequence[t]) % 2 ? 1.5f : -0.75f;
	}
	train_batch_finish(b, n);
}

static inline void train_batch_free(struct mft_batch *b)
{
	free(b->block);
	free(b);
}

/* ---- runs ---- */

/* Losses of one pass; gradients are added to. */
static inline struct mft_net_losses train_losses(struct train_model *m, const struct mft_batch *b,
						 bool backward)
{
	const struct mft_microbatch_info info = {
		.batch = b, .grad_scale = 1, .backward = backward, .iteration = 3, .microbatch = 1};
	struct mft_net_losses losses;

	mft_net_clear_losses(m->net, m->ctx);
	unit_ok(mft_net_run(m->net, m->ctx, &info, &m->err), &m->err);
	unit_ok(mft_net_losses(m->net, m->ctx, &losses, &m->err), &m->err);
	return losses;
}

/* What gradients of passes are those of: the loss's sum over counted tokens, the mean loss of MTP
 * layers times their number, and auxiliary losses times the number of tokens. counted: of each
 * pass. */
static inline double train_loss_of(const struct mft_train_config *c, const struct mft_net_losses *l,
				   uint64_t counted)
{
	const double tokens = c->calculate_per_token_loss
				      ? (double)(c->micro_batch_size * c->seq_length)
				      : (double)counted;
	double aux = c->moe_z_loss_coeff * l->z_loss;
	const int64_t ahead = c->model.mtp_num_layers;
	int64_t layers = 0;
	double mtp = 0;

	for (int64_t i = 0; i < c->model.num_layers; i++)
		layers += mfs_args_is_moe(&c->model, i);
	if (ahead && mfs_args_is_moe(&c->model, c->model.num_layers - 1))
		layers += ahead;
	for (int64_t k = 0; k < ahead; k++)
		mtp += c->mtp_loss_scaling_factor / (double)ahead * l->mtp[k];
	for (int i = 0; i < MFT_AUX_LOSSES; i++)
		aux += c->moe_aux_loss_coeffs[i] * l->aux[i];
	return l->loss[0] + (double)counted * mtp + tokens * (double)layers * aux;
}

static inline double train_run(struct train_model *m, const struct mft_batch *b, bool backward)
{
	const struct mft_net_losses l = train_losses(m, b, backward);

	return train_loss_of(&m->config, &l, b->counted);
}

static inline void train_clear_grads(struct train_model *m)
{
	memset(m->params->grads, 0, m->params->elements * mfs_dtype_size(m->params->grad_type));
}

#endif
