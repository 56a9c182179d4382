#include "formats/text/parquet/thrift.h"

#define DEPTH 32 /* of structures in one another; Parquet's have 6 */

static uint8_t byte(struct mfs_thrift *t)
{
	if (t->at >= t->end) {
		t->failed = true;
		t->at = t->end;
		return 0;
	}
	return *t->at++;
}

static uint64_t varint(struct mfs_thrift *t)
{
	uint64_t n = 0;

	for (unsigned shift = 0; shift < 64; shift += 7) {
		const uint8_t b = byte(t);

		n |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80))
			return t->failed ? 0 : n;
	}
	t->failed = true;
	return 0;
}

static int64_t zigzag(struct mfs_thrift *t)
{
	const uint64_t n = varint(t);

	return (int64_t)(n >> 1) ^ -(int64_t)(n & 1);
}

bool mfs_thrift_next(struct mfs_thrift *t, struct mfs_thrift_field *f)
{
	const uint8_t b = byte(t);

	if (t->failed || !b)
		return false;
	f->type = (enum mfs_thrift_type)(b & 0xf);
	f->id = b >> 4 ? (int16_t)(f->id + (b >> 4)) : (int16_t)zigzag(t);
	if (f->type > MFS_THRIFT_STRUCT || !f->type)
		t->failed = true;
	return !t->failed;
}

static void jump(struct mfs_thrift *t, uint64_t len)
{
	if (len > (uint64_t)(t->end - t->at)) {
		t->failed = true;
		t->at = t->end;
	} else {
		t->at += len;
	}
}

static void list_head(struct mfs_thrift *t, uint64_t *ret_count, enum mfs_thrift_type *ret_item)
{
	const uint8_t b = byte(t);

	*ret_item = (enum mfs_thrift_type)(b & 0xf);
	*ret_count = b >> 4 == 15 ? varint(t) : b >> 4;
	/* An element has a byte at least. */
	if (*ret_count > (uint64_t)(t->end - t->at) || *ret_item > MFS_THRIFT_STRUCT)
		t->failed = true;
	if (t->failed)
		*ret_count = 0;
}

static void skip(struct mfs_thrift *t, enum mfs_thrift_type type, bool element, int depth);

static void skip_struct(struct mfs_thrift *t, int depth)
{
	struct mfs_thrift_field f = {.id = 0};

	while (mfs_thrift_next(t, &f))
		skip(t, f.type, false, depth);
}

static void skip_map(struct mfs_thrift *t, int depth)
{
	const uint64_t count = varint(t);
	const uint8_t types = count ? byte(t) : 0;

	for (uint64_t i = 0; i < count && !t->failed; i++) {
		skip(t, (enum mfs_thrift_type)(types >> 4), true, depth);
		skip(t, (enum mfs_thrift_type)(types & 0xf), true, depth);
	}
}

static void skip_list(struct mfs_thrift *t, int depth)
{
	enum mfs_thrift_type item;
	uint64_t count;

	list_head(t, &count, &item);
	for (uint64_t i = 0; i < count && !t->failed; i++)
		skip(t, item, true, depth);
}

/* A boolean field is its type; as an element it has a byte. */
static void skip(struct mfs_thrift *t, enum mfs_thrift_type type, bool element, int depth)
{
	if (depth == DEPTH)
		t->failed = true;
	if (t->failed)
		return;
	switch (type) {
	case MFS_THRIFT_TRUE:
	case MFS_THRIFT_FALSE:
		jump(t, element);
		break;
	case MFS_THRIFT_I8:
		jump(t, 1);
		break;
	case MFS_THRIFT_I16:
	case MFS_THRIFT_I32:
	case MFS_THRIFT_I64:
		varint(t);
		break;
	case MFS_THRIFT_DOUBLE:
		jump(t, 8);
		break;
	case MFS_THRIFT_BINARY:
		jump(t, varint(t));
		break;
	case MFS_THRIFT_LIST:
	case MFS_THRIFT_SET:
		skip_list(t, depth + 1);
		break;
	case MFS_THRIFT_MAP:
		skip_map(t, depth + 1);
		break;
	case MFS_THRIFT_STRUCT:
		skip_struct(t, depth + 1);
		break;
	default:
		t->failed = true;
	}
}

void mfs_thrift_skip(struct mfs_thrift *t, enum mfs_thrift_type type)
{
	skip(t, type, false, 0);
}

int64_t mfs_thrift_int(struct mfs_thrift *t, enum mfs_thrift_type type)
{
	if (type >= MFS_THRIFT_I16 && type <= MFS_THRIFT_I64)
		return zigzag(t);
	mfs_thrift_skip(t, type);
	return 0;
}

uint32_t mfs_thrift_list(struct mfs_thrift *t, enum mfs_thrift_type type,
			 enum mfs_thrift_type *ret_item)
{
	uint64_t count = 0;

	*ret_item = MFS_THRIFT_STOP;
	if (type == MFS_THRIFT_LIST)
		list_head(t, &count, ret_item);
	else
		mfs_thrift_skip(t, type);
	if (count > UINT32_MAX) {
		t->failed = true;
		count = 0;
	}
	return (uint32_t)count;
}

const char *mfs_thrift_binary(struct mfs_thrift *t, enum mfs_thrift_type type, size_t *ret_len)
{
	const uint8_t *at;

	*ret_len = 0;
	if (type != MFS_THRIFT_BINARY) {
		mfs_thrift_skip(t, type);
		return "";
	}
	const uint64_t len = varint(t);

	at = t->at;
	jump(t, len);
	if (t->failed)
		return "";
	*ret_len = (size_t)len;
	return (const char *)at;
}
