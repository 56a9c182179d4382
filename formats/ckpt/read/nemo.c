/*
 * NeMo 2: torch_dist in a folder of its checkpoint, what the model is in another one, and a common
 * state that is made as Megatron would have written it.
 *
 * weights/common.pt is PyTorch Lightning's dict. Of it a run goes on with 'global_step',
 * 'optimizer' (a list of one), and the 'consumed_samples' of the data module, whose class names
 * their place. Sources: nemo/lightning/pytorch/strategies/megatron_strategy.py: save_checkpoint;
 * nemo/lightning/_strategy_lib.py: setup_megatron_optimizer; nemo/collections/llm/gpt/data:
 * state_dict; nemo/lightning/ckpt_utils.py.
 */
#include <errno.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/ckpt/read/args_file.h"
#include "formats/ckpt/read/dist_i.h"
#include "formats/ckpt/read/marks.h"
#include "formats/ckpt/read/ckpt_open.h"
#include "formats/ckpt/read/reader.h"
#include "formats/torch/pickle_write.h"

#define CONFIG "context/model.yaml"
#define INDEX  MFS_NEMO_WEIGHTS "/" METADATA
#define LAST   MFS_NEMO_WEIGHTS "/metadata.json"

/* What the state is made of. */
struct making {
	const struct mfs_ckpt *ckpt;
	const struct mfs_pickle *doc; /* common.pt */
	mfs_value root;
	const struct mfs_pickle *args_doc; /* the Namespace alone */
	int64_t samples;		   /* that the run has read */
	struct mfs_pickle_writer w;
	struct mfs_error *err;
};

/* ---- parameter groups ---- */

/* NeMo multiplies rates itself, and renames the factors so that nobody does it again. */
static const struct {
	const char *nemo, *megatron; /* NULL: Megatron has no such key */
} group_keys[] = {
	{"pre_wd_mult", "wd_mult"},
	{"pre_lr_mult", "lr_mult"},
	{"pre_mult_wd", NULL},
	{"pre_mult_lr", NULL},
};

static int rename_key(void *arg, struct mfs_pickle_writer *w, mfs_value dict, const char *key,
		      size_t key_len, mfs_value value, struct mfs_error *err)
{
	const struct mfs_pickle *doc = arg;
	int rc;

	(void)dict;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(group_keys); i++) {
		if (strlen(group_keys[i].nemo) != key_len ||
		    memcmp(group_keys[i].nemo, key, key_len) != 0)
			continue;
		if (!group_keys[i].megatron)
			return 1;
		mfs_pickle_name(w, group_keys[i].megatron);
		rc = mfs_pickle_copy(w, doc, value, NULL, err);
		return rc ? rc : 1;
	}
	return 0;
}

/* Copies an optimizer's state with Megatron's names in its groups. */
static int copy_renamed(struct mfs_pickle_writer *w, const struct mfs_pickle *doc, mfs_value v,
			struct mfs_error *err)
{
	const struct mfs_pickle_hooks hooks = {.arg = (void *)doc, .pair = rename_key};

	return mfs_pickle_copy(w, doc, v, &hooks, err);
}

static int rename_groups(struct mfs_torch_file *f, const char *file, struct mfs_error *err)
{
	struct mfs_buf bytes = {0};
	struct mfs_pickle_writer w;
	int rc;

	mfs_pickle_begin(&w, &bytes, 2);
	rc = copy_renamed(&w, f->doc, mfs_pickle_root(f->doc), err);
	if (rc)
		mfs_pickle_abandon(&w);
	else
		rc = mfs_pickle_end(&w, err);
	if (!rc)
		return mfs_ckpt_replace_doc(f, &bytes, file, err);
	mfs_buf_release(&bytes);
	return rc;
}

static int write_optimizer(struct making *m, const char *file)
{
	mfs_value list = mfs_value_get(m->doc, m->root, "optimizer");

	if (mfs_value_type(m->doc, list) != MFS_V_LIST || mfs_value_count(m->doc, list) != 1)
		return mfs_fail(m->err, -EINVAL,
				"%s/%s: 'optimizer': expected a list of one optimizer's state",
				m->ckpt->dir, file);
	mfs_pickle_name(&m->w, "optimizer");
	return copy_renamed(&m->w, m->doc, mfs_value_at(m->doc, list, 0), m->err);
}

/* ---- how far the run was ---- */

static int64_t natural(const struct mfs_pickle *doc, mfs_value dict, const char *key)
{
	int64_t number;

	return mfs_value_int(doc, mfs_value_get(doc, dict, key), &number) && number > 0 ? number
											: 0;
}

/* Of whatever class the data module is. */
static int64_t consumed_samples(const struct mfs_pickle *doc, mfs_value root)
{
	int64_t found = 0;

	for (uint32_t i = 0; i < mfs_value_pairs(doc, root) && !found; i++)
		found = natural(doc, mfs_value_item(doc, root, i), "consumed_samples");
	return found;
}

static int add_samples(void *arg, struct mfs_pickle_writer *w, mfs_value dict,
		       struct mfs_error *err)
{
	const struct making *m = arg;

	(void)err;
	if (dict != mfs_value_state(m->args_doc, mfs_pickle_root(m->args_doc)))
		return 0;
	mfs_pickle_name(w, "consumed_train_samples");
	mfs_pickle_int(w, m->samples);
	return 0;
}

static int write_args(struct making *m)
{
	const struct mfs_pickle_hooks hooks = {.arg = m, .pairs_end = add_samples};

	mfs_pickle_name(&m->w, "args");
	return mfs_pickle_copy(&m->w, m->args_doc, mfs_pickle_root(m->args_doc), &hooks, m->err);
}

/* NeMo's schedules are not Megatron's. So the values that a run would take from here are None, and
 * one that does not bring its own (--override-opt-param-scheduler) is stopped by them. */
static void write_scheduler(struct making *m)
{
	static const char *const unknown[] = {"max_lr", "min_lr", "lr_warmup_steps",
					      "lr_decay_steps", "lr_decay_style"};

	mfs_pickle_name(&m->w, "opt_param_scheduler");
	mfs_pickle_dict_begin(&m->w);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(unknown); i++) {
		mfs_pickle_name(&m->w, unknown[i]);
		mfs_pickle_none(&m->w);
	}
	mfs_pickle_name(&m->w, "num_steps");
	mfs_pickle_int(&m->w, m->samples);
	mfs_pickle_dict_end(&m->w);
}

/* ---- the whole ---- */

static int write_state(struct making *m, const char *file)
{
	int rc;

	mfs_pickle_dict_begin(&m->w);
	rc = write_args(m);
	mfs_pickle_name(&m->w, "iteration");
	mfs_pickle_int(&m->w, natural(m->doc, m->root, "global_step"));
	write_scheduler(m);
	if (!rc && mfs_value_has(m->doc, m->root, "optimizer"))
		rc = write_optimizer(m, file);
	mfs_pickle_dict_end(&m->w);
	return rc;
}

static int write(struct making *m, const char *file, struct mfs_buf *ret)
{
	int rc;

	mfs_pickle_begin(&m->w, ret, 2);
	rc = write_state(m, file);
	if (!rc)
		return mfs_pickle_end(&m->w, m->err);
	mfs_pickle_abandon(&m->w);
	return rc;
}

static int replace(struct making *m, struct mfs_torch_file *f, const char *file, mfs_value *state)
{
	struct mfs_buf bytes = {0};
	int rc;

	m->doc = f->doc;
	m->root = *state;
	m->samples = consumed_samples(m->doc, m->root);
	rc = write(m, file, &bytes);
	if (rc) {
		mfs_buf_release(&bytes);
		return rc;
	}
	rc = mfs_ckpt_replace_doc(f, &bytes, file, m->err);
	if (!rc)
		*state = mfs_pickle_root(f->doc);
	return rc;
}

/*
 * Makes the state of the parsed common.pt: f->doc is then another document, and *state its root, a
 * dict with 'args' (those of CONFIG), 'iteration', 'optimizer' and an 'opt_param_scheduler' that
 * knows how far the run was, and nothing of NeMo's own schedule. -EINVAL: 'optimizer' is no list of
 * one.
 */
static int make_state(struct mfs_dist_reader *r, struct mfs_torch_file *f, const char *file,
		      mfs_value *state)
{
	struct making m = {.ckpt = r->ckpt, .err = r->err};
	struct mfs_pickle *args = NULL;
	struct mfs_buf bytes = {0};
	int rc = mfs_ckpt_config_args(r->ckpt, CONFIG, &bytes, r->err);

	if (!rc)
		rc = mfs_pickle_parse(bytes.data, bytes.len, CONFIG, NULL, &args, r->err);
	m.args_doc = args;
	if (!rc)
		rc = replace(&m, f, file, state);
	mfs_pickle_free(args);
	mfs_buf_release(&bytes);
	return rc;
}

/* ---- the row ---- */

/* A state that only the optimizer needs is made where there is one. */
static int read_args(struct mfs_dist_reader *r)
{
	int rc = r->ckpt->what & MFS_CKPT_COMMON && mfs_dist_optimizer_key(r)
			 ? mfs_dist_read_common(r)
			 : mfs_ckpt_read_config(r->ckpt, CONFIG, r->err);

	return rc == -ENOENT ? mfs_fail(r->err, -ENODATA,
					"%s/" CONFIG " is missing, which says what model this is",
					r->ckpt->dir)
			     : rc;
}

/* megatron_parallel.py: _module_sharded_state_dict. */
static const char *model_key(const char *key)
{
	return strncmp(key, "module.", 7) ? NULL : key + 7;
}

static const struct mfs_dist_maker maker = {
	.folder = MFS_NEMO_WEIGHTS "/",
	.prefix = "module.",
	.read_args = read_args,
	.complete_state = make_state,
	.reads_optimizer = mfs_dist_reads_optimizer,
	.model_key = model_key,
	.rename_groups = rename_groups,
};

static bool looks_like(const char *dir)
{
	return mfs_ckpt_dir_has(dir, LAST);
}

static int refuse(const char *dir, struct mfs_error *err)
{
	return mfs_ckpt_dir_has(dir, INDEX)
		       ? mfs_fail(err, -ENODATA, "%s/" LAST " is missing: the save did not finish",
				  dir)
		       : 0;
}

static int add_marks(const char *dir, const char *name, struct mfs_marks *marks)
{
	return !strcmp(name, MFS_NEMO_WEIGHTS) && mfs_ckpt_dir_has(dir, INDEX)
		       ? mfs_marks_add(marks, name)
		       : 0;
}

static bool last(const char *dir, char *name, size_t size)
{
	return mfs_ckpt_dir_last(dir, LAST, name, size);
}

const struct mfs_ckpt_reader mfs_ckpt_reader_nemo = {
	.format = &mfs_dist_format,
	.maker = &maker,
	.looks_like = looks_like,
	.refuse = refuse,
	.read = mfs_dist_read_model,
	.add_marks = add_marks,
	.last = last,
};
