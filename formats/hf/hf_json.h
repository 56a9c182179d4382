/* Reads and writes the small JSON files of HF directories, with jansson. */
#ifndef MFS_HF_HF_JSON_H
#define MFS_HF_HF_JSON_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/io/access.h"

struct mfs_fileset;

/* Parses a document of at most max bytes. name: for messages. flags: jansson's decoding flags in
 * addition to JSON_REJECT_DUPLICATES. -EINVAL: not JSON; -ENOTSUP: too large. */
int mfs_json_load(const char *bytes, size_t len, size_t max, size_t flags, const char *name,
		  json_t **ret, struct mfs_error *err);

/* Text as HF's tools write it: sorted keys, two columns a level, short numbers, a line break at the
 * end. */
int mfs_json_text(const json_t *root, char **ret, size_t *ret_len, struct mfs_error *err);

/* Reads a whole file of dir and puts a NUL after its last byte. -ENOENT: there is none; -ENOTSUP:
 * over max bytes. */
int mfs_hf_slurp(const char *dir, const char *name, uint64_t max, char **ret, size_t *ret_len,
		 struct mfs_error *err);
/* Like mfs_hf_slurp(). access: who may read the file is folded into it; may be NULL. */
int mfs_hf_slurp_counted(const char *dir, const char *name, uint64_t max, char **ret,
			 size_t *ret_len, struct mfs_access_fold *access, struct mfs_error *err);
/* Like mfs_hf_slurp_counted(); the file is added to the set first. */
int mfs_hf_slurp_added(struct mfs_fileset *set, const char *name, uint64_t max, char **ret,
		       size_t *ret_len, struct mfs_error *err);

#endif
