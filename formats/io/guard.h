/*
 * Reading mapped files that may be cut under us.
 *
 * A page of a mapping beyond the end of its file raises SIGBUS. mfs_guard_install() (once per
 * process, by the program) turns a SIGBUS inside a guarded copy into -EIO; anywhere else the signal
 * goes to the handler that was there before, or keeps its default action. Nothing else in mcorefs
 * may dereference mapped source bytes.
 */
#ifndef MFS_IO_GUARD_H
#define MFS_IO_GUARD_H

#include <stddef.h>
#include <stdint.h>

/* 0 or -errno. Safe to call more than once. */
int mfs_guard_install(void);

/* memcpy from a mapping; 0, or -EIO if a page could not be read. */
int mfs_guard_copy(void *to, const void *from, size_t len);

/* Runs fn(arg) guarded: 0, or -EIO. fn must own nothing: it is left in the middle on a fault. */
int mfs_guard_run(void (*fn)(void *arg), void *arg);

#endif
