/*
 * Pipelines of small models, on the CPU: all stages are in this process, and their messages are
 * carried by hand, as late as the passes allow where they go in parallel with them. Losses and
 * gradients must have the bits of a model that is whole, whatever the stages are; those of a tied
 * embedding, which are a sum of two, are near them.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "tests/unit/small_models.h"
#include "trainer/model/net_i.h"

#define MOST_STAGES 4
#define LAYERS	    4
#define EMBEDDING   "embedding.word_embeddings.weight"
#define MOST_SENT   16

static struct mfs_error err;

/* The exchanges that a stage has begun, and how much of the first one that is not done has met its
 * other end. */
struct mfk_comm {
	struct sent {
		struct mfk_message list[3];
		unsigned count;
	} sent[MOST_SENT];
	uint64_t begun, done;
	unsigned met;
};

static void keep(struct mfk_ctx *ctx, struct mfk_comm *g, const struct mfk_message *list,
		 unsigned count)
{
	struct sent *s = &g->sent[g->begun++ % MOST_SENT];

	(void)ctx;
	ck_assert_uint_le(count, MFS_ARRAY_SIZE(s->list));
	ck_assert_uint_le(g->begun - g->done, MOST_SENT);
	memcpy(s->list, list, count * sizeof(*list));
	s->count = count;
}

static const struct mfk_comm_ops carried = {.name = "a test", .exchange = keep};

struct stage {
	struct train_model *m;
	struct mfk_comm comm;
	struct mft_pipeline pipeline;
	uint64_t at;
};

/* A way to divide a model. */
struct shape {
	uint32_t stages, chunks, first;
	int64_t group;
	uint64_t microbatches;
	bool again;    /* layers are run again */
	bool overlaps; /* messages go in parallel with the passes */
};

static const struct shape shapes[] = {
	{2, 1, 0, MFS_ABSENT, 4, false, true}, {2, 2, 0, MFS_ABSENT, 4, false, false},
	{2, 2, 0, 3, 5, true, true},	       {4, 1, 0, MFS_ABSENT, 4, true, true},
	{2, 1, 3, MFS_ABSENT, 1, false, true}, {3, 1, 2, MFS_ABSENT, 5, false, false},
	{2, 2, 0, MFS_ABSENT, 6, false, true},
};
#define SHAPES ((int)(MFS_ARRAY_SIZE(shapes)))

/* Gradients at their places in the whole model; those of the embedding's copy apart. */
struct result {
	float *grads, *copy;
	struct mft_net_losses losses;
};

static struct mft_train_config config_of(int model, const struct shape *s)
{
	struct mft_train_config c = small_models[model]();

	c.model.num_layers = LAYERS;
	if (c.model.mtp_num_layers) /* has no learned positions on the last stage */
		c.model.position_embedding_type = "rope";
	c.global_batch_size = (int64_t)s->microbatches * c.micro_batch_size;
	c.eval_global_batch_size = c.micro_batch_size;
	c.microbatch_group_size = s->group;
	c.overlap_p2p_comm = s->overlaps;
	if (s->again) {
		c.recompute_granularity = MFT_RECOMPUTE_FULL;
		c.recompute_method = "uniform";
		c.recompute_num_layers = 1;
	}
	return c;
}

static struct mft_microbatch_info info_of(const struct mft_batch *b, uint64_t microbatch)
{
	return (struct mft_microbatch_info){.batch = b,
					    .grad_scale = 0.5f,
					    .backward = true,
					    .first = microbatch == 0,
					    .iteration = 3,
					    .microbatch = microbatch};
}

/* ---- stages ---- */

static void copy_weights(const struct train_model *whole, struct train_model *m)
{
	for (uint32_t i = 0; i < m->params->count; i++) {
		const struct mft_param *p = &m->params->list[i];
		const struct mfs_global_tensor *t = p->tensor;
		const struct mft_param *from =
			mft_params_find(whole->params, t->name, t->layer, t->expert);

		ck_assert_uint_eq(from->elements, p->elements);
		memcpy((float *)m->params->weights + p->start,
		       (float *)whole->params->weights + from->start, p->elements * sizeof(float));
	}
}

static void open_stage(struct stage *st, const struct train_model *whole, const struct shape *s,
		       uint32_t rank)
{
	const struct mft_launch launch = {.rank = rank, .size = s->stages};
	const struct mft_parallel_sizes sizes = {1, 1, 1, s->stages, 1, 1, 1, 0, 0};
	struct mft_train_config config = whole->config;
	struct mft_pipeline_shape shape;
	struct mft_parallel parallel;

	config.model.virtual_pipeline_model_parallel_size = s->chunks;
	config.model.first_stage_layers = s->first ? (int64_t)s->first : MFS_ABSENT;
	mft_parallel_places(&launch, &sizes, &parallel);
	parallel.ops = &carried;
	parallel.group[MFT_GROUP_PIPELINE].comm = &st->comm;
	*st = (struct stage){.m = train_model_at(&config, &parallel)};
	copy_weights(whole, st->m);
	mft_net_pipeline(st->m->net, s->microbatches, true, &shape);
	unit_ok(mft_pipeline_new(&shape, rank, &st->pipeline, &err), &err);
	ck_assert(mft_net_has_room(st->m->net, &st->pipeline));
	mft_net_clear_grads(st->m->net, st->m->ctx);
	mft_net_clear_losses(st->m->net, st->m->ctx);
}

static struct sent *sent_by(struct stage *st)
{
	return st->comm.done < st->comm.begun ? &st->comm.sent[st->comm.done % MOST_SENT] : NULL;
}

/* Carries what a stage sends to where another one is ready for it. False: nothing has moved. */
static bool carry(struct stage *stages, uint32_t from)
{
	struct mfk_comm *g = &stages[from].comm;
	const struct sent *a = sent_by(&stages[from]);
	bool moved = false;

	for (unsigned i = 0; a && i < a->count; i++) {
		struct stage *to = &stages[a->list[i].peer];
		const struct sent *b = sent_by(to);

		for (unsigned k = 0; b && k < b->count && !a->list[i].receive; k++) {
			if (b->list[k].peer != from || !b->list[k].receive || g->met & 1u << i ||
			    to->comm.met & 1u << k)
				continue;
			ck_assert_uint_eq(a->list[i].bytes, b->list[k].bytes);
			memcpy(b->list[k].data, a->list[i].data, a->list[i].bytes);
			g->met |= 1u << i;
			to->comm.met |= 1u << k;
			moved = true;
		}
	}
	if (!a || g->met + 1 != 1u << a->count)
		return moved;
	g->met = 0;
	g->done++;
	return true;
}

/* One step of a stage. False: it waits, or is done. */
static bool run_step(struct stage *stages, uint32_t rank, struct mft_batch *const *batches)
{
	struct stage *st = &stages[rank];
	const struct mft_pipeline_step *step = &st->pipeline.steps[st->at];
	const bool overlaps = st->m->config.overlap_p2p_comm;

	if (st->at == st->pipeline.count)
		return false;
	if (st->comm.done < (overlaps ? step->after : st->comm.begun))
		return false;
	if (step->first) {
		const struct mft_microbatch_info info =
			info_of(batches[step->microbatch], step->microbatch);

		unit_ok(mft_net_take(st->m->net, st->m->ctx, step->batch, &info, &err), &err);
	}
	mft_net_step(st->m->net, st->m->ctx, step);
	train_model_sync(st->m);
	st->at++;
	return true;
}

/* ---- results ---- */

static struct result result_new(const struct train_model *whole)
{
	return (struct result){.grads = calloc(whole->params->elements, sizeof(float)),
			       .copy = calloc(whole->params->elements, sizeof(float))};
}

static void result_free(struct result *r)
{
	free(r->grads);
	free(r->copy);
}

static void add_result(struct result *r, const struct train_model *whole, struct train_model *m)
{
	const struct mft_params *p = m->params;
	struct mft_net_losses l;

	for (uint32_t i = 0; i < p->count; i++) {
		const struct mfs_global_tensor *t = p->list[i].tensor;
		const struct mft_param *at =
			mft_params_find(whole->params, t->name, t->layer, t->expert);

		/* of two copies, that which nobody reads */
		if (p->list[i].part.is_copy && !p->list[i].part.is_shared)
			continue;
		memcpy((p->list[i].part.is_copy ? r->copy : r->grads) + at->start,
		       (float *)p->grads + p->list[i].start, at->elements * sizeof(float));
	}
	unit_ok(mft_net_losses(m->net, m->ctx, &l, &err), &err);
	r->losses.loss[0] += l.loss[0];
	for (int i = 0; i < MFT_AUX_LOSSES; i++)
		r->losses.aux[i] += l.aux[i];
	r->losses.z_loss += l.z_loss;
	for (int i = 0; i < MFT_MTP_MOST; i++)
		r->losses.mtp[i] += l.mtp[i];
}

static struct result run_whole(struct train_model *whole, const struct shape *s,
			       struct mft_batch *const *batches)
{
	struct result r = result_new(whole);

	mft_net_clear_grads(whole->net, whole->ctx);
	mft_net_clear_losses(whole->net, whole->ctx);
	for (uint64_t i = 0; i < s->microbatches; i++) {
		const struct mft_microbatch_info info = info_of(batches[i], i);

		unit_ok(mft_net_run(whole->net, whole->ctx, &info, &err), &err);
	}
	train_model_sync(whole);
	add_result(&r, whole, whole);
	return r;
}

static struct result run_stages(const struct train_model *whole, const struct shape *s,
				struct mft_batch *const *batches)
{
	struct stage stages[MOST_STAGES];
	struct result r = result_new(whole);
	bool moves = true;

	for (uint32_t i = 0; i < s->stages; i++)
		open_stage(&stages[i], whole, s, i);
	while (moves) {
		moves = false;
		for (uint32_t i = 0; i < s->stages; i++)
			moves |= run_step(stages, i, batches);
		for (uint32_t i = 0; i < s->stages && !moves; i++)
			moves = carry(stages, i);
	}
	for (uint32_t i = 0; i < s->stages; i++) {
		ck_assert_uint_eq(stages[i].at, stages[i].pipeline.count);
		ck_assert_uint_eq(stages[i].comm.done, stages[i].comm.begun);
		add_result(&r, whole, stages[i].m);
		mft_pipeline_release(&stages[i].pipeline);
		train_model_free(stages[i].m);
	}
	return r;
}

/* ---- comparisons ---- */

static void near(double a, double b)
{
	ck_assert_msg(fabs(a - b) <= 1e-12 * fabs(b), "%.17g, not %.17g", a, b);
}

static void check_grads(const struct train_model *whole, const struct result *want,
			const struct result *found)
{
	const struct mfs_megatron_args *a = &whole->config.model;
	const struct mft_param *shared = a->tied || a->mtp_num_layers
						 ? mft_params_find(whole->params, EMBEDDING, -1, -1)
						 : NULL;
	char name[MFS_CKPT_NAME_SIZE];

	for (uint32_t i = 0; i < whole->params->count; i++) {
		const struct mft_param *p = &whole->params->list[i];
		const char *of = mfs_global_tensor_name(p->tensor, name, sizeof(name));

		for (uint64_t e = p->start; e < p->start + p->elements; e++) {
			const float sum = found->grads[e] + found->copy[e];

			if (p == shared)
				ck_assert_msg(fabsf(sum - want->grads[e]) <=
						      1e-5f * (0.1f + fabsf(want->grads[e])),
					      "%s: %g, not %g", of, sum, want->grads[e]);
			else
				ck_assert_msg(found->grads[e] == want->grads[e], "%s: %g, not %g",
					      of, found->grads[e], want->grads[e]);
		}
	}
}

/* _i: a model and a shape */
START_TEST(stages_have_the_bits_of_the_whole)
{
	const struct shape *s = &shapes[_i % SHAPES];
	const int model = _i / SHAPES;
	const struct mft_train_config config = config_of(model, s);
	struct train_model *whole = train_model_new(&config);
	struct mft_batch *batches[8];
	struct result want, found;

	for (uint64_t i = 0; i < s->microbatches; i++)
		batches[i] = batch_of(model, (model + (int)i) % 2, 31 + i);
	train_model_random(whole, 5, 0.3f);
	want = run_whole(whole, s, batches);
	found = run_stages(whole, s, batches);
	ck_assert(found.losses.loss[0] == want.losses.loss[0]);
	for (int i = 0; i < MFT_AUX_LOSSES; i++)
		near(found.losses.aux[i], want.losses.aux[i]);
	near(found.losses.z_loss, want.losses.z_loss);
	for (int i = 0; i < MFT_MTP_MOST; i++)
		ck_assert(found.losses.mtp[i] == want.losses.mtp[i]);
	check_grads(whole, &want, &found);
	result_free(&want);
	result_free(&found);
	for (uint64_t i = 0; i < s->microbatches; i++)
		train_batch_free(batches[i]);
	train_model_free(whole);
}
END_TEST

/* 1F1B and interleaved: both gradients of a shared embedding, too. */
START_TEST(schedules_have_the_same_bits)
{
	const struct mft_train_config config = config_of(_i, &shapes[0]);
	struct train_model *whole = train_model_new(&config);
	const size_t bytes = whole->params->elements * sizeof(float);
	struct mft_batch *batches[4];
	struct result one, other;

	for (int i = 0; i < 4; i++)
		batches[i] = batch_of(_i, (_i + i) % 2, 31 + (uint64_t)i);
	train_model_random(whole, 5, 0.3f);
	one = run_stages(whole, &shapes[0], batches);
	other = run_stages(whole, &shapes[1], batches);
	ck_assert(one.losses.loss[0] == other.losses.loss[0]);
	ck_assert(!memcmp(one.grads, other.grads, bytes));
	ck_assert(!memcmp(one.copy, other.copy, bytes));
	result_free(&one);
	result_free(&other);
	for (int i = 0; i < 4; i++)
		train_batch_free(batches[i]);
	train_model_free(whole);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("trainer_pipeline");
	TCase *c = tcase_create("pipelines");

	tcase_add_loop_test(c, stages_have_the_bits_of_the_whole, 0, SMALL_MODELS * SHAPES);
	tcase_add_loop_test(c, schedules_have_the_same_bits, 0, SMALL_MODELS);
	suite_add_tcase(s, c);
	return s;
}
