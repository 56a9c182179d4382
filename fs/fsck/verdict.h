/* What is known of a class or function that a pickle imports. */
#ifndef MFS_FS_FSCK_VERDICT_H
#define MFS_FS_FSCK_VERDICT_H

#include <stddef.h>

enum mfs_verdict {
	MFS_HARMLESS,  /* part of what torch, numpy and Megatron save */
	MFS_UNKNOWN,   /* nothing is known of it */
	MFS_DANGEROUS, /* it runs code, opens files or the network, or leads to what does */
};

/*
 * A name of Python's library, or a function of a package that is usually installed with torch, is
 * dangerous if it is not harmless. A name of another package is unknown, unless the name tells what
 * it does ("load", "FileWriter"). module NULL: the module cannot be known, which is dangerous.
 */
enum mfs_verdict mfs_verdict(const char *module, size_t module_len, const char *name,
			     size_t name_len);

#endif
