#include "formats/megatron/write/common.h"

#include <errno.h>
#include <string.h>

#include "formats/args/namespace.h"
#include "formats/base/array.h"
#include "formats/megatron/write/form.h"

/* New values that a view gives to arguments. */
enum new_value {
	NEW_TP,
	NEW_PP,
	NEW_VPP,
	NEW_PER_CHUNK,
	NEW_STAGES,
	NEW_EP,
	NEW_ETP,
	NEW_WORLD,
	NEW_DP,
	NEW_FIRST,
	NEW_LAST,
	NEW_NONE,
	NEW_FALSE,
	NEW_SEQUENCE_PARALLEL,
	NEW_VOCAB,
	NEW_SPEC,
	NEW_GROUPED,
	NEW_FORMAT,
	NEW_NO_OPTIM,
	NEW_NO_RNG,
	NEW_ROPE, /* where text is all that the view is of */
	NEW_PROVIDER,
	NEW_GELU,    /* by what core reads, where the source is of before core */
	NEW_NO_FSDP, /* where FSDP's own save is the source: the view is none of these */
};

struct argument {
	const char *name;
	enum new_value value;
	bool layout; /* only if the view has a layout of its own */
	bool needed; /* also if the source has no such argument */
};

static const struct argument arguments[] = {
	{"tensor_model_parallel_size", NEW_TP, true, true},
	{"tensor_parallel_num_weight_shards", NEW_TP, true, false},
	{"pipeline_model_parallel_size", NEW_PP, true, true},
	{"transformer_pipeline_model_parallel_size", NEW_PP, true, false},
	{"virtual_pipeline_model_parallel_size", NEW_VPP, true, true},
	{"num_layers_per_virtual_pipeline_stage", NEW_PER_CHUNK, true, false},
	{"num_virtual_stages_per_pipeline_rank", NEW_STAGES, true, false},
	{"expert_model_parallel_size", NEW_EP, true, true},
	{"expert_tensor_parallel_size", NEW_ETP, true, true},
	{"world_size", NEW_WORLD, true, false},
	{"data_parallel_size", NEW_DP, true, false},
	{"decoder_first_pipeline_num_layers", NEW_FIRST, true, true},
	{"decoder_last_pipeline_num_layers", NEW_LAST, true, true},
	{"pipeline_model_parallel_layout", NEW_NONE, true, false},
	{"account_for_embedding_in_pipeline_split", NEW_FALSE, true, false},
	{"account_for_loss_in_pipeline_split", NEW_FALSE, true, false},
	{"sequence_parallel", NEW_SEQUENCE_PARALLEL, true, false},
	{"padded_vocab_size", NEW_VOCAB, false, true},
	{"transformer_impl", NEW_SPEC, false, true},
	{"moe_grouped_gemm", NEW_GROUPED, true, false},
	{"ckpt_format", NEW_FORMAT, false, true},
	{"no_save_optim", NEW_NO_OPTIM, false, true},
	{"no_save_rng", NEW_NO_RNG, false, true},
	{"bias_gelu_fusion", NEW_GELU, false, true},
	{"position_embedding_type", NEW_ROPE, false, false},
	{"model_provider", NEW_PROVIDER, false, false},
	{"use_megatron_fsdp", NEW_NO_FSDP, false, false},
	{"use_torch_fsdp2", NEW_NO_FSDP, false, false},
};

#define ARGUMENTS MFS_ARRAY_SIZE(arguments)

struct change {
	const struct mfs_ckpt *ckpt;
	const struct mfs_common_options *options;
	const struct mfs_pickle *doc;
	mfs_value args; /* the dict of the Namespace */
	uint32_t written;
	bool forms; /* form has rows to write */
	struct mfs_form form;
};

/* Ranks that hold one copy of the model, the experts' layout taken into account: tp * dp must be a
 * multiple of etp * ep. */
uint32_t mfs_common_replicas(const struct mfs_ckpt *ckpt, const struct mfs_layout *p)
{
	const int64_t given = mfs_ckpt_args(ckpt)->data_parallel_size;
	uint64_t dp = given > 0 ? (uint64_t)given : 1;

	while (p->tp * dp % ((uint64_t)p->etp * p->ep))
		dp++;
	return (uint32_t)dp;
}

static void write_count(struct mfs_pickle_writer *w, uint32_t value, uint32_t none)
{
	if (value == none)
		mfs_pickle_none(w);
	else
		mfs_pickle_int(w, value);
}

static void write_text(struct mfs_pickle_writer *w, const char *text)
{
	if (text)
		mfs_pickle_str(w, text);
	else
		mfs_pickle_none(w);
}

static void write_layout_value(struct mfs_pickle_writer *w, const struct change *c,
			       enum new_value value)
{
	const struct mfs_layout *p = c->options->layout;
	const bool uneven = p->first || p->last;

	switch (value) {
	case NEW_TP:
		mfs_pickle_int(w, p->tp);
		break;
	case NEW_PP:
		mfs_pickle_int(w, p->pp);
		break;
	case NEW_VPP:
		write_count(w, p->vpp, 1);
		break;
	case NEW_PER_CHUNK:
		write_count(w,
			    p->vpp > 1 && !uneven
				    ? mfs_layout_layers(p, mfs_ckpt_args(c->ckpt), 0, 0, NULL)
				    : 0,
			    0);
		break;
	case NEW_STAGES: /* what Megatron asks for where stages are uneven */
		write_count(w, uneven ? p->vpp : 1, 1);
		break;
	case NEW_EP:
		mfs_pickle_int(w, p->ep);
		break;
	case NEW_ETP:
		mfs_pickle_int(w, p->etp);
		break;
	case NEW_WORLD:
		mfs_pickle_uint(w, (uint64_t)p->tp * p->pp *
					   mfs_common_replicas(c->ckpt, c->options->layout));
		break;
	case NEW_DP:
		mfs_pickle_int(w, mfs_common_replicas(c->ckpt, c->options->layout));
		break;
	case NEW_FIRST:
		write_count(w, p->first, 0);
		break;
	case NEW_LAST:
		write_count(w, p->last, 0);
		break;
	case NEW_FALSE:
		mfs_pickle_bool(w, false);
		break;
	default:
		mfs_pickle_none(w);
	}
}

/* Returns 1 if it wrote a value, and 0 if the source's stays. */
static int write_value(struct mfs_pickle_writer *w, const struct change *c,
		       const struct argument *a)
{
	const struct mfs_common_options *options = c->options;

	if (a->layout && !options->layout)
		return 0;
	if ((a->value == NEW_NO_OPTIM && options->has_optimizer) ||
	    (a->value == NEW_NO_RNG && options->has_rng) ||
	    (a->value == NEW_SPEC && !options->spec_given) ||
	    (a->value == NEW_GELU && !mfs_ckpt_args(c->ckpt)->before_core) ||
	    ((a->value == NEW_ROPE || a->value == NEW_PROVIDER) &&
	     !mfs_ckpt_is_language(c->ckpt)) ||
	    (a->value == NEW_NO_FSDP && !mfs_ckpt_format(c->ckpt)->is_plain) ||
	    (a->value == NEW_GROUPED && options->spec == MFS_LAYER_SPEC_TE) ||
	    (a->value == NEW_SEQUENCE_PARALLEL && options->layout->tp > 1))
		return 0;
	mfs_pickle_name(w, a->name);
	switch (a->value) {
	case NEW_VOCAB:
		mfs_pickle_uint(w, options->vocab);
		break;
	case NEW_SPEC:
		mfs_pickle_str(w, options->spec == MFS_LAYER_SPEC_LOCAL ? "local"
									: "transformer_engine");
		break;
	case NEW_FORMAT:
		mfs_pickle_str(w, options->format);
		break;
	case NEW_GELU:
		mfs_pickle_bool(w, !mfs_ckpt_args(c->ckpt)->exact_gelu);
		break;
	case NEW_PROVIDER:
		write_text(w, mfs_ckpt_args(c->ckpt)->provider);
		break;
	case NEW_ROPE:
		mfs_pickle_str(w, mfs_ckpt_args(c->ckpt)->position_embedding_type);
		break;
	case NEW_NO_OPTIM:
	case NEW_NO_RNG:
		mfs_pickle_bool(w, true);
		break;
	case NEW_GROUPED:
	case NEW_NO_FSDP:
	case NEW_SEQUENCE_PARALLEL:
		mfs_pickle_bool(w, false);
		break;
	default:
		write_layout_value(w, c, a->value);
	}
	return 1;
}

static void note_row(struct change *c, const char *key, size_t key_len)
{
	for (size_t i = 0; i < ARGUMENTS; i++)
		if (strlen(arguments[i].name) == key_len &&
		    !memcmp(arguments[i].name, key, key_len))
			c->written |= 1u << i;
}

static int replace_argument(void *arg, struct mfs_pickle_writer *w, mfs_value dict, const char *key,
			    size_t key_len, mfs_value value, struct mfs_error *err)
{
	struct change *c = arg;

	(void)value, (void)err;
	if (dict != c->args)
		return 0;
	note_row(c, key, key_len);
	if (c->forms && mfs_form_replace(&c->form, w, key, key_len))
		return 1;
	for (size_t i = 0; i < ARGUMENTS; i++) {
		if (strlen(arguments[i].name) != key_len ||
		    memcmp(arguments[i].name, key, key_len) != 0)
			continue;
		return write_value(w, c, &arguments[i]);
	}
	return 0;
}

/* True if leaving the argument out means the same as the new value. */
static bool is_none(const struct change *c, const struct argument *a)
{
	const struct mfs_layout *p = c->options->layout;

	return (a->value == NEW_SPEC && !c->options->spec_given) ||
	       (a->value == NEW_GELU && !mfs_ckpt_args(c->ckpt)->before_core) ||
	       (p && ((a->value == NEW_FIRST && !p->first) || (a->value == NEW_LAST && !p->last)));
}

static int add_arguments(void *arg, struct mfs_pickle_writer *w, mfs_value dict,
			 struct mfs_error *err)
{
	struct change *c = arg;

	(void)err;
	if (dict == c->args && c->forms)
		mfs_form_complete(&c->form, w);
	for (size_t i = 0; dict == c->args && i < ARGUMENTS; i++)
		if (arguments[i].needed && !(c->written & 1u << i) && !is_none(c, &arguments[i]))
			write_value(w, c, &arguments[i]);
	return 0;
}

static int copy_arguments(struct mfs_pickle_writer *w, struct change *c, mfs_value args,
			  struct mfs_error *err)
{
	const struct mfs_pickle_hooks hooks = {
		.arg = c, .pair = replace_argument, .pairs_end = add_arguments};

	c->args = mfs_value_state(c->doc, args);
	return mfs_pickle_copy(w, c->doc, args, &hooks, err);
}

/* Where the form is the source's, as its layout is, its arguments stay as they are. */
static void begin_form(struct change *c)
{
	const struct mfs_megatron_args *a = mfs_ckpt_args(c->ckpt);

	c->form = (struct mfs_form){
		.args = a, .layout = c->options->layout, .hybrid = c->options->hybrid};
	c->forms = c->options->hybrid ? !a->hybrid_form || c->options->layout : a->hybrid_form;
}

/* A Namespace that is being put into another form. */
struct moving {
	struct mfs_form form;
	mfs_value args;
};

static int move_pair(void *arg, struct mfs_pickle_writer *w, mfs_value dict, const char *key,
		     size_t key_len, mfs_value value, struct mfs_error *err)
{
	struct moving *m = arg;

	(void)value, (void)err;
	return dict == m->args ? mfs_form_replace(&m->form, w, key, key_len) : 0;
}

static int move_end(void *arg, struct mfs_pickle_writer *w, mfs_value dict, struct mfs_error *err)
{
	struct moving *m = arg;

	(void)err;
	if (dict == m->args)
		mfs_form_complete(&m->form, w);
	return 0;
}

/* Writes the Namespace of the GPTModel, and copies it as a HybridModel's. */
static int make_hybrid(struct mfs_pickle_writer *w, const struct change *c,
		       const struct mfs_megatron_args *a, struct mfs_error *err)
{
	struct moving m = {.form = {.args = a, .layout = c->options->layout, .hybrid = true}};
	const struct mfs_pickle_hooks hooks = {.arg = &m, .pair = move_pair, .pairs_end = move_end};
	struct mfs_pickle_writer plain;
	struct mfs_pickle *doc = NULL;
	struct mfs_buf bytes = {0};
	int rc;

	mfs_pickle_begin(&plain, &bytes, 2);
	mfs_namespace_write(&plain, a);
	rc = mfs_pickle_end(&plain, err);
	if (!rc)
		rc = mfs_pickle_parse(bytes.data, bytes.len, "args", NULL, &doc, err);
	if (!rc) {
		m.args = mfs_value_state(doc, mfs_pickle_root(doc));
		rc = mfs_pickle_copy(w, doc, mfs_pickle_root(doc), &hooks, err);
	}
	mfs_pickle_free(doc);
	mfs_buf_release(&bytes);
	return rc;
}

/* Writes arguments for an HF model, which no run has written. */
static int make_arguments(struct mfs_pickle_writer *w, const struct change *c,
			  struct mfs_error *err)
{
	const struct mfs_layout one = {.tp = 1, .pp = 1, .ep = 1, .etp = 1, .vpp = 1};
	const struct mfs_layout *p = c->options->layout ? c->options->layout : &one;
	struct mfs_megatron_args a = *mfs_ckpt_args(c->ckpt);

	a.padded_vocab_size = (int64_t)c->options->vocab;
	a.tensor_model_parallel_size = p->tp;
	a.pipeline_model_parallel_size = p->pp;
	a.virtual_pipeline_model_parallel_size = p->vpp;
	a.expert_model_parallel_size = p->ep;
	a.expert_tensor_parallel_size = p->etp;
	a.data_parallel_size =
		c->options->layout ? mfs_common_replicas(c->ckpt, c->options->layout) : 1;
	a.world_size = a.tensor_model_parallel_size * a.pipeline_model_parallel_size *
		       a.data_parallel_size;
	a.first_stage_layers = p->first ? (int64_t)p->first : MFS_ABSENT;
	a.last_stage_layers = p->last ? (int64_t)p->last : MFS_ABSENT;
	a.local_spec = c->options->spec == MFS_LAYER_SPEC_LOCAL;
	if (c->options->hybrid)
		return make_hybrid(w, c, &a, err);
	mfs_namespace_write(w, &a);
	return 0;
}

/* Copies a pair of the source's state dict, if it has it. */
static int copy_pair(struct mfs_pickle_writer *w, const struct change *c, mfs_value root,
		     const char *key, struct mfs_error *err)
{
	if (!mfs_value_has(c->doc, root, key))
		return 0;
	mfs_pickle_name(w, key);
	return mfs_pickle_copy(w, c->doc, mfs_value_get(c->doc, root, key), NULL, err);
}

static void write_iteration(struct mfs_pickle_writer *w, int64_t number)
{
	mfs_pickle_name(w, "checkpoint_version");
	mfs_pickle_float(w, 3.0);
	mfs_pickle_name(w, "iteration");
	mfs_pickle_int(w, number < 0 ? 0 : number);
}

int mfs_common_write(struct mfs_pickle_writer *w, const struct mfs_ckpt *ckpt,
		     const struct mfs_common_options *options, int64_t number,
		     struct mfs_error *err)
{
	const struct mfs_ckpt_common *state = mfs_ckpt_common(ckpt);
	struct change c = {.ckpt = ckpt, .options = options};
	int rc;

	mfs_pickle_name(w, "args");
	if (!state) {
		rc = make_arguments(w, &c, err);
		write_iteration(w, number);
		return rc;
	}
	c.doc = state->archive.doc;
	begin_form(&c);
	rc = copy_arguments(w, &c, mfs_value_get(c.doc, state->root, "args"), err);
	if (rc)
		return rc;
	write_iteration(w, number);
	rc = copy_pair(w, &c, state->root, "num_floating_point_operations_so_far", err);
	if (rc || !options->has_optimizer)
		return rc;
	return copy_pair(w, &c, state->root, "opt_param_scheduler", err);
}
