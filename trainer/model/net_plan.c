/*
 * What a model's parts are, and where their activations lie.
 *
 * Each sublayer has memory for x, normed, the norm's statistics and what its part keeps. It lies in
 * a slot, and there are as many slots as passes may be between forward and backward at once. A slot
 * serves each of the process's model chunks. Memory of what is recomputed is in no slot, and shared
 * by all who recompute it:
 *
 *   full        Layers of a model chunk are run again in chunks. Place k of a chunk has one set of
 *               memory for all chunks; only the first x of each chunk is kept.
 *   selective   "layernorm": all share one normed; "mlp", "moe": all share what the part keeps.
 *               "moe_act", "shared_experts": that is in scratch (mlp/moe.c). "core_attn" and
 *               "mla_up_proj" change nothing: scores are never kept, and queries, keys and values
 *               always are.
 *
 * Source of the modules' names: megatron/core/transformer/transformer_config.py.
 */
#include "formats/base/array.h"
#include "formats/base/str.h"
#include "trainer/model/attention/attention.h"
#include "trainer/model/base/eight.h"
#include "trainer/model/mlp/mlp.h"
#include "trainer/model/net_i.h"

/* ---- what there is ---- */

/* The part's plan. Its scratch lies where every other's does. */
static int plan_part(struct mft_net *net, struct mft_sublayer *s, uint32_t layer,
		     const struct mft_part_kind *kind, struct mft_part_plan *scratch,
		     struct mfs_error *err)
{
	struct mft_part_plan plan = {.scratch_most = scratch->scratch_most};
	int r;

	s->part.kind = kind;
	s->part.layer = layer;
	r = kind->plan(net, &s->part, &plan, err);
	if (r)
		return r;
	s->part.bytes = plan.kept;
	scratch->scratch_most = plan.scratch_most;
	s->norm_again = mft_recomputes(net, "layernorm");
	s->part_again = mft_recomputes(net, kind->module);
	return 0;
}

int mft_stream_norm_find(struct mft_net *net, const char *prefix, int32_t layer,
			 struct mft_norm *ret, struct mfs_error *err)
{
	const int r = mft_norm_find(net, prefix, layer, ret, err);

	if (!r && net->rows < net->tokens) {
		mft_net_gradient_is_term(net, ret->weight);
		mft_net_gradient_is_term(net, ret->bias);
	}
	return r;
}

int mft_layer_plan(struct mft_net *net, struct mft_layer *l, uint32_t i,
		   struct mft_part_plan *scratch, struct mfs_error *err)
{
	const struct mft_part_kind *attention, *mlp;
	int r = mft_stream_norm_find(net, "decoder.layers.input_layernorm", (int32_t)i,
				     &l->attention.in.norm, err);

	mft_part_kinds(net->args, i, &attention, &mlp);
	l->attention.site = MFT_DROPOUT_ATTENTION;
	l->mlp.site = MFT_DROPOUT_MLP;
	if (!r)
		r = mft_stream_norm_find(net, "decoder.layers.pre_mlp_layernorm", (int32_t)i,
					 &l->mlp.in.norm, err);
	if (!r)
		r = plan_part(net, &l->attention, i, attention, scratch, err);
	if (!r)
		r = plan_part(net, &l->mlp, i, mlp, scratch, err);
	return r;
}

/* ---- where it lies ---- */

uint64_t mft_stream_bytes(const struct mft_net *net)
{
	return mft_matrix_bytes(net->io, net->rows, net->hidden);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static struct mft_at in_slot(uint64_t *used, uint64_t bytes)
{
	return (struct mft_at){mft_memory_after(used, bytes), true};
}

struct mft_at mft_memory_for_all(struct mft_net *net, uint64_t bytes)
{
	return (struct mft_at){mft_memory_add(net->memory, MFT_MEMORY_SCRATCH, bytes), false};
}

/* What a kind of sublayer keeps at most, of those that are place k of what is run again. */
static uint64_t kept_at(const struct mft_net *net, uint32_t k, bool mlp)
{
	const struct mft_chain *chain = net->chain;
	uint64_t kept = 0;

	for (uint32_t c = 0; c < chain->chunk_count; c++) {
		const struct mft_net_chunk *chunk = &chain->chunks[c];

		for (uint32_t i = k; i < chunk->count && i < chain->again_end;
		     i += chain->again_layers) {
			const struct mft_layer *l = &chunk->layers[i];

			kept = larger(kept, mlp ? l->mlp.part.bytes : l->attention.part.bytes);
		}
	}
	return kept;
}

/* Where a sublayer's activations lie. */
struct place {
	struct mft_at x, normed, stats, kept;
};

static struct place place_new(struct mft_net *net, uint64_t kept)
{
	return (struct place){
		.x = mft_memory_for_all(net, mft_stream_bytes(net)),
		.normed = mft_memory_for_all(net, mft_stream_bytes(net)),
		.stats = mft_memory_for_all(net, mft_norm_stats_bytes(net->rows)),
		.kept = mft_memory_for_all(net, kept),
	};
}

static void place_at(struct mft_sublayer *s, const struct place *p)
{
	s->in.x = p->x;
	s->in.normed = p->normed;
	s->in.stats = p->stats;
	s->part.kept = p->kept;
}

/* Layers that are run again: place k of every chunk of them is one place. */
static void place_again(struct mft_net *net, uint32_t k)
{
	const struct mft_chain *chain = net->chain;
	const struct place attention = place_new(net, kept_at(net, k, false));
	const struct place mlp = place_new(net, kept_at(net, k, true));

	for (uint32_t c = 0; c < chain->chunk_count; c++) {
		const struct mft_net_chunk *chunk = &chain->chunks[c];

		for (uint32_t i = k; i < chunk->count && i < chain->again_end;
		     i += chain->again_layers) {
			place_at(&chunk->layers[i].attention, &attention);
			place_at(&chunk->layers[i].mlp, &mlp);
		}
	}
}

/* Nobody looks at normed after forward. */
static bool forgets_normed(const struct mft_sublayer *s)
{
	return s->part.keeps_x && !s->part_again;
}

/* What selective recomputation makes anew in every layer, or nobody looks at again. */
struct shared {
	struct mft_at normed, kept;
};

static struct shared plan_shared(struct mft_net *net)
{
	struct shared shared = {0};
	bool forgets = mft_recomputes(net, "layernorm");
	uint64_t kept = 0;

	for (uint32_t i = 0; i < net->chain->layer_count - net->chain->mtp.count; i++) {
		const struct mft_sublayer *of[] = {&net->chain->layers[i].attention,
						   &net->chain->layers[i].mlp};

		for (int k = 0; k < 2; k++) {
			forgets |= forgets_normed(of[k]);
			if (of[k]->part_again)
				kept = larger(kept, of[k]->part.bytes);
		}
	}
	if (forgets)
		shared.normed = mft_memory_for_all(net, mft_stream_bytes(net));
	shared.kept = mft_memory_for_all(net, kept);
	return shared;
}

static void place_own(struct mft_net *net, struct mft_sublayer *s, const struct shared *shared,
		      uint64_t *used)
{
	s->in.x = in_slot(used, mft_stream_bytes(net));
	s->in.stats = in_slot(used, mft_norm_stats_bytes(net->rows));
	s->in.normed = s->norm_again || forgets_normed(s) ? shared->normed
							  : in_slot(used, mft_stream_bytes(net));
	s->part.kept = s->part_again ? shared->kept : in_slot(used, s->part.bytes);
}

/* What a model chunk has in a slot; its first x is the first of it. Returns its bytes. */
static uint64_t place_chunk(struct mft_net *net, const struct mft_net_chunk *chunk,
			    const struct shared *shared)
{
	struct mft_chain *chain = net->chain;
	struct mft_joint *last = &chain->head.in;
	uint64_t used = 0;

	for (uint32_t i = 0; i < chunk->count; i++) {
		struct mft_layer *l = &chunk->layers[i];

		l->attention.part.again = i < chain->again_end || l->attention.part_again;
		l->mlp.part.again = i < chain->again_end || l->mlp.part_again;
		if (i >= chain->again_end) {
			place_own(net, &l->attention, shared, &used);
			place_own(net, &l->mlp, shared, &used);
		} else if (i % chain->again_layers == 0) { /* what a chunk is run again from */
			l->attention.in.x = in_slot(&used, mft_stream_bytes(net));
		}
	}
	if (!chunk->count && !chunk->ends) /* the stream passes through */
		in_slot(&used, mft_stream_bytes(net));
	if (chunk->ends) {
		last->x = in_slot(&used, mft_stream_bytes(net));
		last->normed = in_slot(&used, mft_stream_bytes(net));
		last->stats = in_slot(&used, mft_norm_stats_bytes(net->rows));
	}
	return used;
}

/* What routed experts keep in a slot of a model chunk, in the layers that do not run again. */
static uint64_t kept_by_experts(const struct mft_net *net, const struct mft_net_chunk *chunk)
{
	uint64_t bytes = 0;

	for (uint32_t i = net->chain->again_end; i < chunk->count; i++) {
		const struct mft_sublayer *mlp = &chunk->layers[i].mlp;

		if (mfs_str_is(mlp->part.kind->module, "moe") && !mlp->part_again)
			bytes += mlp->part.bytes;
	}
	return bytes;
}

static void place_layers(struct mft_net *net)
{
	const struct shared shared = plan_shared(net);
	uint64_t experts = 0;

	for (uint32_t k = 0; k < net->chain->again_layers && k < net->chain->again_end; k++)
		place_again(net, k);
	for (uint32_t c = 0; c < net->chain->chunk_count; c++) {
		net->slot_bytes =
			larger(net->slot_bytes, place_chunk(net, &net->chain->chunks[c], &shared));
		experts = larger(experts, kept_by_experts(net, &net->chain->chunks[c]));
	}
	mft_eight_place_slot(net, &net->slot_bytes);
	net->memory->experts = experts * net->slot_count;
	net->slots = mft_memory_add(net->memory, MFT_MEMORY_ACTIVATIONS, net->slot_bytes);
	for (uint32_t i = 1; i < net->slot_count; i++)
		mft_memory_add(net->memory, MFT_MEMORY_ACTIVATIONS, net->slot_bytes);
}

/* ---- what is run again ---- */

/* Layers are counted from the beginning of each model chunk (transformer_block.py:
 * _checkpointed_forward). */
static int choose_layers(struct mft_net *net, struct mfs_error *err)
{
	const struct mft_train_config *c = net->config;
	const bool uniform = mfs_str_is(c->recompute_method, "uniform");
	uint32_t most = 0;

	if (c->recompute_granularity != MFT_RECOMPUTE_FULL)
		return 0;
	if (!uniform && !mfs_str_is(c->recompute_method, "block"))
		return mfs_fail(err, -EINVAL,
				"--recompute-granularity full: expected --recompute-method uniform "
				"or block, found %s",
				c->recompute_method ? c->recompute_method : "none");
	for (uint32_t i = 0; i < net->chain->chunk_count; i++)
		most = net->chain->chunks[i].count > most ? net->chain->chunks[i].count : most;
	if (!most)
		return 0;
	if (c->recompute_num_layers < 1 || c->recompute_num_layers > most)
		return mfs_fail(err, -EINVAL,
				"--recompute-num-layers: expected 1 to %u, found %lld", most,
				(long long)c->recompute_num_layers);
	net->chain->again_layers = uniform ? (uint32_t)c->recompute_num_layers : 1;
	net->chain->again_end = uniform ? most : (uint32_t)c->recompute_num_layers;
	return 0;
}

static int check_modules(const struct mft_net *net, struct mfs_error *err)
{
	static const char *const known[] = {"core_attn", "moe_act", "layernorm",     "mla_up_proj",
					    "mlp",	 "moe",	    "shared_experts"};
	const struct mfs_arg_words *modules = &net->config->recompute_modules;

	for (size_t i = 0; i < modules->count; i++) {
		bool found = false;

		for (size_t k = 0; k < MFS_ARRAY_SIZE(known); k++)
			found |= mfs_str_is(modules->list[i], known[k]);
		if (!found)
			return mfs_fail(err, -ENOTSUP,
					"--recompute-modules: expected core_attn, moe_act, "
					"layernorm, mla_up_proj, mlp, moe or shared_experts, found "
					"%s",
					modules->list[i]);
	}
	return 0;
}

/* ---- the pipeline ---- */

void mft_net_pipeline(const struct mft_net *net, uint64_t microbatches, bool backward,
		      struct mft_pipeline_shape *ret)
{
	const int64_t group = net->config->microbatch_group_size;

	*ret = (struct mft_pipeline_shape){
		.stages = net->parallel->size.pp,
		.chunks = net->chain->chunk_count,
		.group = group > 0 ? (uint32_t)group : net->parallel->size.pp,
		.microbatches = microbatches,
		.backward = backward,
	};
}

bool mft_net_has_room(const struct mft_net *net, const struct mft_pipeline *p)
{
	return p->slots <= net->slot_count && p->batches <= net->batch_count &&
	       p->grads <= net->chain->dx_count && p->exchanges <= net->chain->stages.count;
}

/* As many of everything as so many microbatches have at once. */
static int count_places(struct mft_net *net, uint64_t microbatches, bool backward,
			struct mfs_error *err)
{
	struct mft_chain *chain = net->chain;
	struct mft_pipeline_shape shape;
	struct mft_pipeline p;
	int rc;

	mft_net_pipeline(net, larger(microbatches, 1), backward, &shape);
	rc = mft_pipeline_new(&shape, net->parallel->place.pp, &p, err);
	if (rc)
		return rc;
	net->slot_count = (uint32_t)larger(net->slot_count, p.slots);
	net->batch_count = (uint32_t)larger(net->batch_count, p.batches);
	chain->dx_count = (uint32_t)larger(chain->dx_count, larger(p.grads, 1));
	chain->stages.count = (uint32_t)larger(chain->stages.count, p.exchanges);
	mft_pipeline_release(&p);
	return 0;
}

/* Each of a schedule's batches: of several model chunks a smaller one may need more room, as below.
 * Neighbours of a ramp are few enough microbatches apart to be the same often. */
static int count_steps(struct mft_net *net, uint64_t each, struct mfs_error *err)
{
	const struct mft_train_config *c = net->config;
	uint64_t n, before = 0;
	int rc = 0;

	if (!c->batch_step_count)
		return count_places(net, (uint64_t)c->global_batch_size / each, true, err);
	for (uint32_t i = 0; i < c->batch_step_count && !rc; i++) {
		n = c->batch_steps[i].batch / each;
		if (n != before)
			rc = count_places(net, n, true, err);
		before = n;
	}
	return rc;
}

static int plan_pipeline(struct mft_net *net, struct mfs_error *err)
{
	const struct mft_train_config *c = net->config;
	const uint64_t each = (uint64_t)net->batch * net->parallel->size.dp;
	const uint64_t of_eval = (uint64_t)c->eval_global_batch_size / each;
	/* The last batch of a whole split has fewer microbatches. With several model chunks these
	 * may need more room, where their last group is not whole. */
	const uint64_t least = c->full_validation && net->chain->chunk_count > 1 ? 1 : of_eval;
	int rc = count_steps(net, each, err);

	for (uint64_t n = least; n <= of_eval && !rc; n++)
		rc = count_places(net, n, false, err);
	return rc;
}

/* ---- all of it ---- */

static void plan_streams(struct mft_net *net)
{
	struct mft_chain *chain = net->chain;
	const uint64_t bytes = mft_stream_bytes(net);

	mft_memory_after(&chain->branch_bytes, bytes);
	chain->branch_count = mft_stages_overlap(net) ? MFT_PIPELINE_OUTPUTS : 1;
	chain->branch = mft_memory_add(net->memory, MFT_MEMORY_SCRATCH,
				       chain->branch_count * chain->branch_bytes);
	mft_memory_after(&chain->dx_bytes, bytes);
	chain->dx = mft_memory_add(net->memory, MFT_MEMORY_SCRATCH, chain->dx_bytes);
	for (uint32_t i = 1; i < chain->dx_count; i++)
		mft_memory_add(net->memory, MFT_MEMORY_SCRATCH, chain->dx_bytes);
	if (net->config->hidden_dropout > 0)
		chain->dropped = mft_memory_add(net->memory, MFT_MEMORY_SCRATCH, bytes);
	net->sums = mft_memory_add(net->memory, MFT_MEMORY_BATCH, MFT_SUM_COUNT * sizeof(double));
}

/* Megatron's vp and pp of a model chunk say which layers it has. */
static int plan_layers(struct mft_net *net, struct mft_part_plan *scratch, struct mfs_error *err)
{
	const struct mfs_layout *layout = &net->params->layout;
	int r = 0;

	for (uint32_t c = 0; !r && c < net->chain->chunk_count; c++) {
		const struct mft_net_chunk *chunk = &net->chain->chunks[c];
		uint32_t first;

		mfs_layout_layers(layout, net->args, c, net->parallel->place.pp, &first);
		for (uint32_t i = 0; !r && i < chunk->count; i++)
			r = mft_layer_plan(net, &chunk->layers[i], first + i, scratch, err);
	}
	return r;
}

int mft_net_plan(struct mft_net *net, struct mfs_error *err)
{
	struct mft_part_plan scratch = {0};
	int r = choose_layers(net, err);

	if (!r)
		r = check_modules(net, err);
	if (!r)
		r = plan_pipeline(net, err);
	if (!r)
		r = mft_batch_plan(net, err);
	if (!r)
		r = mft_rope_plan(net, err);
	if (!r)
		r = mft_context_plan(net, err);
	if (!r)
		r = mft_shared_groups_plan(net, err);
	if (!r)
		r = plan_layers(net, &scratch, err);
	if (!r && net->chain->chunks[net->chain->chunk_count - 1].ends)
		r = mft_head_plan(net, &scratch, err);
	if (!r)
		r = mft_mtp_plan(net, &scratch, err);
	if (r)
		return r;
	mft_cached_plan(net);
	place_layers(net);
	mft_mtp_place(net);
	plan_streams(net);
	mft_stream_plan(net);
	mft_eight_place(net);
	net->scratch = mft_memory_add(net->memory, MFT_MEMORY_SCRATCH, scratch.scratch_most);
	return 0;
}
