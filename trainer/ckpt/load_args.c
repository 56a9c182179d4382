/*
 * The model of a checkpoint against the model of the arguments.
 *
 * Sources: megatron/training/checkpointing.py: check_checkpoint_args, load_args_from_checkpoint.
 * Megatron compares three sizes, and learns of other differences when tensors do not fit or, like
 * --swiglu, not at all. All that decides which tensors there are is compared here.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "formats/args/field.h"
#include "formats/model/features.h"
#include "formats/torch/pickle.h"
#include "trainer/ckpt/load_i.h"
#include "trainer/config/adopt.h"
#include "trainer/config/settle/settle.h"

/* As Python writes it. */
static const char *value_of(const struct mfs_megatron_args *a, const struct mfs_args_field *f,
			    char text[32])
{
	const void *at = mfs_args_at(a, f);

	if (f->type == MFS_ARGS_FLAG)
		return *(const bool *)at ? "True" : "False";
	if (f->type == MFS_ARGS_TEXT)
		return *(const char *const *)at ? *(const char *const *)at : "None";
	if (*(const int64_t *)at == MFS_ABSENT)
		return "None";
	snprintf(text, 32, "%lld", (long long)*(const int64_t *)at);
	return text;
}

static bool is_same_mup(const struct mfs_mup *a, const struct mfs_mup *b)
{
	return a->on == b->on && a->width == b->width && a->embedding == b->embedding &&
	       a->output == b->output && a->attention == b->attention;
}

static int compare(const struct mft_load *l, const struct mfs_megatron_args *ours,
		   struct mfs_error *err)
{
	const struct mfs_megatron_args *theirs = mfs_ckpt_args(l->ckpt);
	char a[32], b[32];

	for (const struct mfs_args_field *f = mfs_args_fields; f->member; f++) {
		const char *x, *y;

		if (!f->fits)
			continue;
		x = value_of(theirs, f, a);
		y = value_of(ours, f, b);
		if (strcmp(x, y) != 0)
			return mfs_fail(err, -EINVAL,
					"%s: %s is %s, the arguments say %s; "
					"--use-checkpoint-args takes the checkpoint's model",
					l->what, f->fits_as ? f->fits_as : f->member, x, y);
	}
	if (theirs->mup.on && !is_same_mup(&theirs->mup, &ours->mup))
		return mfs_fail(
			err, -EINVAL,
			"%s: it has use_mup with a width of %g times mup_base_hidden_size; "
			"the arguments say another: expected --use-mup with the run's own values",
			l->what, theirs->mup.width);
	return 0;
}

/* ---- the checkpoint's model ---- */

/* What the arguments of a command line cannot say. */
static int check_known(const struct mft_load *l, struct mfs_error *err)
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

static int adopt(const struct mft_load *l, struct mft_train_config *config, struct mfs_error *err)
{
	const struct mfs_ckpt_common *state = mfs_ckpt_common(l->ckpt);
	struct mft_adopted from = {.model = mfs_ckpt_args(l->ckpt), .dir = mfs_ckpt_dir(l->ckpt)};

	if (state && !mfs_ckpt_format(l->ckpt)->is_hf) {
		from.doc = state->archive.doc;
		from.args = mfs_value_get(from.doc, state->root, "args");
	}
	return mft_train_config_adopt(config, &from, err);
}

int mft_load_args(struct mft_load *l, struct mft_train_config *config, struct mfs_error *err)
{
	const bool takes = config->use_checkpoint_args || mfs_ckpt_format(l->ckpt)->is_hf;
	int rc = check_known(l, err);

	if (!rc && takes && !config->settled)
		rc = adopt(l, config, err);

	if (!rc)
		rc = mft_train_config_settle(config, err);
	return rc ? rc : compare(l, &config->model, err);
}
