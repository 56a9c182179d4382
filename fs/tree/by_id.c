/* Nodes by their ids, also in a daemon that has not shown them yet (node_ids.h). */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "fs/tree/tree_i.h"
#include "fs/view/views.h"

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
static int open_owner_in(struct mfs_tree *tree, struct mfs_tree_run *run, uint64_t id,
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
