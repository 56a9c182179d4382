/*
 * Whole files of other programs. One of their sections holds what Megatron is told. It becomes the
 * sections of Megatron-Bridge, or megatron:, and everything around it is passed over.
 *
 *   NeMo-RL   policy.megatron_cfg (examples/configs/grpo_math_1B.yaml)
 *   Oumi      megatron, or training.megatron, with model.model_name
 *
 * Those of runs of reinforcement learning are read whole (yaml_rl.h): Oumi's with trainer_type
 * MEGATRON_GRPO, verl's, SkyRL's, and with --perform-rl-step NeMo-RL's.
 */
#include <errno.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/str.h"
#include "trainer/config/parse/yaml_i.h"
#include "trainer/config/parse/yaml_rl.h"

#define CFG   "policy.megatron_cfg"
#define CHAIN 8 /* names that name names */
#define NAMES 200

/* ---- trees ---- */

struct mfs_yaml_node *mft_yaml_append(struct mft_yaml_reader *r, struct mfs_yaml_node *to,
				      const char *name, const struct mfs_yaml_node *value)
{
	struct mfs_yaml_node **at = &to->first;
	struct mfs_yaml_node *pair = mfs_arena_array(r->arena, 2, sizeof(*pair));

	if (!pair)
		return NULL;
	while (*at)
		at = &(*at)->next;
	pair[1] = *value;
	pair[1].next = NULL;
	pair[0] = (struct mfs_yaml_node){.line = value->line, .text = name, .next = &pair[1]};
	*at = pair;
	return &pair[1];
}

/* "${a.b}" of OmegaConf: the scalar at that path of the file. */
static const struct mfs_yaml_node *follow(const struct mfs_yaml_node *root, const char *text)
{
	const char *name = text + 2;

	while (root && *name && *name != '}') {
		const size_t len = strcspn(name, ".}");
		const struct mfs_yaml_node *k = root->kind == MFS_YAML_MAPPING ? root->first : NULL;

		while (k && (strlen(k->text) != len || memcmp(k->text, name, len) != 0))
			k = k->next->next;
		root = k ? k->next : NULL;
		name += len + (name[len] == '.');
	}
	return root && root->kind == MFS_YAML_SCALAR && mfs_str_is(name, "}") ? root : NULL;
}

static bool is_name(const struct mfs_yaml_node *n)
{
	return n->kind == MFS_YAML_SCALAR && !strncmp(n->text, "${", 2);
}

int mft_yaml_resolve(struct mft_yaml_reader *r, struct mfs_yaml_node *n)
{
	const struct mfs_yaml_node *at = n;
	int rc = 0;

	if (is_name(n) && r->names++ == NAMES)
		return mft_yaml_fail(r, n, "expected fewer values that name others, found",
				     n->text);
	for (int i = 0; i < CHAIN && at && is_name(at); i++)
		at = follow(r->root, at->text);
	if (!at || is_name(at))
		return mft_yaml_fail(r, n, "expected a value that this file has, found", n->text);
	if (at != n) {
		n->text = at->text;
		n->quoted = at->quoted;
	}
	for (struct mfs_yaml_node *i = n->first; i && !rc; i = i->next)
		rc = mft_yaml_resolve(r, i);
	return rc;
}

/* ---- NeMo-RL ---- */

static const char *section_of(const char *key)
{
	static const struct {
		const char *key, *section;
	} groups[] = {{"optimizer", "optimizer"},
		      {"scheduler", "scheduler"},
		      {"distributed_data_parallel_config", "ddp"},
		      {"checkpoint", "checkpoint"},
		      {"model_overrides", "model"},
		      {"peft", "peft"}};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(groups); i++)
		if (mfs_str_is(key, groups[i].key))
			return groups[i].section;
	return NULL;
}

/* What NeMo-RL does with its own hands. */
static bool is_its_own(const char *key)
{
	static const char *const own[] = {"enabled",
					  "env_vars",
					  "fp8_cfg",
					  "converter_type",
					  "force_reconvert_from_hf",
					  "empty_unused_memory_level",
					  "activation_checkpointing",
					  "freeze_moe_router",
					  "moe_per_layer_logging",
					  "track_moe_metrics",
					  "defer_fp32_logits",
					  "use_fused_linear_logprobs",
					  "fused_linear_logprobs_chunk_size",
					  "use_fused_weighted_squared_relu",
					  "fine_grained_activation_offloading",
					  "offload_modules",
					  "mtp_detach_heads",
					  "clear_memory_caches_before_refit"};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(own); i++)
		if (mfs_str_is(key, own[i]))
			return true;
	return false;
}

static bool is_off(const struct mfs_yaml_node *n)
{
	bool on;

	return mfs_yaml_is_null(n) || (mfs_yaml_truth(n, &on) && !on) ||
	       (mfs_yaml_truth(mfs_yaml_get(n, "enabled"), &on) && !on);
}

/* Layers run again one by one where activation_checkpointing is true, and nothing does otherwise,
 * whatever recompute_granularity says. */
static int recompute(struct mft_yaml_reader *r, const struct mfs_yaml_node *cfg,
		     struct mfs_yaml_node *model)
{
	static const struct mfs_yaml_node full = {.text = "full"}, uniform = {.text = "uniform"},
					  one = {.text = "1"};
	const struct mfs_yaml_node *how = mfs_yaml_get(cfg, "recompute_granularity");
	const struct mfs_yaml_node *modules = mfs_yaml_get(cfg, "recompute_modules");
	bool on = false, ok;

	if (!mfs_yaml_truth(mfs_yaml_get(cfg, "activation_checkpointing"), &on) || !on)
		return 0;
	if (!how)
		how = &full;
	ok = mft_yaml_append(r, model, "recompute_granularity", how);
	if (ok && mfs_str_is(how->text, "full"))
		ok = mft_yaml_append(r, model, "recompute_method", &uniform) &&
		     mft_yaml_append(r, model, "recompute_num_layers", &one);
	else if (ok && modules)
		ok = mft_yaml_append(r, model, "recompute_modules", modules);
	return ok ? 0 : mfs_fail_nomem(r->err);
}

static int nemo_rl(struct mft_yaml_reader *r, const struct mfs_yaml_node *cfg,
		   struct mfs_yaml_node *root)
{
	const struct mfs_yaml_node empty = {.kind = MFS_YAML_MAPPING, .line = cfg->line};
	struct mfs_yaml_node *model = mft_yaml_append(r, root, "model", &empty);
	int rc = model ? recompute(r, cfg, model) : mfs_fail_nomem(r->err);

	for (const struct mfs_yaml_node *k = cfg->first; k && !rc; k = k->next->next) {
		const struct mfs_yaml_node *value = k->next;
		const char *section = section_of(k->text);

		if (!strncmp(k->text, "recompute_", 10) || (section && is_off(value)))
			continue;
		if (is_its_own(k->text))
			rc = is_off(value) || mfs_str_is(k->text, "enabled")
				     ? 0
				     : mft_yaml_unused(r, CFG, k->text);
		else if (!mft_yaml_append(r, section ? root : model, section ? section : k->text,
					  value))
			rc = mfs_fail_nomem(r->err);
	}
	if (!rc && mfs_yaml_get(r->root, "defaults"))
		rc = mft_yaml_unused(r, "the file that defaults names", "");
	if (rc || !mft_flag_truth(r->v, "perform_rl_step"))
		return rc ? rc
			  : mft_yaml_unused(r, "all of NeMo-RL's file but policy", "megatron_cfg");
	return mft_yaml_rl_read(r, &mft_yaml_rl_nemo, r->root, root);
}

/* ---- Oumi ---- */

static int name_rest(struct mft_yaml_reader *r, const char *section,
		     const struct mfs_yaml_node *pairs)
{
	int rc = 0;

	for (const struct mfs_yaml_node *k = pairs->first; k && !rc; k = k->next->next)
		if (mfs_str_is(k->text, "megatron"))
			continue;
		else if (!*section && k->next->kind == MFS_YAML_MAPPING)
			rc = name_rest(r, k->text, k->next);
		else
			rc = mft_yaml_unused(r, *section ? section : k->text,
					     *section ? k->text : "");
	return rc;
}

static int oumi(struct mft_yaml_reader *r, const struct mfs_yaml_node *megatron,
		struct mfs_yaml_node *root)
{
	if (!mft_yaml_append(r, root, "megatron", megatron))
		return mfs_fail_nomem(r->err);
	return name_rest(r, "", r->root);
}

/* training.grpo and training.megatron stand at the top as well. */
static int lift(struct mft_yaml_reader *r, struct mfs_yaml_node *to,
		const struct mfs_yaml_node *pairs, const char *from)
{
	const struct mfs_yaml_node empty = {.kind = MFS_YAML_MAPPING, .line = pairs->line};
	struct mfs_yaml_node *under = *from ? mft_yaml_append(r, to, from, &empty) : to;
	int rc = under ? 0 : mfs_fail_nomem(r->err);

	for (const struct mfs_yaml_node *k = pairs->first; k && !rc; k = k->next->next) {
		const bool up =
			*from && (mfs_str_is(k->text, "grpo") || mfs_str_is(k->text, "megatron"));

		if (up && mfs_yaml_get(to, k->text))
			rc = mft_yaml_fail(r, k, "it stands in training and at the top:", k->text);
		else if (!*from && mfs_str_is(k->text, "training"))
			continue;
		else if (!mft_yaml_append(r, up ? to : under, k->text, k->next))
			rc = mfs_fail_nomem(r->err);
	}
	return rc;
}

/* Without it a step would have as many responses as processes happen to be there. */
static int check_batch(struct mft_yaml_reader *r, const struct mfs_yaml_node *file)
{
	const struct mfs_yaml_node *batch =
		mfs_yaml_get(mfs_yaml_get(file, "megatron"), "global_batch_size");

	if ((batch && !mfs_yaml_is_null(batch)) || mft_yaml_is_taken(r, "global_batch_size"))
		return 0;
	return mfs_fail(r->err, -EINVAL,
			"%s: expected megatron.global_batch_size, or --global-batch-size: the "
			"responses of a step, of all processes",
			r->name);
}

static int oumi_grpo(struct mft_yaml_reader *r, struct mfs_yaml_node *root)
{
	struct mfs_yaml_node file = {.kind = MFS_YAML_MAPPING, .line = r->root->line};
	int rc = lift(r, &file, r->root, "");

	if (!rc)
		rc = lift(r, &file, mfs_yaml_get(r->root, "training"), "training");
	if (!rc)
		rc = check_batch(r, &file);
	return rc ? rc : mft_yaml_rl_read(r, &mft_yaml_rl_oumi, &file, root);
}

/* ---- which one ---- */

static bool is_mapping(const struct mfs_yaml_node *n)
{
	return n && n->kind == MFS_YAML_MAPPING;
}

static bool is_oumi_grpo(const struct mfs_yaml_node *root)
{
	const struct mfs_yaml_node *kind =
		mfs_yaml_get(mfs_yaml_get(root, "training"), "trainer_type");

	return kind && kind->kind == MFS_YAML_SCALAR && mfs_str_is(kind->text, "MEGATRON_GRPO");
}

/* A program whose files are read whole. NULL: it is none of those. */
static const struct mft_yaml_rl_program *program_of(const struct mfs_yaml_node *root)
{
	if (is_mapping(mfs_yaml_get(root, "actor_rollout_ref")))
		return &mft_yaml_rl_verl;
	if (is_mapping(mfs_yaml_get(root, "generator")) &&
	    is_mapping(mfs_yaml_get(root, "trainer")))
		return &mft_yaml_rl_skyrl;
	return is_oumi_grpo(root) ? &mft_yaml_rl_oumi : NULL;
}

static int read_program(struct mft_yaml_reader *r, const struct mft_yaml_rl_program *program,
			struct mfs_yaml_node *made)
{
	/* A line would bring the defaults of all others. */
	if (mfs_str_is(r->name, "the command line"))
		return mfs_fail(r->err, -EINVAL,
				"names of %s are read of a file, --config FILE; give flags on the "
				"command line",
				program->name);
	return program == &mft_yaml_rl_oumi ? oumi_grpo(r, made)
					    : mft_yaml_rl_read(r, program, r->root, made);
}

int mft_yaml_dialect(struct mft_yaml_reader *r, struct mfs_yaml_node **root)
{
	const struct mft_yaml_rl_program *program = program_of(*root);
	const struct mfs_yaml_node *megatron =
		mfs_yaml_get(mfs_yaml_get(*root, "policy"), "megatron_cfg");
	const bool nemo = megatron;
	struct mfs_yaml_node *made;
	int rc;

	if (!megatron)
		megatron = mfs_yaml_get(mfs_yaml_get(*root, "training"), "megatron");
	if (!megatron && mfs_yaml_get(mfs_yaml_get(*root, "model"), "model_name"))
		megatron = mfs_yaml_get(*root, "megatron");
	if (!program && !is_mapping(megatron))
		return 0;
	made = mfs_arena_alloc(r->arena, sizeof(*made));
	if (!made)
		return mfs_fail_nomem(r->err);
	*made = (struct mfs_yaml_node){.kind = MFS_YAML_MAPPING, .line = (*root)->line};
	rc = program ? 0 : mft_yaml_resolve(r, (struct mfs_yaml_node *)megatron);
	if (!rc && program)
		rc = read_program(r, program, made);
	else if (!rc)
		rc = nemo ? nemo_rl(r, megatron, made) : oumi(r, megatron, made);
	*root = made;
	return rc;
}
