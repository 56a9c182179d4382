/* Small questions about texts, and digits of bytes. */
#ifndef MFS_BASE_STR_H
#define MFS_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* text may be NULL, which equals no text. */
static inline bool mfs_str_is(const char *text, const char *what)
{
	return text && !strcmp(text, what);
}

bool mfs_str_ends(const char *text, const char *end);

/* For qsort() of an array of texts. */
int mfs_str_order(const void *a, const void *b);

/* The value of a hexadecimal digit of either case; -1: it is none. */
int mfs_str_digit(char c);

/* Two hexadecimal digits a byte, and a NUL: ret has room for 2 len + 1. */
void mfs_str_hex(const void *bytes, size_t len, char *ret);

#endif
