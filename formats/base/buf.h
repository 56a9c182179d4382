/* A byte buffer that grows. After the first failed allocation calls do nothing and .failed is set,
 * so a writer checks once at the end. */
#ifndef MFS_BASE_BUF_H
#define MFS_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

struct mfs_buf {
	char *data; /* NUL-terminated while len > 0 */
	size_t len, cap;
	bool failed;
};

void mfs_buf_add(struct mfs_buf *b, const void *bytes, size_t len);
void mfs_buf_adds(struct mfs_buf *b, const char *text);
void mfs_buf_printf(struct mfs_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Appends text as a JSON string, with its quotes. */
void mfs_buf_add_json(struct mfs_buf *b, const char *text);
void mfs_buf_add_json_bytes(struct mfs_buf *b, const void *bytes, size_t len);
/* Appends a part of such a string, without quotes. */
void mfs_buf_add_json_part(struct mfs_buf *b, const void *bytes, size_t len);
void mfs_buf_release(struct mfs_buf *b);

#endif
