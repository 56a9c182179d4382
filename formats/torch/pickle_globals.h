/*
 * Which classes and functions a pickle of any protocol (0 to 5) imports, without making anything of
 * it. It follows every opcode of CPython's Lib/pickletools.py as the unpickler does (the stack, its
 * marks, the memo), so that a name which is put together on the stack is seen as well.
 *
 * The readers of checkpoints do not need it: their machine (pickle.h) calls nothing. It is for
 * those who want to know what torch.load() or pickle.load() would do.
 */
#ifndef MFS_TORCH_PICKLE_GLOBALS_H
#define MFS_TORCH_PICKLE_GLOBALS_H

#include <stddef.h>

#include "formats/base/error.h"

/* An import, in the order of the stream. NULL: what is imported is not a text that stands in the
 * stream, so nobody can say what it is. Not NUL-terminated. */
typedef void (*mfs_pickle_found)(void *arg, const char *module, size_t module_len, const char *name,
				 size_t name_len);

/*
 * Reads up to STOP. *ret_len: bytes up to there, or up to what is wrong: the unpickler has executed
 * all that lies before, so imports that were found count in any case. -ENODATA: the bytes end
 * before STOP; -EINVAL: the stream is malformed, and the unpickler, too, goes no further; -ENOTSUP:
 * it may go on, but this walk has a limit here. Memory is proportional to the stream.
 *
 * What is imported by a number of copyreg's registry is found at STOP, once: an unpickler without
 * that number fails.
 */
int mfs_pickle_globals(const void *bytes, size_t len, mfs_pickle_found found, void *arg,
		       size_t *ret_len, struct mfs_error *err);

/* The same for who counts what a walk costs. */
struct mfs_pickle_walked {
	size_t end;  /* *ret_len of above */
	size_t seen; /* bytes that were looked at, which those of long arguments are not */
};
int mfs_pickle_walk(const void *bytes, size_t len, mfs_pickle_found found, void *arg,
		    struct mfs_pickle_walked *ret, struct mfs_error *err);

#endif
