/* What goes from the reader of text to those who encode it, and from these to the writer. */
#ifndef MFS_FS_PACK_BATCH_H
#define MFS_FS_PACK_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/buf.h"
#include "formats/base/error.h"
#include "fs/pack/input/digest.h"

#define MFS_PACK_KEYS 16 /* --json-keys, at most */

/* Where a batch ends. A later run needs no more than this to go on after it. */
struct mfs_text_place {
	uint64_t file;		   /* of the inputs, of all passes over them, from 0 */
	uint64_t line;		   /* documents of the file that come before */
	uint64_t document;	   /* documents of the pass that come before */
	struct mfs_pack_mark mark; /* in the unpacked file */
	bool last;		   /* the file has ended without a separator: it must not go on */
};

/* What documents have become, of one key. */
struct mfs_packed_text {
	struct mfs_buf tokens;	  /* elements of the dataset's dtype */
	struct mfs_buf lengths;	  /* uint32_t: tokens of each sequence */
	struct mfs_buf sequences; /* uint32_t: sequences of each document */
};

/* Whole documents. */
struct mfs_text_batch {
	/* The reader's. */
	struct mfs_buf text; /* with their separators */
	const char *name;    /* of the input, for messages */
	uint64_t line;	     /* of the first document in its file, from 1 */
	uint64_t document;   /* of the first document in its pass, from 0 */
	uint64_t pass;
	struct mfs_text_place end;
	uint64_t read; /* bytes of all inputs, as they are on disk */

	/* Of what has failed; no document of this batch is written then. */
	int rc;
	struct mfs_error err;

	/* The encoder's. */
	struct mfs_packed_text keys[MFS_PACK_KEYS];
	uint64_t documents; /* of this pass */
	bool encoded;
};

#endif
