#include "formats/hf/proto_fields.h"

#include "formats/base/bytes.h"

static bool read_varint(struct mfs_proto_bytes *b, uint64_t *ret)
{
	*ret = 0;
	for (unsigned shift = 0; shift < 70 && b->at < b->end; shift += 7) {
		const uint8_t byte = *b->at++;

		*ret |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return true;
	}
	return false;
}

static bool skip(struct mfs_proto_bytes *b, uint64_t len)
{
	if (len > (uint64_t)(b->end - b->at))
		return false;
	b->at += len;
	return true;
}

static bool read_value(struct mfs_proto_bytes *b, struct mfs_proto_field *f)
{
	uint64_t len = 0;
	bool whole = true;

	switch (f->form) {
	case MFS_PROTO_VARINT:
		return read_varint(b, &f->value);
	case MFS_PROTO_FIXED64:
		return skip(b, 8);
	case MFS_PROTO_FIXED32:
		if (!skip(b, 4))
			return false;
		f->value = mfs_le32(b->at - 4);
		return true;
	default:
		whole = read_varint(b, &len);
		f->bytes.at = b->at;
		whole = whole && skip(b, len);
		f->bytes.end = b->at;
		return whole;
	}
}

const char *mfs_proto_next(struct mfs_proto_bytes *b, struct mfs_proto_field *ret)
{
	uint64_t tag;

	if (!read_varint(b, &tag) || !(tag >> 3) || tag >> 3 >= 1u << 29)
		return "this is no field";
	*ret = (struct mfs_proto_field){.number = tag >> 3, .form = tag & 7};
	if (ret->form > MFS_PROTO_BYTES && ret->form != MFS_PROTO_FIXED32)
		return "this field is of no known form";
	return read_value(b, ret) ? NULL : "this field is cut short";
}
