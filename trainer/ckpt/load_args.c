/*
 * The model of a checkpoint against the model of the arguments.
 *
 * Sources: megatron/training/checkpointing.py: check_checkpoint_args, load_args_from_checkpoint.
 * Megatron compares three sizes, and learns of other differences when tensors do not fit or, like
 * --swiglu, not at all. All that decides which tensors there are is compared here.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/str.h"
#include "formats/model/features.h"
#include "formats/torch/pickle.h"
#include "trainer/ckpt/load_i.h"
#include "trainer/config/adopt.h"
#include "trainer/config/settle/settle.h"

enum kind { COUNT, FLAG };

struct field {
	const char *name;
	size_t at; /* in struct mfs_megatron_args */
	enum kind kind;
};

#define OF(kind_, field_)                                                                          \
	{                                                                                          \
#field_, offsetof(struct mfs_megatron_args, field_), kind_                         \
	}

static const struct field fields[] = {
	OF(COUNT, num_layers),
	OF(COUNT, hidden_size),
	OF(COUNT, num_attention_heads),
	OF(COUNT, num_query_groups),
	OF(COUNT, kv_channels),
	OF(COUNT, ffn_hidden_size),
	OF(COUNT, num_experts),
	OF(FLAG, layernorm),
	OF(FLAG, zero_centered_gamma),
	OF(FLAG, swiglu),
	OF(FLAG, quick_geglu),
	OF(FLAG, squared_relu),
	OF(FLAG, add_bias_linear),
	OF(FLAG, qk_layernorm),
	OF(FLAG, tied),
	OF(FLAG, rotary_interleaved),
	OF(FLAG, multi_latent_attention),
};

static void value_of(const struct mfs_megatron_args *a, const struct field *f, char text[32])
{
	const char *at = (const char *)a + f->at;
	int64_t count;

	if (f->kind == FLAG) {
		snprintf(text, 32, "%s", *(const bool *)at ? "True" : "False");
		return;
	}
	memcpy(&count, at, sizeof(count));
	if (count == MFS_UNSET)
		snprintf(text, 32, "None");
	else
		snprintf(text, 32, "%lld", (long long)count);
}

/* Megatron's names where a field has another one. */
static const char *argument_of(const struct field *f)
{
	if (!strcmp(f->name, "layernorm"))
		return "normalization == LayerNorm";
	if (!strcmp(f->name, "zero_centered_gamma"))
		return "apply_layernorm_1p";
	if (!strcmp(f->name, "tied"))
		return "tied embeddings (not untie_embeddings_and_output_weights)";
	return f->name;
}

static bool is_same_mup(const struct mfs_mup *a, const struct mfs_mup *b)
{
	return a->on == b->on && a->width == b->width && a->embedding == b->embedding &&
	       a->output == b->output && a->attention == b->attention;
}

static int compare(const struct mfs_load *l, const struct mfs_megatron_args *ours,
		   struct mfs_error *err)
{
	const struct mfs_megatron_args *theirs = mfs_ckpt_args(l->ckpt);
	char a[32], b[32];

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		value_of(theirs, &fields[i], a);
		value_of(ours, &fields[i], b);
		if (strcmp(a, b))
			return mfs_fail(err, -EINVAL,
					"%s: %s is %s, the arguments say %s; "
					"--use-checkpoint-args takes the checkpoint's model",
					l->what, argument_of(&fields[i]), a, b);
	}
	if (theirs->mup.on && !is_same_mup(&theirs->mup, &ours->mup))
		return mfs_fail(err, -EINVAL,
				"%s: it has use_mup with a width of %g times mup_base_hidden_size; "
				"the arguments say another: expected --use-mup, and what the run "
				"said beside it",
				l->what, theirs->mup.width);
	if (!mfs_str_is(theirs->position_embedding_type, ours->position_embedding_type))
		return mfs_fail(err, -EINVAL,
				"%s: position_embedding_type is %s, the arguments say %s; "
				"--use-checkpoint-args takes the checkpoint's model",
				l->what, theirs->position_embedding_type,
				ours->position_embedding_type);
	return 0;
}

/* ---- the checkpoint's model ---- */

/* What the arguments of a command line cannot say. */
static int check_known(const struct mfs_load *l, struct mfs_error *err)
{
	static const mfs_features others = MFS_HAS(OWN_MODULES) | MFS_HAS(GEGLU) |
					   MFS_HAS(QK_NORM_WIDE) | MFS_HAS(SOFTMAX_SCALE) |
					   MFS_HAS(SOFT_CAPS) | MFS_HAS(ROPE_TWO_BASES) |
					   MFS_HAS(POST_NORMS);
	const mfs_features found = mfs_features_of(mfs_ckpt_args(l->ckpt)) & others;

	for (unsigned i = 0; i < MFS_FEATURE_COUNT; i++)
		if (mfs_has_feature(found, i))
			return mfs_fail(err, -ENOTSUP, "%s: a model with %s cannot be trained here",
					l->what, mfs_feature_text(i));
	return 0;
}

static int adopt(const struct mfs_load *l, struct mfs_train_config *config, struct mfs_error *err)
{
	const struct mfs_ckpt_common *state = mfs_ckpt_common(l->ckpt);
	struct mfs_adopted from = {.model = mfs_ckpt_args(l->ckpt), .dir = mfs_ckpt_dir(l->ckpt)};

	if (state && !mfs_ckpt_format(l->ckpt)->is_hf) {
		from.doc = state->archive.doc;
		from.args = mfs_value_get(from.doc, state->root, "args");
	}
	return mfs_train_config_adopt(config, &from, err);
}

int mfs_load_args(struct mfs_load *l, struct mfs_train_config *config, struct mfs_error *err)
{
	const bool takes = config->use_checkpoint_args || mfs_ckpt_format(l->ckpt)->is_hf;
	int rc = check_known(l, err);

	if (!rc && takes && !config->settled)
		rc = adopt(l, config, err);

	if (!rc)
		rc = mfs_train_config_settle(config, err);
	return rc ? rc : compare(l, &config->model, err);
}
