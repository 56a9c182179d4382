#include "formats/torch/zip.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"

#define EOCD_SIG	  0x06054b50u
#define EOCD_SIZE	  22
#define EOCD64_SIG	  0x06064b50u
#define EOCD64_SIZE	  56
#define LOCATOR64_SIG	  0x07064b50u
#define LOCATOR64_SIZE	  20
#define CENTRAL_SIG	  0x02014b50u
#define CENTRAL_SIZE	  46
#define LOCAL_SIG	  0x04034b50u
#define LOCAL_SIZE	  30
#define MAX_COMMENT	  65535
#define ZIP64_EXTRA	  1
#define FLAG_ENCRYPTED	  1
#define DESCRIPTOR_SIG	  0x08074b50u
#define DESCRIPTOR_SIZE	  16
#define DESCRIPTOR64_SIZE 24
#define FLAG_DESCRIPTOR	  8
#define METHOD_STORED	  0

/* Where the central directory lies, and how many entries it claims. */
struct directory {
	uint64_t offset, size, count;
};

static int damaged(const struct mfs_source *src, const char *what, struct mfs_error *err)
{
	return mfs_fail(err, -EINVAL, "%s: damaged ZIP archive: %s", src->name, what);
}

/* The end record is searched backwards: a comment may follow it. A tail of 1 KiB is enough for
 * every archive without a comment and saves a 64 KiB read per torch_dist item. */
static int find_end(const struct mfs_source *src, uint64_t tail, uint8_t **ret_bytes,
		    size_t *ret_len, size_t *ret_at, struct mfs_error *err)
{
	size_t len = (size_t)mfs_min_u64(tail, src->size);
	void *bytes;
	int rc;

	if (src->size < EOCD_SIZE)
		return damaged(src, "shorter than an end record", err);
	rc = mfs_source_slurp(src, src->size - len, len, &bytes, err);
	if (rc)
		return rc;
	for (size_t at = len - EOCD_SIZE + 1; at-- > 0;) {
		const uint8_t *p = (uint8_t *)bytes + at;

		if (mfs_le32(p) != EOCD_SIG || mfs_le16(p + 20) != len - at - EOCD_SIZE)
			continue;
		*ret_bytes = bytes;
		*ret_len = len;
		*ret_at = at;
		return 0;
	}
	free(bytes);
	return -ENOENT;
}

static int read_end64(const struct mfs_source *src, uint64_t locator_at, struct directory *dir,
		      struct mfs_error *err)
{
	uint8_t locator[LOCATOR64_SIZE], end[EOCD64_SIZE];
	uint64_t at;
	int rc;

	rc = mfs_source_read(src, locator_at, locator, sizeof(locator), err);
	if (rc)
		return rc;
	if (mfs_le32(locator) != LOCATOR64_SIG)
		return 0; /* no ZIP64 record: the plain one stands */
	at = mfs_le64(locator + 8);
	if (mfs_le32(locator + 4) || mfs_le32(locator + 16) > 1)
		return mfs_fail(err, -ENOTSUP, "%s: ZIP archive of several disks", src->name);
	if (at > locator_at || locator_at - at < EOCD64_SIZE)
		return damaged(src, "ZIP64 end record lies outside", err);
	rc = mfs_source_read(src, at, end, sizeof(end), err);
	if (rc)
		return rc;
	if (mfs_le32(end) != EOCD64_SIG)
		return damaged(src, "no ZIP64 end record where its locator points", err);
	dir->count = mfs_le64(end + 32);
	dir->size = mfs_le64(end + 40);
	/* torch writes 0xFFFFFFFF into the plain record's offset alone; take what is real here. */
	dir->offset = mfs_le64(end + 48);
	return 0;
}

static int read_directory_place(const struct mfs_source *src, struct directory *dir,
				struct mfs_error *err)
{
	uint64_t end_at;
	uint8_t *bytes;
	size_t len, at;
	int rc;

	rc = find_end(src, 1024, &bytes, &len, &at, err);
	if (rc == -ENOENT)
		rc = find_end(src, EOCD_SIZE + MAX_COMMENT, &bytes, &len, &at, err);
	if (rc == -ENOENT)
		return damaged(src, "no end record (cut short, or not a ZIP archive)", err);
	if (rc)
		return rc;
	dir->count = mfs_le16(bytes + at + 10);
	dir->size = mfs_le32(bytes + at + 12);
	dir->offset = mfs_le32(bytes + at + 16);
	free(bytes);
	end_at = src->size - len + at;
	if (end_at >= LOCATOR64_SIZE) {
		rc = read_end64(src, end_at - LOCATOR64_SIZE, dir, err);
		if (rc)
			return rc;
	}
	if (!mfs_range_ok(dir->offset, dir->size, end_at))
		return damaged(src, "the central directory lies outside", err);
	if (dir->count > dir->size / CENTRAL_SIZE)
		return damaged(src, "more entries than the central directory can hold", err);
	return 0;
}

/* The ZIP64 extra field holds, in this order, only those values that overflowed their 32 bits. */
static int read_zip64_extra(const uint8_t *p, size_t len, uint64_t *usize, uint64_t *csize,
			    uint64_t *header)
{
	uint64_t *const wanted[] = {usize, csize, header};

	while (len >= 4) {
		size_t field = mfs_le16(p + 2), used = 0;

		if (field > len - 4)
			return -EINVAL;
		if (mfs_le16(p) == ZIP64_EXTRA) {
			for (size_t i = 0; i < 3; i++) {
				if (*wanted[i] != 0xFFFFFFFFu)
					continue;
				if (field - used < 8)
					return -EINVAL;
				*wanted[i] = mfs_le64(p + 4 + used);
				used += 8;
			}
		}
		p += 4 + field;
		len -= 4 + field;
	}
	return 0;
}

/* One central entry at p; returns its length in *ret_len. */
static int read_entry(struct mfs_zip *zip, const uint8_t *p, size_t left, struct mfs_zip_entry *e,
		      size_t *ret_len, struct mfs_error *err)
{
	const struct mfs_source *src = &zip->src;
	size_t name_len, extra_len, comment_len;
	uint64_t usize, csize, header;

	if (left < CENTRAL_SIZE || mfs_le32(p) != CENTRAL_SIG)
		return damaged(src, "a central directory entry is cut short", err);
	name_len = mfs_le16(p + 28);
	extra_len = mfs_le16(p + 30);
	comment_len = mfs_le16(p + 32);
	if (name_len + extra_len + comment_len > left - CENTRAL_SIZE)
		return damaged(src, "a central directory entry is cut short", err);
	if (memchr(p + CENTRAL_SIZE, 0, name_len))
		return damaged(src, "an entry's name contains a NUL", err);
	e->name = mfs_arena_strndup(&zip->arena, (const char *)p + CENTRAL_SIZE, name_len);
	if (!e->name)
		return mfs_fail_nomem(err);
	/* torch.jit.save compresses its code; nothing else in archives of torch is compressed. */
	if (mfs_le16(p + 10) != METHOD_STORED && strstr(e->name, "/code/"))
		return mfs_fail(err, -ENOTSUP,
				"%s: a TorchScript archive (torch.jit.save), not a checkpoint: it "
				"has '%s'",
				src->name, e->name);
	if (mfs_le16(p + 8) & FLAG_ENCRYPTED || mfs_le16(p + 10) != METHOD_STORED)
		return mfs_fail(err, -ENOTSUP, "%s: entry '%s' is compressed or encrypted",
				src->name, e->name);
	e->crc = mfs_le32(p + 16);
	csize = mfs_le32(p + 20);
	usize = mfs_le32(p + 24);
	header = mfs_le32(p + 42);
	if (read_zip64_extra(p + CENTRAL_SIZE + name_len, extra_len, &usize, &csize, &header))
		return damaged(src, "a ZIP64 extra field is cut short", err);
	if (csize != usize)
		return damaged(src, "a stored entry has two different sizes", err);
	e->header = header;
	e->size = usize;
	*ret_len = CENTRAL_SIZE + name_len + extra_len + comment_len;
	return 0;
}

static int by_header(const void *a, const void *b)
{
	const struct mfs_zip_entry *x = a, *y = b;

	return x->header < y->header ? -1 : x->header > y->header;
}

static int by_name(const void *a, const void *b)
{
	const struct mfs_zip_entry *x = a, *y = b;

	return strcmp(x->name, y->name);
}

/* Entries must lie one after the other in front of the directory, and have different names. */
static int check_entries(struct mfs_zip *zip, uint64_t directory, struct mfs_error *err)
{
	struct mfs_zip_entry *e = zip->entries;

	if (zip->count)
		qsort(e, zip->count, sizeof(*e), by_header);
	for (uint32_t i = 0; i < zip->count; i++) {
		const uint64_t limit = i + 1 < zip->count ? e[i + 1].header : directory;
		uint64_t end;

		e[i].limit = limit;
		if (mfs_add_overflows(e[i].header, LOCAL_SIZE + strlen(e[i].name), &end) ||
		    mfs_add_overflows(end, e[i].size, &end) || end > limit)
			return mfs_fail(
				err, -EINVAL,
				"%s: damaged ZIP archive: entry '%s' overlaps what follows it",
				zip->src.name, e[i].name);
	}
	if (zip->count)
		qsort(e, zip->count, sizeof(*e), by_name);
	for (uint32_t i = 1; i < zip->count; i++)
		if (!strcmp(e[i - 1].name, e[i].name))
			return mfs_fail(err, -EINVAL,
					"%s: damaged ZIP archive: two entries named '%s'",
					zip->src.name, e[i].name);
	return 0;
}

static int read_directory(struct mfs_zip *zip, const struct directory *dir, struct mfs_error *err)
{
	const uint8_t *p;
	void *bytes;
	size_t left = (size_t)dir->size, len = 0;
	int rc;

	if (dir->count > UINT32_MAX)
		return damaged(&zip->src, "too many entries", err);
	rc = mfs_source_slurp(&zip->src, dir->offset, left, &bytes, err);
	if (rc)
		return rc;
	p = bytes;
	zip->entries = mfs_arena_array(&zip->arena, dir->count, sizeof(*zip->entries));
	if (!zip->entries)
		rc = mfs_fail_nomem(err);
	while (!rc && zip->count < dir->count) {
		rc = read_entry(zip, p, left, &zip->entries[zip->count], &len, err);
		if (rc)
			break;
		zip->count++;
		p += len;
		left -= len;
	}
	free(bytes);
	return rc ? rc : check_entries(zip, dir->offset, err);
}

int mfs_zip_open(const struct mfs_source *src, struct mfs_zip *ret, struct mfs_error *err)
{
	struct mfs_zip zip = {.src = *src};
	struct directory dir = {0};
	int rc;

	rc = read_directory_place(src, &dir, err);
	if (!rc)
		rc = read_directory(&zip, &dir, err);
	if (rc) {
		mfs_zip_release(&zip);
		return rc;
	}
	*ret = zip;
	return 0;
}

void mfs_zip_release(struct mfs_zip *zip)
{
	mfs_arena_release(&zip->arena);
	zip->entries = NULL;
	zip->count = 0;
}

const struct mfs_zip_entry *mfs_zip_find(const struct mfs_zip *zip, const char *name)
{
	struct mfs_zip_entry key = {.name = name};

	if (!zip->count)
		return NULL;
	return bsearch(&key, zip->entries, zip->count, sizeof(key), by_name);
}

/* What may stand between a payload and the next entry: nothing, or the data descriptor that the
 * header announces (flag bit 3), with its signature, as torch and most others write it. */
static int check_gap(const struct mfs_source *src, const struct mfs_zip_entry *e, uint64_t data,
		     unsigned flags, struct mfs_error *err)
{
	const uint64_t end = data + e->size, gap = e->limit - end;
	uint8_t descriptor[8];
	int rc;

	if (!(flags & FLAG_DESCRIPTOR) && gap == 0)
		return 0;
	if (flags & FLAG_DESCRIPTOR && (gap == DESCRIPTOR_SIZE || gap == DESCRIPTOR64_SIZE)) {
		rc = mfs_source_read(src, end, descriptor, sizeof(descriptor), err);
		if (rc)
			return rc;
		if (mfs_le32(descriptor) == DESCRIPTOR_SIG && mfs_le32(descriptor + 4) == e->crc)
			return 0;
	}
	return mfs_fail(err, -EINVAL,
			"%s: damaged ZIP archive: payload of '%s' does not fill its place",
			src->name, e->name);
}

int mfs_zip_locate(const struct mfs_source *src, const struct mfs_zip_entry *e, uint64_t *ret,
		   struct mfs_error *err)
{
	size_t name_len = strlen(e->name);
	uint8_t local[LOCAL_SIZE + 256];
	uint64_t data;
	int rc;

	if (e->bare) {
		*ret = e->header;
		return 0;
	}
	if (name_len > sizeof(local) - LOCAL_SIZE)
		return damaged(src, "an entry's name is longer than 256 bytes", err);
	rc = mfs_source_read(src, e->header, local, LOCAL_SIZE + name_len, err);
	if (rc)
		return rc;
	if (mfs_le32(local) != LOCAL_SIG || mfs_le16(local + 26) != name_len ||
	    memcmp(local + LOCAL_SIZE, e->name, name_len))
		return mfs_fail(err, -EINVAL,
				"%s: damaged ZIP archive: no local header of '%s' at %llu",
				src->name, e->name, (unsigned long long)e->header);
	data = e->header + LOCAL_SIZE + name_len + mfs_le16(local + 28);
	if (data > e->limit || e->size > e->limit - data)
		return mfs_fail(err, -EINVAL,
				"%s: damaged ZIP archive: payload of '%s' overlaps what follows it",
				src->name, e->name);
	rc = check_gap(src, e, data, mfs_le16(local + 6), err);
	if (rc)
		return rc;
	*ret = data;
	return 0;
}
