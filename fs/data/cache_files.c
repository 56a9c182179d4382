/* The files of one index below data/NAME/cache. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/index/index_files.h"
#include "fs/data/cache.h"
#include "fs/view/build.h"

/* A dataset may be in a blend twice, or in two blends. */
static bool is_there(const struct mfs_view *v, const char *name)
{
	for (uint32_t i = 0; i < v->count; i++)
		if (!strcmp(v->files[i].name, name))
			return true;
	return false;
}

static int add_array(struct mfs_cache_builder *b, const struct mfs_index_key *key,
		     enum mfs_split split, struct mfs_gpt_dataset *g, struct mfs_blend *blend,
		     enum mfs_index_array array)
{
	char name[MFS_INDEX_NAME_SIZE];
	struct mfs_vfile *f;
	int rc;

	mfs_index_name(key->digest, g ? "GPTDataset" : "BlendedDataset", split,
		       mfs_index_array_name(array), &b->run.rules, name);
	rc = g ? mfs_index_file_gpt(g, array, &b->run.rules, &f, b->err)
	       : mfs_index_file_blend(blend, array, &f, b->err);
	return rc ? rc : mfs_view_add(&b->view->public, name, f, b->err);
}

/* The description and the arrays of one index: of g, or of blend. Takes the key over. */
static int add_index(struct mfs_cache_builder *b, struct mfs_index_key *key, enum mfs_split split,
		     struct mfs_gpt_dataset *g, struct mfs_blend *blend)
{
	const enum mfs_index_array first = g ? MFS_INDEX_DOCUMENTS : MFS_INDEX_GPT_ARRAYS;
	const enum mfs_index_array end = g ? MFS_INDEX_GPT_ARRAYS : MFS_INDEX_ARRAYS;
	char name[MFS_INDEX_NAME_SIZE];
	int rc = 0;

	mfs_index_name(key->digest, g ? "GPTDataset" : "BlendedDataset", split, "description.txt",
		       &b->run.rules, name);
	if (is_there(&b->view->public, name)) {
		mfs_index_key_release(key);
		return 0;
	}
	for (enum mfs_index_array a = first; a < end && !rc; a++)
		rc = add_array(b, key, split, g, blend, a);
	if (!rc)
		rc = mfs_view_add_bytes(&b->view->public, name, key->text, key->len, b->err);
	else
		free(key->text);
	return rc;
}

int mfs_cache_add_gpt(struct mfs_cache_builder *b, const struct mfs_index_member *member,
		      enum mfs_split split, struct mfs_gpt_dataset *g)
{
	const struct mfs_rows *rows = mfs_gpt_dataset_rows(g);
	struct mfs_index_key key;
	int rc = mfs_index_key_gpt(&b->run, member, split, &key, b->err);

	if (rc)
		return rc;
	for (size_t i = 0; i < rows->set_count; i++)
		mfs_view_note_sources(&b->view->public, rows->sets[i]);
	return add_index(b, &key, split, g, NULL);
}

int mfs_cache_add_blend(struct mfs_cache_builder *b, const struct mfs_index_member *members,
			size_t count, const struct mfs_index_weights *weights, enum mfs_split split,
			struct mfs_blend *blend)
{
	struct mfs_index_key key;
	int rc = mfs_index_key_blend(&b->run, members, count, weights, split, &key, b->err);

	return rc ? rc : add_index(b, &key, split, NULL, blend);
}
