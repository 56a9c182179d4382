/* Region allocator for metadata that is built once and freed as a whole. Not thread-safe. */
#ifndef MFS_BASE_ARENA_H
#define MFS_BASE_ARENA_H

#include <stddef.h>

struct mfs_arena_block;

struct mfs_arena {
	struct mfs_arena_block *blocks;
	size_t used;  /* in the newest block */
	size_t total; /* bytes handed out by malloc, for limits and statistics */
	size_t block; /* bytes of the smallest block; 0: they grow from 1 KiB to 64 */
};

/* Zeroed memory aligned for any object, or NULL. A zero-filled struct is an empty arena. */
void *mfs_arena_alloc(struct mfs_arena *a, size_t size);
void *mfs_arena_array(struct mfs_arena *a, size_t count, size_t size);
char *mfs_arena_strndup(struct mfs_arena *a, const char *s, size_t len);
char *mfs_arena_printf(struct mfs_arena *a, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void mfs_arena_release(struct mfs_arena *a);

#endif
