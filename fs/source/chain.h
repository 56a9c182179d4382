/*
 * A chain of deltas (formats/delta) as a SOURCE: each version is a HuggingFace directory. A version
 * that is a whole model is its own directory. Another one is a directory of placeholders
 * (formats/io/backing.h), whose bytes are those of the base with the changes of all versions up to
 * it. Everything that reads a HuggingFace directory works on both.
 *
 * The base is what -o base= names, or weight_base.json: any SOURCE. Its files are those of a view,
 * or those of a HuggingFace directory as they are (weight_files.h).
 *
 * A chain grows, and is written anew: mfs_chain_look() may be called again and again, by one thread
 * at a time. What it has once given stays until the end.
 */
#ifndef MFS_FS_SOURCE_CHAIN_H
#define MFS_FS_SOURCE_CHAIN_H

#include <stdint.h>

#include "formats/base/error.h"
#include "fs/view/view.h"

struct mfs_chain;

/* dir: the chain's, or a version's. options are copied, what they point to is not. -ENODATA: the
 * first version changes a model that nothing names; errors of opening that. */
int mfs_chain_open(const char *dir, const struct mfs_view_options *options, struct mfs_chain **ret,
		   struct mfs_error *err);
/* Nobody may read its files any more. */
void mfs_chain_free(struct mfs_chain *c);

/* A version as it is now. */
struct mfs_chain_version {
	uint32_t number;
	const char *path; /* its HuggingFace directory; NULL: it cannot be shown */
	uint64_t stamp;	  /* another one if its bytes, or the sentence, may be others */
	char *why;	  /* path NULL: a sentence */
	/* The chain's, with the directory as its own ref unless another one is given. */
	struct mfs_view_options options;
};

/* Looks at all versions: those that are shown, ascending. They belong to the chain, and the caller
 * frees *ret. A version that cannot be shown is no error. */
int mfs_chain_look(struct mfs_chain *c, const struct mfs_chain_version ***ret, uint32_t *ret_count,
		   struct mfs_error *err);

#endif
