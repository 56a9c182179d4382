#include "formats/torch/torch_write.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "formats/base/arena.h"
#include "formats/base/bytes.h"
#include "formats/base/uthash.h"
#include "formats/torch/pickle_write.h"

#define LOCAL_SIG	0x04034b50u
#define LOCAL_SIZE	30
#define CENTRAL_SIG	0x02014b50u
#define DESCRIPTOR_SIG	0x08074b50u
#define EOCD_SIG	0x06054b50u
#define EOCD64_SIG	0x06064b50u
#define EOCD64_SIZE	56
#define LOCATOR64_SIG	0x07064b50u
#define ZIP64_EXTRA	1
#define FLAG_DESCRIPTOR 0x0008
#define FLAG_UTF8	0x0800
#define MADE_BY		0x031e	    /* miniz: Unix, 3.0 */
#define NEEDED		0x002d	    /* 4.5: ZIP64 */
#define OVERFLOW32	0xffffffffu /* values from here on are in a ZIP64 field */
#define ALIGNMENT	64
#define MAX_PREFIX	128

/* FNV-1a. The serialization id may be any digits, if they differ where archives differ. */
#define HASH_START 14695981039346656037u
#define HASH_STEP  1099511628211u

struct record {
	const char *name; /* after the prefix */
	uint64_t size;
	const void *bytes; /* NULL: payload */
	uint32_t payload;
};

struct builder {
	const char *prefix;
	struct mfs_torch_archive archive;
	struct mfs_buf central;
	uint64_t at, entries;
	size_t literal_start; /* of the literal that is being filled */
	uint64_t name_hash, content_hash;
	struct mfs_error *err;
};

static uint64_t hash(uint64_t h, const void *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		h = (h ^ ((const uint8_t *)bytes)[i]) * HASH_STEP;
	return h;
}

/* ---- literals ---- */

static void put_le(struct mfs_buf *b, uint64_t value, unsigned bytes)
{
	uint8_t code[8];

	mfs_put_le64(code, value);
	mfs_buf_add(b, code, bytes);
}

static void put_le32s(struct mfs_buf *b, const uint32_t *values, size_t count)
{
	for (size_t i = 0; i < count; i++)
		put_le(b, values[i], 4);
}

static void add_segment(struct builder *b, struct mfs_torch_segment segment)
{
	if (segment.length)
		b->archive.segments[b->archive.count++] = segment;
}

static void end_literal(struct builder *b)
{
	const size_t start = b->literal_start, end = b->archive.literals.len;

	add_segment(b, (struct mfs_torch_segment){MFS_TORCH_LITERAL, start, end - start});
	b->literal_start = end;
}

/* ---- records ---- */

/* The ZIP64 extra field: the values that overflowed, in this order. torch writes it into the local
 * header, too, with a compressed size of 0 (miniz:mz_zip_writer_add_mem_ex_v2). */
static void put_zip64(struct mfs_buf *b, uint64_t size, uint64_t compressed, uint64_t header)
{
	const bool large = size >= OVERFLOW32, far = header >= OVERFLOW32;

	if (!large && !far)
		return;
	put_le(b, ZIP64_EXTRA, 2);
	put_le(b, 16 * large + 8 * far, 2);
	if (large) {
		put_le(b, size, 8);
		put_le(b, compressed, 8);
	}
	if (far)
		put_le(b, header, 8);
}

static size_t zip64_len(uint64_t size, uint64_t header)
{
	const bool large = size >= OVERFLOW32, far = header >= OVERFLOW32;

	return large || far ? 4 + 16 * large + 8 * far : 0;
}

/* A record without bytes has no descriptor, and does not announce one. */
static unsigned flags_of(uint64_t size)
{
	return size ? FLAG_UTF8 | FLAG_DESCRIPTOR : FLAG_UTF8;
}

/* Writes everything in front of the payload, which starts at a multiple of 64
 * (inline_container.cc:getPadding). */
static void put_local(struct builder *b, const char *name, uint64_t size)
{
	struct mfs_buf *out = &b->archive.literals;
	const size_t name_len = strlen(name), zip64 = zip64_len(size, b->at);
	const uint64_t start = b->at + LOCAL_SIZE + name_len + zip64 + 4;
	const unsigned padding = (unsigned)(-start % ALIGNMENT);

	put_le(out, LOCAL_SIG, 4);
	put_le(out, 0, 2); /* version needed */
	put_le(out, flags_of(size), 2);
	put_le(out, 0, 2);		     /* stored */
	put_le32s(out, (uint32_t[4]){0}, 4); /* time and date, CRC-32, both sizes */
	put_le(out, name_len, 2);
	put_le(out, zip64 + 4 + padding, 2);
	mfs_buf_add(out, name, name_len);
	put_zip64(out, size, 0, b->at);
	mfs_buf_add(out, "FB", 2);
	put_le(out, padding, 2);
	for (unsigned i = 0; i < padding; i++)
		mfs_buf_add(out, "Z", 1);
}

static void put_central(struct builder *b, const char *name, uint64_t size, uint32_t crc)
{
	const uint32_t size32 = (uint32_t)mfs_min_u64(size, OVERFLOW32);
	struct mfs_buf *out = &b->central;
	const size_t name_len = strlen(name);

	put_le(out, CENTRAL_SIG, 4);
	put_le(out, 0, 4); /* versions made by and needed */
	put_le(out, flags_of(size), 2);
	put_le(out, 0, 6); /* stored; time and date */
	put_le32s(out, (uint32_t[]){crc, size32, size32}, 3);
	put_le(out, name_len, 2);
	put_le(out, zip64_len(size, b->at), 2);
	put_le(out, 0, 6); /* comment, disk, internal attributes */
	put_le(out, 0, 4); /* external attributes */
	put_le(out, mfs_min_u64(b->at, OVERFLOW32), 4);
	mfs_buf_add(out, name, name_len);
	put_zip64(out, size, size, b->at);
}

/* Sizes have 8 bytes wherever the record has a ZIP64 field, even if only for its offset. */
static size_t put_descriptor(struct builder *b, uint64_t size, uint32_t crc)
{
	const unsigned width = zip64_len(size, b->at) ? 8 : 4;
	struct mfs_buf *out = &b->archive.literals;

	if (!size)
		return 0;
	put_le32s(out, (uint32_t[]){DESCRIPTOR_SIG, crc}, 2);
	put_le(out, size, width);
	put_le(out, size, width);
	return 8 + 2 * width;
}

static int add_record(struct builder *b, const struct record *r)
{
	struct mfs_buf *out = &b->archive.literals;
	const uint32_t crc = r->bytes ? (uint32_t)crc32_z(0, r->bytes, r->size) : 0;
	const size_t start = out->len;
	char name[MAX_PREFIX + 64];
	uint64_t end;

	snprintf(name, sizeof(name), "%s/%s", b->prefix, r->name);
	b->name_hash = hash(b->name_hash, name, strlen(name) + 1);
	b->content_hash = hash(b->content_hash, &crc, sizeof(crc));
	b->content_hash = hash(b->content_hash, &r->size, sizeof(r->size));
	put_local(b, name, r->size);
	put_central(b, name, r->size, crc);
	if (out->failed || b->central.failed)
		return mfs_fail_nomem(b->err);
	end = b->at + (out->len - start);
	if (r->bytes) {
		mfs_buf_add(out, r->bytes, r->size);
	} else if (r->size) {
		end_literal(b);
		add_segment(b, (struct mfs_torch_segment){r->payload, 0, r->size});
	}
	if (mfs_add_overflows(end, r->size, &end) || end > INT64_MAX)
		return mfs_fail(b->err, -EINVAL, "%s: an archive of more than 2^63 bytes",
				b->prefix);
	b->at = end + put_descriptor(b, r->size, crc);
	b->entries++;
	return 0;
}

/* ---- the archive ---- */

static int add_text(struct builder *b, const char *name, const char *text)
{
	return add_record(b, &(struct record){.name = name, .size = strlen(text), .bytes = text});
}

static int add_payload(struct builder *b, const struct mfs_torch_payload *p, uint32_t i)
{
	char name[32];

	snprintf(name, sizeof(name), "data/%u", i);
	return add_record(b, &(struct record){.name = name,
					      .size = p->size,
					      .bytes = p->size ? p->bytes : NULL,
					      .payload = i});
}

static int add_serialization_id(struct builder *b)
{
	char id[48];

	snprintf(id, sizeof(id), "%020llu%020llu", (unsigned long long)b->name_hash,
		 (unsigned long long)b->content_hash);
	return add_text(b, ".data/serialization_id", id);
}

/* Central directory, ZIP64 end record and its locator, which torch always writes, and the end
 * record. */
static int end_archive(struct builder *b)
{
	struct mfs_buf *out = &b->archive.literals;
	const uint64_t directory = b->at, size = b->central.len, end64 = directory + size;
	const uint32_t count16 = (uint32_t)mfs_min_u64(b->entries, UINT16_MAX);

	if (size >= OVERFLOW32)
		return mfs_fail(b->err, -EINVAL, "%s: a central directory of more than 4 GiB",
				b->prefix);
	mfs_buf_add(out, b->central.data, b->central.len);
	put_le(out, EOCD64_SIG, 4);
	put_le(out, EOCD64_SIZE - 12, 8);
	put_le(out, MADE_BY, 2);
	put_le(out, NEEDED, 2);
	put_le(out, 0, 8); /* this disk, the directory's */
	put_le(out, b->entries, 8);
	put_le(out, b->entries, 8);
	put_le(out, size, 8);
	put_le(out, directory, 8);
	put_le32s(out, (uint32_t[]){LOCATOR64_SIG, 0}, 2);
	put_le(out, end64, 8);
	put_le(out, 1, 4); /* disks */
	put_le32s(out, (uint32_t[]){EOCD_SIG, 0, count16 | count16 << 16, (uint32_t)size}, 4);
	put_le(out, mfs_min_u64(directory, OVERFLOW32), 4);
	put_le(out, 0, 2); /* comment */
	if (out->failed)
		return mfs_fail_nomem(b->err);
	end_literal(b);
	b->archive.size = end64 + EOCD64_SIZE + 20 + 22;
	return 0;
}

static int build(struct builder *b, const void *pickle, size_t pickle_len,
		 const struct mfs_torch_payload *payloads, uint32_t count)
{
	int rc = add_record(
		b, &(struct record){.name = "data.pkl", .size = pickle_len, .bytes = pickle});

	if (!rc)
		rc = add_text(b, ".format_version", "1");
	if (!rc)
		rc = add_text(b, ".storage_alignment", "64");
	if (!rc)
		rc = add_text(b, "byteorder", "little");
	for (uint32_t i = 0; i < count && !rc; i++)
		rc = add_payload(b, &payloads[i], i);
	if (!rc)
		rc = add_text(b, "version", "3\n");
	if (!rc)
		rc = add_serialization_id(b);
	return rc ? rc : end_archive(b);
}

int mfs_torch_archive(const char *prefix, const void *pickle, size_t pickle_len,
		      const struct mfs_torch_payload *payloads, uint32_t count,
		      struct mfs_torch_archive *ret, struct mfs_error *err)
{
	struct builder b = {
		.prefix = prefix, .name_hash = HASH_START, .content_hash = HASH_START, .err = err};
	int rc;

	if (!*prefix || strlen(prefix) > MAX_PREFIX || strchr(prefix, '/'))
		return mfs_fail(err, -EINVAL,
				"'%.32s' cannot be the directory of a torch.save archive", prefix);
	if (!pickle_len || count > INT32_MAX)
		return mfs_fail(err, -EINVAL, "%s: no data.pkl, or more than 2^31 storages",
				prefix);
	b.archive.segments = calloc(2 * (size_t)count + 1, sizeof(*b.archive.segments));
	rc = b.archive.segments ? build(&b, pickle, pickle_len, payloads, count)
				: mfs_fail_nomem(err);
	mfs_buf_release(&b.central);
	if (rc) {
		mfs_torch_archive_release(&b.archive);
		return rc;
	}
	*ret = b.archive;
	return 0;
}

void mfs_torch_archive_release(struct mfs_torch_archive *a)
{
	mfs_buf_release(&a->literals);
	free(a->segments);
	*a = (struct mfs_torch_archive){0};
}

int mfs_torch_save(const char *prefix, const void *pickle, size_t pickle_len,
		   const struct mfs_torch_payload *payloads, uint32_t count, struct mfs_buf *out,
		   struct mfs_error *err)
{
	struct mfs_torch_archive a;
	int rc;

	rc = mfs_torch_archive(prefix, pickle, pickle_len, payloads, count, &a, err);
	if (rc)
		return rc;
	if (a.count != 1)
		rc = mfs_fail(err, -EINVAL, "%s: a storage that is not in memory", prefix);
	else
		mfs_buf_add(out, a.literals.data, a.literals.len);
	mfs_torch_archive_release(&a);
	if (!rc && out->failed)
		rc = mfs_fail_nomem(err);
	return rc;
}

/* ---- items of .distcp files ---- */

struct item_key {
	uint64_t shape[MFS_MAX_DIMS];
	uint32_t dtype, ndim;
};

struct item_entry {
	UT_hash_handle hh;
	struct item_key key;
	struct mfs_torch_item item;
};

struct mfs_torch_items {
	struct item_entry *entries;
	struct mfs_arena arena;
};

int mfs_torch_items_new(struct mfs_torch_items **ret, struct mfs_error *err)
{
	struct mfs_torch_items *items = calloc(1, sizeof(*items));

	if (!items)
		return mfs_fail_nomem(err);
	*ret = items;
	return 0;
}

void mfs_torch_items_free(struct mfs_torch_items *items)
{
	if (!items)
		return;
	HASH_CLEAR(hh, items->entries); /* the entries lie in the arena */
	mfs_arena_release(&items->arena);
	free(items);
}

static int item_archive(const struct item_key *key, uint64_t bytes, struct mfs_torch_archive *ret,
			struct mfs_error *err)
{
	const struct mfs_torch_payload payload = {.size = bytes};
	struct mfs_pickle_writer w;
	struct mfs_buf pickle = {0};
	int rc;

	mfs_pickle_begin(&w, &pickle, 2);
	mfs_pickle_tensor(&w, 0, (enum mfs_dtype)key->dtype, key->shape, key->ndim);
	rc = mfs_pickle_end(&w, err);
	if (!rc)
		rc = mfs_torch_archive("archive", pickle.data, pickle.len, &payload, 1, ret, err);
	mfs_buf_release(&pickle);
	return rc;
}

static int add_item(struct mfs_torch_items *items, const struct item_key *key, uint64_t bytes,
		    struct item_entry **ret, struct mfs_error *err)
{
	struct item_entry *e = mfs_arena_alloc(&items->arena, sizeof(*e));
	struct mfs_torch_archive a;
	size_t head;
	char *copy;
	int rc;

	if (!e)
		return mfs_fail_nomem(err);
	rc = item_archive(key, bytes, &a, err);
	if (rc)
		return rc;
	head = (size_t)a.segments[0].length;
	copy = mfs_arena_strndup(&items->arena, a.literals.data, a.literals.len);
	if (copy) {
		e->key = *key;
		e->item = (struct mfs_torch_item){.head = copy,
						  .head_len = head,
						  .payload = bytes,
						  .tail = copy + head,
						  .tail_len = a.literals.len - head};
		HASH_ADD(hh, items->entries, key, sizeof(e->key), e);
	}
	mfs_torch_archive_release(&a);
	if (!copy || !e->hh.tbl)
		return mfs_fail_nomem(err);
	*ret = e;
	return 0;
}

int mfs_torch_item(struct mfs_torch_items *items, enum mfs_dtype dtype, const uint64_t *shape,
		   unsigned ndim, struct mfs_torch_item *ret, struct mfs_error *err)
{
	struct item_key key = {.dtype = dtype, .ndim = ndim};
	struct item_entry *e;
	uint64_t bytes;
	int rc;

	if (!dtype || ndim > MFS_MAX_DIMS)
		return mfs_fail(err, -EINVAL, "a tensor without a type, or with more than %d axes",
				MFS_MAX_DIMS);
	if (!mfs_shape_count(shape, ndim, &bytes) ||
	    mfs_mul_overflows(bytes, mfs_dtype_size(dtype), &bytes))
		return mfs_fail(err, -EINVAL, "a tensor's size overflows");
	if (ndim)
		memcpy(key.shape, shape, ndim * sizeof(*shape));
	HASH_FIND(hh, items->entries, &key, sizeof(key), e);
	if (!e) {
		rc = add_item(items, &key, bytes, &e, err);
		if (rc)
			return rc;
	}
	*ret = e->item;
	return 0;
}
