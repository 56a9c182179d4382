#include "trainer/ckpt/load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/str.h"
#include "formats/ckpt/read/integrity.h"
#include "formats/ckpt/read/ckpt_open.h"
#include "formats/io/fileset.h"
#include "formats/megatron/layout.h"
#include "formats/megatron/tracker.h"
#include "formats/model/hf_ckpt.h"
#include "formats/optim/read/optim_open.h"
#include "formats/optim/rules/optimizers.h"
#include "formats/optim/rules/settings.h"
#include "trainer/ckpt/load_i.h"
#include "trainer/optimizers/optimizer.h"
#include "trainer/ckpt/save.h"

/* ---- which one ---- */

enum source {
	SOURCE_NONE,
	SOURCE_ITERATION,
	SOURCE_HF,
};

struct place {
	enum source kind;
	char dir[PATH_MAX];
	int64_t number;
};

static int set_dir(struct place *p, const char *root, const char *name, struct mfs_error *err)
{
	if ((size_t)snprintf(p->dir, sizeof(p->dir), "%s%s%s", root, name ? "/" : "",
			     name ? name : "") < sizeof(p->dir))
		return 0;
	return mfs_fail(err, -ENAMETOOLONG, "path '%.200s' is too long", root);
}

static bool has(const char *dir, const char *name)
{
	char path[PATH_MAX];

	return (size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) < sizeof(path) &&
	       !access(path, F_OK);
}

/* It was to make room when a save was killed (ckpt/save.h). */
static bool has_aside(const char *root, const char *name)
{
	char aside[96];

	snprintf(aside, sizeof(aside), "%s" MFT_SAVE_ASIDE, name);
	return has(root, aside);
}

/* An iteration of a run's directory. Its reader says what is wrong if it is not there. */
static int set_iteration(struct place *p, const char *root, int64_t number, struct mfs_error *err)
{
	char name[64 + sizeof(MFT_SAVE_ASIDE)];

	snprintf(name, 64, "iter_%07lld", (long long)number);
	p->kind = SOURCE_ITERATION;
	p->number = number;
	if (number != MFS_RELEASE && !has(root, name) && has_aside(root, name))
		strcat(name, MFT_SAVE_ASIDE);
	return set_dir(p, root, number == MFS_RELEASE ? "release" : name, err);
}

/* An iteration's own directory, named by itself. */
static bool is_iteration(const char *dir)
{
	return has(dir, ".metadata") || has(dir, MFS_NEMO_WEIGHTS "/.metadata") ||
	       has(dir, "mp_rank_00") || has(dir, "mp_rank_00_000") ||
	       has(dir, "mp_rank_00_000_000");
}

/* The number in the name of an iteration's own directory; 0 if it has another name. */
static int64_t number_of(const char *dir)
{
	const size_t len = strlen(dir);
	size_t end = len, start;
	char name[64];
	int64_t number;

	while (end && dir[end - 1] == '/')
		end--;
	for (start = end; start && dir[start - 1] != '/'; start--)
		;
	snprintf(name, sizeof(name), "%.*s", (int)(end - start), dir + start);
	return mfs_iteration_number(name, &number) ? number : 0;
}

static int by_tracker(const struct mft_train_config *config, const char *root, struct place *ret,
		      struct mfs_error *err)
{
	struct mfs_tracker t = {0};

	mfs_tracker_read(root, &t);
	if (t.kind == MFS_TRACKER_BAD)
		return mfs_fail(err, -EINVAL,
				"%s/" MFS_TRACKER_FILE ": expected a number or "
				"'release', found '%s'",
				root, t.no_file ? "no regular file" : t.text);
	if (t.kind == MFS_TRACKER_NONE)
		return 0;
	/* checkpointing.py: _load_base_checkpoint: --ckpt-step counts where there is a tracker. */
	return set_iteration(ret, root, config->ckpt_step >= 0 ? config->ckpt_step : t.number, err);
}

static int find(const struct mft_train_config *config, const char *root, struct place *ret,
		struct mfs_error *err)
{
	int rc;

	*ret = (struct place){.kind = SOURCE_NONE};
	if (!root)
		return 0;
	rc = by_tracker(config, root, ret, err);
	if (rc || ret->kind != SOURCE_NONE)
		return rc;
	if (is_iteration(root)) {
		ret->kind = SOURCE_ITERATION;
		ret->number = number_of(root);
		return set_dir(ret, root, NULL, err);
	}
	if (!mfs_hf_ckpt_looks_like_one(root))
		return 0;
	ret->kind = SOURCE_HF;
	ret->number = MFS_RELEASE;
	return set_dir(ret, root, NULL, err);
}

/* ---- opening ---- */

static void describe(struct mft_load *l, const struct place *p)
{
	const struct mfs_ckpt_layout *at = mfs_ckpt_layout(l->ckpt);
	const char *format = mfs_ckpt_format(l->ckpt)->title;

	if (p->kind == SOURCE_HF)
		snprintf(l->what, sizeof(l->what), "%s (%s)", p->dir, format);
	else if (p->number == MFS_RELEASE)
		snprintf(l->what, sizeof(l->what), "%s (%s, TP%u PP%u)", p->dir, format, at->tp,
			 at->pp);
	else
		snprintf(l->what, sizeof(l->what), "iteration %lld of %s (%s, TP%u PP%u)",
			 (long long)p->number, p->dir, format, at->tp, at->pp);
}

/* The state of one optimizer is of no use to another one. */
static int check_optimizer(const struct mft_train_config *config, const struct mfs_ckpt *ckpt,
			   struct mfs_error *err)
{
	const char *ours = mft_optimizer_kind(config->optimizer)->name,
		   *found = mfs_optimizer_of(ckpt)->name;

	if (!mfs_str_is(found, ours))
		return mfs_fail(err, -EINVAL,
				"%s: expected the optimizer %s of the arguments, found %s; "
				"--no-load-optim goes on with a new one",
				mfs_ckpt_dir(ckpt), ours, found);
	if (mfs_str_is(ours, "sgd") && config->sgd_momentum != 0 &&
	    mfs_ckpt_args(ckpt)->sgd_momentum == 0)
		return mfs_fail(err, -EINVAL,
				"%s: expected an SGD with momentum, found --sgd-momentum 0; "
				"--no-load-optim goes on with a new one",
				mfs_ckpt_dir(ckpt));
	return 0;
}

/* checkpointing.py: load_checkpoint: what a release, a pretrained checkpoint or --finetune takes is
 * the weights alone. */
static int open_ckpt(const struct mft_train_config *config, const struct place *p,
		     struct mft_load *l, struct mfs_error *err)
{
	const bool wanted = p->number != MFS_RELEASE && !l->finetune && !config->no_load_optim;
	int rc;

	if (p->kind == SOURCE_HF)
		return mfs_hf_ckpt_open(p->dir, NULL, 0, &l->ckpt, err);
	if (!wanted)
		return mfs_ckpt_open(p->dir, MFS_CKPT_COMMON, &l->ckpt, err);
	rc = mfs_optim_open(p->dir, &l->ckpt, err);
	if (rc)
		return rc;
	l->optimizer = mfs_optim_info(l->ckpt)->kind != MFS_OPTIM_NONE;
	if (l->optimizer)
		return check_optimizer(config, l->ckpt, err);
	return mfs_fail(err, -ENODATA,
			"%s: it has no optimizer; --no-load-optim goes on with a new one, "
			"--finetune begins anew",
			p->dir);
}

/* ---- --verify-integrity ---- */

struct sums {
	struct mfs_error first;
	unsigned bad;
};

static void note_bad(void *arg, const struct mfs_error *err)
{
	struct sums *s = arg;

	if (!s->bad++)
		s->first = *err;
}

/* serialization.py: load: all files are compared with their sums before the first one is read. */
static int verify(const struct place *p, struct mfs_error *err)
{
	static const char flag[] = "--verify-integrity";
	struct sums s = {0};
	uint32_t checked;
	int rc;

	if (p->kind == SOURCE_HF)
		return mfs_fail(err, -ENOTSUP,
				"%s: '%s' is a HuggingFace directory, which has no sums", flag,
				p->dir);
	rc = mfs_integrity_check(p->dir, note_bad, &s, &checked, err);
	if (rc)
		return mfs_fail_in(err, "%s: '%s'", flag, p->dir);
	if (s.bad > 1)
		return mfs_fail(err, -EINVAL, "%s: '%s': %s (and %u more)", flag, p->dir,
				s.first.msg, s.bad - 1);
	return s.bad ? mfs_fail(err, -EINVAL, "%s: '%s': %s", flag, p->dir, s.first.msg) : 0;
}

static int open_place(const struct mft_train_config *config, const struct place *p, bool finetune,
		      struct mft_load **ret, struct mfs_error *err)
{
	struct mft_load *l;
	int rc = config->verify_integrity ? verify(p, err) : 0;

	if (rc)
		return rc;
	l = calloc(1, sizeof(*l));
	if (!l)
		return mfs_fail_nomem(err);
	l->iteration = p->number;
	l->finetune = finetune;
	rc = open_ckpt(config, p, l, err);
	if (rc) {
		mft_load_free(l);
		return rc;
	}
	/* Each record has a header; on a shared file system an open asks another host. */
	mfs_fileset_keep_open(mfs_ckpt_files(l->ckpt), true);
	describe(l, p);
	*ret = l;
	return 0;
}

/* checkpointing.py: _load_base_checkpoint: with --non-persistent-ckpt-type one that is not older
 * counts. */
static int find_non_persistent(const struct mft_train_config *c, struct place *p,
			       struct mfs_error *err)
{
	const int64_t other = p->kind != SOURCE_ITERATION ? -1 : p->number > 0 ? p->number : 0;
	struct mfs_tracker t = {0};
	char dir[PATH_MAX];

	if (!c->load || !c->non_persistent_ckpt_type)
		return 0;
	if (c->non_persistent_global_ckpt_dir)
		snprintf(dir, sizeof(dir), "%s", c->non_persistent_global_ckpt_dir);
	else if ((size_t)snprintf(dir, sizeof(dir), "%s/" MFT_NON_PERSISTENT_DIR, c->load) >=
		 sizeof(dir))
		return mfs_fail(err, -ENAMETOOLONG, "path '%.200s' is too long", c->load);
	mfs_tracker_read(dir, &t);
	if (t.kind == MFS_TRACKER_NONE)
		return 0;
	if (t.kind != MFS_TRACKER_NUMBER)
		return mfs_fail(err, -EINVAL,
				"%s/" MFS_TRACKER_FILE ": expected a number, found '%s'", dir,
				t.no_file ? "no regular file" : t.text);
	return t.number >= other ? set_iteration(p, dir, t.number, err) : 0;
}

/* checkpointing.py: load_checkpoint: the pretrained checkpoint counts if --load has none, and is
 * fine-tuned. */
int mft_load_open(const struct mft_train_config *config, struct mft_load **ret,
		  struct mfs_error *err)
{
	bool finetune = config->finetune;
	struct place p;
	int rc = find(config, config->load, &p, err);

	*ret = NULL;
	if (!rc)
		rc = find_non_persistent(config, &p, err);
	if (!rc && p.kind == SOURCE_NONE && config->pretrained_checkpoint) {
		finetune = true;
		rc = find(config, config->pretrained_checkpoint, &p, err);
		if (!rc && p.kind == SOURCE_NONE)
			return mfs_fail(err, -ENODATA,
					"--pretrained-checkpoint: '%s' holds no checkpoint",
					config->pretrained_checkpoint);
	}
	if (rc)
		return rc;
	if (p.kind != SOURCE_NONE)
		return open_place(config, &p, finetune, ret, err);
	if (config->load && config->exit_on_missing_checkpoint)
		return mfs_fail(
			err, -ENODATA,
			"--exit-on-missing-checkpoint: '%s' holds no checkpoint: looked for %s, "
			".metadata, mp_rank_00*, and config.json with weights",
			config->load, MFS_TRACKER_FILE);
	return 0;
}

void mft_load_free(struct mft_load *l)
{
	if (!l)
		return;
	mfs_ckpt_free(l->ckpt);
	free(l);
}

const char *mft_load_what(const struct mft_load *l)
{
	return l->what;
}

/* ---- state ---- */

int mft_load_state(struct mft_load *l, const struct mft_train_config *config,
		   struct mft_params *params, const struct mfk_backend *backend,
		   struct mfk_device *device, struct mfk_ctx *ctx, struct mft_progress *progress,
		   bool *ret_optim, struct mfs_error *err)
{
	int rc = mft_load_tensors(l, params, backend, device, ctx, err);

	if (rc)
		return rc;
	*ret_optim = l->optimizer;
	if (l->finetune || l->iteration == MFS_RELEASE)
		return 0;
	return mft_load_progress(l, config, progress, err);
}

const char *mft_load_dir(const struct mft_load *l)
{
	return mfs_ckpt_dir(l->ckpt);
}
