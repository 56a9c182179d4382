/*
 * ZIP and ZIP64 archives with stored (uncompressed) entries: where the payload of each entry lies.
 *
 * Sizes come from the central directory alone, because torch writes zeros into local headers and
 * puts a data descriptor after the payload (caffe2/serialize/inline_container.cc). The caller
 * checks CRCs: torch.serialization.set_crc32_options(False) leaves them 0, and tensors are not read
 * here. Format: PKWARE APPNOTE 4.3.x, sections 4.3.7, 4.3.12, 4.3.14-4.3.16, 4.5.3.
 */
#ifndef MFS_TORCH_ZIP_H
#define MFS_TORCH_ZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/io/source.h"

struct mfs_zip_entry {
	const char *name;
	uint64_t header; /* offset of the local header in the archive */
	uint64_t size;	 /* payload bytes */
	uint64_t limit;	 /* offset of what follows: the next header, or the directory */
	uint32_t crc;	 /* CRC-32 of the payload; 0 where the writer did not compute it */
	bool bare;	 /* no local header: the payload begins at header (torch_stream.h) */
};

struct mfs_zip {
	struct mfs_source src;
	struct mfs_zip_entry *entries; /* sorted by name */
	uint32_t count;
	struct mfs_arena arena;
};

/* Reads the central directory. -EINVAL: not a ZIP, damaged, entries that overlap or lie outside,
 * duplicate names; -ENOTSUP: compressed or encrypted entries, several disks. */
int mfs_zip_open(const struct mfs_source *src, struct mfs_zip *ret, struct mfs_error *err);
void mfs_zip_release(struct mfs_zip *zip);

/* NULL if there is none. */
const struct mfs_zip_entry *mfs_zip_find(const struct mfs_zip *zip, const char *name);

/* The offset of an entry's payload in the archive. It reads the local header, whose name must be
 * the entry's. Header, payload and data descriptor must fill the space up to limit exactly, so that
 * a changed length in the header cannot move the payload unnoticed. */
int mfs_zip_locate(const struct mfs_source *src, const struct mfs_zip_entry *e, uint64_t *ret,
		   struct mfs_error *err);

#endif
