/*
 * Messages of the Arrow IPC streaming format, as far as a table of tokens needs them: a schema and
 * its record batches. The first field may be a list of numbers; all others are numbers, or one of
 * them texts. Every field is nullable, and nothing is null.
 *
 *   FF FF FF FF | i32 length of metadata | Message (flatbuffer) | zeros | body
 *
 * The metadata and each buffer of a body end at a multiple of MFS_ARROW_ALIGN, filled up with
 * zeros. These functions write what stands in front of a body; the caller writes the bodies and
 * their zeros.
 *
 * Sources: arrow/docs/source/format/Columnar.rst, "Serialization and Interprocess Communication";
 * format/Message.fbs, Schema.fbs.
 */
#ifndef MFS_ARROW_ARROW_WRITE_H
#define MFS_ARROW_ARROW_WRITE_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/buf.h"
#include "formats/base/tensor.h"

#define MFS_ARROW_ALIGN 4096 /* a page; the format asks for 8 */
#define MFS_ARROW_EOS	8    /* bytes of the end of a stream: FF FF FF FF 00 00 00 00 */

enum mfs_arrow_kind {
	MFS_ARROW_NUMBER,
	MFS_ARROW_LIST,	      /* list<item: dtype>, 32-bit offsets: fewer than 2^31 items a batch */
	MFS_ARROW_FIXED_LIST, /* fixed_size_list<item: dtype>[length] */
	MFS_ARROW_TEXT,	      /* utf8, 32-bit offsets: fewer than 2^31 bytes a batch */
};

struct mfs_arrow_field {
	const char *name;
	enum mfs_arrow_kind kind;
	enum mfs_dtype dtype; /* integers, float16, float32, float64 */
	int32_t length;	      /* of MFS_ARROW_FIXED_LIST */
};

/* A length rounded up to MFS_ARROW_ALIGN. */
uint64_t mfs_arrow_padded(uint64_t len);

void mfs_arrow_add_schema(struct mfs_buf *out, const struct mfs_arrow_field *fields, size_t count);
/* What a record batch has: so many items in its list, and so many bytes in its texts. */
struct mfs_arrow_counts {
	uint64_t rows, items, bytes;
};
/* Its body has, for each field, the values, and in front of them the offsets if the field is an
 * MFS_ARROW_LIST or MFS_ARROW_TEXT: int32[rows + 1], beginning with 0. Each of these is padded. */
void mfs_arrow_add_batch(struct mfs_buf *out, const struct mfs_arrow_field *fields, size_t count,
			 const struct mfs_arrow_counts *batch);
/* Bytes of that body. */
uint64_t mfs_arrow_body(const struct mfs_arrow_field *fields, size_t count,
			const struct mfs_arrow_counts *batch);
extern const uint8_t mfs_arrow_eos[MFS_ARROW_EOS];

/* Whether a field can have this dtype. */
bool mfs_arrow_can(enum mfs_dtype dtype);

#endif
