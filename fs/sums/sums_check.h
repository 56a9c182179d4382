/* Compares a model with a sums file, which its maker may have signed. */
#ifndef MFS_FS_SUMS_SUMS_CHECK_H
#define MFS_FS_SUMS_SUMS_CHECK_H

#include <stdint.h>

#include "formats/base/error.h"
#include "fs/sums/sums.h"
#include "fs/sums/tensors.h"

/* What a person names. */
struct mfs_sums_source {
	const char *file;
	const char *key;       /* the maker's public key (PEM); NULL: the file need not be signed */
	const char *signature; /* NULL: the file's name with ".sig" */
};

/* Reads the file, and checks its signature before anything in it is believed. Errors as those of
 * fs/sums/signature.h and mfs_sums_parse(). */
int mfs_sums_read(const struct mfs_sums_source *from, struct mfs_sums *ret, struct mfs_error *err);

/*
 * Compares: a tensor that is in one of the two alone is a problem, as is another type, shape or
 * sum. The rows of a vocabulary whose true size the model does not say may go beyond those of the
 * file: they are padding. file is for messages. problem() is called for each one, with its
 * sentence. *ret_right: tensors that are right. -ENOMEM.
 */
int mfs_sums_check(struct mfs_tensors *t, const struct mfs_sums *want, const char *file,
		   void (*problem)(void *arg, const struct mfs_error *what), void *arg,
		   uint32_t *ret_right, struct mfs_error *err);

#endif
