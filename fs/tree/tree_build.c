/* Nodes and directories of the tree. */
#include <stdlib.h>
#include <string.h>

#include "formats/base/grow.h"
#include "formats/io/fileset.h"
#include "formats/plan/vfile.h"
#include "fs/tree/tree_i.h"
#include "fs/source/readers.h"
#include "fs/view/views.h"

static int name_order(const void *a, const void *b)
{
	const struct mfs_node *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

static struct mfs_arena *arena_in(struct mfs_tree *tree, struct mfs_branch *branch)
{
	return branch ? &branch->arena : &tree->arena;
}

/* The branch that what is in a directory belongs to. */
static struct mfs_branch *inside(const struct mfs_node *dir)
{
	return dir->run && dir == dir->run->top ? dir->run->content : dir->branch;
}

static struct mfs_arena *arena_of(struct mfs_tree *tree, const struct mfs_node *dir)
{
	return arena_in(tree, inside(dir));
}

struct mfs_dir *mfs_tree_new_dir(struct mfs_tree *tree, const struct mfs_node *node,
				 uint32_t capacity, int64_t mtime_ns)
{
	struct mfs_arena *arena = arena_of(tree, node);
	struct mfs_dir *dir = mfs_arena_alloc(arena, sizeof(*dir));

	if (!dir)
		return NULL;
	dir->entries = mfs_arena_array(arena, (size_t)capacity + 1, sizeof(*dir->entries));
	dir->by_name = mfs_arena_array(arena, (size_t)capacity + 1, sizeof(*dir->by_name));
	dir->mtime_ns = mtime_ns;
	return dir->entries && dir->by_name ? dir : NULL;
}

void mfs_tree_add_entry(struct mfs_dir *dir, struct mfs_node *node)
{
	dir->entries[dir->count] = node;
	dir->by_name[dir->count] = node;
	dir->count++;
	dir->subdirs += S_ISDIR(node->type);
}

void mfs_tree_publish(struct mfs_node *node, struct mfs_dir *dir)
{
	qsort(dir->by_name, dir->count, sizeof(*dir->by_name), name_order);
	atomic_store_explicit(&node->subdirs, dir->subdirs, memory_order_relaxed);
	atomic_store_explicit(&node->dir_mtime_ns, dir->mtime_ns, memory_order_relaxed);
	atomic_store_explicit(&node->dir, dir, memory_order_release);
}

struct mfs_id_owner mfs_tree_id_owner(const struct mfs_tree_run *run, const struct mfs_node *owner)
{
	return (struct mfs_id_owner){run ? run->name : "", owner ? owner->path : "",
				     owner ? owner->version : 0};
}

#define ATTEMPTS 64 /* for an id; more than one are rare */

static int number_in_view(struct mfs_node *node, struct mfs_node *view, struct mfs_error *err)
{
	if (view->numbered + 1 == MFS_ID_NUMBERS)
		return mfs_fail(err, -E2BIG, "%s: more than %u files and directories", view->path,
				MFS_ID_NUMBERS - 1);
	node->id = mfs_id_in_view(view->id, ++view->numbered);
	return 0;
}

/* A directory that was deleted and has come back may find its id taken by itself, as long as
 * somebody knows the old one. */
static int find_free_id(struct mfs_tree *tree, struct mfs_node *node, struct mfs_error *err)
{
	const struct mfs_id_owner owner = mfs_tree_id_owner(node->run, node->owner);

	for (unsigned i = 0; i < ATTEMPTS; i++) {
		node->id = mfs_id_of_dir(&owner, node->path, i);
		if (!mfs_node_ids_find(&tree->ids, node->id))
			return 0;
	}
	return mfs_fail(err, -EEXIST, "%s: its ids are taken", node->path);
}

/* What a node shows, for its id. */
struct identity {
	struct mfs_node *view;	  /* whose next number it gets; NULL: it has an id of its own */
	struct mfs_node *owner;	  /* NULL: its parent's */
	uint64_t version;	  /* of owner */
	uint64_t bytes;		  /* identity of what they come from */
	struct mfs_tree_run *run; /* NULL: its parent's */
};

static int identify(struct mfs_tree *tree, struct mfs_node *node, const struct identity *is,
		    struct mfs_error *err)
{
	int rc;

	if (node->parent == node) {
		node->id = MFS_ID_ROOT;
		return 0;
	}
	node->owner = is->version ? node : node->parent->owner;
	node->version = is->version ? is->version : node->parent->version;
	node->generation = mfs_id_generation(node->path, node->version ^ is->bytes);
	rc = is->view ? number_in_view(node, is->view, err) : find_free_id(tree, node, err);
	if (rc)
		return rc;
	return mfs_node_ids_put(&tree->ids, node) ? mfs_fail_nomem(err) : 0;
}

static int new_node(struct mfs_tree *tree, const struct mfs_node *parent, struct mfs_branch *branch,
		    const char *name, const struct identity *is, struct mfs_node **ret,
		    struct mfs_error *err)
{
	struct mfs_arena *arena = arena_in(tree, branch);
	struct mfs_node *node = mfs_arena_alloc(arena, sizeof(*node));
	const char *dir = parent ? parent->path : "";
	int rc;

	if (!node)
		return mfs_fail_nomem(err);
	node->path = mfs_arena_printf(arena, "%s/%s", strcmp(dir, "/") ? dir : "", name);
	if (!node->path)
		return mfs_fail_nomem(err);
	node->name = strrchr(node->path, '/') + 1;
	node->parent = parent ? parent : node;
	if (parent) {
		node->views = parent->views;
		node->readers = parent->readers;
	}
	node->run = is->run || !parent ? is->run : parent->run;
	node->ino = mfs_inode_number(node->path);
	rc = mfs_inode_claim(&tree->inodes, node->ino, node->path);
	if (rc == -EEXIST)
		return mfs_fail(err, rc, "%s: its inode number is taken by another path",
				node->path);
	if (rc)
		return mfs_fail_nomem(err);
	node->branch = branch;
	if (branch) {
		node->next = branch->nodes;
		branch->nodes = node;
	}
	*ret = node;
	return identify(tree, node, is, err);
}

int mfs_tree_new_top(struct mfs_tree *tree, struct mfs_tree_run *run, struct mfs_node **ret,
		     struct mfs_error *err)
{
	const struct identity is = {.run = run};
	int rc = new_node(tree, NULL, NULL, "", &is, ret, err);

	if (rc)
		return rc;
	(*ret)->type = S_IFDIR;
	(*ret)->changes = true;
	return 0;
}

int mfs_tree_new_run(struct mfs_tree *tree, struct mfs_tree_run *run, struct mfs_error *err)
{
	const struct identity is = {.run = run};
	struct mfs_node *node;
	int rc = new_node(tree, tree->top, run->entry, run->name, &is, &node, err);

	if (rc)
		return rc;
	node->type = S_IFDIR;
	node->moves = node->changes = node->uncounted = true;
	run->top = node;
	return 0;
}

/* The branch, or the tree, owns readers from now on. */
static int add_readers(struct mfs_tree *tree, struct mfs_branch *branch,
		       struct mfs_readers *readers, struct mfs_readers **ret, struct mfs_error *err)
{
	struct mfs_readers ***list = branch ? &branch->readers : &tree->readers;
	uint32_t *count = branch ? &branch->readers_count : &tree->readers_count;

	if (!readers || mfs_grow(list, *count)) {
		mfs_readers_free(readers);
		return mfs_fail_nomem(err);
	}
	(*list)[(*count)++] = readers;
	*ret = readers;
	return 0;
}

int mfs_tree_set_readers(struct mfs_tree *tree, struct mfs_node *node, struct mfs_readers *readers,
			 struct mfs_error *err)
{
	return add_readers(tree, node->branch, readers, &node->readers, err);
}

static int new_directory_in(struct mfs_tree *tree, const struct mfs_node *parent,
			    struct mfs_branch *branch, const char *name, const struct identity *is,
			    int64_t mtime_ns, struct mfs_node **ret, struct mfs_error *err)
{
	int rc = new_node(tree, parent, branch, name, is, ret, err);

	if (rc)
		return rc;
	(*ret)->type = S_IFDIR;
	(*ret)->mtime_ns = mtime_ns;
	(*ret)->iteration = parent->iteration;
	if (parent->overlay)
		(*ret)->overlay = (*ret)->path + (parent->overlay - parent->path);
	return 0;
}

static int new_directory(struct mfs_tree *tree, const struct mfs_node *parent, const char *name,
			 const struct identity *is, int64_t mtime_ns, struct mfs_node **ret,
			 struct mfs_error *err)
{
	return new_directory_in(tree, parent, inside(parent), name, is, mtime_ns, ret, err);
}

/* ---- the files of a view ---- */

/* Files [first, end) of a view: all files in one directory and below it. Their names from skip on
 * are relative to it. */
struct span {
	const struct mfs_view *view;
	struct mfs_node *home;	     /* the view's directory */
	struct mfs_node *numbers;    /* gives them numbers: home; NULL: each has an id of its own */
	struct mfs_readers *readers; /* of its files */
	uint32_t first, end;
	size_t skip;
};

static int new_file(struct mfs_tree *tree, const struct mfs_node *parent, const struct span *s,
		    uint32_t i, const char *name, struct mfs_node **ret, struct mfs_error *err)
{
	const struct mfs_view *view = s->view;
	const struct identity is = {.view = s->numbers, .bytes = view->identity};
	struct mfs_node *node;
	int rc = new_node(tree, parent, inside(parent), name, &is, &node, err);

	if (rc)
		return rc;
	node->type = S_IFREG;
	node->readers = s->readers;
	node->mtime_ns = view->mtime_ns;
	node->home = s->home;
	node->file = i;
	node->size = mfs_vfile_size(view->files[i].data);
	*ret = node;
	return 0;
}

static const char *span_name(const struct span *s, uint32_t i)
{
	return s->view->files[i].name + s->skip;
}

/* One past the files in the same subdirectory as file i. Names are sorted. */
static uint32_t entry_end(const struct span *s, uint32_t i)
{
	size_t len = strcspn(span_name(s, i), "/") + 1;
	uint32_t end = i + 1;

	if (!strchr(span_name(s, i), '/'))
		return end;
	while (end < s->end && !strncmp(span_name(s, end), span_name(s, i), len))
		end++;
	return end;
}

static uint32_t count_entries(const struct span *s)
{
	uint32_t count = 0;

	for (uint32_t i = s->first; i < s->end; i = entry_end(s, i))
		count++;
	return count;
}

static int fill_directory(struct mfs_tree *tree, struct mfs_node *node, const struct span *s,
			  struct mfs_error *err);

/* Makes a file of the view, or a subdirectory with its entries. */
static int new_entry(struct mfs_tree *tree, const struct mfs_node *parent, const struct span *s,
		     uint32_t i, struct mfs_node **ret, struct mfs_error *err)
{
	const char *name = span_name(s, i), *slash = strchr(name, '/');
	const struct identity is = {.view = s->numbers, .bytes = s->view->identity};
	struct span inside = *s;
	char *dir;
	int rc;

	if (!slash)
		return new_file(tree, parent, s, i, name, ret, err);
	inside.first = i;
	inside.end = entry_end(s, i);
	inside.skip = s->skip + (size_t)(slash - name) + 1;
	dir = mfs_arena_strndup(arena_of(tree, parent), name, (size_t)(slash - name));
	if (!dir)
		return mfs_fail_nomem(err);
	rc = new_directory(tree, parent, dir, &is, parent->mtime_ns, ret, err);
	return rc ? rc : fill_directory(tree, *ret, &inside, err);
}

static int fill_directory(struct mfs_tree *tree, struct mfs_node *node, const struct span *s,
			  struct mfs_error *err)
{
	struct mfs_dir *dir = mfs_tree_new_dir(tree, node, count_entries(s), node->mtime_ns);
	struct mfs_node *entry;
	int rc = dir ? 0 : mfs_fail_nomem(err);

	for (uint32_t i = s->first; i < s->end && !rc; i = entry_end(s, i)) {
		rc = new_entry(tree, node, s, i, &entry, err);
		if (!rc)
			mfs_tree_add_entry(dir, entry);
	}
	if (!rc)
		mfs_tree_publish(node, dir);
	return rc;
}

int mfs_tree_fill_view(struct mfs_tree *tree, struct mfs_node *node, const struct mfs_view *view,
		       struct mfs_error *err)
{
	struct span all = {view, node, node, NULL, 0, view->count, 0};
	uint64_t bytes = 0;
	struct mfs_readers *readers =
		mfs_readers_of_sets(view->sets, view->set_count, &view->fixed);
	int rc = add_readers(tree, node->branch, readers, &all.readers, err);

	node->numbered = 0; /* of an attempt that has failed */
	if (!rc)
		rc = fill_directory(tree, node, &all, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < view->count; i++)
		bytes += mfs_vfile_size(view->files[i].data);
	atomic_fetch_add(&tree->bytes, bytes);
	atomic_fetch_add(&tree->files, view->count);
	if (node->branch) {
		node->branch->bytes += bytes;
		node->branch->files += view->count;
	}
	return 0;
}

/* ---- directories of views ---- */

/* The directory of a view; or of all specs of a kind, if view is the kind's name. group NULL: the
 * node itself. */
static int new_view(struct mfs_tree *tree, const struct mfs_node *parent, struct mfs_branch *branch,
		    const char *name, const struct mfs_view_kind *kind, const char *view,
		    struct mfs_node *group, struct mfs_node **ret, struct mfs_error *err)
{
	static const struct identity own = {0};
	struct mfs_node *node;
	int rc = new_directory_in(tree, parent, branch, name, &own, parent->mtime_ns, &node, err);

	if (rc)
		return rc;
	node->unlisted = branch != inside(parent);
	node->view = view;
	node->kind = kind;
	node->group = group ? group : node;
	node->uncounted = kind->nested;
	node->layouts = kind->spec && view == kind->name;
	/* `datasets` writes its caches next to the files that it reads. */
	if (kind->takes_files && !node->layouts)
		node->overlay = node->path + strlen("/data/");
	*ret = node;
	return 0;
}

int mfs_tree_new_layout(struct mfs_tree *tree, const struct mfs_node *layouts, const char *name,
			struct mfs_branch *branch, struct mfs_node **ret, struct mfs_error *err)
{
	struct mfs_branch *in = branch ? branch : layouts->branch;
	const char *view = mfs_arena_printf(arena_in(tree, in), "%s/%s", layouts->view, name);

	if (!view)
		return mfs_fail_nomem(err);
	return new_view(tree, layouts, in, name, layouts->kind, view, layouts->group, ret, err);
}

int mfs_tree_fill_layouts(struct mfs_tree *tree, struct mfs_node *node, const char *const *names,
			  uint32_t count, struct mfs_error *err)
{
	struct mfs_dir *dir = mfs_tree_new_dir(tree, node, count, node->mtime_ns);
	struct mfs_node *entry;
	int rc = dir ? 0 : mfs_fail_nomem(err);

	for (uint32_t i = 0; i < count && !rc; i++) {
		rc = mfs_tree_new_layout(tree, node, names[i], NULL, &entry, err);
		if (!rc)
			mfs_tree_add_entry(dir, entry);
	}
	if (!rc)
		mfs_tree_publish(node, dir);
	return rc;
}

/* The directory of several views, without those that lack. */
static int new_group(struct mfs_tree *tree, const struct mfs_node *parent,
		     const struct mfs_views_entry *e, struct mfs_node **ret, struct mfs_error *err)
{
	static const struct identity own = {0};
	const size_t skip = strlen(e->name) + 1;
	struct mfs_node *node, *entry;
	struct mfs_dir *dir;
	int rc = new_directory(tree, parent, e->name, &own, parent->mtime_ns, &node, err);

	if (rc)
		return rc;
	dir = mfs_tree_new_dir(tree, node, e->end - e->first, node->mtime_ns);
	if (!dir)
		return mfs_fail_nomem(err);
	for (unsigned i = e->first; i < e->end; i++) {
		const struct mfs_view_kind *kind = node->views->table->kinds[i];

		if (node->views->why_not[i])
			continue;
		rc = new_view(tree, node, node->branch, kind->name + skip, kind, kind->name, node,
			      &entry, err);
		if (rc)
			return rc;
		mfs_tree_add_entry(dir, entry);
	}
	mfs_tree_publish(node, dir);
	*ret = node;
	return 0;
}

/* Adds a file that says why some views lack. Its home is their owner's directory. */
static int add_why_not(struct mfs_tree *tree, struct mfs_node *node, struct mfs_dir *dir,
		       struct mfs_error *err)
{
	struct span all = {NULL, node, NULL, NULL, 0, 1, 0};
	struct mfs_node *file;
	struct mfs_view *view;
	int rc = mfs_views_new_why_not(node->views, &view, err);

	if (rc)
		return rc;
	all.view = view;
	rc = add_readers(tree, inside(node),
			 mfs_readers_of_sets(view->sets, view->set_count, &view->fixed),
			 &all.readers, err);
	if (!rc)
		rc = new_file(tree, node, &all, 0, MFS_WHY_NOT_FILE, &file, err);
	node->view = MFS_WHY_NOT_VIEW;
	node->stamp = view->stamp;
	mfs_view_free(view);
	if (!rc)
		mfs_tree_add_entry(dir, file);
	return rc;
}

/* Adds the views of an iteration or a dataset to its directory; for an HF directory, to the
 * root. */
static int add_views(struct mfs_tree *tree, struct mfs_node *node, struct mfs_views *views,
		     struct mfs_dir *dir, struct mfs_error *err)
{
	struct mfs_views_entry e;
	struct mfs_node *made;
	int rc;

	node->views = views;
	for (unsigned i = 0; mfs_views_entry(views, i, &e); i = e.end) {
		const struct mfs_view_kind *kind = views->table->kinds[e.first];

		if (e.why_not)
			continue;
		rc = e.is_group ? new_group(tree, node, &e, &made, err)
				: new_view(tree, node, inside(node), kind->name, kind, kind->name,
					   NULL, &made, err);
		if (rc)
			return rc;
		mfs_tree_add_entry(dir, made);
	}
	return mfs_views_lacks(views) ? add_why_not(tree, node, dir, err) : 0;
}

/* 0 is no version. */
static uint64_t version_of(const struct mfs_iteration *it)
{
	const uint64_t identity = mfs_iteration_identity(it);

	return identity ? identity : 1;
}

#define MOST_VIEWS                                                                                 \
	(MFS_VIEW_KINDS + 1) /* in one directory, with the file that says why some lack */

static int fill_owner(struct mfs_tree *tree, struct mfs_node *node, struct mfs_views *views,
		      struct mfs_error *err)
{
	struct mfs_dir *dir = mfs_tree_new_dir(tree, node, MOST_VIEWS, views->mtime_ns);
	int rc = dir ? add_views(tree, node, views, dir, err) : mfs_fail_nomem(err);

	if (!rc)
		mfs_tree_publish(node, dir);
	return rc;
}

int mfs_tree_fill_flat(struct mfs_tree *tree, struct mfs_tree_run *run, struct mfs_iteration *it,
		       int64_t mtime_ns, struct mfs_error *err)
{
	struct mfs_node *top = run->top, *data = run->data;
	struct mfs_dir *dir = mfs_tree_new_dir(tree, top, MOST_VIEWS + 1, mtime_ns);
	int rc = dir ? 0 : mfs_fail_nomem(err);

	if (!rc && data)
		mfs_tree_add_entry(dir, data);
	if (!rc && it) {
		top->iteration = it;
		top->owner = top;
		top->version = version_of(it);
		rc = add_views(tree, top, mfs_iteration_views(it), dir, err);
	}
	if (!rc)
		mfs_tree_publish(top, dir);
	return rc;
}

int mfs_tree_new_iteration(struct mfs_tree *tree, struct mfs_branch *b, struct mfs_error *err)
{
	const struct identity is = {.version = version_of(b->it)};
	int rc = new_directory_in(tree, b->run->top, b, mfs_iteration_name(b->it), &is,
				  mfs_iteration_mtime(b->it), &b->top, err);

	if (rc)
		return rc;
	b->top->iteration = b->it;
	b->top->moves = true;
	rc = mfs_tree_set_readers(tree, b->top, mfs_readers_of_path(mfs_iteration_path(b->it)),
				  err);
	return rc ? rc : fill_owner(tree, b->top, mfs_iteration_views(b->it), err);
}

int mfs_tree_new_latest(struct mfs_tree *tree, struct mfs_branch *b, struct mfs_error *err)
{
	const struct identity is = {.version = version_of(b->it)};
	struct mfs_node *node;
	int rc = new_node(tree, b->run->top, b, "latest", &is, &node, err);

	if (rc)
		return rc;
	node->type = S_IFLNK;
	node->mtime_ns = mfs_iteration_mtime(b->it);
	node->iteration = b->it;
	node->target = mfs_iteration_name(b->it);
	node->size = strlen(node->target);
	node->moves = true;
	b->latest = node;
	return 0;
}

/* ---- datasets ---- */

/* Readers of all datasets, since a blend may use them all. NULL: no memory. */
static struct mfs_readers *readers_of_all(const struct mfs_data *datasets)
{
	struct mfs_fileset **all = NULL, *const * sets;
	struct mfs_readers *readers = NULL;
	uint32_t room = 0, count = 0, more;

	for (uint32_t i = 0; i < mfs_data_count(datasets); i++) {
		mfs_dataset_sets(mfs_data_at(datasets, i), &more);
		room += more;
	}
	all = calloc(room + 1, sizeof(struct mfs_fileset *));
	for (uint32_t i = 0; all && i < mfs_data_count(datasets); i++) {
		sets = mfs_dataset_sets(mfs_data_at(datasets, i), &more);
		if (more)
			memcpy(all + count, sets, more * sizeof(*sets));
		count += more;
	}
	if (all)
		readers = mfs_readers_of_sets(all, count, NULL);
	free(all);
	return readers;
}

static struct mfs_readers *readers_of(const struct mfs_data *datasets, const struct mfs_dataset *d)
{
	uint32_t count;
	struct mfs_fileset *const *sets = mfs_dataset_sets(d, &count);

	return count ? mfs_readers_of_sets(sets, count, NULL) : readers_of_all(datasets);
}

static uint64_t identity_of_sets(const struct mfs_dataset *d)
{
	uint64_t identity = 0;
	uint32_t count;
	struct mfs_fileset *const *sets = mfs_dataset_sets(d, &count);

	for (uint32_t i = 0; i < count; i++)
		identity = identity * 0x100000001b3ull + mfs_fileset_identity(sets[i]);
	return identity;
}

/* A blend may use all datasets. */
static uint64_t version_of_data(const struct mfs_data *datasets, const struct mfs_dataset *d)
{
	uint64_t version = identity_of_sets(d);

	for (uint32_t i = 0; !version && i < mfs_data_count(datasets); i++)
		version = identity_of_sets(mfs_data_at(datasets, i));
	return version ? version : 1;
}

static int new_dataset(struct mfs_tree *tree, const struct mfs_node *parent,
		       const struct mfs_data *datasets, struct mfs_dataset *d,
		       struct mfs_node **ret, struct mfs_error *err)
{
	const struct identity is = {.version = version_of_data(datasets, d)};
	int rc = new_directory(tree, parent, mfs_dataset_name(d), &is, mfs_dataset_mtime(d), ret,
			       err);

	if (rc)
		return rc;
	rc = mfs_tree_set_readers(tree, *ret, readers_of(datasets, d), err);
	return rc ? rc : fill_owner(tree, *ret, mfs_dataset_views(d), err);
}

int mfs_tree_new_data(struct mfs_tree *tree, struct mfs_tree_run *run,
		      const struct mfs_data *datasets, struct mfs_error *err)
{
	static const struct identity own = {0};
	struct mfs_node *node, *entry;
	struct mfs_dir *dir;
	int rc = new_directory(tree, run->top, "data", &own, 0, &node, err);

	if (rc)
		return rc;
	dir = mfs_tree_new_dir(tree, node, mfs_data_count(datasets), 0);
	if (!dir)
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < mfs_data_count(datasets) && !rc; i++) {
		rc = new_dataset(tree, node, datasets, mfs_data_at(datasets, i), &entry, err);
		if (rc)
			return rc;
		mfs_tree_add_entry(dir, entry);
		if (entry->mtime_ns > dir->mtime_ns)
			dir->mtime_ns = entry->mtime_ns;
	}
	node->mtime_ns = dir->mtime_ns;
	mfs_tree_publish(node, dir);
	run->data = node;
	return 0;
}
