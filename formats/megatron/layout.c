#include "formats/megatron/layout.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"

/* ---- names ---- */

/* Reads "-pp4" at *text, and moves *text past it. False: it is not there. */
static bool take(const char **text, const char *label, uint32_t *ret)
{
	const size_t len = strlen(label);
	size_t digits;

	if (strncmp(*text, label, len))
		return false;
	digits = strspn(*text + len, "0123456789");
	if (!digits || digits > 6 || (*text)[len] == '0')
		return false;
	*ret = (uint32_t)atoi(*text + len);
	*text += len + digits;
	return *ret <= MFS_LAYOUT_MAX;
}

bool mfs_layout_parse(const char *name, struct mfs_layout *ret)
{
	struct mfs_layout p = {.ep = 1, .vpp = 1};

	if (!take(&name, "tp", &p.tp) || !take(&name, "-pp", &p.pp))
		return false;
	p.etp = p.tp;
	take(&name, "-ep", &p.ep);
	take(&name, "-etp", &p.etp);
	take(&name, "-vpp", &p.vpp);
	take(&name, "-first", &p.first);
	take(&name, "-last", &p.last);
	if (*name)
		return false;
	*ret = p;
	return true;
}

const char *mfs_layout_name(const struct mfs_layout *p, char text[MFS_LAYOUT_NAME_SIZE])
{
	const struct {
		const char *label;
		uint32_t value, usual;
	} parts[] = {{"-ep", p->ep, 1},
		     {"-etp", p->etp, p->tp},
		     {"-vpp", p->vpp, 1},
		     {"-first", p->first, 0},
		     {"-last", p->last, 0}};
	int used = snprintf(text, MFS_LAYOUT_NAME_SIZE, "tp%u-pp%u", p->tp, p->pp);

	for (size_t i = 0; i < MFS_ARRAY_SIZE(parts); i++)
		if (parts[i].value != parts[i].usual)
			used += snprintf(text + used, MFS_LAYOUT_NAME_SIZE - (size_t)used, "%s%u",
					 parts[i].label, parts[i].value);
	return text;
}

/* ---- smaller first and last stages ---- */

/* How many layers fewer than the others the source's first and last stage had. */
static void missing_at_ends(const struct mfs_megatron_args *a, int64_t *ret_first,
			    int64_t *ret_last)
{
	const int64_t first = a->first_stage_layers, last = a->last_stage_layers;
	const int64_t stages =
		a->pipeline_model_parallel_size - (first != MFS_ABSENT) - (last != MFS_ABSENT);
	int64_t rest = a->num_layers, each;

	*ret_first = a->account_for_embedding;
	*ret_last = a->account_for_loss;
	rest -= (first != MFS_ABSENT ? first : 0) + (last != MFS_ABSENT ? last : 0);
	if ((first == MFS_ABSENT && last == MFS_ABSENT) || stages < 1 || rest < 0)
		return;
	each = rest / stages;
	*ret_first = first == MFS_ABSENT ? 0 : each - first;
	*ret_last = last == MFS_ABSENT ? 0 : each - last;
}

void mfs_layout_resolve(struct mfs_layout *p, const struct mfs_megatron_args *a)
{
	int64_t first, last, all;

	if (p->chunk_layers || p->first || p->last || p->pp < 2 || p->vpp > 1 ||
	    a->num_layers % p->pp == 0)
		return;
	missing_at_ends(a, &first, &last);
	all = a->num_layers + first + last;
	if (first < 0 || last < 0 || all % p->pp || all / p->pp <= first || all / p->pp <= last)
		return;
	p->first = first ? (uint32_t)(all / p->pp - first) : 0;
	p->last = last ? (uint32_t)(all / p->pp - last) : 0;
}

/* ---- what a model can be cut into ---- */

struct check {
	const char *what; /* that is divided */
	int64_t count;	  /* MFS_ABSENT: the model has none */
	const char *by;
	uint32_t parts;
};

static int divisible(const struct check *c, struct mfs_error *err)
{
	if (c->count == MFS_ABSENT || c->count % c->parts == 0)
		return 0;
	return mfs_fail(err, -EINVAL, "%s%u is impossible: %lld %s cannot be divided by %u", c->by,
			c->parts, (long long)c->count, c->what, c->parts);
}

/* Since core 0.16 TP may be larger than the number of query groups. Rows are still split equally,
 * so a rank's part may begin inside a group (megatron/core/transformer/attention.py). */
static int check_groups(const struct mfs_layout *p, const struct mfs_megatron_args *a,
			struct mfs_error *err)
{
	const int64_t groups = a->num_query_groups, tp = p->tp;

	if (a->multi_latent_attention || groups % tp == 0 || (tp > groups && tp % groups == 0))
		return 0;
	return mfs_fail(err, -EINVAL,
			"tp%u is impossible: %lld query groups cannot be divided by %u, nor %u by "
			"them",
			p->tp, (long long)groups, p->tp, p->tp);
}

static int64_t qkv_rows(const struct mfs_megatron_args *a)
{
	const int64_t heads = (a->attention_output_gate ? 2 : 1) * a->num_attention_heads;

	return a->multi_latent_attention ? MFS_ABSENT
					 : (heads + 2 * a->num_query_groups) * a->kv_channels;
}

/* Since core 0.15 (transformer_config.py: __post_init__). */
static int check_expert_biases(const struct mfs_layout *p, const struct mfs_megatron_args *a,
			       struct mfs_error *err)
{
	if (p->etp == 1 || !a->moe_layers || !a->add_bias_linear)
		return 0;
	return mfs_fail(err, -EINVAL,
			"etp%u is impossible: Megatron adds biases of experts with etp1 alone",
			p->etp);
}

static int check_widths(const struct mfs_layout *p, const struct mfs_megatron_args *a,
			struct mfs_error *err)
{
	const bool dense = a->hybrid_layers ? strchr(a->hybrid_layers, MFS_HYBRID_MLP) != NULL
					    : !a->moe_layers || a->first_dense_layers > 0;
	const bool mamba = a->hybrid_layers && strchr(a->hybrid_layers, MFS_HYBRID_MAMBA);
	/* Transformer Engine's down projections are whole on every rank. */
	const bool split_down = a->multi_latent_attention && a->local_spec;
	const struct check checks[] = {
		{"attention heads", a->num_attention_heads, "tp", p->tp},
		{"feed-forward columns", dense ? a->ffn_hidden_size : MFS_ABSENT, "tp", p->tp},
		{"columns of the shared expert", a->moe_shared_expert_intermediate_size, "tp",
		 p->tp},
		{"columns of each expert", a->moe_layers ? a->moe_ffn_hidden_size : MFS_ABSENT,
		 "etp", p->etp},
		{"experts", a->moe_layers ? a->num_experts : MFS_ABSENT, "ep", p->ep},
		{"rows of qkv", qkv_rows(a), "tp", p->tp},
		{"key heads of linear attention",
		 a->linear_layers ? a->linear_num_key_heads : MFS_ABSENT, "tp", p->tp},
		{"groups of a Mamba mixer", mamba ? a->mamba_num_groups : MFS_ABSENT, "tp", p->tp},
		{"heads of a Mamba mixer", mamba ? a->mamba_num_heads : MFS_ABSENT, "tp", p->tp},
		{"columns of eh_proj", a->mtp_num_layers > 0 ? a->hidden_size : MFS_ABSENT, "tp",
		 p->tp},
		{"rows of the query's down projection",
		 split_down && a->q_lora_rank > 0 ? a->q_lora_rank : MFS_ABSENT, "tp", p->tp},
		{"rows of the key's and value's down projection",
		 split_down ? a->kv_lora_rank + a->qk_pos_emb_head_dim : MFS_ABSENT, "tp", p->tp},
	};
	int rc = 0;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(checks) && !rc; i++)
		rc = divisible(&checks[i], err);
	return rc ? rc : check_expert_biases(p, a, err);
}

/* Writes an example for the message: a layout of the same sizes that the layers allow. Empty:
 * none. */
static const char *example(const struct mfs_layout *p, const struct mfs_megatron_args *a,
			   char *text, size_t size)
{
	struct mfs_layout other = *p;
	char name[MFS_LAYOUT_NAME_SIZE];

	other.last = 0;
	other.first = (uint32_t)(a->num_layers - a->num_layers / p->pp * (p->pp - 1));
	text[0] = '\0';
	if (p->pp > 1 && !mfs_layout_check_model(&other, a, NULL))
		snprintf(text, size, "; %s is possible", mfs_layout_name(&other, name));
	return text;
}

static int check_ends(const struct mfs_layout *p, const struct mfs_megatron_args *a,
		      struct mfs_error *err)
{
	const int64_t given = (int64_t)p->first + p->last;

	if ((p->first || p->last) && p->pp == 1)
		return mfs_fail(err, -EINVAL,
				"pp1 has a single stage, so it takes no first or last one");
	if (given > a->num_layers)
		return mfs_fail(
			err, -EINVAL,
			"the first and last stage would have %lld layers, but the model has %lld",
			(long long)given, (long long)a->num_layers);
	return 0;
}

/* Checks that the list's author has divided all layers. */
static int check_chunks(const struct mfs_layout *p, const struct mfs_megatron_args *a,
			struct mfs_error *err)
{
	uint64_t layers = 0;

	for (uint32_t i = 0; i < p->vpp * p->pp; i++)
		layers += p->chunk_layers[i];
	if (layers == (uint64_t)a->num_layers)
		return 0;
	return mfs_fail(err, -EINVAL,
			"the pipeline's layout has %llu layers, but the model has %lld",
			(unsigned long long)layers, (long long)a->num_layers);
}

/* Checks the stages between an uneven first and last one. */
static int check_stages(const struct mfs_layout *p, const struct mfs_megatron_args *a,
			struct mfs_error *err)
{
	const int64_t rest = a->num_layers - p->first - p->last;
	const int64_t stages = (int64_t)p->pp - (p->first > 0) - (p->last > 0);
	char other[MFS_LAYOUT_NAME_SIZE + 32];
	int rc = check_ends(p, a, err);

	if (rc)
		return rc;
	if (p->vpp > 1 && p->pp == 1)
		return mfs_fail(
			err, -EINVAL,
			"vpp%u is impossible: a single pipeline stage cannot be interleaved",
			p->vpp);
	if (p->chunk_layers)
		return check_chunks(p, a, err);
	if (!stages ? rest > 0 : rest % stages != 0)
		return mfs_fail(err, -EINVAL,
				"pp%u is impossible: %lld layers cannot be divided among %lld%s "
				"stages%s",
				p->pp, (long long)rest, (long long)stages,
				p->first || p->last ? " further" : "",
				p->first || p->last ? "" : example(p, a, other, sizeof(other)));
	if (stages && !rest)
		return mfs_fail(err, -EINVAL, "pp%u is impossible: a stage would have no layers",
				p->pp);
	if ((p->first && p->first % p->vpp) || (p->last && p->last % p->vpp) ||
	    (stages && rest / stages % p->vpp))
		return mfs_fail(err, -EINVAL,
				"vpp%u is impossible: a stage's layers cannot be divided by %u",
				p->vpp, p->vpp);
	return 0;
}

/* Rows that ranks hold in blocks of gate and up: a part of other blocks would be another model. */
static int check_interleaved(const struct mfs_layout *p, const struct mfs_megatron_args *a,
			     struct mfs_error *err)
{
	const bool experts = a->moe_mlp_glu_interleave_size > 0 &&
			     p->etp != (uint64_t)a->expert_tensor_parallel_size;
	const bool shared = a->moe_shared_expert_glu_interleave_size > 0 &&
			    p->tp != (uint64_t)a->tensor_model_parallel_size;

	if (!experts && !shared)
		return 0;
	return mfs_fail(err, -EINVAL,
			"%s%u is impossible: gate and up rows are interleaved "
			"(moe_%s_glu_interleave_size), for the run's own size",
			experts ? "etp" : "tp", experts ? p->etp : p->tp,
			experts ? "mlp" : "shared_expert");
}

int mfs_layout_check(const struct mfs_layout *p, const struct mfs_megatron_args *a,
		     struct mfs_error *err)
{
	if (p->tp % p->etp && a->moe_layers)
		return mfs_fail(
			err, -EINVAL,
			"etp%u is impossible with tp%u: etp must divide tp, since the names of "
			"rank files do not hold the expert-tensor rank",
			p->etp, p->tp);
	return mfs_layout_check_model(p, a, err);
}

int mfs_layout_check_model(const struct mfs_layout *p, const struct mfs_megatron_args *a,
			   struct mfs_error *err)
{
	int rc;

	if ((uint64_t)p->tp * p->pp > MFS_LAYOUT_MAX ||
	    (uint64_t)p->tp * p->pp * p->ep > MFS_LAYOUT_MAX ||
	    (uint64_t)p->pp * p->vpp > MFS_LAYOUT_MAX)
		return mfs_fail(err, -EINVAL, "more than %d ranks", MFS_LAYOUT_MAX);
	if (!a->moe_layers && (p->ep > 1 || p->etp != p->tp))
		return mfs_fail(err, -EINVAL,
				"ep and etp are impossible: the model has no experts");
	if (a->hybrid_layers && p->vpp > 1)
		return mfs_fail(err, -EINVAL,
				"vpp%u is impossible: a model of a pattern of layers has no model "
				"chunks",
				p->vpp);
	rc = check_widths(p, a, err);
	if (!rc)
		rc = check_groups(p, a, err);
	if (!rc)
		rc = check_interleaved(p, a, err);
	return rc ? rc : check_stages(p, a, err);
}

/* ---- layers ---- */

/* Layers of a whole stage. */
static uint32_t stage_layers(const struct mfs_layout *p, const struct mfs_megatron_args *a,
			     uint32_t pp)
{
	const uint32_t stages = p->pp - (p->first > 0) - (p->last > 0);

	if (p->first && !pp)
		return p->first;
	if (p->last && pp == p->pp - 1)
		return p->last;
	return ((uint32_t)a->num_layers - p->first - p->last) / stages;
}

uint32_t mfs_layout_layers(const struct mfs_layout *p, const struct mfs_megatron_args *a,
			   uint32_t vp, uint32_t pp, uint32_t *ret_first)
{
	const uint32_t all = (uint32_t)a->num_layers;
	uint32_t first = 0;

	if (p->chunk_layers) {
		for (uint32_t i = 0; i < vp * p->pp + pp; i++)
			first += p->chunk_layers[i];
		if (ret_first)
			*ret_first = first;
		return p->chunk_layers[vp * p->pp + pp];
	}
	first = all / p->vpp * vp;
	/* Model chunks are numbered vp * P + pp, and layers are numbered through them. */
	for (uint32_t i = 0; i < pp; i++)
		first += stage_layers(p, a, i) / p->vpp;
	if (ret_first)
		*ret_first = first;
	return stage_layers(p, a, pp) / p->vpp;
}

/* ---- of a checkpoint ---- */

static bool counts_match(const struct mfs_layout *p, const struct mfs_megatron_args *a,
			 const uint32_t *counted)
{
	for (uint32_t vp = 0; vp < p->vpp; vp++)
		for (uint32_t pp = 0; pp < p->pp; pp++)
			if (mfs_layout_layers(p, a, vp, pp, NULL) != counted[vp * p->pp + pp])
				return false;
	return true;
}

bool mfs_layout_of(const struct mfs_ckpt *ckpt, struct mfs_layout *ret)
{
	const struct mfs_ckpt_layout *l = mfs_ckpt_layout(ckpt);
	const struct mfs_megatron_args *a = mfs_ckpt_args(ckpt);
	struct mfs_layout p = {.tp = l->tp,
			       .pp = l->pp,
			       .ep = 1,
			       .etp = l->tp,
			       .vpp = l->vpp,
			       .hybrid = a->hybrid_form};

	if (a->moe_layers) {
		p.ep = l->ep;
		p.etp = l->etp;
	}
	if (a->first_stage_layers != MFS_ABSENT)
		p.first = (uint32_t)a->first_stage_layers;
	if (a->last_stage_layers != MFS_ABSENT)
		p.last = (uint32_t)a->last_stage_layers;
	if (a->splits_blocks || mfs_layout_check(&p, a, NULL))
		return false;
	if (l->stage_layers ? !counts_match(&p, a, l->stage_layers) : a->other_stages)
		return false;
	*ret = p;
	return true;
}

uint64_t mfs_layout_vocab(const struct mfs_layout *p, const struct mfs_ckpt *ckpt, uint64_t rows)
{
	const struct mfs_global_tensor *t =
		mfs_ckpt_find(ckpt, "embedding.word_embeddings.weight", -1, -1);
	const int64_t divisor = mfs_ckpt_args(ckpt)->make_vocab_size_divisible_by;
	const uint64_t multiple = (uint64_t)(divisor > 0 ? divisor : 128) * p->tp;

	if (!rows)
		rows = t && t->ndim ? t->shape[0] : 0;
	return (rows + multiple - 1) / multiple * multiple;
}
