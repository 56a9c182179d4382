/*
 * What an unfinished export has achieved: a small JSON file in its directory.
 *
 *   {"mcorefs_export": 1, "source": "<sha256>",
 *    "files": [{"name": "config.json", "size": 693, "durable": 693}, ...]}
 *
 * durable counts the bytes from the start of a file that survive a crash. The source's fingerprint
 * covers the names, sizes and times of the view's files and the first bytes of each, where headers
 * and whole small files are.
 */
#ifndef MFS_FS_EXPORT_JOURNAL_H
#define MFS_FS_EXPORT_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "fs/view/view.h"

#define MFS_EXPORT_JOURNAL ".mcorefs-export.json"

struct mfs_fingerprint {
	char hex[65]; /* SHA-256 */
};

int mfs_fingerprint_view(const struct mfs_view *view, struct mfs_fingerprint *ret,
			 struct mfs_error *err);

/* Fills durable[view->count] from the journal in the open directory, as far as the files there are
 * long enough. False, with durable all 0: there is no journal, or it is of another source or
 * another version. */
bool mfs_journal_load(int dirfd, const struct mfs_view *view, const struct mfs_fingerprint *source,
		      uint64_t *durable);
/* Replaces the journal; it is durable on return. */
int mfs_journal_save(int dirfd, const struct mfs_view *view, const struct mfs_fingerprint *source,
		     const uint64_t *durable, struct mfs_error *err);

#endif
