#define _GNU_SOURCE
#include "formats/dataset/text/text_lengths.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "formats/base/bytes.h"
#include "formats/dataset/text/text_lengths_i.h"
#include "formats/io/beneath.h"
#include "formats/io/regular.h"

struct header {
	char magic[32];
	uint64_t key, rows, blocks, hash;
};

#define NAME_SIZE 64

/* Where a file is, or will be. */
struct place {
	int dirfd; /* -1: there is no directory */
	char name[NAME_SIZE / 2];
	uint64_t key;
};

_Static_assert(sizeof(struct header) == 64, "the header is 64 bytes");

/* ---- bytes of the file ---- */

static uint64_t place_of(uint64_t row)
{
	return sizeof(struct header) + row * sizeof(struct mfs_text_length);
}

static size_t sums_size(const struct mfs_text_lengths *l)
{
	return (l->blocks + 1) * sizeof(*l->sums);
}

static int read_at(const struct mfs_text_lengths *l, void *buf, size_t len, uint64_t at,
		   struct mfs_error *err)
{
	for (ssize_t n; len; buf = (char *)buf + n, len -= (size_t)n, at += (uint64_t)n) {
		n = pread(l->fd, buf, len, (off_t)at);
		if (n < 0 && errno == EINTR)
			n = 0;
		else if (n <= 0)
			return n ? mfs_fail_errno(err, "lengths of texts")
				 : mfs_fail(err, -EIO, "lengths of texts end early");
	}
	return 0;
}

static int write_at(const struct mfs_text_lengths *l, const void *buf, size_t len, uint64_t at,
		    struct mfs_error *err)
{
	for (ssize_t n; len; buf = (const char *)buf + n, len -= (size_t)n, at += (uint64_t)n) {
		n = pwrite(l->fd, buf, len, (off_t)at);
		if (n < 0 && errno == EINTR)
			n = 0;
		else if (n < 0)
			return mfs_fail_errno(err, "lengths of texts cannot be kept");
	}
	return 0;
}

int mfs_text_lengths_put(struct mfs_text_lengths *l, uint64_t first, uint64_t count,
			 const struct mfs_text_length *of, struct mfs_error *err)
{
	return write_at(l, of, count * sizeof(*of), place_of(first), err);
}

static void make_header(const struct mfs_text_lengths *l, uint64_t key, struct header *ret)
{
	*ret = (struct header){.magic = MFS_TEXT_MAGIC,
			       .key = key,
			       .rows = l->rows,
			       .blocks = l->blocks,
			       .hash = XXH3_64bits(l->sums, sums_size(l))};
}

/* ---- a file that is there ---- */

/* Sums that rows could have: files are laid out by them, and anyone may have written them. */
static bool are_sound(const struct mfs_text_lengths *l)
{
	for (int f = 0; f < MFS_TEXT_FORMS; f++) {
		if (l->sums[0].before[f])
			return false;
		for (uint64_t b = 0; b < l->blocks; b++)
			if (l->sums[b + 1].before[f] - l->sums[b].before[f] >
			    (uint64_t)MFS_TEXT_BLOCK * INT32_MAX)
				return false;
	}
	return true;
}

/* Whether it is whole, and of these rows. */
static bool load(struct mfs_text_lengths *l, uint64_t size, uint64_t key)
{
	const uint64_t sums = place_of(l->rows);
	struct header found, wanted;

	if (size != sums + sums_size(l) || read_at(l, &found, sizeof(found), 0, NULL) ||
	    read_at(l, l->sums, sums_size(l), sums, NULL))
		return false;
	make_header(l, key, &wanted);
	return !memcmp(&found, &wanted, sizeof(found)) && are_sound(l);
}

/* ---- a new one ---- */

static int measure(struct mfs_text_lengths *l, const struct mfs_rows *rows,
		   const struct mfs_named_tokens *names, unsigned threads, uint64_t key,
		   struct mfs_error *err)
{
	struct header h;
	int rc;

	memset(l->sums, 0, sums_size(l));
	rc = mfs_text_measure(rows, names, threads, l, err);
	if (!rc)
		rc = write_at(l, l->sums, sums_size(l), place_of(l->rows), err);
	if (rc)
		return rc;
	make_header(l, key, &h);
	return write_at(l, &h, sizeof(h), 0, err);
}

static int in_memory(struct mfs_text_lengths *l, struct mfs_error *err)
{
	l->fd = memfd_create("lengths of texts", MFD_CLOEXEC);
	return l->fd < 0 ? mfs_fail_errno(err, "memory for lengths of texts") : 0;
}

/* A file of this process under another name. A directory that takes none is none: then it is
 * memory, and *in_use has no name. */
static int in_directory(struct mfs_text_lengths *l, const struct place *at, char in_use[NAME_SIZE],
			struct mfs_error *err)
{
	uint64_t mine = 0;

	if (getrandom(&mine, sizeof(mine), 0) < 0)
		mine = (uint64_t)getpid();
	snprintf(in_use, NAME_SIZE, "%s.%016llx", at->name, (unsigned long long)mine);
	l->fd = mfs_beneath_create(at->dirfd, in_use, O_RDWR, 0600);
	if (l->fd >= 0)
		return 0;
	*in_use = '\0';
	return in_memory(l, err);
}

static int make(struct mfs_text_lengths *l, const struct mfs_rows *rows,
		const struct mfs_named_tokens *names, const struct place *at, unsigned threads,
		struct mfs_error *err)
{
	char in_use[NAME_SIZE] = "";
	int rc = at->dirfd >= 0 ? in_directory(l, at, in_use, err) : in_memory(l, err);

	if (!rc)
		rc = measure(l, rows, names, threads, at->key, err);
	if (!*in_use)
		return rc;
	/* One that somebody else has put there meanwhile is the same. */
	if (!rc && (fsync(l->fd) || renameat(at->dirfd, in_use, at->dirfd, at->name)))
		rc = mfs_fail_errno(err, "lengths of texts: '%s'", at->name);
	if (rc)
		unlinkat(at->dirfd, in_use, 0);
	return rc;
}

/* ---- opening ---- */

static int new_lengths(const struct mfs_rows *rows, struct mfs_text_lengths **ret,
		       struct mfs_error *err)
{
	struct mfs_text_lengths *l = calloc(1, sizeof(*l));

	if (!l)
		return mfs_fail_nomem(err);
	l->fd = -1;
	l->rows = rows->rows;
	l->blocks = rows->rows / MFS_TEXT_BLOCK + !!(rows->rows % MFS_TEXT_BLOCK);
	l->sums = calloc(l->blocks + 1, sizeof(*l->sums));
	if (!l->sums) {
		free(l);
		return mfs_fail_nomem(err);
	}
	*ret = l;
	return 0;
}

/* Whether the store has them. */
static bool find(struct mfs_text_lengths *l, const struct place *at)
{
	struct stat st;

	if (at->dirfd < 0 || mfs_open_regular(at->dirfd, at->name, O_NOFOLLOW, &l->fd, &st))
		return false;
	if (load(l, (uint64_t)st.st_size, at->key))
		return true;
	close(l->fd);
	l->fd = -1;
	return false;
}

int mfs_text_lengths_open(const struct mfs_rows *rows, const struct mfs_named_tokens *names,
			  const struct mfs_text_store *store, unsigned threads,
			  struct mfs_text_lengths **ret, struct mfs_error *err)
{
	struct place at = {.dirfd = -1, .key = store->key};
	struct mfs_text_lengths *l;
	int rc = new_lengths(rows, &l, err);

	if (rc)
		return rc;
	snprintf(at.name, sizeof(at.name), "text-%016llx.lengths", (unsigned long long)store->key);
	if (store->dir)
		at.dirfd = mfs_open_path(store->dir, 0755, 0700);
	if (!find(l, &at))
		rc = make(l, rows, names, &at, threads, err);
	if (at.dirfd >= 0)
		close(at.dirfd);
	if (rc)
		mfs_text_lengths_free(l);
	else
		*ret = l;
	return rc;
}

void mfs_text_lengths_free(struct mfs_text_lengths *l)
{
	if (!l)
		return;
	if (l->fd >= 0)
		close(l->fd);
	free(l->sums);
	free(l);
}

/* ---- asking ---- */

int mfs_text_lengths_get(const struct mfs_text_lengths *l, uint64_t first, uint64_t count,
			 struct mfs_text_length *ret, struct mfs_error *err)
{
	if (!mfs_range_ok(first, count, l->rows))
		return mfs_fail(err, -EINVAL, "lengths of texts: there is no row %llu",
				(unsigned long long)(first + count - 1));
	return read_at(l, ret, count * sizeof(*ret), place_of(first), err);
}

uint64_t mfs_text_lengths_blocks(const struct mfs_text_lengths *l)
{
	return l->blocks;
}

uint64_t mfs_text_lengths_before(const struct mfs_text_lengths *l, enum mfs_text_form_kind form,
				 uint64_t b)
{
	return l->sums[b].before[form];
}

int mfs_text_lengths_at(const struct mfs_text_lengths *l, enum mfs_text_form_kind form,
			uint64_t row, uint64_t *ret, struct mfs_error *err)
{
	struct mfs_text_length of[MFS_TEXT_BLOCK];
	const uint64_t b = row / MFS_TEXT_BLOCK, n = row % MFS_TEXT_BLOCK;
	uint64_t at = row < l->rows ? l->sums[b].before[form] : l->sums[l->blocks].before[form];
	int rc = 0;

	if (n && row < l->rows)
		rc = mfs_text_lengths_get(l, row - n, n, of, err);
	for (uint64_t i = 0; i < n && row < l->rows && !rc; i++)
		at += of[i].of[form];
	if (!rc && row < l->rows && at > l->sums[b + 1].before[form])
		rc = mfs_fail(err, -EIO, "lengths of texts are not those that were measured");
	*ret = at;
	return rc;
}
