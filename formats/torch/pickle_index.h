/*
 * Where the text keys of a document's long dicts are: a table for each, made when it is first asked
 * for one. A dict may be referred to from as many places as the stream has bytes, so walking it
 * each time would be quadratic.
 */
#ifndef MFS_TORCH_PICKLE_INDEX_H
#define MFS_TORCH_PICKLE_INDEX_H

#include "formats/torch/pickle.h"

#define MFS_PICKLE_LONG 16 /* pairs, below which a walk is as fast */

struct mfs_pickle_indices;

struct mfs_pickle_indices *mfs_pickle_indices_new(void);
void mfs_pickle_indices_free(struct mfs_pickle_indices *x);

/* The last pair of v under a text key; from any thread. 0, -ENOENT, or -ENOMEM: there is no table,
 * or the key is too long for one; v must be walked. */
int mfs_pickle_index_find(struct mfs_pickle_indices *x, const struct mfs_pickle *doc, mfs_value v,
			  const char *key, uint32_t *ret_pair);

#endif
