/* Branches: nodes that come and go together, and who knows them. All of it is under the lock. */
#include <stdlib.h>
#include <string.h>

#include "fs/source/readers.h"
#include "fs/tree/tree_i.h"

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

void mfs_tree_add_branch(struct mfs_tree *tree, struct mfs_branch *b)
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
void mfs_tree_leave(struct mfs_tree *tree, const struct mfs_node *node, uint64_t times)
{
	struct mfs_tree_run *run = node->branch ? node->branch->run : NULL;
	bool last = false;

	if (run) {
		run->known -= times;
		last = run->entry && run->root && !run->known;
	}
	mfs_tree_unkeep(tree, node, times);
	if (last)
		mfs_tree_close_run(tree, run);
}

/* ---- views that no listing names ---- */

struct mfs_branch *mfs_tree_find_branch(const struct mfs_tree *tree, const struct mfs_node *node,
					const char *name, uint64_t ino)
{
	struct mfs_branch *b = *branch_list(tree, ino);

	while (b && (b->top->parent != node || strcmp(b->top->name, name)))
		b = b->next;
	return b;
}

int mfs_tree_new_branch(struct mfs_tree *tree, const struct mfs_node *node, const char *name,
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
	mfs_tree_add_branch(tree, b);
	*ret = b;
	return 0;
}
