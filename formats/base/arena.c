#include "formats/base/arena.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first block is small: many arenas hold a few names, and a long-lived mount has thousands. */
#define FIRST_BYTES   1024
#define LARGEST_BYTES (64 * 1024)

struct mfs_arena_block {
	struct mfs_arena_block *next;
	size_t size;
	alignas(max_align_t) char bytes[];
};

/* Blocks double what is there, up to the largest. */
static size_t least_block(const struct mfs_arena *a)
{
	if (a->block)
		return a->block;
	if (a->total < FIRST_BYTES)
		return FIRST_BYTES;
	return a->total < LARGEST_BYTES ? a->total : LARGEST_BYTES;
}

static int add_block(struct mfs_arena *a, size_t size)
{
	const size_t least = least_block(a);
	struct mfs_arena_block *block;

	if (size < least)
		size = least;
	if (size > SIZE_MAX - sizeof(*block))
		return -1;
	block = calloc(1, sizeof(*block) + size);
	if (!block)
		return -1;
	block->size = size;
	block->next = a->blocks;
	a->blocks = block;
	a->used = 0;
	a->total += sizeof(*block) + size;
	return 0;
}

void *mfs_arena_alloc(struct mfs_arena *a, size_t size)
{
	const size_t align = alignof(max_align_t);
	void *p;

	if (size > SIZE_MAX - align)
		return NULL;
	size = (size + align - 1) & ~(align - 1);
	if (!a->blocks || a->blocks->size - a->used < size)
		if (add_block(a, size))
			return NULL;
	p = a->blocks->bytes + a->used;
	a->used += size;
	return p;
}

void *mfs_arena_array(struct mfs_arena *a, size_t count, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(count, size, &bytes))
		return NULL;
	return mfs_arena_alloc(a, bytes);
}

char *mfs_arena_strndup(struct mfs_arena *a, const char *s, size_t len)
{
	char *copy = len < SIZE_MAX ? mfs_arena_alloc(a, len + 1) : NULL;

	if (copy)
		memcpy(copy, s, len);
	return copy;
}

char *mfs_arena_printf(struct mfs_arena *a, const char *fmt, ...)
{
	va_list ap, again;
	char *text;
	int len;

	va_start(ap, fmt);
	va_copy(again, ap);
	len = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	text = len < 0 ? NULL : mfs_arena_alloc(a, (size_t)len + 1);
	if (text)
		vsnprintf(text, (size_t)len + 1, fmt, again);
	va_end(again);
	return text;
}

void mfs_arena_release(struct mfs_arena *a)
{
	while (a->blocks) {
		struct mfs_arena_block *next = a->blocks->next;

		free(a->blocks);
		a->blocks = next;
	}
	a->used = a->total = 0;
}
