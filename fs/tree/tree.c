#include "fs/tree/tree.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "formats/base/buf.h"
#include "formats/base/clock.h"
#include "formats/megatron/tracker.h"
#include "fs/tree/tree_i.h"
#include "fs/source/readers.h"
#include "fs/source/root_changes.h"
#include "fs/view/keeper.h"
#include "fs/view/views.h"

#define BLOCK_SIZE (1 << 20) /* st_blksize: the kernel's largest request */

/* ---- branches; under the lock ---- */

static struct mfs_branch **branch_list(const struct mfs_tree *tree, uint64_t ino)
{
	return &tree->branches[ino % MFS_BRANCHES];
}

static struct mfs_branch **list_of(struct mfs_tree *tree, const struct mfs_branch *b)
{
	return b->it ? &b->run->iterations : branch_list(tree, b->top->ino);
}

void mfs_tree_free_branch(struct mfs_tree *tree, struct mfs_branch *b)
{
	for (const struct mfs_node *n = b->nodes; n; n = n->next) {
		mfs_inode_release(&tree->inodes, n->ino);
		mfs_node_ids_remove(&tree->ids, n);
	}
	atomic_fetch_sub(&tree->bytes, b->bytes);
	atomic_fetch_sub(&tree->files, b->files);
	for (uint32_t i = 0; i < b->readers_count; i++)
		mfs_readers_free(b->readers[i]);
	free(b->readers);
	mfs_arena_release(&b->arena);
	free(b);
}

static void add_branch(struct mfs_tree *tree, struct mfs_branch *b)
{
	struct mfs_branch **list = list_of(tree, b);

	b->next = *list;
	*list = b;
	if (b->in)
		b->in->known++;
	if (!b->it)
		tree->branch_count++;
}

/* Without memory for its name it is not found again by its id. */
static void remember(struct mfs_tree *tree, const struct mfs_branch *b)
{
	struct mfs_forgotten *f = &tree->forgotten[tree->next_forgotten++ % MFS_FORGOTTEN];

	free(f->name);
	f->name = strdup(b->top->name);
	f->id = b->top->id;
	f->layouts = b->top->parent->id;
}

void mfs_tree_remove_branch(struct mfs_tree *tree, struct mfs_branch *b)
{
	struct mfs_branch **p = list_of(tree, b);

	while (*p != b)
		p = &(*p)->next;
	*p = b->next;
	if (!b->it) {
		remember(tree, b);
		tree->branch_count--;
	}
	mfs_tree_free_branch(tree, b);
}

void mfs_tree_keep(const struct mfs_node *node)
{
	if (node->branch)
		node->branch->known++;
}

/* Nobody knows a branch whose last node is forgotten; then it does not know the one around it. */
void mfs_tree_unkeep(struct mfs_tree *tree, const struct mfs_node *node, uint64_t times)
{
	struct mfs_branch *b = node->branch;

	if (b)
		b->known -= times;
	while (b && !b->known) {
		struct mfs_branch *in = b->in;

		if (b == b->run->entry) {
			mfs_tree_free_run(tree, b->run);
			return;
		}
		mfs_tree_remove_branch(tree, b);
		b = in;
		if (b)
			b->known--;
	}
}

void mfs_tree_meet(const struct mfs_node *node)
{
	mfs_tree_keep(node);
	if (node->branch)
		node->branch->run->known++;
}

/* An open run keeps its entry, and its content has a holder of its own. So neither goes before it
 * is closed. */
static void leave(struct mfs_tree *tree, const struct mfs_node *node, uint64_t times)
{
	struct mfs_run *run = node->branch ? node->branch->run : NULL;
	bool last = false;

	if (run) {
		run->known -= times;
		last = run->entry && run->root && !run->known;
	}
	mfs_tree_unkeep(tree, node, times);
	if (last)
		mfs_tree_close_run(tree, run);
}

/* ---- entries that change; under the lock ---- */

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

static bool is_changing(const struct mfs_node *node)
{
	return node->changes && !(node->run && node->run->flat);
}

static struct mfs_branch *find_iteration(const struct mfs_run *run, const struct mfs_iteration *it)
{
	struct mfs_branch *b = run->iterations;

	while (b && b->it != it)
		b = b->next;
	return b;
}

static int new_iteration(struct mfs_tree *tree, struct mfs_run *run, struct mfs_iteration *it,
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
	add_branch(tree, b);
	*ret = b;
	return 0;
}

/* Adds the iteration's directory or the link to it. It keeps what it had, with open and cached
 * files, as long as somebody knows it. */
static int add_shown(struct mfs_tree *tree, struct mfs_run *run, struct mfs_iteration *it,
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
static int fill_top(struct mfs_tree *tree, struct mfs_run *run,
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

static int build_top(struct mfs_tree *tree, struct mfs_run *run,
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

static int build_flat_top(struct mfs_tree *tree, struct mfs_run *run,
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
	const struct mfs_run *run;
};

static void tell(void *arg, const char *sentence)
{
	const struct teller *t = arg;
	char text[1536];

	snprintf(text, sizeof(text), "%s%s%s", t->run->name, *t->run->name ? "/" : "", sentence);
	t->tree->say(t->tree->say_arg, text);
}

static int show(struct mfs_tree *tree, struct mfs_run *run,
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

int mfs_tree_show_run(struct mfs_tree *tree, struct mfs_run *run, struct mfs_error *err)
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

int mfs_tree_fill_run(struct mfs_tree *tree, struct mfs_run *run, struct mfs_error *err)
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

static int refresh_run(struct mfs_tree *tree, struct mfs_run *run, struct mfs_error *err)
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

static int new_top(struct mfs_tree *tree, struct mfs_error *err)
{
	struct mfs_run *run = &tree->one;
	char path[PATH_MAX];
	struct stat st;
	int rc;

	if (mfs_root_path(run->root, path, sizeof(path)) || stat(path, &st))
		return mfs_fail_errno(err, "%s", mfs_root_source(run->root));
	rc = mfs_tree_new_top(tree, run, &tree->top, err);
	if (rc)
		return rc;
	run->top = tree->top;
	run->mtime_ns = mfs_ns(st.st_mtim);
	tree->top->moves = mfs_root_has_iterations(run->root);
	return mfs_tree_set_readers(tree, tree->top, mfs_readers_of_path(path), err);
}

/* ---- views that no listing names; under the lock ---- */

static struct mfs_branch *find_branch(const struct mfs_tree *tree, const struct mfs_node *node,
				      const char *name, uint64_t ino)
{
	struct mfs_branch *b = *branch_list(tree, ino);

	while (b && (b->top->parent != node || strcmp(b->top->name, name)))
		b = b->next;
	return b;
}

static int new_branch(struct mfs_tree *tree, const struct mfs_node *node, const char *name,
		      struct mfs_branch **ret, struct mfs_error *err)
{
	struct mfs_branch *b = calloc(1, sizeof(*b));
	int rc;

	if (!b)
		return mfs_fail_nomem(err);
	b->run = node->run;
	b->arena.block = 2048; /* a directory takes a few hundred bytes until somebody enters it */
	rc = mfs_tree_new_layout(tree, node, name, b, &b->top, err);
	if (rc) {
		mfs_tree_free_branch(tree, b);
		return rc;
	}
	b->in = node->branch;
	add_branch(tree, b);
	*ret = b;
	return 0;
}

/* ---- all of it ---- */

struct mfs_tree *mfs_tree_alloc(void)
{
	struct mfs_tree *tree = calloc(1, sizeof(*tree));

	if (!tree)
		return NULL;
	pthread_mutex_init(&tree->lock, NULL);
	pthread_mutex_init(&tree->looking, NULL);
	mfs_node_ids_init(&tree->ids);
	tree->one.name = "";
	tree->branches = calloc(MFS_BRANCHES, sizeof(struct mfs_branch *));
	if (tree->branches)
		return tree;
	mfs_tree_free(tree);
	return NULL;
}

int mfs_tree_new(struct mfs_root *root, struct mfs_tree **ret, struct mfs_error *err)
{
	struct mfs_tree *tree = mfs_tree_alloc();
	int rc;

	if (!tree)
		return mfs_fail_nomem(err);
	tree->one.root = root;
	rc = new_top(tree, err);
	if (!rc)
		rc = mfs_tree_fill_run(tree, &tree->one, err);
	if (rc) {
		mfs_tree_free(tree);
		return rc;
	}
	*ret = tree;
	return 0;
}

/* The kernel may still know nodes; it is gone. */
static void free_runs(struct mfs_tree *tree)
{
	if (tree->dir && tree->top)
		free(mfs_tree_top_dir(tree->top));
	while (tree->runs) {
		struct mfs_run *run = tree->runs;

		run->entry->known++;
		if (run->root)
			mfs_tree_close_run(tree, run);
		mfs_tree_free_run(tree, run);
	}
	mfs_roots_free(tree->roots);
	mfs_keeper_free(tree->keeper);
	free(tree->dir);
}

static void free_one(struct mfs_tree *tree)
{
	struct mfs_run *run = &tree->one;

	if (run->top && !run->flat)
		free(mfs_tree_top_dir(run->top));
	while (run->iterations)
		mfs_tree_remove_branch(tree, run->iterations);
}

void mfs_tree_free(struct mfs_tree *tree)
{
	if (!tree)
		return;
	for (size_t i = 0; tree->branches && i < MFS_BRANCHES; i++)
		while (tree->branches[i])
			mfs_tree_remove_branch(tree, tree->branches[i]);
	free_one(tree);
	free_runs(tree);
	free(tree->branches);
	for (unsigned i = 0; i < MFS_FORGOTTEN; i++)
		free(tree->forgotten[i].name);
	mfs_inode_set_release(&tree->inodes);
	mfs_node_ids_release(&tree->ids);
	for (uint32_t i = 0; i < tree->readers_count; i++)
		mfs_readers_free(tree->readers[i]);
	free(tree->readers);
	mfs_arena_release(&tree->arena);
	pthread_mutex_destroy(&tree->lock);
	pthread_mutex_destroy(&tree->looking);
	free(tree);
}

struct mfs_node *mfs_tree_root(struct mfs_tree *tree)
{
	return tree->top;
}

/* Once for each view, when its directory is filled. */
static void say_warnings(const struct mfs_tree *tree, const struct mfs_node *node,
			 const struct mfs_view *view)
{
	struct mfs_buf text = {0};
	const char *warning;

	for (uint32_t i = 0; tree->say && (warning = mfs_view_warning(view, i)); i++) {
		text.len = 0;
		mfs_buf_printf(&text, "%s: %s", node->path + 1, warning);
		if (!text.failed)
			tree->say(tree->say_arg, text.data);
	}
	mfs_buf_release(&text);
}

/* Fills the directory of a view, unless another thread has done so. */
static int show_view(struct mfs_tree *tree, struct mfs_node *node, const struct mfs_view *view,
		     struct mfs_error *err)
{
	bool first;
	int rc = 0;

	pthread_mutex_lock(&tree->lock);
	first = !atomic_load(&node->dir);
	if (first) {
		node->stamp = view->stamp;
		rc = mfs_tree_fill_view(tree, node, view, err);
	}
	pthread_mutex_unlock(&tree->lock);
	if (first && !rc)
		say_warnings(tree, node, view);
	return rc;
}

/* A failure of a checkpoint is reported once for all views that are made of it. */
static int hold_view(struct mfs_node *node, struct mfs_held **ret, struct mfs_view **ret_view,
		     struct mfs_node **ret_about, struct mfs_error *err)
{
	struct mfs_held *origin = NULL;
	int rc = node->kind ? mfs_views_hold_origin(node->views, node->kind, &origin, err) : 0;

	if (rc) {
		*ret_about = node->group;
		return rc;
	}
	rc = mfs_views_hold(node->views, node->view, ret, ret_view, err);
	mfs_keeper_drop(origin);
	return rc;
}

static int open_view(struct mfs_tree *tree, struct mfs_node *node, struct mfs_node **ret_about,
		     struct mfs_error *err)
{
	struct mfs_held *held;
	struct mfs_view *view;
	int rc = hold_view(node, &held, &view, ret_about, err);

	if (rc)
		return rc;
	rc = show_view(tree, node, view, err);
	mfs_keeper_drop(held);
	return rc;
}

int mfs_tree_open(const struct mfs_node *node, struct mfs_open_file *ret,
		  struct mfs_node **ret_about, struct mfs_error *err)
{
	struct mfs_node *about = node->home;
	struct mfs_held *held;
	struct mfs_view *view;
	int rc = hold_view(node->home, &held, &view, &about, err);

	if (!rc && view->stamp != node->home->stamp) {
		rc = mfs_fail(err, -ESTALE, "%s: its sources have changed since it was shown first",
			      about->path);
		mfs_keeper_drop(held);
	}
	if (rc) {
		if (ret_about)
			*ret_about = about;
		return rc;
	}
	mfs_view_hold_sources(view);
	*ret = (struct mfs_open_file){held, view, view->files[node->file].data};
	return 0;
}

void mfs_tree_close(struct mfs_open_file *file)
{
	mfs_view_drop_sources(file->view);
	mfs_keeper_drop(file->held);
}

void mfs_tree_suspect(const struct mfs_node *node)
{
	const struct mfs_node *dir = node->home ? node->home : node;

	if (dir->iteration)
		mfs_iteration_suspect(dir->iteration);
	if (dir->run && !dir->changes)
		mfs_tree_suspect_run(dir->run);
}

static int open_layouts(struct mfs_tree *tree, struct mfs_node *node, struct mfs_error *err)
{
	const char *const *names;
	uint32_t count;
	int rc = mfs_views_list(node->views, node->kind, &names, &count, err);

	if (rc)
		return rc;
	pthread_mutex_lock(&tree->lock);
	if (!atomic_load(&node->dir))
		rc = mfs_tree_fill_layouts(tree, node, names, count, err);
	pthread_mutex_unlock(&tree->lock);
	return rc;
}

int mfs_tree_list(struct mfs_tree *tree, struct mfs_node *node, const struct mfs_dir **ret,
		  struct mfs_node **ret_about, struct mfs_error *err)
{
	struct mfs_node *about = node;
	int rc = 0;

	if (!S_ISDIR(node->type))
		rc = mfs_fail(err, -ENOTDIR, "%s: not a directory", node->path);
	else if (!atomic_load_explicit(&node->dir, memory_order_acquire))
		rc = node->changes   ? mfs_tree_open_run(tree, node->run, err)
		     : node->layouts ? open_layouts(tree, node, err)
				     : open_view(tree, node, &about, err);
	if (!rc)
		*ret = atomic_load_explicit(&node->dir, memory_order_acquire);
	else if (ret_about)
		*ret_about = about;
	return rc;
}

int mfs_tree_open_dir(struct mfs_tree *tree, struct mfs_node *node, const struct mfs_dir **ret,
		      struct mfs_node **ret_about, struct mfs_error *err)
{
	int rc = mfs_tree_list(tree, node, ret, ret_about, err);

	if (rc)
		return rc;
	pthread_mutex_lock(&tree->lock);
	mfs_tree_meet(node);
	if (is_changing(node)) {
		*ret = mfs_tree_top_dir(node);
		mfs_tree_top_dir(node)->holders++;
	}
	pthread_mutex_unlock(&tree->lock);
	return 0;
}

void mfs_tree_close_dir(struct mfs_tree *tree, struct mfs_node *node, const struct mfs_dir *dir)
{
	pthread_mutex_lock(&tree->lock);
	if (is_changing(node))
		mfs_tree_drop_top_dir(tree, (struct mfs_dir *)dir);
	leave(tree, node, 1);
	pthread_mutex_unlock(&tree->lock);
}

void mfs_tree_know(struct mfs_tree *tree, struct mfs_node *node)
{
	if (!node->branch)
		return;
	pthread_mutex_lock(&tree->lock);
	mfs_tree_meet(node);
	pthread_mutex_unlock(&tree->lock);
}

void mfs_tree_forget(struct mfs_tree *tree, struct mfs_node *node, uint64_t times)
{
	if (!node->branch)
		return;
	pthread_mutex_lock(&tree->lock);
	leave(tree, node, times);
	pthread_mutex_unlock(&tree->lock);
}

static unsigned count_iterations(const struct mfs_run *run)
{
	unsigned count = 0;

	for (const struct mfs_branch *b = run->iterations; b; b = b->next)
		count++;
	return count;
}

unsigned mfs_tree_iterations(struct mfs_tree *tree)
{
	unsigned count;

	pthread_mutex_lock(&tree->lock);
	count = count_iterations(&tree->one);
	for (const struct mfs_run *run = tree->runs; run; run = run->next)
		count += count_iterations(run);
	pthread_mutex_unlock(&tree->lock);
	return count;
}

unsigned mfs_tree_unlisted(struct mfs_tree *tree)
{
	unsigned count;

	pthread_mutex_lock(&tree->lock);
	count = tree->branch_count;
	pthread_mutex_unlock(&tree->lock);
	return count;
}

static bool is_shown(const struct mfs_dir *dir, const struct mfs_node *node)
{
	for (uint32_t i = 0; i < dir->count; i++)
		if (dir->entries[i] == node)
			return true;
	return false;
}

struct gone {
	char **paths;
	unsigned count, most;
};

/* Adds what is known and not shown any more, and was not told in this round. A run that is gone
 * takes its iterations along. */
static void add_gone(struct gone *g, const struct mfs_dir *dir, struct mfs_node *node)
{
	if (g->count == g->most || node->told_gone || !dir || is_shown(dir, node))
		return;
	g->paths[g->count] = strdup(node->path);
	node->told_gone = g->paths[g->count] != NULL;
	g->count += node->told_gone;
}

static void add_gone_of(struct gone *g, const struct mfs_run *run)
{
	for (const struct mfs_branch *b = run->iterations; b; b = b->next)
		add_gone(g, mfs_tree_top_dir(run->top), b->top);
}

static unsigned add_all_gone(struct mfs_tree *tree, char **ret_paths, unsigned most)
{
	struct gone g = {ret_paths, 0, most};

	add_gone_of(&g, &tree->one);
	for (const struct mfs_run *run = tree->runs; run; run = run->next) {
		add_gone(&g, mfs_tree_top_dir(tree->top), run->top);
		add_gone_of(&g, run);
	}
	return g.count;
}

static void tell_again_of(const struct mfs_run *run)
{
	for (const struct mfs_branch *b = run->iterations; b; b = b->next)
		b->top->told_gone = false;
}

static void tell_again(struct mfs_tree *tree)
{
	tell_again_of(&tree->one);
	for (const struct mfs_run *run = tree->runs; run; run = run->next) {
		run->top->told_gone = false;
		tell_again_of(run);
	}
}

unsigned mfs_tree_gone(struct mfs_tree *tree, char **ret_paths, unsigned most)
{
	unsigned count;

	pthread_mutex_lock(&tree->lock);
	count = add_all_gone(tree, ret_paths, most);
	if (!count) {
		tell_again(tree);
		count = add_all_gone(tree, ret_paths, most);
	}
	pthread_mutex_unlock(&tree->lock);
	return count;
}

/* The branch's directory, known once more. NULL: there is no such branch. */
static struct mfs_node *know_branch(struct mfs_tree *tree, const struct mfs_node *node,
				    const char *name, uint64_t ino)
{
	struct mfs_branch *b;

	pthread_mutex_lock(&tree->lock);
	b = find_branch(tree, node, name, ino);
	if (b)
		mfs_tree_meet(b->top);
	pthread_mutex_unlock(&tree->lock);
	return b ? b->top : NULL;
}

/* Every possible layout or spec has a directory, even if no listing names it. */
static int find_layout(struct mfs_tree *tree, struct mfs_node *node, const char *name,
		       struct mfs_node **ret, struct mfs_error *err)
{
	char view[MFS_VIEW_NAME_SIZE], path[PATH_MAX];
	struct mfs_branch *b;
	uint64_t ino;
	int rc;

	if ((size_t)snprintf(view, sizeof(view), "%s/%s", node->view, name) >= sizeof(view) ||
	    (size_t)snprintf(path, sizeof(path), "%s/%s", node->path, name) >= sizeof(path))
		return -ENOENT;
	ino = mfs_inode_number(path);
	*ret = know_branch(tree, node, name, ino);
	if (*ret)
		return 0;
	rc = mfs_views_check(node->views, view, err);
	if (rc)
		return rc == -EINVAL ? -ENOENT : rc;
	pthread_mutex_lock(&tree->lock);
	b = find_branch(tree, node, name, ino);
	if (!b)
		rc = new_branch(tree, node, name, &b, err);
	if (!rc) {
		mfs_tree_meet(b->top);
		*ret = b->top;
	}
	pthread_mutex_unlock(&tree->lock);
	return rc;
}

/* An entry that comes and goes, known once more. NULL: there is none of that name. */
static struct mfs_node *look_up_top(struct mfs_tree *tree, const struct mfs_node *top,
				    const char *name)
{
	struct mfs_node *found;

	pthread_mutex_lock(&tree->lock);
	found = mfs_dir_find(mfs_tree_top_dir(top), name);
	if (found)
		mfs_tree_meet(found);
	pthread_mutex_unlock(&tree->lock);
	return found;
}

int mfs_tree_lookup(struct mfs_tree *tree, struct mfs_node *node, const char *name,
		    struct mfs_node **ret, struct mfs_node **ret_about, struct mfs_error *err)
{
	const struct mfs_dir *dir;
	struct mfs_node *found;
	int rc;

	rc = mfs_tree_list(tree, node, &dir, ret_about, err);
	/* -ENOENT of a missing source must not tell the kernel that the name will never exist. */
	if (rc)
		return rc == -ENOENT ? -EIO : rc;
	if (is_changing(node)) {
		*ret = look_up_top(tree, node, name);
		if (!*ret && ret_about)
			*ret_about = node;
		return *ret ? 0 : -ENOENT;
	}
	found = mfs_dir_find(dir, name);
	if (!found && node->layouts)
		rc = find_layout(tree, node, name, &found, err);
	else if (!found)
		rc = -ENOENT;
	else
		mfs_tree_know(tree, found);
	if (!rc)
		*ret = found;
	else if (ret_about)
		*ret_about = node;
	return rc;
}

/* ---- by id ---- */

struct mfs_node *mfs_tree_by_id(struct mfs_tree *tree, uint64_t id)
{
	return id == MFS_ID_ROOT ? tree->top : mfs_node_ids_find(&tree->ids, id);
}

struct mfs_node *mfs_tree_parent(struct mfs_tree *tree, struct mfs_node *node)
{
	struct mfs_node *parent = (struct mfs_node *)node->parent;

	mfs_tree_know(tree, parent);
	return parent;
}

/* NULL: it is not there, or not yet. Else known once more. */
static struct mfs_node *know_id(struct mfs_tree *tree, uint64_t id)
{
	struct mfs_node *node;

	pthread_mutex_lock(&tree->lock);
	node = mfs_tree_by_id(tree, id);
	if (node)
		mfs_tree_meet(node);
	pthread_mutex_unlock(&tree->lock);
	return node;
}

/* Makes the directories of layouts that a listing of an owner names. What fails is not there. */
static void open_all_layouts(struct mfs_tree *tree, struct mfs_node *node)
{
	const struct mfs_dir *dir = atomic_load(&node->dir), *below;
	struct mfs_error err;

	for (uint32_t i = 0; dir && i < dir->count; i++) {
		struct mfs_node *entry = dir->entries[i];

		if (entry->layouts)
			(void)mfs_tree_list(tree, entry, &below, NULL, &err);
		else if (S_ISDIR(entry->type) && !entry->view && entry->owner == node->owner)
			open_all_layouts(tree, entry);
	}
}

/* Does so for the owners among some entries that the id may be of. */
static void open_owners(struct mfs_tree *tree, const struct mfs_dir *dir, uint64_t id)
{
	for (uint32_t i = 0; dir && i < dir->count; i++) {
		struct mfs_node *entry = dir->entries[i];
		const struct mfs_id_owner owner = mfs_tree_id_owner(entry->run, entry);

		if (S_ISDIR(entry->type) && entry->owner == entry && mfs_id_may_be_of(id, &owner))
			open_all_layouts(tree, entry);
	}
}

/* The directory that the id is of or in, known once more, after opening what may have it of a run
 * that the caller knows. NULL: it is not there. */
static int open_owner_in(struct mfs_tree *tree, struct mfs_run *run, uint64_t id,
			 struct mfs_node **ret, struct mfs_error *err)
{
	const struct mfs_dir *top;
	int rc = mfs_tree_open_dir(tree, run->top, &top, NULL, err);
	struct mfs_id_owner flat;

	if (rc)
		return rc;
	flat = mfs_tree_id_owner(run, run->top->owner);
	if (run->data)
		open_owners(tree, atomic_load(&run->data->dir), id);
	if (!run->flat)
		open_owners(tree, top, id);
	else if (run->top->owner && mfs_id_may_be_of(id, &flat))
		open_all_layouts(tree, run->top);
	*ret = know_id(tree, mfs_id_view(id));
	mfs_tree_close_dir(tree, run->top, top); /* a run that nobody knows closes here */
	return 0;
}

/* A run that cannot be opened has no nodes. */
static int open_owner_of(struct mfs_tree *tree, uint64_t id, struct mfs_node **ret,
			 struct mfs_error *err)
{
	const struct mfs_dir *runs;
	int rc;

	*ret = NULL;
	if (!tree->dir)
		return open_owner_in(tree, &tree->one, id, ret, err);
	rc = mfs_tree_open_dir(tree, tree->top, &runs, NULL, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; !*ret && i < runs->count; i++)
		if (mfs_id_may_be_of_run(id, runs->entries[i]->name))
			(void)open_owner_in(tree, runs->entries[i]->run, id, ret, err);
	mfs_tree_close_dir(tree, tree->top, runs);
	return 0;
}

static bool was_forgotten(struct mfs_tree *tree, uint64_t id, uint64_t *ret_layouts, char *ret_name,
			  size_t size)
{
	bool found = false;

	pthread_mutex_lock(&tree->lock);
	for (unsigned i = 0; i < MFS_FORGOTTEN && !found; i++) {
		const struct mfs_forgotten *f = &tree->forgotten[i];

		found = f->name && f->id == id;
		if (found) {
			*ret_layouts = f->layouts;
			snprintf(ret_name, size, "%s", f->name);
		}
	}
	pthread_mutex_unlock(&tree->lock);
	return found;
}

/* The directory of a view that no listing names, by its name, if it was known before. NULL: it was
 * not, or it fails now. Else known once more. */
static struct mfs_node *find_again(struct mfs_tree *tree, uint64_t id)
{
	struct mfs_node *layouts, *found = NULL;
	char name[MFS_VIEW_NAME_SIZE];
	struct mfs_error err;
	uint64_t in;

	if (!was_forgotten(tree, id, &in, name, sizeof(name)))
		return NULL;
	layouts = know_id(tree, in);
	if (!layouts)
		return NULL;
	if (mfs_tree_lookup(tree, layouts, name, &found, NULL, &err))
		found = NULL;
	mfs_tree_forget(tree, layouts, 1);
	return found;
}

/* The view of an id, with its files. */
static int open_view_of(struct mfs_tree *tree, uint64_t id, struct mfs_node **ret,
			struct mfs_error *err)
{
	struct mfs_node *view = know_id(tree, mfs_id_view(id));
	const struct mfs_dir *dir;
	int rc = 0;

	if (!view)
		view = find_again(tree, mfs_id_view(id));
	if (!view)
		rc = open_owner_of(tree, id, &view, err);
	if (!view)
		return rc;
	if (S_ISDIR(view->type))
		rc = mfs_tree_list(tree, view, &dir, NULL, err);
	*ret = rc ? NULL : know_id(tree, id);
	mfs_tree_forget(tree, view, 1);
	return rc;
}

int mfs_tree_find_id(struct mfs_tree *tree, uint64_t id, struct mfs_node **ret,
		     struct mfs_error *err)
{
	int rc = 0;

	*ret = know_id(tree, id);
	if (!*ret)
		rc = open_view_of(tree, id, ret, err);
	if (rc || *ret)
		return rc;
	return mfs_fail(err, -ESTALE, "no file or directory has the id %#llx",
			(unsigned long long)id);
}

static bool is_lacking_some(const struct mfs_node *node)
{
	return node->view && !strcmp(node->view, MFS_WHY_NOT_VIEW);
}

/* node: the directory of an owner, or of several views. */
const char *mfs_tree_why_not(const struct mfs_node *node, const char *name, unsigned *ret_number)
{
	const bool top = is_lacking_some(node), in_top = is_lacking_some(node->parent);
	const size_t skip = strlen(node->name) + 1;
	struct mfs_views_entry e;

	for (unsigned i = 0; (top || in_top) && mfs_views_entry(node->views, i, &e); i = e.end) {
		*ret_number = e.first;
		if (top && !strcmp(name, e.name))
			return e.why_not;
		if (top || !e.is_group || strcmp(node->name, e.name))
			continue;
		for (; *ret_number < e.end; ++*ret_number)
			if (!strcmp(name, node->views->table->kinds[*ret_number]->name + skip))
				return node->views->why_not[*ret_number];
	}
	return NULL;
}

static int name_compare(const void *key, const void *entry)
{
	const struct mfs_node *const *node = entry;

	return strcmp(key, (*node)->name);
}

struct mfs_node *mfs_dir_find(const struct mfs_dir *dir, const char *name)
{
	struct mfs_node **found;

	found = bsearch(name, dir->by_name, dir->count, sizeof(*dir->by_name), name_compare);
	return found ? *found : NULL;
}

static struct timespec to_timespec(int64_t ns)
{
	return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

static mode_t mode_of(mode_t type, mode_t readable)
{
	return S_ISLNK(type) ? 0777 : S_ISDIR(type) ? mfs_access_dir_mode(readable) : readable;
}

void mfs_node_stat(const struct mfs_node *node, struct stat *ret)
{
	const int64_t dir_mtime_ns =
		atomic_load_explicit(&node->dir_mtime_ns, memory_order_relaxed);
	const struct mfs_access told = mfs_readers_told(node->readers);

	memset(ret, 0, sizeof(*ret));
	ret->st_ino = node->ino;
	ret->st_mode = node->type | mode_of(node->type, told.mode);
	ret->st_nlink =
		S_ISDIR(node->type) && !node->uncounted ? 2 + atomic_load(&node->subdirs) : 1;
	ret->st_uid = told.uid;
	ret->st_gid = told.gid;
	ret->st_size = (off_t)node->size;
	ret->st_blocks = S_ISREG(node->type) ? (blkcnt_t)((node->size + 511) / 512) : 0;
	ret->st_blksize = BLOCK_SIZE;
	ret->st_mtim = to_timespec(dir_mtime_ns ? dir_mtime_ns : node->mtime_ns);
	ret->st_ctim = ret->st_atim = ret->st_mtim;
}

bool mfs_tree_has_model(const struct mfs_tree *tree)
{
	return tree->dir || mfs_root_has_model(tree->one.root);
}

int mfs_tree_source_statvfs(const struct mfs_tree *tree, struct statvfs *ret)
{
	if (!tree->dir)
		return mfs_root_statvfs(tree->one.root, ret);
	return statvfs(tree->dir, ret) ? -errno : 0;
}

bool mfs_tree_remote(const struct mfs_tree *tree, struct mfs_cache_stats *ret)
{
	return !tree->dir && mfs_root_remote(tree->one.root, ret);
}

void mfs_tree_rest(struct mfs_tree *tree)
{
	if (!tree->dir)
		mfs_root_rest(tree->one.root);
}

void mfs_tree_totals(const struct mfs_tree *tree, uint64_t *ret_bytes, uint64_t *ret_files)
{
	*ret_bytes = atomic_load(&tree->bytes);
	*ret_files = atomic_load(&tree->files);
}

static void count_run(const struct mfs_run *run, struct mfs_tree_counts *n)
{
	const struct mfs_root_snapshot *s = mfs_root_snapshot(run->root);
	uint32_t shown = 0;

	for (uint32_t i = 0; i < s->count; i++)
		shown += !mfs_iteration_reason(s->iterations[i]);
	n->shown += shown;
	n->hidden += s->count - shown;
	if (n->several || !s->latest)
		return;
	n->latest_name = mfs_iteration_name(s->latest);
	if (!mfs_iteration_number_of_any(n->latest_name, &n->latest))
		n->latest = -1;
}

struct mfs_tree_counts mfs_tree_counts(struct mfs_tree *tree)
{
	struct mfs_tree_counts n = {
		.several = tree->dir, .known = mfs_tree_iterations(tree), .latest = -1};

	pthread_mutex_lock(&tree->lock);
	if (tree->dir)
		n.runs = mfs_tree_top_dir(tree->top)->count;
	else
		count_run(&tree->one, &n);
	for (const struct mfs_run *run = tree->runs; run; run = run->next) {
		if (!run->root)
			continue;
		n.open++;
		count_run(run, &n);
	}
	pthread_mutex_unlock(&tree->lock);
	mfs_tree_totals(tree, &n.bytes, &n.files);
	return n;
}
