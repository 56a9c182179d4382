#include "formats/gguf/gguf.h"

#include <string.h>

#include "formats/base/bytes.h"

#define VERSION 3

static void put_u32(struct mfs_buf *b, uint32_t v)
{
	const uint8_t bytes[] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16),
				 (uint8_t)(v >> 24)};

	mfs_buf_add(b, bytes, sizeof(bytes));
}

static void put_u64(struct mfs_buf *b, uint64_t v)
{
	uint8_t bytes[8];

	mfs_put_le64(bytes, v);
	mfs_buf_add(b, bytes, sizeof(bytes));
}

static void put_text(struct mfs_buf *b, const char *text, size_t len)
{
	put_u64(b, len);
	mfs_buf_add(b, text, len);
}

/* ---- keys ---- */

static void put_key(struct mfs_gguf *g, const char *key, enum mfs_gguf_type type)
{
	put_text(&g->keys, key, strlen(key));
	put_u32(&g->keys, type);
	g->key_count++;
}

void mfs_gguf_u32(struct mfs_gguf *g, const char *key, uint32_t value)
{
	put_key(g, key, MFS_GGUF_U32);
	put_u32(&g->keys, value);
}

void mfs_gguf_f32(struct mfs_gguf *g, const char *key, double value)
{
	const float narrow = (float)value;
	uint32_t bits;

	memcpy(&bits, &narrow, sizeof(bits));
	put_key(g, key, MFS_GGUF_F32);
	put_u32(&g->keys, bits);
}

void mfs_gguf_bool(struct mfs_gguf *g, const char *key, bool value)
{
	const uint8_t byte = value;

	put_key(g, key, MFS_GGUF_BOOL);
	mfs_buf_add(&g->keys, &byte, 1);
}

void mfs_gguf_text(struct mfs_gguf *g, const char *key, const char *value)
{
	put_key(g, key, MFS_GGUF_TEXT);
	put_text(&g->keys, value, strlen(value));
}

void mfs_gguf_array(struct mfs_gguf *g, const char *key, enum mfs_gguf_type type, uint64_t count)
{
	put_key(g, key, MFS_GGUF_ARRAY);
	put_u32(&g->keys, type);
	put_u64(&g->keys, count);
}

void mfs_gguf_element_i32(struct mfs_gguf *g, int32_t value)
{
	put_u32(&g->keys, (uint32_t)value);
}

void mfs_gguf_element_text(struct mfs_gguf *g, const char *text, size_t len)
{
	put_text(&g->keys, text, len);
}

/* ---- tensors ---- */

/* gguf/constants.py: GGMLQuantizationType. */
int mfs_gguf_dtype(enum mfs_dtype dtype)
{
	switch (dtype) {
	case MFS_F32:
		return 0;
	case MFS_F16:
		return 1;
	case MFS_BF16:
		return 30;
	default:
		return -1;
	}
}

int mfs_gguf_tensor(struct mfs_gguf *g, const char *name, enum mfs_dtype dtype,
		    const uint64_t *shape, unsigned ndim, uint64_t *ret_padding,
		    struct mfs_error *err)
{
	const int type = mfs_gguf_dtype(dtype);
	uint64_t bytes, end;

	if (type < 0 || ndim > MFS_GGUF_DIMS || strlen(name) > MFS_GGUF_NAME_MAX)
		return mfs_fail(err, -ENOTSUP, "GGUF cannot hold tensor '%s' of %s and %u axes",
				name, mfs_dtype_torch(dtype), ndim);
	if (!mfs_shape_count(shape, ndim, &bytes) ||
	    mfs_mul_overflows(bytes, mfs_dtype_size(dtype), &bytes) ||
	    mfs_add_overflows(g->data, bytes, &end) || end > UINT64_MAX - MFS_GGUF_ALIGNMENT)
		return mfs_fail(err, -EINVAL, "tensor '%s' is too large", name);
	put_text(&g->infos, name, strlen(name));
	put_u32(&g->infos, ndim);
	for (unsigned a = ndim; a-- > 0;)
		put_u64(&g->infos, shape[a]);
	put_u32(&g->infos, (uint32_t)type);
	put_u64(&g->infos, g->data);
	*ret_padding = -end % MFS_GGUF_ALIGNMENT;
	g->data = end + *ret_padding;
	g->tensor_count++;
	return 0;
}

void mfs_gguf_header(const struct mfs_gguf *g, struct mfs_buf *out)
{
	static const char zeros[MFS_GGUF_ALIGNMENT];

	mfs_buf_adds(out, "GGUF");
	put_u32(out, VERSION);
	put_u64(out, g->tensor_count);
	put_u64(out, g->key_count);
	mfs_buf_add(out, g->keys.data, g->keys.len);
	mfs_buf_add(out, g->infos.data, g->infos.len);
	mfs_buf_add(out, zeros, -out->len % MFS_GGUF_ALIGNMENT);
	out->failed |= g->keys.failed || g->infos.failed;
}

void mfs_gguf_release(struct mfs_gguf *g)
{
	mfs_buf_release(&g->keys);
	mfs_buf_release(&g->infos);
	*g = (struct mfs_gguf){0};
}
