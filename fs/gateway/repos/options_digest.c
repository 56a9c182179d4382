/* What options say, for commits: two gateways with the same ones make the same bytes. */
#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "formats/base/buf.h"
#include "formats/base/clock.h"
#include "formats/base/hash.h"
#include "formats/base/str.h"
#include "formats/io/slurp.h"
#include "formats/model/families/family.h"
#include "fs/cli/option_rows.h"
#include "fs/data/data.h"
#include "fs/gateway/repos/repos_i.h"
#include "fs/view/view.h"

#define FILE_MAX (64u << 20)

/* Lengths stand before texts, so that no text can look like two. */
static void add_text(struct mfs_buf *b, const char *name, const char *text)
{
	if (text)
		mfs_buf_printf(b, "%s=%zu:%s\n", name, strlen(text), text);
}

static void add_number(struct mfs_buf *b, const char *name, uint64_t n)
{
	if (n)
		mfs_buf_printf(b, "%s=%llu\n", name, (unsigned long long)n);
}

/* The bytes of a file that an option names, and not its path, which another machine may have
 * elsewhere. A directory's files are all named by what is made of them. */
static int add_file(struct mfs_buf *b, const char *name, const char *path, struct mfs_error *err)
{
	size_t len;
	void *bytes;
	int rc = path ? mfs_slurp(path, FILE_MAX, &bytes, &len, err) : 0;

	if (!path || rc == -EINVAL || rc == -ENOENT)
		return 0;
	if (rc)
		return rc;
	mfs_buf_printf(b, "%s=%zu:", name, len);
	mfs_buf_add(b, bytes, len);
	free(bytes);
	return 0;
}

static uint64_t number_at(const void *value, size_t size)
{
	uint64_t wide;
	uint32_t word;
	bool flag;

	if (size == sizeof(wide))
		return memcpy(&wide, value, sizeof(wide)), wide;
	if (size == sizeof(word))
		return memcpy(&word, value, sizeof(word)), word;
	return memcpy(&flag, value, sizeof(flag)), flag;
}

/* The first split's number is 0, which add_number() leaves out. */
static void add_split(struct mfs_buf *b, const struct mfs_data_options *data, const char *name,
		      const char *const *text)
{
	add_number(b, "split_number", (uint64_t)(text - data->split_data_path));
	add_text(b, name, *text);
}

/* One option of those that change bytes. value: its member; NULL: no struct of o has one. */
static int add_option(struct mfs_buf *b, const struct mfs_option_row *row, const void *value,
		      const struct mfs_view_options *o, struct mfs_error *err)
{
	const char *name = row->digest_name ? row->digest_name : row->name;

	if (row->digest == MFS_DIGEST_FAMILIES)
		add_number(b, name, mfs_families_stamp());
	if (!value)
		return 0;
	switch (row->digest) {
	case MFS_DIGEST_TEXT:
		add_text(b, name, *(const char *const *)value);
		break;
	case MFS_DIGEST_FILE:
		return add_file(b, name, *(const char *const *)value, err);
	case MFS_DIGEST_SPLIT:
		add_split(b, o->data, name, value);
		break;
	case MFS_DIGEST_TOKEN:
		if (o->data->has_eod)
			mfs_buf_printf(b, "%s=%lld\n", name, (long long)*(const int64_t *)value);
		break;
	case MFS_DIGEST_TOKENS_IN:
		add_number(b, "data_vocab_size", o->data->vocab_size);
		add_number(b, name, number_at(value, row->size));
		break;
	case MFS_DIGEST_NUMBER:
		add_number(b, name, number_at(value, row->size));
		break;
	default:
		break;
	}
	return 0;
}

/* A change and the one before may have one time, of a clock that ticks 100 times a second. */
#define LATELY 1000000000ll

/* What a file looks like from outside. False: it has changed lately. */
static bool add_stamp(const char *path, uint64_t *stamp)
{
	struct timespec now;
	uint64_t of[5] = {0};
	struct stat st;

	clock_gettime(CLOCK_REALTIME, &now);
	if (path && !stat(path, &st)) {
		of[0] = (uint64_t)st.st_dev;
		of[1] = (uint64_t)st.st_ino;
		of[2] = (uint64_t)st.st_size;
		of[3] = (uint64_t)mfs_ns(st.st_mtim);
		of[4] = (uint64_t)mfs_ns(st.st_ctim);
		if (mfs_ns(st.st_ctim) > mfs_ns(now) - LATELY)
			return false;
	}
	*stamp = mfs_hash(of, sizeof(of)) + 31 * *stamp;
	return true;
}

bool mfs_options_have_files(const struct mfs_view_options *o)
{
	for (size_t i = 0; i < mfs_option_row_count; i++)
		if (mfs_option_rows[i].digest == MFS_DIGEST_FILE &&
		    mfs_option_reads(&mfs_option_rows[i], o))
			return true;
	return false;
}

uint64_t mfs_options_stamp(const struct mfs_view_options *o)
{
	uint64_t stamp = 1;

	for (size_t i = 0; i < mfs_option_row_count; i++) {
		const struct mfs_option_row *row = &mfs_option_rows[i];

		if (row->digest == MFS_DIGEST_FILE && !add_stamp(mfs_option_reads(row, o), &stamp))
			return 0;
	}
	return stamp ? stamp : 1;
}

int mfs_options_digest(const struct mfs_view_options *o, char ret[MFS_COMMIT_SIZE],
		       struct mfs_error *err)
{
	uint8_t sum[EVP_MAX_MD_SIZE];
	unsigned sum_len = 0;
	struct mfs_buf b = {0};
	int rc = 0;

	for (size_t i = 0; i < mfs_option_row_count && !rc; i++) {
		const struct mfs_option_row *row = &mfs_option_rows[i];

		rc = add_option(&b, row, mfs_option_in_view(row, o), o, err);
	}
	if (!rc && b.failed)
		rc = mfs_fail_nomem(err);
	if (!rc) {
		EVP_Digest(b.data ? b.data : "", b.len, sum, &sum_len, EVP_sha256(), NULL);
		mfs_str_hex(sum, MFS_COMMIT_CHARS / 2, ret);
	}
	mfs_buf_release(&b);
	return rc;
}
