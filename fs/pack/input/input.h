/* What pack reads: a file or a pipe. Knows whether it is the one that an earlier run has read. */
#ifndef MFS_FS_PACK_INPUT_H
#define MFS_FS_PACK_INPUT_H

#include <stdbool.h>

#include "formats/base/buf.h"
#include "fs/pack/input/digest.h"

#define MFS_PACK_CHUNK (256u << 10) /* bytes that are read at once, at most */

struct mfs_table_text;
struct mfs_unpacker;

struct mfs_pack_input {
	int fd;
	const char *name; /* for messages: "standard input", "'x.jsonl'"; borrowed */
	bool seekable;
	uint64_t base;	   /* of the input within its file: a shell may have read a line of it */
	uint64_t size;	   /* bytes; 0: not known */
	uint64_t raw;	   /* bytes read; not those of position where the input is compressed */
	uint64_t position; /* bytes handed out */
	struct mfs_pack_digest *digest;
	struct mfs_pack_mark ended; /* at the end of the last document */
	uint8_t *buffer;
	struct mfs_unpacker *unpacker; /* NULL: not compressed */
	uint8_t *packed;	       /* bytes read that are to be unpacked */
	const uint8_t *packed_at;
	size_t packed_len;
	/* Columns of a table (Parquet, Arrow), which is read as JSON lines of them; none:
	 * there may be no such file. Borrowed; set it after the opening. */
	const char *const *columns;
	size_t column_count;
	struct mfs_table_text *table; /* NULL: it is no such file */
	struct mfs_buf rows;	      /* lines of it */
	size_t rows_at;		      /* bytes of them that have been handed out */
	bool known;		      /* what it is compressed with has been looked at */
	bool more;		      /* the unpacker had no room for all */
};

/* What is compressed with gzip or zstd is unpacked. fd stays the caller's. -ENOTSUP, when it is
 * read: compressed in another way, or a table out of a pipe. */
int mfs_pack_input_open(struct mfs_pack_input *in, int fd, const char *name, struct mfs_error *err);
void mfs_pack_input_release(struct mfs_pack_input *in);

/* Goes to where an earlier run has ended, before anything is read. A file is seeked; a pipe or what
 * is compressed is read and compared up to there. -ESTALE: it is another input; -EINTR: a signal
 * asks to stop. */
int mfs_pack_input_skip(struct mfs_pack_input *in, const struct mfs_pack_mark *to,
			struct mfs_error *err);

/* Fails unless the input ends here. -ESTALE: it goes on. */
int mfs_pack_input_at_end(struct mfs_pack_input *in, struct mfs_error *err);

/* The next bytes; none at the end. -EAGAIN without a sentence: nothing has come for a second;
 * -EINTR: a signal asks to stop (fs/cli/stop.h). */
int mfs_pack_input_read(struct mfs_pack_input *in, const uint8_t **ret, size_t *ret_len,
			struct mfs_error *err);
/* Call it when these bytes have been dealt with. ended: the place of the input where the last
 * document so far ends. At the end of the input it is called without bytes. */
void mfs_pack_input_done(struct mfs_pack_input *in, const uint8_t *bytes, size_t len,
			 uint64_t ended);

#endif
