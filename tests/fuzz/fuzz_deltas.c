#define _GNU_SOURCE
#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/delta/delta_apply.h"
#include "formats/delta/delta_base.h"
#include "formats/delta/delta_index.h"
#include "formats/delta/delta_sum.h"

/*
 * The first byte says what the rest is: 'x' and 'o' the size of a tensor (4 bytes) and a change of
 * it, xor or overwrite; 'b' a weight_base.json; 'v' a version: the length of the index (4 bytes),
 * the index, and one file of weights, whose changes are of tensors of TENSOR bytes 0, 1, 2, ...
 */
#define TENSOR	8
#define LARGEST (1u << 20)
#define WEIGHTS "model-00000-of-00001.safetensors"

static char dir[256];

static void remove_dir(void)
{
	rmdir(dir);
}

static int open_dir(void)
{
	const char *base = getenv("TMPDIR");
	int at;

	if (!dir[0]) {
		snprintf(dir, sizeof(dir), "%s/mcorefs-fuzz-XXXXXX", base ? base : "/tmp");
		fuzz_require(mkdtemp(dir) != NULL);
		atexit(remove_dir);
	}
	at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fuzz_require(at >= 0);
	return at;
}

static void write_file(int at, const char *name, const uint8_t *bytes, size_t len)
{
	int fd = openat(at, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	fuzz_require(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
	close(fd);
}

/* Applies a change to bytes 0, 1, 2, ... in windows of any length. */
static int apply(const struct mfs_delta_change *c, enum mfs_delta_encoding_kind encoding,
		 uint8_t *bytes, size_t size, struct mfs_error *err)
{
	struct mfs_delta_apply *a;
	int rc = mfs_delta_apply_new(c, encoding, size, &a, err);

	if (rc)
		return rc;
	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)i;
	for (size_t at = 0, len = 1; at < size && !rc; at += len, len = len * 3 + 1) {
		len = mfs_min_u64(len, size - at);
		rc = mfs_delta_apply_next(a, bytes + at, len, err);
	}
	if (!rc)
		rc = mfs_delta_apply_end(a, err);
	mfs_delta_apply_free(a);
	return rc;
}

static int fuzz_change(enum mfs_delta_encoding_kind encoding, const uint8_t *bytes, size_t len,
		       struct mfs_error *err)
{
	struct mfs_delta_change c = {.name = "t"};
	uint8_t *tensor;
	uint32_t size;
	int rc;

	if (len < 4 || mfs_le32(bytes) > LARGEST)
		return mfs_fail(err, -EINVAL, "no size");
	size = mfs_le32(bytes);
	c.bytes = mfs_source_memory(bytes + 4, len - 4, "change");
	tensor = malloc(size + 1);
	fuzz_require(tensor != NULL);
	rc = apply(&c, encoding, tensor, size, err);
	free(tensor);
	return rc;
}

static int fuzz_base(int at, const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	struct mfs_delta_base base;
	int rc;

	write_file(at, MFS_DELTA_BASE_FILE, bytes, len);
	rc = mfs_delta_base_read(dir, &base, err);
	if (!rc)
		for (uint32_t i = 0; i < base.count; i++)
			fuzz_require(mfs_delta_base_find(&base, base.sums[i].name) != NULL);
	if (!rc)
		mfs_delta_base_release(&base);
	unlinkat(at, MFS_DELTA_BASE_FILE, 0);
	return rc;
}

static int check_sum(const struct mfs_delta *d, const struct mfs_delta_change *c,
		     const uint8_t *bytes, struct mfs_error *err)
{
	char found[MFS_DELTA_SUM_TEXT];
	struct mfs_delta_sum sum;

	fuzz_require(mfs_delta_sum_init(&sum, d->meta.sum, err) == 0);
	mfs_delta_sum_add(&sum, bytes, TENSOR);
	mfs_delta_sum_text(&sum, found);
	mfs_delta_sum_release(&sum);
	return strcmp(found, c->sum) ? mfs_fail(err, -EIO, "expected %s, found %s", c->sum, found)
				     : 0;
}

static int open_version(struct mfs_error *err)
{
	uint8_t bytes[TENSOR];
	struct mfs_delta *d;
	bool is_delta = false;
	int rc = mfs_delta_open(dir, &d, err);

	if (rc)
		return rc;
	fuzz_require(mfs_delta_looks_like_one(dir, &is_delta, err) == 0 && is_delta);
	for (uint32_t i = 0; i < d->count && !rc; i++) {
		const struct mfs_delta_change *c = &d->changes[i];

		fuzz_require(mfs_delta_find(d, c->name) == c);
		rc = apply(c, d->meta.encoding, bytes, TENSOR, err);
		if (!rc)
			rc = check_sum(d, c, bytes, err);
	}
	mfs_delta_free(d);
	return rc;
}

static int fuzz_version(int at, const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	uint32_t index;
	int rc;

	if (len < 4 || mfs_le32(bytes) > len - 4)
		return mfs_fail(err, -EINVAL, "no length");
	index = mfs_le32(bytes);
	write_file(at, MFS_DELTA_INDEX, bytes + 4, index);
	if (len - 4 > index)
		write_file(at, WEIGHTS, bytes + 4 + index, len - 4 - index);
	rc = open_version(err);
	unlinkat(at, MFS_DELTA_INDEX, 0);
	unlinkat(at, WEIGHTS, 0);
	return rc;
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	int at, rc;

	if (!len)
		return mfs_fail(err, -EINVAL, "nothing");
	if (*bytes == 'x' || *bytes == 'o')
		return fuzz_change(*bytes == 'x' ? MFS_DELTA_XOR : MFS_DELTA_OVERWRITE, bytes + 1,
				   len - 1, err);
	if (*bytes != 'b' && *bytes != 'v')
		return mfs_fail(err, -EINVAL, "no kind of input");
	at = open_dir();
	rc = *bytes == 'b' ? fuzz_base(at, bytes + 1, len - 1, err)
			   : fuzz_version(at, bytes + 1, len - 1, err);
	close(at);
	return rc;
}

FUZZ_TARGET
