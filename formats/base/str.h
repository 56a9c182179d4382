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

/* Names come from files: what may speak to a terminal becomes '?', in place. That is control
 * characters of ASCII, DEL, those of C1 (as U+0080 to U+009F, too), and bytes that are no UTF-8. */
void mfs_str_printable(char *text);

/* Two hexadecimal digits a byte, and a NUL: ret has room for 2 len + 1. */
void mfs_str_hex(const void *bytes, size_t len, char *ret);

#endif
