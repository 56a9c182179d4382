/* Private to the scan: a file and the places in it where something may begin. */
#ifndef MFS_FS_FSCK_SCAN_I_H
#define MFS_FS_FSCK_SCAN_I_H

#include <stdbool.h>

#include "fs/fsck/scan.h"

#define MFS_SCAN_DEPTH 8 /* files in files: "x.tar.gz" in a ZIP has three */

/* Pickles of an honest file do not overlap: each of its bytes is gone through less than twice. */
#define MFS_SCAN_MAX_WALKED(size) (4 * (size) + (1u << 20))

/* What all files that are unpacked from one have in common. */
struct mfs_scan_whole {
	mfs_pickle_found found;
	void *arg;
	uint32_t pickles;
	uint64_t unpacked; /* bytes */
	struct mfs_error *err;
};

/* A file, or what was unpacked from it. */
struct mfs_fsck_scan {
	struct mfs_scan_whole *whole;
	int fd;
	uint64_t size;
	const uint8_t *map; /* its bytes, for pickles: they may be long, and most is passed over */
	uint64_t walked;    /* bytes that were gone through */
	uint32_t imports;
	bool joblib; /* a pickle imports what reads arrays from the middle of it */
	unsigned depth;
};

int mfs_scan_read(const struct mfs_fsck_scan *s, uint64_t at, void *to, size_t len);
/* As many bytes as there are, up to len, and zeros. */
int mfs_scan_begin(const struct mfs_fsck_scan *s, uint64_t at, void *to, size_t len);
/* -EFBIG: parts of the file lie in one another, and all of them would be a walk without end. */
int mfs_scan_walk(struct mfs_fsck_scan *s, uint64_t at, uint64_t len);

/* The whole file. */
int mfs_scan_all(struct mfs_fsck_scan *s);

/* What begins at a byte: an array, something compressed, a tar, pickles one after the other. */
enum mfs_scan_kind {
	MFS_SCAN_FILE, /* it is the file's beginning */
	MFS_SCAN_ZIP,  /* a record, after which another one may begin */
	MFS_SCAN_TAR,  /* a member, and the tar is walked already */
};
int mfs_scan_place(struct mfs_fsck_scan *s, uint64_t at, enum mfs_scan_kind within);

/* True if an array of NumPy begins so, in which no pickle can be. size: of bytes. */
bool mfs_scan_is_plain_array(const uint8_t *bytes, size_t size);

/* The records of all ZIP archives, whether or not a directory names them. */
int mfs_scan_zip(struct mfs_fsck_scan *s);
/* The members of a tar that begins at a byte, if one does. */
int mfs_scan_tar(struct mfs_fsck_scan *s, uint64_t at);
/* Scans what begins at a byte, if it is compressed as a whole. -ENOTSUP: it cannot be unpacked. */
int mfs_scan_packed(struct mfs_fsck_scan *s, uint64_t at);

/* Unpacks a stream of zlib's (window_bits as of inflateInit2) and scans what comes out. sure: it
 * is one. If not, and nothing or garbage comes out, all is well. */
int mfs_scan_inflate(struct mfs_fsck_scan *s, uint64_t at, int window_bits, bool sure);

#endif
