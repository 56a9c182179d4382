/* What Megatron-Bridge says in another form than Megatron's arguments (utils/yaml_utils.py,
 * training/mixed_precision.py, training/config.py). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/str.h"
#include "trainer/config/parse/yaml_i.h"
#include "trainer/config/parse/yaml_names.h"

/* ---- objects ---- */

const struct mfs_yaml_node *mft_yaml_unwrap(const struct mfs_yaml_node *n)
{
	const struct mfs_yaml_node *target = mfs_yaml_get(n, "_target_");
	const struct mfs_yaml_node *args = mfs_yaml_get(n, "_args_");
	bool call;

	if (!target || !mfs_yaml_truth(mfs_yaml_get(n, "_call_"), &call))
		return n;
	if (!call)
		return target;
	return args && args->kind == MFS_YAML_SEQUENCE && args->first && !args->first->next
		       ? args->first
		       : n;
}

static const char *class_of(const struct mfs_yaml_node *n)
{
	const char *text = n->kind == MFS_YAML_SCALAR ? n->text : "";
	const char *dot = strrchr(text, '.');

	return dot ? dot + 1 : text;
}

/* ---- fields that no argument stands for ---- */

static const char *text_of(const struct mfs_yaml_node *n)
{
	bool truth;

	if (mfs_yaml_is_null(n))
		return "null";
	if (n->kind != MFS_YAML_SCALAR)
		return n->first ? "more" : n->kind == MFS_YAML_SEQUENCE ? "[]" : "{}";
	if (mfs_yaml_truth(n, &truth))
		return truth ? "true" : "false";
	return n->text;
}

/* 1 and 1.0 are the same. */
static bool is_same(const char *text, const char *usual, size_t len)
{
	char *text_end, *usual_end;
	const double a = strtod(text, &text_end), b = strtod(usual, &usual_end);

	if (strlen(text) == len && !memcmp(text, usual, len))
		return true;
	return text_end != text && !*text_end && usual_end == usual + len && a == b;
}

static bool is_usual(const struct mfs_yaml_node *n, const char *usual)
{
	const char *text = text_of(n);

	for (; *usual; usual += *usual == '|') {
		const size_t len = strcspn(usual, "|");

		if (is_same(text, usual, len))
			return true;
		usual += len;
	}
	return false;
}

int mft_yaml_unused(struct mft_yaml_reader *r, const char *section, const char *key)
{
	struct mft_flag_other *o = mfs_arena_alloc(r->arena, sizeof(*o)), **at = &r->v->others;

	if (!o)
		return mfs_fail_nomem(r->err);
	while (*at)
		at = &(*at)->next;
	o->name = mfs_arena_printf(r->arena, "%.40s%s%.80s", section, *key ? "." : "", key);
	*at = o;
	return o->name ? 0 : mfs_fail_nomem(r->err);
}

static int read_field(struct mft_yaml_reader *r, const struct mft_yaml_field *f,
		      const struct mfs_yaml_node *n)
{
	if (!f->usual || is_usual(n, f->usual))
		return 0;
	if (!f->fixed)
		return mft_yaml_unused(r, f->section, f->key);
	return mfs_fail(r->err, -ENOTSUP,
			"%s: line %u: %s.%s '%.80s' is not supported; expected %s", r->name,
			n->line, f->section, f->key, text_of(n), f->usual);
}

/* ---- precision ---- */

/* The dashes of a recipe's name, as NeMo 2 had them, are underscores. */
static bool is_recipe(const char *text, const char *recipe)
{
	for (; *text && (*text == *recipe || (*text == '-' && *recipe == '_')); text++)
		recipe++;
	return !*text && !*recipe;
}

static void set_precision(struct mft_yaml_reader *r, bool bf16, bool fp16)
{
	mft_yaml_set_truth(r, "bf16", bf16);
	mft_yaml_set_truth(r, "fp16", fp16);
}

/* Bridge's recipes with products of 8 bits: bf16_mixed, and what they set in addition, but for
 * fp8_param_gather, which needs a distributed optimizer and changes no result. */
static const struct eight_bits {
	const char *name, *format, *recipe;
	int64_t ends; /* layers in bf16 at each; 0: all are in 8 bits */
	int64_t history;
	const char *algo;
} eight_bits[] = {
	{"bf16_with_fp8_delayed_scaling_mixed", "hybrid", "delayed", 0, 1024, "max"},
	{"bf16_with_fp8_current_scaling_mixed", "hybrid", "tensorwise", 1, 1, "most_recent"},
	{"nemotron_h_bf16_with_fp8_current_scaling_mixed", "hybrid", "tensorwise", 2, 1,
	 "most_recent"},
	{"nanov2_bf16_with_fp8_current_scaling_mixed", "hybrid", "blockwise", 2, 1, "most_recent"},
	{"bf16_with_fp8_subchannel_scaling_mixed", "hybrid", "blockwise", 0, 1, "most_recent"},
	{"bf16_with_mxfp8_mixed", "e4m3", "mxfp8", 0, 1, "most_recent"},
};

static const struct eight_bits *find_eight_bits(const char *text)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(eight_bits); i++)
		if (is_recipe(text, eight_bits[i].name))
			return &eight_bits[i];
	return NULL;
}

static int set_text(struct mft_yaml_reader *r, const char *dest, const char *text)
{
	const struct mfs_yaml_node node = {.kind = MFS_YAML_SCALAR, .text = text};

	return mft_yaml_set(r, dest, dest, &node, true);
}

static int set_eight_bits(struct mft_yaml_reader *r, const struct eight_bits *e)
{
	int rc = set_text(r, "fp8", e->format);

	if (!rc)
		rc = set_text(r, "fp8_recipe", e->recipe);
	if (!rc)
		rc = set_text(r, "fp8_amax_compute_algo", e->algo);
	mft_yaml_set_number(r, "fp8_amax_history_len", e->history);
	mft_yaml_set_truth(r, "first_last_layers_bf16", e->ends > 0);
	mft_yaml_set_number(r, "num_layers_at_start_in_bf16", e->ends);
	mft_yaml_set_number(r, "num_layers_at_end_in_bf16", e->ends);
	return rc;
}

int mft_yaml_precision(struct mft_yaml_reader *r, const struct mfs_yaml_node *n)
{
	static const struct mfs_yaml_node yes = {.text = "true"}, no = {.text = "false"};
	const char *text = n->kind == MFS_YAML_SCALAR ? n->text : "";
	const char *name = mft_yaml_plain_dtype(text);
	const struct eight_bits *eight = find_eight_bits(text);

	if (mfs_yaml_is_null(n))
		return 0;
	if (is_recipe(text, "bf16_mixed") || eight) {
		set_precision(r, true, false);
		r->fp32_sums = &yes;
		return eight ? set_eight_bits(r, eight) : 0;
	} else if (is_recipe(text, "fp16_mixed")) {
		set_precision(r, false, true);
		r->fp32_sums = &no;
	} else if (mfs_str_is(name, "bf16")) {
		mft_yaml_set_truth(r, "bf16", true);
	} else if (mfs_str_is(name, "fp16") || mfs_str_is(text, "16-mixed")) {
		mft_yaml_set_truth(r, "fp16", true);
	} else if (!mfs_str_is(name, "fp32") && !mfs_str_is(text, "32")) {
		return mft_yaml_fail(r, n, "expected bf16_mixed or fp16_mixed, found", text);
	}
	return 0;
}

/* MixedPrecisionConfig has other defaults than Megatron's arguments. */
int mft_yaml_precision_begin(struct mft_yaml_reader *r, const struct mfs_yaml_node *section)
{
	const struct mfs_yaml_node *fp8 = mfs_yaml_get(section, "fp8");

	if (!fp8 || mfs_yaml_is_null(fp8))
		return 0;
	mft_yaml_set_number(r, "num_layers_at_start_in_bf16", 0);
	mft_yaml_set_number(r, "num_layers_at_end_in_bf16", 0);
	return set_text(r, "fp8_recipe", "tensorwise");
}

/* ---- data ---- */

/* blend: [[prefix, ...], [weight, ...] or null] is --data-path weight prefix ... */
static int read_blend(struct mft_yaml_reader *r, const char *dest, const struct mfs_yaml_node *n)
{
	const struct mfs_yaml_node *paths = n->first, *weights = paths ? paths->next : NULL;
	const struct mfs_yaml_node *w;
	struct mfs_yaml_node list = {.kind = MFS_YAML_SEQUENCE, .line = n->line}, **at;

	if (mfs_yaml_is_null(n))
		return 0;
	if (n->kind != MFS_YAML_SEQUENCE || !paths || paths->kind != MFS_YAML_SEQUENCE)
		return mft_yaml_fail(r, n, "expected [[prefix, ...], [weight, ...]] under",
				     "blend");
	at = &list.first;
	w = weights && weights->kind == MFS_YAML_SEQUENCE ? weights->first : NULL;
	for (const struct mfs_yaml_node *p = paths->first; p; p = p->next) {
		const struct mfs_yaml_node *pair[] = {w, p};

		for (int i = w ? 0 : 1; i < 2; i++) {
			*at = mfs_arena_alloc(r->arena, sizeof(**at));
			if (!*at)
				return mfs_fail_nomem(r->err);
			**at = *pair[i];
			(*at)->next = NULL;
			at = &(*at)->next;
		}
		if (w && !w->next != !p->next)
			return mft_yaml_fail(r, n, "expected a weight for each prefix under",
					     "blend");
		w = w ? w->next : NULL;
	}
	return mft_yaml_set(r, dest, "blend", &list, true);
}

/* A blend of each split, or null. */
static int read_blends(struct mft_yaml_reader *r, const struct mfs_yaml_node *n)
{
	static const char *const dests[] = {"train_data_path", "valid_data_path", "test_data_path"};
	const struct mfs_yaml_node *blend = n->first;
	int rc = 0;

	if (mfs_yaml_is_null(n))
		return 0;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(dests) && !rc; i++) {
		if (n->kind != MFS_YAML_SEQUENCE || !blend)
			return mft_yaml_fail(r, n, "expected three blends under",
					     "blend_per_split");
		rc = read_blend(r, dests[i], blend);
		blend = blend->next;
	}
	return rc;
}

/* Data of the command line stand in the place of those that are made up. */
static int read_mock(struct mft_yaml_reader *r, const struct mfs_yaml_node *n)
{
	static const char *const dests[] = {"data_path",       "train_data_path",
					    "valid_data_path", "test_data_path",
					    "data_args_path",  "per_split_data_args_path"};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(dests); i++)
		if (mft_yaml_is_taken(r, dests[i]))
			return 0;
	return mft_yaml_set(r, "mock_data", "mock", n, true);
}

/* ---- classes ---- */

static int refuse_class(struct mft_yaml_reader *r, const char *section,
			const struct mfs_yaml_node *n, const char *expected)
{
	return mfs_fail(r->err, -ENOTSUP,
			"%s: line %u: %s._target_ '%.80s' is not supported; expected %s", r->name,
			n->line, section, text_of(n), expected);
}

static int read_class(struct mft_yaml_reader *r, const char *section, const struct mfs_yaml_node *n)
{
	static const struct mfs_yaml_node yes = {.text = "true"};
	const char *name = class_of(n);

	if (mfs_str_is(section, "model") && !mft_yaml_is_plain_model(name))
		return refuse_class(r, section, n,
				    "a class whose fields say all of its model, as "
				    "GPTModelProvider, or none");
	if (!mfs_str_is(section, "dataset") || mfs_str_is(name, "GPTDatasetConfig"))
		return 0;
	return mfs_str_is(name, "MockGPTDatasetConfig")
		       ? read_mock(r, &yes)
		       : refuse_class(r, section, n, "GPTDatasetConfig or MockGPTDatasetConfig");
}

/* ---- pairs ---- */

/* Two sections have these. Bridge makes both true if one is. */
static bool is_either(const char *section, const char *key)
{
	static const char *const sections[] = {"ddp", "dist", "optimizer"};
	static const char *const keys[] = {"use_distributed_optimizer", "overlap_param_gather",
					   "use_megatron_fsdp", "bf16", "fp16"};
	bool found = false;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(sections); i++)
		found |= mfs_str_is(section, sections[i]);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(keys) && found; i++)
		if (mfs_str_is(key, keys[i]))
			return true;
	return false;
}

static bool is_false(const struct mfs_yaml_node *n)
{
	bool truth;

	return mfs_yaml_truth(n, &truth) && !truth;
}

/* Of how many checkpoints stay, -1 is all. */
static int read_kept(struct mft_yaml_reader *r, const struct mfs_yaml_node *n)
{
	int64_t count;

	if (mfs_yaml_is_null(n))
		return 0;
	if (!mfs_yaml_int(n, &count))
		return mft_yaml_fail(r, n, "expected an integer under", "most_recent_k");
	if (count > 0)
		mft_yaml_set_number(r, "save_keep_last", count);
	return 0;
}

static int read_form(struct mft_yaml_reader *r, const char *section, const char *key,
		     const struct mfs_yaml_node *value, bool *ret_done)
{
	const bool data = mfs_str_is(section, "dataset");

	*ret_done = true;
	if (mfs_str_is(key, "_target_"))
		return read_class(r, section, value);
	if (*key == '_' || mft_yaml_is_together(section, key))
		return 0;
	if (data && mfs_str_is(key, "blend"))
		return read_blend(r, "data_path", value);
	if (data && mfs_str_is(key, "blend_per_split"))
		return read_blends(r, value);
	if (data && mfs_str_is(key, "mock"))
		return read_mock(r, value);
	if (mfs_str_is(key, "params_dtype"))
		return mft_yaml_precision(r, value);
	if (mfs_str_is(section, "checkpoint") && mfs_str_is(key, "most_recent_k"))
		return read_kept(r, value);
	if (mfs_str_is(key, "grad_reduce_in_fp32") &&
	    (mfs_str_is(section, "ddp") || mfs_str_is(section, "mixed_precision"))) {
		r->fp32_sums = value;
		return 0;
	}
	*ret_done = is_either(section, key) && is_false(value);
	return 0;
}

int mft_yaml_bridge_pair(struct mft_yaml_reader *r, const char *section,
			 const struct mfs_yaml_node *key, const struct mfs_yaml_node *value,
			 bool *ret_done)
{
	const struct mft_yaml_field *f = mft_yaml_field(section, key->text);
	int rc;

	if (f) {
		*ret_done = true;
		return read_field(r, f, value);
	}
	rc = read_form(r, section, key->text, value, ret_done);
	/* Llama 3.1's factor, which Bridge 0.2 has in fields of their own, holds without a
	 * switch. */
	if (!rc && mfs_str_is(section, "model") && mfs_str_is(key->text, "scale_factor") &&
	    !mfs_yaml_is_null(value))
		mft_yaml_set_truth(r, "use_rope_scaling", true);
	return rc;
}

/* ---- sections ---- */

int mft_yaml_bridge_section(struct mft_yaml_reader *r, const struct mfs_yaml_node *key,
			    const struct mfs_yaml_node *value, bool *ret_done)
{
	static const char *const unused[] = {"comm_overlap", "ft", "inprocess_restart",
					     "nvrx_straggler"};
	static const char *const overrides = "optimizer_config_override_provider";
	const bool null = mfs_yaml_is_null(value);
	const struct mfs_yaml_node *target = mfs_yaml_get(value, "_target_");

	*ret_done = true;
	if (*key->text == '_')
		return 0;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(unused); i++)
		if (mfs_str_is(key->text, unused[i]))
			return null ? 0 : mft_yaml_unused(r, key->text, "");
	if (mfs_str_is(key->text, "peft"))
		return null ? 0
			    : mfs_fail(r->err, -ENOTSUP,
				       "%s: line %u: peft is not supported: adapters are not "
				       "trained; expected null",
				       r->name, key->line);
	/* It chooses what is not decayed, as arguments do; another one would choose by its code. */
	if (mfs_str_is(key->text, overrides) &&
	    (null || (target && mfs_str_is(class_of(target), "OptimizerConfigOverrideProvider"))))
		return 0;
	if (mfs_str_is(key->text, overrides))
		return refuse_class(r, overrides, target ? target : value,
				    "OptimizerConfigOverrideProvider");
	*ret_done = mfs_str_is(key->text, "mixed_precision") && value->kind == MFS_YAML_SCALAR;
	return *ret_done ? mft_yaml_precision(r, value) : 0;
}
