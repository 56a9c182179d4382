/* A tree of several runs: their directories, and what is below these while they are open. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/buf.h"
#include "formats/base/clock.h"
#include "formats/base/grow.h"
#include "fs/source/readers.h"
#include "fs/source/runs.h"
#include "fs/tree/tree_i.h"
#include "fs/view/keeper.h"

#define MIN_INTERVAL 1000000000 /* ns between two looks without force */
#define ENTRY_BLOCK  1024	/* bytes: most runs are never entered */

/* ---- what is there ---- */

/* A directory in SOURCE as it was listed. */
struct found {
	char *name;
	dev_t dev;
	ino_t ino;
	int64_t mtime_ns;
};

struct listing {
	struct found *list;
	uint32_t count;
};

static void free_listing(struct listing *l)
{
	for (uint32_t i = 0; i < l->count; i++)
		free(l->list[i].name);
	free(l->list);
}

static int note(void *arg, const char *name, const struct stat *st)
{
	struct listing *l = arg;
	struct found *f;

	if (mfs_grow(&l->list, l->count))
		return -ENOMEM;
	f = &l->list[l->count];
	*f = (struct found){strdup(name), st->st_dev, st->st_ino, mfs_ns(st->st_mtim)};
	if (!f->name)
		return -ENOMEM;
	l->count++;
	return 0;
}

/* ---- their directories; under the lock ---- */

static struct mfs_branch *new_branch(struct mfs_tree_run *run, size_t block)
{
	struct mfs_branch *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->run = run;
	b->arena.block = block;
	return b;
}

void mfs_tree_free_run(struct mfs_tree *tree, struct mfs_tree_run *run)
{
	struct mfs_tree_run **at = &tree->runs;

	while (*at != run)
		at = &(*at)->next;
	*at = run->next;
	if (run->entry)
		mfs_tree_free_branch(tree, run->entry);
	free((char *)run->name);
	free(run->path);
	free(run);
}

static int new_run(struct mfs_tree *tree, const struct found *f, struct mfs_tree_run **ret,
		   struct mfs_error *err)
{
	struct mfs_tree_run *run = calloc(1, sizeof(*run));
	int rc = 0;

	if (!run)
		return mfs_fail_nomem(err);
	run->next = tree->runs;
	tree->runs = run;
	run->roots = tree->roots;
	run->dev = f->dev;
	run->ino = f->ino;
	run->name = strdup(f->name);
	run->entry = new_branch(run, ENTRY_BLOCK);
	if (asprintf(&run->path, "%s/%s", tree->dir, f->name) < 0)
		run->path = NULL;
	if (!run->name || !run->entry || !run->path)
		rc = mfs_fail_nomem(err);
	if (!rc)
		rc = mfs_tree_new_run(tree, run, err);
	if (!rc)
		rc = mfs_tree_set_readers(tree, run->top, mfs_readers_of_path(run->path), err);
	if (rc) {
		mfs_tree_free_run(tree, run);
		return rc;
	}
	*ret = run;
	return 0;
}

/* The run that was shown by that name, if it is the same directory. NULL: there is none. */
static struct mfs_tree_run *find_run(const struct mfs_dir *before, const struct found *f)
{
	struct mfs_node *node = before ? mfs_dir_find(before, f->name) : NULL;
	struct mfs_tree_run *run = node ? node->run : NULL;

	return run && run->dev == f->dev && run->ino == f->ino && !atomic_load(&run->stale) ? run
											    : NULL;
}

static int add_run(struct mfs_tree *tree, const struct mfs_dir *before, const struct found *f,
		   struct mfs_dir *dir, struct mfs_error *err)
{
	struct mfs_tree_run *run = find_run(before, f);
	int rc = run ? 0 : new_run(tree, f, &run, err);

	if (rc)
		return rc;
	if (!run->root)
		atomic_store(&run->top->dir_mtime_ns, f->mtime_ns);
	mfs_tree_keep(run->top);
	mfs_tree_add_entry(dir, run->top);
	return 0;
}

static bool is_same(const struct mfs_dir *a, const struct mfs_dir *b)
{
	return a && a->count == b->count && a->mtime_ns == b->mtime_ns &&
	       !memcmp(a->entries, b->entries, a->count * sizeof(struct mfs_node *));
}

/* Makes sentences for the log, which are logged without the lock. */
static void note_changes(const struct mfs_dir *before, const struct mfs_dir *now,
			 struct mfs_buf *out)
{
	for (uint32_t i = 0; i < before->count; i++)
		if (!mfs_dir_find(now, before->entries[i]->name))
			mfs_buf_printf(out, "%s was deleted%c", before->entries[i]->name, '\0');
	for (uint32_t i = 0; i < now->count; i++) {
		const struct mfs_node *node = now->entries[i],
				      *was = mfs_dir_find(before, node->name);

		if (was != node)
			mfs_buf_printf(out, "%s is %s%c", node->name, was ? "another one" : "new",
				       '\0');
	}
}

static int show_runs(struct mfs_tree *tree, const struct listing *l, int64_t mtime_ns,
		     struct mfs_buf *changes, struct mfs_error *err)
{
	struct mfs_dir *before = mfs_tree_top_dir(tree->top), *dir = mfs_tree_new_top_dir(l->count);
	int rc = dir ? 0 : mfs_fail_nomem(err);

	if (!rc)
		dir->mtime_ns = mtime_ns;
	for (uint32_t i = 0; !rc && i < l->count; i++)
		rc = add_run(tree, before, &l->list[i], dir, err);
	if (rc || is_same(before, dir)) {
		mfs_tree_drop_top_dir(tree, dir);
		return rc;
	}
	mfs_tree_publish(tree->top, dir);
	if (before)
		note_changes(before, dir, changes);
	mfs_tree_drop_top_dir(tree, before);
	return 0;
}

static void say_changes(const struct mfs_tree *tree, const struct mfs_buf *changes)
{
	for (size_t at = 0; at < changes->len; at += strlen(changes->data + at) + 1)
		tree->say(tree->say_arg, changes->data + at);
}

static int look(struct mfs_tree *tree, struct mfs_error *err)
{
	struct mfs_buf changes = {0};
	struct listing l = {0};
	struct stat st;
	int rc = stat(tree->dir, &st) ? -errno : 0;

	if (!rc)
		rc = mfs_runs_each(tree->dir, note, &l);
	if (rc) {
		mfs_error_set(err, rc, "cannot read directory '%s': %s", tree->dir, strerror(-rc));
	} else {
		pthread_mutex_lock(&tree->lock);
		rc = show_runs(tree, &l, mfs_ns(st.st_mtim), &changes, err);
		pthread_mutex_unlock(&tree->lock);
	}
	if (tree->say && !changes.failed)
		say_changes(tree, &changes);
	mfs_buf_release(&changes);
	free_listing(&l);
	return rc;
}

int mfs_tree_look_at_runs(struct mfs_tree *tree, bool force, struct mfs_error *err)
{
	int rc;

	if (force)
		pthread_mutex_lock(&tree->looking);
	else if (mfs_now_ns() - atomic_load(&tree->looked_ns) < MIN_INTERVAL ||
		 pthread_mutex_trylock(&tree->looking))
		return 0;
	rc = look(tree, err);
	atomic_store(&tree->looked_ns, mfs_now_ns());
	pthread_mutex_unlock(&tree->looking);
	return rc;
}

/* ---- what is in them ---- */

/* Nobody else opens it meanwhile, and the caller knows it. Under the lock. */
static int fill(struct mfs_tree *tree, struct mfs_tree_run *run, struct mfs_shared_root *shared,
		struct mfs_error *err)
{
	int rc;

	run->content = new_branch(run, 0);
	if (!run->content) {
		mfs_roots_drop(tree->roots, shared);
		return mfs_fail_nomem(err);
	}
	run->content->known = 1;
	run->shared = shared;
	run->root = shared->root;
	mfs_tree_keep(run->top);
	rc = mfs_tree_fill_run(tree, run, err);
	if (rc)
		mfs_tree_close_run(tree, run);
	return rc;
}

int mfs_tree_open_run(struct mfs_tree *tree, struct mfs_tree_run *run, struct mfs_error *err)
{
	struct mfs_shared_root *shared;
	int rc = mfs_roots_hold(tree->roots, run->path, &tree->options, &shared, err);

	if (rc)
		return rc;
	pthread_mutex_lock(&tree->lock);
	if (run->root)
		mfs_roots_drop(tree->roots, shared);
	else
		rc = fill(tree, run, shared, err);
	pthread_mutex_unlock(&tree->lock);
	return rc;
}

void mfs_tree_close_run(struct mfs_tree *tree, struct mfs_tree_run *run)
{
	struct mfs_node *top = run->top;
	struct mfs_dir *dir = mfs_tree_top_dir(top);

	atomic_store(&top->dir, NULL);
	atomic_store(&top->subdirs, 0);
	if (!run->flat)
		free(dir); /* all that it lists goes with it */
	while (run->iterations)
		mfs_tree_remove_branch(tree, run->iterations);
	mfs_tree_free_branch(tree, run->content);
	top->views = NULL;
	top->view = NULL;
	top->iteration = NULL;
	top->owner = NULL;
	top->version = top->stamp = 0;
	run->content = NULL;
	run->data = NULL;
	run->shown = NULL;
	run->root = NULL;
	run->flat = false;
	mfs_roots_drop(tree->roots, run->shared);
	run->shared = NULL;
	mfs_tree_unkeep(tree, top, 1);
}

void mfs_tree_suspect_run(struct mfs_tree_run *run)
{
	if (!run->shared || !run->flat)
		return;
	mfs_roots_stale(run->roots, run->shared);
	atomic_store(&run->stale, true);
}

/* ---- all of them ---- */

/* Open runs, each of them known. NULL: no memory, or none is open. */
static struct mfs_tree_run **know_open(struct mfs_tree *tree, uint32_t *ret_count)
{
	uint32_t room = 0, count = 0;
	struct mfs_tree_run **list;

	pthread_mutex_lock(&tree->lock);
	for (const struct mfs_tree_run *run = tree->runs; run; run = run->next)
		room += run->root != NULL;
	list = room ? calloc(room, sizeof(struct mfs_tree_run *)) : NULL;
	for (struct mfs_tree_run *run = tree->runs; list && run; run = run->next) {
		if (!run->root)
			continue;
		mfs_tree_meet(run->top);
		list[count++] = run;
	}
	pthread_mutex_unlock(&tree->lock);
	*ret_count = count;
	return list;
}

/* A run whose directory is gone is as it was, until it is forgotten. */
int mfs_tree_each_open(struct mfs_tree *tree,
		       int (*each)(struct mfs_tree *tree, struct mfs_tree_run *run,
				   struct mfs_error *err),
		       struct mfs_error *err)
{
	struct mfs_tree_run **list;
	uint32_t count;
	int rc = 0;

	if (!tree->dir)
		return each(tree, &tree->one, err);
	list = know_open(tree, &count);
	for (uint32_t i = 0; i < count; i++) {
		struct mfs_error why;
		const int failed = each(tree, list[i], &why);

		if (failed && failed != -ENOENT && !rc) {
			rc = failed;
			*err = why;
		}
		mfs_tree_forget(tree, list[i]->top, 1);
	}
	free(list);
	return rc;
}

int mfs_tree_new_runs(const char *dir, const struct mfs_view_options *options,
		      struct mfs_tree **ret, struct mfs_error *err)
{
	struct mfs_tree *tree = mfs_tree_alloc();
	int rc = 0;

	if (!tree)
		return mfs_fail_nomem(err);
	tree->options = *options;
	tree->dir = strdup(dir);
	tree->keeper = mfs_keeper_new(MFS_KEEP_OPEN);
	tree->roots = tree->keeper ? mfs_roots_new(0, NULL, tree->keeper) : NULL;
	if (!tree->dir || !tree->roots)
		rc = mfs_fail_nomem(err);
	if (!rc)
		rc = mfs_tree_new_top(tree, NULL, &tree->top, err);
	if (!rc)
		rc = mfs_tree_set_readers(tree, tree->top, mfs_readers_of_path(dir), err);
	if (!rc)
		rc = mfs_tree_look_at_runs(tree, true, err);
	if (rc) {
		mfs_tree_free(tree);
		return rc;
	}
	tree->top->moves = true;
	*ret = tree;
	return 0;
}
