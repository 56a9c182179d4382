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

/* Paths of datasets and of ref= are left out: a view's identity has the files themselves. */
static int add_data(struct mfs_buf *b, const struct mfs_data_options *o, struct mfs_error *err)
{
	int rc;

	add_text(b, "merge", o->merge);
	add_text(b, "split", o->split);
	add_text(b, "data_path", o->data_path);
	for (int i = 0; i < MFS_SPLITS; i++) {
		add_number(b, "split_number", (uint64_t)i);
		add_text(b, "split_data_path", o->split_data_path[i]);
	}
	add_text(b, "megatron", o->megatron);
	add_text(b, "column", o->column);
	if (o->has_eod)
		mfs_buf_printf(b, "eod=%lld\n", (long long)o->eod);
	add_number(b, "data_vocab_size", o->vocab_size);
	add_number(b, "vocab_scan", o->vocab_scan);
	add_number(b, "arrow_batch", o->arrow_batch);
	rc = add_file(b, "data_args", o->data_args_path, err);
	return rc ? rc : add_file(b, "tokenizer_id", o->tokenizer_id, err);
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

uint64_t mfs_options_stamp(const struct mfs_view_options *o)
{
	uint64_t stamp = 1;

	if (o->data && (!add_stamp(o->data->data_args_path, &stamp) ||
			!add_stamp(o->data->tokenizer_id, &stamp)))
		return 0;
	return stamp ? stamp : 1;
}

int mfs_options_digest(const struct mfs_view_options *o, char ret[MFS_COMMIT_SIZE],
		       struct mfs_error *err)
{
	uint8_t sum[EVP_MAX_MD_SIZE];
	unsigned sum_len = 0;
	struct mfs_buf b = {0};
	int rc = 0;

	add_text(&b, "arch", o->arch);
	add_number(&b, "vocab_size", o->vocab_size);
	add_number(&b, "shard_size", o->shard_size);
	add_number(&b, "spec", o->spec);
	add_number(&b, "no_optim", o->no_optim);
	add_number(&b, "language", o->language);
	add_number(&b, "families", mfs_families_stamp());
	if (o->data)
		rc = add_data(&b, o->data, err);
	if (!rc && b.failed)
		rc = mfs_fail_nomem(err);
	if (!rc) {
		EVP_Digest(b.data ? b.data : "", b.len, sum, &sum_len, EVP_sha256(), NULL);
		mfs_str_hex(sum, MFS_COMMIT_CHARS / 2, ret);
	}
	mfs_buf_release(&b);
	return rc;
}
