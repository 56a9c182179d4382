#define _GNU_SOURCE
#include "fs/source/root.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "formats/base/arena.h"
#include "formats/base/array.h"
#include "formats/base/clock.h"
#include "formats/base/grow.h"
#include "formats/ckpt/read/verl.h"
#include "formats/delta/delta_index.h"
#include "formats/indexed/plain_text.h"
#include "formats/io/directory.h"
#include "formats/model/hf_ckpt.h"
#include "formats/remote/mirror.h"
#include "fs/data/data.h"
#include "fs/source/chain.h"
#include "fs/source/iteration.h"
#include "fs/view/keeper.h"
#include "formats/megatron/tracker.h"

#define MIN_INTERVAL 1000000000 /* ns between two looks without force */
#define MOST_LOOKS   10 /* at a source that changes meanwhile, before it is shown as it is */

/* A snapshot and its memory. It lives as long as the root, since a reader may still use it. */
struct held_snapshot {
	struct mfs_root_snapshot public;
	struct mfs_arena arena;
	struct held_snapshot *older;
};

enum source_kind {
	SOURCE_ROOT,	  /* iterations and a tracker */
	SOURCE_ITERATION, /* one iteration */
	SOURCE_HF,
	SOURCE_CHAIN, /* versions of a model, as deltas */
	SOURCE_DATA,  /* only datasets */
};

struct mfs_root {
	struct mfs_mirror *mirror; /* NULL: SOURCE is on this machine */
	struct mfs_chain *chain;   /* NULL: it is none */
	char *url;		   /* of SOURCE, if it has a mirror */
	char *source;		   /* absolute */
	char *arch, *ref, *tokenizer;
	struct mfs_view_options options;
	struct mfs_data_options no_data; /* used without options of datasets */
	struct mfs_data *data;		 /* NULL: none */
	enum source_kind kind;
	struct mfs_keeper *keeper; /* of all iterations */
	bool keeper_is_own;
	_Atomic(struct held_snapshot *) snapshot;
	_Atomic int64_t looked;	  /* monotonic ns of the last look */
	_Atomic int64_t mtime_ns; /* of SOURCE at the last look; 0: not known */

	pthread_mutex_t refresh; /* of the fields below */
	struct mfs_tracker tracker;
	struct mfs_iteration *iterations; /* all that were ever shown, newest first */
};

struct candidate {
	char *name;
	int64_t number;
	const struct mfs_chain_version *version; /* of a chain */
};

struct candidates {
	struct candidate *list;
	size_t count;
};

static void free_candidates(struct candidates *c)
{
	for (size_t i = 0; i < c->count; i++)
		free(c->list[i].name);
	free(c->list);
	*c = (struct candidates){0};
}

static int add_candidate(struct candidates *c, const char *name, int64_t number)
{
	if (mfs_grow(&c->list, c->count))
		return -ENOMEM;
	c->list[c->count].name = strdup(name);
	if (!c->list[c->count].name)
		return -ENOMEM;
	c->list[c->count++].number = number;
	return 0;
}

static int by_number(const void *a, const void *b)
{
	int64_t x = ((const struct candidate *)a)->number,
		y = ((const struct candidate *)b)->number;

	return x < y ? -1 : x > y;
}

static bool is_directory(const char *dir, const char *name)
{
	char path[PATH_MAX];
	struct stat st;

	return (size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) < sizeof(path) &&
	       !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* Lists the directories that are named like iterations, in ascending order. */
static int list_candidates(const char *source, struct candidates *c, struct mfs_error *err)
{
	DIR *dir = mfs_opendir(source);
	struct dirent *d;
	int64_t number;
	int rc = 0;

	if (!dir)
		return mfs_fail_errno(err, "cannot read directory '%s'", source);
	while (!rc && (d = readdir(dir)))
		if (mfs_iteration_number_of_any(d->d_name, &number) &&
		    is_directory(source, d->d_name))
			rc = add_candidate(c, d->d_name, number);
	closedir(dir);
	if (rc)
		return mfs_fail_nomem(err);
	if (c->count)
		qsort(c->list, c->count, sizeof(*c->list), by_number);
	return 0;
}

static struct mfs_iteration *find(const struct mfs_root_snapshot *s, const char *name)
{
	for (uint32_t i = 0; s && i < s->count; i++)
		if (!strcmp(s->iterations[i]->name, name))
			return s->iterations[i];
	return NULL;
}

static struct mfs_iteration *find_number(const struct mfs_root_snapshot *s, int64_t number)
{
	for (uint32_t i = 0; i < s->count; i++)
		if (s->iterations[i]->number == number)
			return s->iterations[i];
	return NULL;
}

/* A version of a chain. Its bytes change if those of an earlier one do. */
static int look_at_version(struct mfs_root *root, const struct candidate *c,
			   struct mfs_iteration *before, struct mfs_iteration **ret,
			   struct mfs_error *err)
{
	const struct mfs_chain_version *v = c->version;
	int rc;

	*ret = before;
	if (before && before->stamp == v->stamp)
		return 0;
	rc = v->path ? mfs_iteration_look_hf(v->path, c->name, &v->options, root->keeper, ret, err)
		     : mfs_iteration_refuse(root->source, c->name, &v->options, root->keeper,
					    v->why, ret, err);
	if (rc)
		return rc;
	(*ret)->number = c->number;
	(*ret)->stamp = v->stamp;
	return 0;
}

/* Looks at one iteration. *ret is NULL if it is gone. */
static int look_at(struct mfs_root *root, const struct candidate *c, struct mfs_iteration *before,
		   struct mfs_iteration **ret, struct mfs_error *err)
{
	const bool below = root->kind == SOURCE_ROOT;
	const char *slash = below ? "/" : "", *name = below ? c->name : "";
	char path[PATH_MAX], text[128];
	struct mfs_iteration *it = NULL;
	int rc;

	if ((size_t)snprintf(path, sizeof(path), "%s%s%s", root->source, slash, name) >=
	    sizeof(path))
		return mfs_fail(err, -ENAMETOOLONG, "path of %s is too long", c->name);
	if (root->kind == SOURCE_CHAIN)
		rc = look_at_version(root, c, before, &it, err);
	else if (root->kind == SOURCE_HF)
		rc = mfs_iteration_look_hf(path, c->name, &root->options, root->keeper, &it, err);
	else
		rc = mfs_iteration_look(
			path, c->name, c->number, &root->options, root->keeper,
			mfs_tracker_holds(&root->tracker, c->number, text, sizeof(text)), before,
			&it, err);
	if (rc && rc != -ENOENT)
		return rc;
	if (it && it != before) {
		it->older = root->iterations;
		root->iterations = it;
	}
	*ret = it;
	return 0;
}

static void explain_no_latest(const struct mfs_tracker *t, const struct mfs_root_snapshot *s,
			      char *text, size_t size)
{
	const struct mfs_iteration *it = s->count ? s->iterations[0] : NULL;
	char name[32] = "release";

	if (it && it->hf && s->count == 1) {
		snprintf(text, size, "%s", it->reason);
		return;
	}

	if (t->no_file) {
		snprintf(text, size, "%s is not a regular file", MFS_TRACKER_FILE);
		return;
	}
	if (t->kind == MFS_TRACKER_BAD) {
		snprintf(text, size, "%s says '%s', which is neither a number nor 'release'",
			 MFS_TRACKER_FILE, t->text);
		return;
	}
	if (t->kind == MFS_TRACKER_NONE) {
		it = s->count == 1 ? s->iterations[0] : NULL;
		snprintf(text, size, "%s%s%s", it ? it->name : "", it ? " is incomplete: " : "",
			 it	    ? it->reason
			 : s->count ? "no iteration is complete"
				    : "no iteration was saved yet");
		return;
	}
	if (t->kind == MFS_TRACKER_NUMBER)
		snprintf(name, sizeof(name), "iter_%07lld", (long long)t->number);
	it = find_number(s, t->number);
	if (it)
		snprintf(text, size, "%s, which the tracker names, is incomplete: %s", it->name,
			 it->reason);
	else
		snprintf(text, size, "the tracker says '%s', but there is no directory %s", t->text,
			 name);
}

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

static bool same_snapshot(const struct mfs_root_snapshot *a, const struct mfs_root_snapshot *b)
{
	return a && a->count == b->count && a->latest == b->latest &&
	       same_text(a->latest_reason, b->latest_reason) && same_text(a->tracker, b->tracker) &&
	       (!a->count ||
		!memcmp(a->iterations, b->iterations, a->count * sizeof(*a->iterations)));
}

static void free_snapshot(struct held_snapshot *s)
{
	mfs_arena_release(&s->arena);
	free(s);
}

static bool may_be_latest(const struct mfs_tracker *t, const struct mfs_iteration *it, bool found)
{
	if (it->reason)
		return false;
	if (t->kind == MFS_TRACKER_NONE)
		return !found;
	return t->kind != MFS_TRACKER_BAD && it->number == t->number;
}

/* Looks at the newest iteration first, and closes each checkpoint at once except the latest's. So a
 * root of a hundred iterations never has them all in memory. */
static int look_at_all(struct mfs_root *root, const struct candidates *c,
		       const struct mfs_root_snapshot *before, struct mfs_root_snapshot *now,
		       struct mfs_error *err)
{
	struct mfs_iteration **list = now->iterations;
	uint32_t count = 0;
	int rc;

	for (size_t i = c->count; i--;) {
		list[i] = NULL;
		rc = look_at(root, &c->list[i], find(before, c->list[i].name), &list[i], err);
		if (rc)
			return rc;
		if (!list[i])
			continue;
		if (may_be_latest(&root->tracker, list[i], now->latest))
			now->latest = list[i];
		mfs_iteration_end_check(list[i], now->latest == list[i]);
	}
	for (size_t i = 0; i < c->count; i++)
		if (list[i])
			list[count++] = list[i];
	now->count = count;
	return 0;
}

static int fill_snapshot(struct mfs_root *root, const struct candidates *c,
			 struct held_snapshot *now, const struct mfs_root_snapshot *before,
			 struct mfs_error *err)
{
	struct mfs_root_snapshot *s = &now->public;
	char why[1024];
	int rc;

	s->iterations = mfs_arena_array(&now->arena, c->count + 1, sizeof(*s->iterations));
	if (!s->iterations)
		return mfs_fail_nomem(err);
	rc = look_at_all(root, c, before, s, err);
	if (rc)
		return rc;
	if (root->tracker.kind != MFS_TRACKER_NONE) {
		s->tracker = mfs_arena_printf(&now->arena, "%s", root->tracker.text);
		if (!s->tracker)
			return mfs_fail_nomem(err);
	}
	if (!s->latest) {
		explain_no_latest(&root->tracker, s, why, sizeof(why));
		s->latest_reason = mfs_arena_printf(&now->arena, "%s", why);
		if (!s->latest_reason)
			return mfs_fail_nomem(err);
	}
	return 0;
}

static int list_single(const struct mfs_root *root, struct candidates *c, struct mfs_error *err)
{
	const char *name = strrchr(root->source, '/') + 1;
	int64_t number;
	struct stat st;

	if (!mfs_iteration_number_of_any(name, &number))
		number = MFS_RELEASE;
	if (stat(root->source, &st))
		return mfs_fail_errno(err, "'%s'", root->source);
	return add_candidate(c, *name ? name : "checkpoint", number) ? mfs_fail_nomem(err) : 0;
}

static int list_versions(struct mfs_root *root, struct candidates *c, struct mfs_error *err)
{
	const struct mfs_chain_version **versions;
	uint32_t count;
	int rc = mfs_chain_look(root->chain, &versions, &count, err);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < count && !rc; i++) {
		char name[32];

		snprintf(name, sizeof(name), "iter_%07u", versions[i]->number);
		rc = add_candidate(c, name, versions[i]->number);
		if (!rc)
			c->list[c->count - 1].version = versions[i];
	}
	free(versions);
	return rc ? mfs_fail_nomem(err) : 0;
}

/* Called at every look, since a directory may be deleted file by file. */
static void let_go_of_missing(const struct mfs_root *root, const struct mfs_root_snapshot *now)
{
	for (struct mfs_iteration *it = root->iterations; it; it = it->older) {
		bool shown = false;

		for (uint32_t i = 0; i < now->count && !shown; i++)
			shown = it == now->iterations[i];
		if (!shown)
			mfs_iteration_let_go(it);
	}
}

/* SOURCE cannot be read. The tree stays, but unused files are closed, so that deleted ones give
 * their disk space back. */
static void close_idle(const struct mfs_root *root)
{
	for (struct mfs_iteration *it = root->iterations; it; it = it->older)
		mfs_iteration_close_idle(it);
}

static int64_t source_mtime(const struct mfs_root *root)
{
	char tracker[PATH_MAX];
	struct stat st;
	int64_t ns = mfs_root_stat(root, &st) ? 0 : mfs_ns(st.st_mtim);

	snprintf(tracker, sizeof(tracker), "%s/%s", root->source, MFS_TRACKER_FILE);
	if (!stat(tracker, &st) && mfs_ns(st.st_mtim) > ns)
		ns = mfs_ns(st.st_mtim);
	return ns;
}

/* What is there now, in *ret, which is the caller's. */
static int look_once(struct mfs_root *root, const struct mfs_root_snapshot *before,
		     struct held_snapshot **ret, struct mfs_error *err)
{
	struct candidates c = {0};
	int rc = 0;

	/* The tracker is read first: the iteration that it names is then complete when the
	 * directory is listed. */
	if (root->kind == SOURCE_ROOT) {
		mfs_tracker_read(root->source, &root->tracker);
		rc = list_candidates(root->source, &c, err);
	} else if (root->kind == SOURCE_CHAIN) {
		rc = list_versions(root, &c, err);
	} else if (root->kind != SOURCE_DATA) {
		rc = list_single(root, &c, err);
	}
	if (rc == -ENOENT)
		close_idle(root);
	if (!rc && !(*ret = calloc(1, sizeof(**ret))))
		rc = mfs_fail_nomem(err);
	if (!rc)
		rc = fill_snapshot(root, &c, *ret, before, err);
	free_candidates(&c);
	return rc;
}

/* The iteration that the tracker named is gone, for the tracker names another by now: a run saves
 * and deletes faster than this looks. */
static bool overtaken(const struct mfs_root *root, const struct mfs_root_snapshot *now)
{
	struct mfs_tracker t = root->tracker;

	if (now->latest || root->kind != SOURCE_ROOT || t.kind != MFS_TRACKER_NUMBER)
		return false;
	mfs_tracker_read(root->source, &t);
	return t.kind == MFS_TRACKER_NUMBER && t.number != root->tracker.number;
}

/* Looks at SOURCE, under the refresh lock. */
static int look(struct mfs_root *root, struct mfs_error *err)
{
	struct held_snapshot *old = atomic_load(&root->snapshot), *now = NULL;
	const struct mfs_root_snapshot *before = old ? &old->public : NULL;
	int rc, tries = 0;

	do {
		if (now)
			free_snapshot(now);
		now = NULL;
		rc = look_once(root, before, &now, err);
	} while (!rc && overtaken(root, &now->public) && ++tries < MOST_LOOKS);
	if (rc)
		goto done;
	let_go_of_missing(root, &now->public);
	if (same_snapshot(before, &now->public))
		goto done;
	now->older = old;
	atomic_store(&root->mtime_ns, source_mtime(root));
	atomic_store(&root->snapshot, now);
	now = NULL;
done:
	if (now)
		free_snapshot(now);
	atomic_store(&root->looked, mfs_now_ns());
	return rc;
}

int mfs_root_refresh(struct mfs_root *root, bool force, struct mfs_error *err)
{
	int rc;

	if ((root->kind == SOURCE_HF || root->kind == SOURCE_DATA) && atomic_load(&root->snapshot))
		return 0;
	if (force) {
		pthread_mutex_lock(&root->refresh);
	} else if (mfs_now_ns() - atomic_load(&root->looked) < MIN_INTERVAL ||
		   pthread_mutex_trylock(&root->refresh)) {
		return 0;
	}
	rc = look(root, err);
	pthread_mutex_unlock(&root->refresh);
	return rc;
}

/* A source on another machine is shown as a directory of this one. */
static int open_mirror(struct mfs_root *root, const char *source, struct mfs_error *err)
{
	const struct mfs_view_options *opt = &root->options;
	const struct mfs_mirror_options mirror = {.cache = opt->cache,
						  .cache_size = opt->cache_size,
						  .timeout = opt->timeout,
						  .open_timeout = opt->open_timeout,
						  .private_redirects = opt->private_redirects};
	int rc;

	root->url = strdup(source);
	if (!root->url)
		return mfs_fail_nomem(err);
	rc = mfs_mirror_open(source, &mirror, &root->mirror, err);
	if (!rc && !(root->source = strdup(mfs_mirror_path(root->mirror))))
		rc = mfs_fail_nomem(err);
	return rc;
}

static int copy_options(struct mfs_root *root, const struct mfs_view_options *opt)
{
	root->options = *opt;
	if (opt->arch && !(root->arch = strdup(opt->arch)))
		return -ENOMEM;
	if (opt->ref && !(root->ref = realpath(opt->ref, NULL)) && !(root->ref = strdup(opt->ref)))
		return -ENOMEM;
	root->options.arch = root->arch;
	if (opt->tokenizer && !(root->tokenizer = realpath(opt->tokenizer, NULL)) &&
	    !(root->tokenizer = strdup(opt->tokenizer)))
		return -ENOMEM;
	root->options.ref = root->ref;
	root->options.tokenizer = root->tokenizer;
	return 0;
}

static bool has_candidates(const char *source, int *ret_rc, struct mfs_error *err)
{
	struct candidates c = {0};
	bool found;

	*ret_rc = list_candidates(source, &c, err);
	found = c.count > 0;
	free_candidates(&c);
	return found;
}

/* True for files that a run may write before its first save: Megatron's progress log, files of
 * TensorBoard and Weights & Biases, and what jobs and file systems leave. */
static bool is_log(const char *name)
{
	static const char *const patterns[] = {
		".*",	 "progress.txt", "tensorboard*", "events.out.tfevents.*",
		"wandb", "logs",	 "*.log",	 "*.out",
		"*.err", "lost+found",
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(patterns); i++)
		if (!fnmatch(patterns[i], name, 0))
			return true;
	return false;
}

static bool holds_logs_alone(const char *source)
{
	DIR *dir = mfs_opendir(source);
	struct dirent *d;
	bool alone = dir;

	while (alone && (d = readdir(dir)))
		alone = is_log(d->d_name);
	if (dir)
		closedir(dir);
	return alone;
}

/* The file of a program that saves each rank's part of a transformers model (OSLO's
 * save_parallelized and its like). Accelerate writes none: it calls Megatron-LM's own
 * save_checkpoint. */
static bool is_rank_part(const char *name)
{
	return !fnmatch("pytorch_model_tp_[0-9]*_pp_[0-9]*.bin", name, 0);
}

static int refuse_rank_parts(const char *source, struct mfs_error *err)
{
	DIR *dir = mfs_opendir(source);
	struct dirent *d;
	int rc = 0;

	while (dir && !rc && (d = readdir(dir)))
		if (is_rank_part(d->d_name))
			rc = mfs_fail(err, -ENOTSUP,
				      "'%s': %s is a rank's part of a transformers model, and not "
				      "Megatron's: let the program that wrote it merge its parts "
				      "(OSLO: save_pretrained with merge_checkpoints=True), and "
				      "name that directory",
				      source, d->d_name);
	if (dir)
		closedir(dir);
	return rc;
}

/* Says why SOURCE is none that can be shown. */
static int refuse(const struct mfs_root *root, struct mfs_error *err)
{
	char adapter[PATH_MAX];
	int rc = mfs_verl_refuse(root->source, err);

	if (!rc)
		rc = refuse_rank_parts(root->source, err);
	if (rc)
		return rc;
	snprintf(adapter, sizeof(adapter), "%s/adapter_config.json", root->source);
	if (!access(adapter, F_OK))
		return mfs_fail(err, -ENOTSUP,
				"'%s' is a LoRA adapter of PEFT (adapter_config.json), and not a "
				"model: mount its model, with -o adapter=DIR",
				root->source);
	return mfs_fail(
		err, -ENODATA,
		"'%s' holds no Megatron checkpoint: looked for %s, iter_NNNNNNN/, "
		"global_step_N/ or release/ (a checkpoint root), for .metadata, metadata.json, "
		"*.distcp, run_config.yaml or mp_rank_*/ (one iteration), for config.json "
		"with model*.safetensors or pytorch_model*.bin (a HuggingFace model), for "
		"weight_vNNNNNN/ (deltas), and for *.idx with *.bin or *.arrow (datasets)",
		root->source, MFS_TRACKER_FILE);
}

/* What a directory is by its names. -ENODATA: none of them says. */
static int kind_of(const char *source, enum source_kind *ret, struct mfs_error *err)
{
	char tracker[PATH_MAX];
	uint32_t only;
	int rc = 0;

	snprintf(tracker, sizeof(tracker), "%s/%s", source, MFS_TRACKER_FILE);
	if (mfs_iteration_looks_like_one(source))
		*ret = SOURCE_ITERATION;
	else if (!access(tracker, F_OK))
		*ret = SOURCE_ROOT;
	else if (mfs_hf_ckpt_looks_like_one(source))
		*ret = SOURCE_HF;
	else if (mfs_delta_looks_like_chain(source, &only))
		*ret = SOURCE_CHAIN;
	else if (has_candidates(source, &rc, err))
		*ret = SOURCE_ROOT;
	else if (!rc && mfs_data_looks_like_one(source))
		*ret = SOURCE_DATA;
	else
		return rc ? rc : -ENODATA;
	return 0;
}

int mfs_root_look(const char *dir, enum mfs_root_kind *ret)
{
	enum source_kind kind = SOURCE_DATA;
	const int rc = kind_of(dir, &kind, NULL);

	*ret = MFS_ROOT_NONE;
	if (!rc)
		*ret = kind == SOURCE_DATA ? MFS_ROOT_DATA : MFS_ROOT_MODEL;
	return rc == -ENODATA || rc == -ENOENT ? 0 : rc;
}

bool mfs_root_looks_like_one(const char *dir)
{
	enum source_kind kind;

	return !kind_of(dir, &kind, NULL);
}

/* Finds out what SOURCE is. An empty directory with the name of an iteration is one: its save may
 * begin soon. */
static int detect(struct mfs_root *root, struct mfs_error *err)
{
	const char *base = strrchr(root->source, '/') + 1;
	int64_t number;
	int rc = kind_of(root->source, &root->kind, err);

	if (rc && rc != -ENODATA)
		return rc;
	if (rc && mfs_iteration_number_of_any(base, &number))
		root->kind = SOURCE_ITERATION;
	else if (rc && root->options.may_be_empty && holds_logs_alone(root->source))
		root->kind = SOURCE_ROOT;
	else if (rc)
		return refuse(root, err);
	if (root->kind == SOURCE_CHAIN)
		return mfs_chain_open(root->source, &root->options, &root->chain, err);
	if (root->options.base && !root->options.base_of_either)
		return mfs_fail(err, -EINVAL,
				"base=%s: '%s' is no directory of deltas (weight_v000001, ...), "
				"and changes no base",
				root->options.base, root->source);
	if (root->kind != SOURCE_HF || root->options.ref)
		return 0;
	if (root->options.tokenizer)
		return mfs_fail(err, -EINVAL,
				"tokenizer=%s: a HuggingFace directory gives the tokenizer, too: "
				"leave it out",
				root->options.tokenizer);
	/* Files that are shown unchanged come from there. */
	root->options.ref = root->source;
	return 0;
}

static int resolve(struct mfs_root *root, const char *source, struct mfs_error *err)
{
	enum mfs_plain_text_kind text;
	struct stat st;
	int rc = mfs_mirror_is_url(source) ? open_mirror(root, source, err)
					   : mfs_data_path(source, &root->source, err);

	if (rc)
		return rc;
	if (mfs_root_stat(root, &st))
		return mfs_fail_errno(err, "'%s'", source);
	if (S_ISDIR(st.st_mode))
		return 0;
	root->kind = SOURCE_DATA;
	if (mfs_data_looks_like_one(root->source))
		return 0;
	text = mfs_plain_text_file(root->source);
	if (text)
		return mfs_fail(err, -ENOTSUP,
				"'%s' is %s, and no tokens: make a dataset of it first, with "
				"its tokenizer: %s",
				source, mfs_plain_text_name(text), mfs_plain_text_remedy(text));
	return mfs_fail(err, -ENOTDIR,
			"'%s' is not a directory: name a checkpoint root, one iteration, "
			"a HuggingFace model or a dataset",
			source);
}

/* Opens the datasets in SOURCE, and those that options add. */
static int open_data(struct mfs_root *root, struct mfs_error *err)
{
	const bool alone = root->kind == SOURCE_DATA;

	if (!root->options.data)
		root->options.data = &root->no_data;
	if (!alone && !root->options.data->path_count)
		return 0;
	return mfs_data_open(alone ? root->source : NULL, root->options.data, &root->data, err);
}

int mfs_root_named(const char *source, char **ret, struct mfs_error *err)
{
	if (!mfs_mirror_is_url(source))
		return mfs_data_path(source, ret, err);
	*ret = strdup(source);
	return *ret ? 0 : mfs_fail_nomem(err);
}

int mfs_root_open(const char *source, const struct mfs_view_options *opt, struct mfs_root **ret,
		  struct mfs_error *err)
{
	return mfs_root_open_with(source, opt, NULL, ret, err);
}

int mfs_root_open_with(const char *source, const struct mfs_view_options *opt,
		       struct mfs_keeper *keeper, struct mfs_root **ret, struct mfs_error *err)
{
	struct mfs_root *root = calloc(1, sizeof(*root));
	int rc;

	if (!root)
		return mfs_fail_nomem(err);
	pthread_mutex_init(&root->refresh, NULL);
	root->keeper_is_own = !keeper;
	root->keeper = keeper ? keeper : mfs_keeper_new(MFS_KEEP_OPEN);
	rc = root->keeper ? copy_options(root, opt) : -ENOMEM;
	if (rc)
		rc = mfs_fail_nomem(err);
	if (!rc)
		rc = resolve(root, source, err);
	if (!rc && root->kind != SOURCE_DATA)
		rc = detect(root, err);
	if (!rc)
		rc = open_data(root, err);
	if (!rc)
		rc = mfs_root_refresh(root, true, err);
	if (rc) {
		mfs_root_free(root);
		return rc;
	}
	*ret = root;
	return 0;
}

void mfs_root_free(struct mfs_root *root)
{
	struct held_snapshot *s;

	if (!root)
		return;
	while ((s = atomic_load(&root->snapshot))) {
		atomic_store(&root->snapshot, s->older);
		free_snapshot(s);
	}
	while (root->iterations) {
		struct mfs_iteration *it = root->iterations;

		root->iterations = it->older;
		mfs_iteration_free(it);
	}
	if (root->keeper_is_own)
		mfs_keeper_free(root->keeper);
	pthread_mutex_destroy(&root->refresh);
	mfs_data_free(root->data);
	mfs_chain_free(root->chain);
	mfs_mirror_free(root->mirror);
	free(root->url);
	free(root->arch);
	free(root->ref);
	free(root->tokenizer);
	free(root->source);
	free(root);
}

const char *mfs_root_source(const struct mfs_root *root)
{
	return root->url ? root->url : root->source;
}

const struct mfs_root_snapshot *mfs_root_snapshot(struct mfs_root *root)
{
	return &atomic_load(&root->snapshot)->public;
}

int mfs_root_path(const struct mfs_root *root, char *ret, size_t size)
{
	struct stat st;

	snprintf(ret, size, "%s", root->source);
	if (!stat(ret, &st))
		return 0;
	snprintf(ret, size, "%s.idx", root->source);
	return stat(ret, &st);
}

int mfs_root_stat(const struct mfs_root *root, struct stat *ret)
{
	char path[PATH_MAX];

	return mfs_root_path(root, path, sizeof(path)) ? -1 : stat(path, ret);
}

int64_t mfs_root_mtime(const struct mfs_root *root)
{
	return atomic_load(&root->mtime_ns);
}

bool mfs_root_remote(const struct mfs_root *root, struct mfs_cache_stats *ret)
{
	if (root->mirror)
		*ret = mfs_mirror_stats(root->mirror);
	return root->mirror;
}

void mfs_root_rest(struct mfs_root *root)
{
	if (root->mirror)
		mfs_mirror_rest(root->mirror);
}

int mfs_root_statvfs(const struct mfs_root *root, struct statvfs *ret)
{
	char idx[PATH_MAX];

	if (!statvfs(root->source, ret))
		return 0;
	snprintf(idx, sizeof(idx), "%s.idx", root->source);
	return statvfs(idx, ret) ? -errno : 0;
}

bool mfs_root_has_iterations(const struct mfs_root *root)
{
	return root->kind == SOURCE_ROOT || root->kind == SOURCE_ITERATION ||
	       root->kind == SOURCE_CHAIN;
}

bool mfs_root_has_model(const struct mfs_root *root)
{
	return root->kind != SOURCE_DATA;
}

struct mfs_data *mfs_root_data(const struct mfs_root *root)
{
	return root->data;
}
