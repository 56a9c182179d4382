/*
 * A table of text keys for each long dict of a document, made when the dict is first searched. A
 * stream can refer to one dict from as many places as it has bytes, so walking it each time would
 * be quadratic.
 */
#ifndef MFS_TORCH_PICKLE_INDEX_H
#define MFS_TORCH_PICKLE_INDEX_H

#include "formats/torch/pickle.h"

#define MFS_PICKLE_LONG 16 /* pairs, below which a walk is as fast */

struct mfs_pickle_indices;

struct mfs_pickle_indices *mfs_pickle_indices_new(void);
void mfs_pickle_indices_free(struct mfs_pickle_indices *x);

/* The last pair of v under a text key. -ENOENT: there is none. -ENOMEM: there is no table, or the
 * key is too long for one, and the caller walks v. Any thread. */
int mfs_pickle_index_find(struct mfs_pickle_indices *x, const struct mfs_pickle *doc, mfs_value v,
			  const char *key, uint32_t *ret_pair);

#endif
