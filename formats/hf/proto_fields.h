/*
 * Fields of a protobuf message, one after the other. Nothing is copied: the bytes of a field are
 * those of the message.
 */
#ifndef MFS_HF_PROTO_FIELDS_H
#define MFS_HF_PROTO_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a field's value is written. */
enum mfs_proto_kind {
	MFS_PROTO_VARINT = 0,
	MFS_PROTO_FIXED64,
	MFS_PROTO_BYTES,
	MFS_PROTO_FIXED32 = 5
};

struct mfs_proto_bytes {
	const uint8_t *at, *end;
};

struct mfs_proto_field {
	uint64_t number;
	unsigned form;
	uint64_t value;		      /* of a VARINT or FIXED32 */
	struct mfs_proto_bytes bytes; /* of BYTES */
};

/* Steps over the next field; b is not empty. Returns NULL, or what is wrong with it. Bits of a
 * varint that do not fit are dropped. Groups are refused. */
const char *mfs_proto_next(struct mfs_proto_bytes *b, struct mfs_proto_field *ret);

#endif
