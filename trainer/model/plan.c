/*
 * What a model's parts are, and where their activations lie.
 *
 * Each sublayer has memory for x, normed, the norm's statistics and what its part keeps. Memory of
 * what is recomputed is shared by all who recompute it:
 *
 *   full        Layers are run again in chunks. Place k of a chunk has one set of memory for all
 *               chunks; only the first x of each chunk is kept.
 *   selective   "layernorm": all share one normed; "mlp", "moe": all share what the part keeps.
 *               "moe_act", "shared_experts": that is in scratch (moe.c). "core_attn" and
 *               "mla_up_proj" change nothing: scores are never kept, and queries, keys and values
 *               always are.
 *
 * Source of the modules' names: megatron/core/transformer/transformer_config.py.
 */
#include "formats/base/str.h"
#include "trainer/model/net_i.h"

#define MOST (UINT64_C(1) << 60)

static uint64_t sum_of(uint64_t a, uint64_t b)
{
	return a > MOST || b > MOST || a + b > MOST ? MOST : a + b;
}

static uint64_t take(uint64_t *used, uint64_t bytes)
{
	const uint64_t offset = *used;

	if (bytes > MOST)
		bytes = MOST;
	*used = sum_of(offset,
		       (bytes + MFS_MEMORY_ALIGN - 1) / MFS_MEMORY_ALIGN * MFS_MEMORY_ALIGN);
	return offset;
}

uint64_t mfs_part_plan_keep(struct mfs_part_plan *p, uint64_t bytes)
{
	return take(&p->kept, bytes);
}

uint64_t mfs_part_plan_scratch(struct mfs_part_plan *p, uint64_t bytes)
{
	const uint64_t offset = take(&p->scratch, bytes);

	if (p->scratch > p->scratch_most)
		p->scratch_most = p->scratch;
	return offset;
}

void mfs_part_plan_scratch_anew(struct mfs_part_plan *p)
{
	p->scratch = 0;
}

uint64_t mfs_matrix_bytes(enum mfk_dtype type, int64_t rows, int64_t cols)
{
	uint64_t bytes;

	if (__builtin_mul_overflow((uint64_t)rows, (uint64_t)cols, &bytes) ||
	    __builtin_mul_overflow(bytes, mfk_dtype_size(type), &bytes))
		return MOST;
	return bytes < MOST ? bytes : MOST;
}

bool mfs_recomputes(const struct mfs_net *net, const char *module)
{
	const struct mfs_words *modules = &net->config->recompute_modules;

	if (net->config->recompute_granularity != MFS_RECOMPUTE_SELECTIVE || !module)
		return false;
	for (size_t i = 0; i < modules->count; i++)
		if (mfs_str_is(modules->list[i], module))
			return true;
	return false;
}

/* ---- what there is ---- */

/* The part's plan. Its scratch lies where every other's does. */
static int plan_part(struct mfs_net *net, struct mfs_sublayer *s, uint32_t layer,
		     const struct mfs_part_kind *kind, struct mfs_part_plan *scratch,
		     struct mfs_error *err)
{
	struct mfs_part_plan plan = {.scratch_most = scratch->scratch_most};
	int r;

	s->part.kind = kind;
	s->part.layer = layer;
	r = kind->plan(net, &s->part, &plan, err);
	if (r)
		return r;
	s->part.bytes = plan.kept;
	scratch->scratch_most = plan.scratch_most;
	s->norm_again = mfs_recomputes(net, "layernorm");
	s->part_again = mfs_recomputes(net, kind->module);
	return 0;
}

static int plan_layer(struct mfs_net *net, uint32_t i, struct mfs_part_plan *scratch,
		      struct mfs_error *err)
{
	struct mfs_layer *l = &net->layers[i];
	const struct mfs_part_kind *attention, *mlp;
	int r = mfs_norm_find(net, "decoder.layers.input_layernorm", (int32_t)i,
			      &l->attention.in.norm, err);

	mfs_part_kinds(net->args, i, &attention, &mlp);
	l->attention.site = MFS_DROPOUT_ATTENTION;
	l->mlp.site = MFS_DROPOUT_MLP;
	if (!r)
		r = mfs_norm_find(net, "decoder.layers.pre_mlp_layernorm", (int32_t)i,
				  &l->mlp.in.norm, err);
	if (!r)
		r = plan_part(net, &l->attention, i, attention, scratch, err);
	if (!r)
		r = plan_part(net, &l->mlp, i, mlp, scratch, err);
	return r;
}

/* ---- where it lies ---- */

static uint64_t stream_bytes(const struct mfs_net *net)
{
	return mfs_matrix_bytes(net->io, net->tokens, net->hidden);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Where a sublayer's activations lie. */
struct place {
	uint64_t x, normed, stats, kept; /* offsets in memory */
};

static struct place place_new(struct mfs_net *net, enum mfs_memory_kind kind, uint64_t kept)
{
	return (struct place){
		.x = mfs_memory_add(net->memory, kind, stream_bytes(net)),
		.normed = mfs_memory_add(net->memory, kind, stream_bytes(net)),
		.stats = mfs_memory_add(net->memory, kind, mfs_norm_stats_bytes(net->tokens)),
		.kept = mfs_memory_add(net->memory, kind, kept),
	};
}

static void place_at(struct mfs_sublayer *s, const struct place *p)
{
	s->in.x = p->x;
	s->in.normed = p->normed;
	s->in.stats = p->stats;
	s->part.kept = p->kept;
}

/* Layers that are run again: place k of every chunk is one place. */
static void place_chunked(struct mfs_net *net, uint32_t k)
{
	struct place attention, mlp;
	uint64_t attention_kept = 0, mlp_kept = 0;

	for (uint32_t i = k; i < net->chunked_end; i += net->chunk) {
		attention_kept = larger(attention_kept, net->layers[i].attention.part.bytes);
		mlp_kept = larger(mlp_kept, net->layers[i].mlp.part.bytes);
	}
	attention = place_new(net, MFS_MEMORY_SCRATCH, attention_kept);
	mlp = place_new(net, MFS_MEMORY_SCRATCH, mlp_kept);
	for (uint32_t i = k; i < net->chunked_end; i += net->chunk) {
		if (!k) /* what the chunk is run again from */
			attention.x = mfs_memory_add(net->memory, MFS_MEMORY_ACTIVATIONS,
						     stream_bytes(net));
		place_at(&net->layers[i].attention, &attention);
		place_at(&net->layers[i].mlp, &mlp);
	}
}

/* What selective recomputation makes anew in every layer. */
struct shared {
	uint64_t normed, kept;
};

static struct shared plan_shared(struct mfs_net *net)
{
	struct shared shared = {0};
	uint64_t kept = 0;

	for (uint32_t i = net->chunked_end; i < net->layer_count; i++) {
		const struct mfs_sublayer *of[] = {&net->layers[i].attention, &net->layers[i].mlp};

		for (int k = 0; k < 2; k++)
			if (of[k]->part_again)
				kept = larger(kept, of[k]->part.bytes);
	}
	if (mfs_recomputes(net, "layernorm"))
		shared.normed = mfs_memory_add(net->memory, MFS_MEMORY_SCRATCH, stream_bytes(net));
	shared.kept = mfs_memory_add(net->memory, MFS_MEMORY_SCRATCH, kept);
	return shared;
}

static void place_own(struct mfs_net *net, struct mfs_sublayer *s, const struct shared *shared)
{
	const enum mfs_memory_kind kind = MFS_MEMORY_ACTIVATIONS;

	s->in.x = mfs_memory_add(net->memory, kind, stream_bytes(net));
	s->in.stats = mfs_memory_add(net->memory, kind, mfs_norm_stats_bytes(net->tokens));
	s->in.normed = s->norm_again ? shared->normed
				     : mfs_memory_add(net->memory, kind, stream_bytes(net));
	s->part.kept =
		s->part_again ? shared->kept : mfs_memory_add(net->memory, kind, s->part.bytes);
}

static void place_layers(struct mfs_net *net)
{
	const struct shared shared = plan_shared(net);

	for (uint32_t k = 0; k < net->chunk && k < net->chunked_end; k++)
		place_chunked(net, k);
	for (uint32_t i = net->chunked_end; i < net->layer_count; i++) {
		place_own(net, &net->layers[i].attention, &shared);
		place_own(net, &net->layers[i].mlp, &shared);
	}
}

/* ---- what is run again ---- */

static int choose_chunks(struct mfs_net *net, struct mfs_error *err)
{
	const struct mfs_train_config *c = net->config;
	const bool uniform = mfs_str_is(c->recompute_method, "uniform");

	if (c->recompute_granularity != MFS_RECOMPUTE_FULL)
		return 0;
	if (!uniform && !mfs_str_is(c->recompute_method, "block"))
		return mfs_fail(err, -EINVAL,
				"--recompute-granularity full: expected --recompute-method uniform "
				"or block, found %s",
				c->recompute_method ? c->recompute_method : "none");
	if (c->recompute_num_layers < 1 || c->recompute_num_layers > net->layer_count)
		return mfs_fail(err, -EINVAL,
				"--recompute-num-layers: expected 1 to %u, found %lld",
				net->layer_count, (long long)c->recompute_num_layers);
	net->chunk = uniform ? (uint32_t)c->recompute_num_layers : 1;
	net->chunked_end = uniform ? net->layer_count : (uint32_t)c->recompute_num_layers;
	return 0;
}

static int check_modules(const struct mfs_net *net, struct mfs_error *err)
{
	static const char *const known[] = {"core_attn", "moe_act", "layernorm",     "mla_up_proj",
					    "mlp",	 "moe",	    "shared_experts"};
	const struct mfs_words *modules = &net->config->recompute_modules;

	for (size_t i = 0; i < modules->count; i++) {
		bool found = false;

		for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++)
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

/* ---- all of it ---- */

static void plan_streams(struct mfs_net *net)
{
	net->branch = mfs_memory_add(net->memory, MFS_MEMORY_SCRATCH, stream_bytes(net));
	net->dx = mfs_memory_add(net->memory, MFS_MEMORY_SCRATCH, stream_bytes(net));
	if (net->config->hidden_dropout > 0)
		net->dropped = mfs_memory_add(net->memory, MFS_MEMORY_SCRATCH, stream_bytes(net));
	net->sums = mfs_memory_add(net->memory, MFS_MEMORY_BATCH, MFS_SUM_COUNT * sizeof(double));
}

int mfs_net_plan(struct mfs_net *net, struct mfs_error *err)
{
	struct mfs_part_plan scratch = {0};
	int r = choose_chunks(net, err);

	if (!r)
		r = check_modules(net, err);
	if (!r)
		r = mfs_batch_plan(net, err);
	if (!r)
		r = mfs_rope_plan(net, err);
	for (uint32_t i = 0; !r && i < net->layer_count; i++)
		r = plan_layer(net, i, &scratch, err);
	if (!r)
		r = mfs_head_plan(net, &scratch, err);
	if (r)
		return r;
	place_layers(net);
	plan_streams(net);
	net->scratch = mfs_memory_add(net->memory, MFS_MEMORY_SCRATCH, scratch.scratch_most);
	return 0;
}
