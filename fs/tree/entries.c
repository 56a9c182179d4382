/* Entries of directories that change: those of the mount's root and of runs with iterations. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "fs/source/root_changes.h"
#include "fs/tree/tree_i.h"

struct mfs_dir *mfs_tree_new_top_dir(uint32_t capacity)
{
	const size_t room = (size_t)capacity + 1;
	struct mfs_dir *dir = calloc(1, sizeof(*dir) + 2 * room * sizeof(struct mfs_node *));

	if (!dir)
		return NULL;
	dir->entries = (struct mfs_node **)(dir + 1);
	dir->by_name = dir->entries + room;
	dir->holders = 1;
	return dir;
}

void mfs_tree_drop_top_dir(struct mfs_tree *tree, struct mfs_dir *dir)
{
	if (!dir || --dir->holders)
		return;
	for (uint32_t i = 0; i < dir->count; i++)
		mfs_tree_unkeep(tree, dir->entries[i], 1);
	free(dir);
}

struct mfs_dir *mfs_tree_top_dir(const struct mfs_node *top)
{
	return (struct mfs_dir *)atomic_load(&top->dir);
}

static struct mfs_branch *find_iteration(const struct mfs_tree_run *run,
					 const struct mfs_iteration *it)
{
	struct mfs_branch *b = run->iterations;

	while (b && b->it != it)
		b = b->next;
	return b;
}

static int new_iteration(struct mfs_tree *tree, struct mfs_tree_run *run, struct mfs_iteration *it,
			 struct mfs_branch **ret, struct mfs_error *err)
{
	struct mfs_branch *b = calloc(1, sizeof(*b));
	int rc;

	if (!b)
		return mfs_fail_nomem(err);
	b->it = it;
	b->run = run;
	rc = mfs_tree_new_iteration(tree, b, err);
	if (rc) {
		mfs_tree_free_branch(tree, b);
		return rc;
	}
	mfs_tree_add_branch(tree, b);
	*ret = b;
	return 0;
}

/* Adds the iteration's directory or the link to it. It keeps what it had, with open and cached
 * files, as long as somebody knows it. */
static int add_shown(struct mfs_tree *tree, struct mfs_tree_run *run, struct mfs_iteration *it,
		     bool latest, struct mfs_dir *dir, struct mfs_error *err)
{
	struct mfs_branch *b = find_iteration(run, it);
	struct mfs_node *node;
	int rc = b ? 0 : new_iteration(tree, run, it, &b, err);

	if (rc)
		return rc;
	mfs_tree_keep(b->top);
	if (latest && !b->latest)
		rc = mfs_tree_new_latest(tree, b, err);
	node = latest ? b->latest : b->top;
	if (rc) {
		mfs_tree_unkeep(tree, b->top, 1);
		return rc;
	}
	mfs_tree_add_entry(dir, node);
	if (node->mtime_ns > dir->mtime_ns)
		dir->mtime_ns = node->mtime_ns;
	return 0;
}

/* NFS clients and servers take a directory of the same time for one with the same entries, so the
 * time is at least that of SOURCE. */
static int fill_top(struct mfs_tree *tree, struct mfs_tree_run *run,
		    const struct mfs_root_snapshot *snapshot, struct mfs_dir *dir,
		    struct mfs_error *err)
{
	int rc = 0;

	dir->mtime_ns = run->mtime_ns;
	if (run->data) {
		mfs_tree_add_entry(dir, run->data);
		if (run->data->mtime_ns > dir->mtime_ns)
			dir->mtime_ns = run->data->mtime_ns;
	}
	if (snapshot->latest)
		rc = add_shown(tree, run, snapshot->latest, true, dir, err);
	for (uint32_t i = 0; i < snapshot->count && !rc; i++)
		if (!mfs_iteration_reason(snapshot->iterations[i]))
			rc = add_shown(tree, run, snapshot->iterations[i], false, dir, err);
	return rc;
}

static int build_top(struct mfs_tree *tree, struct mfs_tree_run *run,
		     const struct mfs_root_snapshot *snapshot, struct mfs_error *err)
{
	struct mfs_dir *dir = mfs_tree_new_top_dir(snapshot->count + 2),
		       *before = mfs_tree_top_dir(run->top);
	int rc = dir ? fill_top(tree, run, snapshot, dir, err) : mfs_fail_nomem(err);

	if (rc) {
		mfs_tree_drop_top_dir(tree, dir);
		return rc;
	}
	mfs_tree_publish(run->top, dir);
	mfs_tree_drop_top_dir(tree, before);
	return 0;
}

static int build_flat_top(struct mfs_tree *tree, struct mfs_tree_run *run,
			  const struct mfs_root_snapshot *snapshot, struct mfs_error *err)
{
	const bool model = mfs_root_has_model(run->root);

	if (model && !snapshot->latest)
		return mfs_fail(err, -ENODATA, "'%s' cannot be shown: %s",
				mfs_root_source(run->root), snapshot->latest_reason);
	run->top->mtime_ns = model ? mfs_iteration_mtime(snapshot->latest) : run->data->mtime_ns;
	return mfs_tree_fill_flat(tree, run, model ? snapshot->latest : NULL, run->top->mtime_ns,
				  err);
}

/* Whom a sentence about a run is told to, with its name in front. */
struct teller {
	const struct mfs_tree *tree;
	const struct mfs_tree_run *run;
};

static void tell(void *arg, const char *sentence)
{
	const struct teller *t = arg;
	char text[1536];

	snprintf(text, sizeof(text), "%s%s%s", t->run->name, *t->run->name ? "/" : "", sentence);
	t->tree->say(t->tree->say_arg, text);
}

static int show(struct mfs_tree *tree, struct mfs_tree_run *run,
		const struct mfs_root_snapshot **ret_before,
		const struct mfs_root_snapshot **ret_now, struct mfs_error *err)
{
	const int64_t mtime_ns = mfs_root_mtime(run->root);
	const struct mfs_root_snapshot *now = mfs_root_snapshot(run->root);
	int rc;

	*ret_before = run->shown;
	*ret_now = now;
	if (mtime_ns)
		run->mtime_ns = mtime_ns;
	if (now == run->shown)
		return 0;
	rc = run->flat ? build_flat_top(tree, run, now, err) : build_top(tree, run, now, err);
	if (!rc)
		run->shown = now;
	return rc;
}

int mfs_tree_show_run(struct mfs_tree *tree, struct mfs_tree_run *run, struct mfs_error *err)
{
	const struct mfs_root_snapshot *before, *now;
	struct teller teller = {tree, run};
	int rc;

	pthread_mutex_lock(&tree->lock);
	rc = show(tree, run, &before, &now, err);
	pthread_mutex_unlock(&tree->lock);
	if (!rc && tree->say && before && now != before)
		mfs_root_say_changes(before, now, tell, &teller);
	return rc;
}

int mfs_tree_fill_run(struct mfs_tree *tree, struct mfs_tree_run *run, struct mfs_error *err)
{
	const struct mfs_root_snapshot *before, *now;
	struct mfs_data *data = mfs_root_data(run->root);
	int rc = data ? mfs_tree_new_data(tree, run, data, err) : 0;

	run->flat = !mfs_root_has_iterations(run->root);
	return rc ? rc : show(tree, run, &before, &now, err);
}

void mfs_tree_watch(struct mfs_tree *tree, void (*say)(void *arg, const char *sentence), void *arg)
{
	tree->say_arg = arg;
	tree->say = say;
}

static int refresh_run(struct mfs_tree *tree, struct mfs_tree_run *run, struct mfs_error *err)
{
	int rc = mfs_root_refresh(run->root, false, err);

	return rc ? rc : mfs_tree_show_run(tree, run, err);
}

int mfs_tree_refresh_dir(struct mfs_tree *tree, struct mfs_node *dir, struct mfs_error *err)
{
	if (!dir->run)
		return mfs_tree_look_at_runs(tree, false, err);
	return atomic_load(&dir->dir) ? refresh_run(tree, dir->run, err) : 0;
}

int mfs_tree_refresh(struct mfs_tree *tree, struct mfs_error *err)
{
	int rc = tree->dir ? mfs_tree_look_at_runs(tree, false, err) : 0;

	return rc ? rc : mfs_tree_each_open(tree, refresh_run, err);
}
