/*
 * Error records: a code for the program, and a sentence for the person.
 *
 * Functions return 0 or -errno. The caller owns a struct mfs_error, or passes NULL. It is filled at
 * the deepest place that knows the file and the tensor, and says what was expected and what was
 * found. Library code never logs and never exits. Classes of errno, in all formats:
 *
 *   -EINVAL   the bytes break the format's rules (a damaged or hostile file)
 *   -ENOTSUP  legal, but mcorefs does not understand it
 *   -ENODATA  something that must be there is missing (a file, a tensor, an argument)
 *   -ESTALE   a source changed after it was opened
 *   -EIO      a source could not be read, or is shorter than it claims
 *   -ENOLINK  a link leads out of its source (formats/io/fence.h)
 *   -ENOMEM   out of memory
 */
#ifndef MFS_BASE_ERROR_H
#define MFS_BASE_ERROR_H

#include <errno.h>
#include <string.h>

struct mfs_error {
	int code; /* the -errno that was returned; 0: none yet */
	char msg[640];
};

void mfs_error_set(struct mfs_error *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Fills err (unless NULL) and returns code. A macro, so that the compiler sees a constant code. */
#define mfs_fail(err, code, ...)                                                                   \
	({                                                                                         \
		const int mfs_code_ = (code);                                                      \
		mfs_error_set(err, mfs_code_, __VA_ARGS__);                                        \
		mfs_code_;                                                                         \
	})

/* What an errno means: strerror(3)'s words, or ours where a code has another meaning here. */
const char *mfs_errno_text(int code);

/* Fails with the errno that a system call has left. The message ends in ": " and what it means. */
#define mfs_fail_errno(err, fmt, ...)                                                              \
	mfs_fail(err, -errno, fmt ": %s", ##__VA_ARGS__, mfs_errno_text(errno))

/* Puts the formatted text and ": " in front of the message that is there, and returns its code
 * (-EIO if there is none). */
int mfs_fail_in(struct mfs_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The common out-of-memory record; returns -ENOMEM. */
static inline int mfs_fail_nomem(struct mfs_error *err)
{
	return mfs_fail(err, -ENOMEM, "out of memory");
}

#endif
