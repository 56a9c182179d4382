/* What pack reads: a file or a pipe. Knows whether it is the one that an earlier run has read. */
#ifndef MFS_FS_PACK_INPUT_H
#define MFS_FS_PACK_INPUT_H

#include <stdbool.h>

#include "fs/pack/digest.h"

struct mfs_pack_input {
	int fd;
	bool seekable;
	uint64_t base;	   /* of the input within its file: a shell may have read a line of it */
	uint64_t size;	   /* bytes; 0: not known */
	uint64_t position; /* bytes handed out */
	struct mfs_pack_digest *digest;
	struct mfs_pack_mark ended; /* at the end of the last document */
	uint8_t *buffer;
};

/* fd stays the caller's. */
int mfs_pack_input_open(struct mfs_pack_input *in, int fd, struct mfs_error *err);
void mfs_pack_input_release(struct mfs_pack_input *in);

/* Goes to where an earlier run has ended, before anything is read. A file is seeked; a pipe is read
 * and compared up to there. -ESTALE: it is another input; -EINTR: a signal asks to stop. */
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
