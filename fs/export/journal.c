#include "fs/export/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/buf.h"
#include "formats/base/bytes.h"
#include "formats/base/str.h"
#include "formats/io/commit.h"
#include "formats/io/regular.h"

#define VERSION	   1
#define HEAD_BYTES 65536 /* of each file in the fingerprint */

static int digest_file(EVP_MD_CTX *md, const struct mfs_view_file *f, void *buf,
		       struct mfs_error *err)
{
	uint64_t size = mfs_vfile_size(f->data);
	uint8_t le[8];
	size_t len = 0;
	int rc;

	rc = mfs_vfile_pread(f->data, 0, buf, mfs_min_u64(size, HEAD_BYTES), &len, err);
	if (rc)
		return rc;
	mfs_put_le64(le, size);
	EVP_DigestUpdate(md, f->name, strlen(f->name) + 1);
	EVP_DigestUpdate(md, le, sizeof(le));
	EVP_DigestUpdate(md, buf, len);
	return 0;
}

int mfs_fingerprint_view(const struct mfs_view *view, struct mfs_fingerprint *ret,
			 struct mfs_error *err)
{
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	void *buf = malloc(HEAD_BYTES);
	uint8_t sum[EVP_MAX_MD_SIZE], mtime[8];
	int rc = 0;

	if (!md || !buf || !EVP_DigestInit_ex(md, EVP_sha256(), NULL)) {
		rc = mfs_fail_nomem(err);
		goto done;
	}
	mfs_put_le64(mtime, (uint64_t)view->mtime_ns);
	EVP_DigestUpdate(md, mtime, sizeof(mtime));
	for (uint32_t i = 0; i < view->count && !rc; i++)
		rc = digest_file(md, &view->files[i], buf, err);
	if (rc)
		goto done;
	EVP_DigestFinal_ex(md, sum, NULL);
	mfs_str_hex(sum, 32, ret->hex);
done:
	EVP_MD_CTX_free(md);
	free(buf);
	return rc;
}

/* As many bytes as the journal claims, if the file has them; else 0. */
static uint64_t believable(int dirfd, const struct mfs_view_file *f, json_int_t claimed)
{
	uint64_t size = mfs_vfile_size(f->data);
	struct stat st;

	if (claimed <= 0 || (uint64_t)claimed > size ||
	    fstatat(dirfd, f->name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode) ||
	    (uint64_t)st.st_size < (uint64_t)claimed)
		return 0;
	return (uint64_t)claimed;
}

static bool read_entries(const json_t *root, int dirfd, const struct mfs_view *view,
			 const struct mfs_fingerprint *source, uint64_t *durable)
{
	const json_t *files = json_object_get(root, "files");
	const char *fingerprint = json_string_value(json_object_get(root, "source"));

	if (json_integer_value(json_object_get(root, "mcorefs_export")) != VERSION ||
	    !fingerprint || strcmp(fingerprint, source->hex) ||
	    json_array_size(files) != view->count)
		return false;
	for (uint32_t i = 0; i < view->count; i++) {
		const json_t *entry = json_array_get(files, i);
		json_int_t claimed = json_integer_value(json_object_get(entry, "durable"));

		durable[i] = believable(dirfd, &view->files[i], claimed);
	}
	return true;
}

bool mfs_journal_load(int dirfd, const struct mfs_view *view, const struct mfs_fingerprint *source,
		      uint64_t *durable)
{
	json_t *root;
	bool ok;
	int fd;

	memset(durable, 0, view->count * sizeof(*durable));
	if (mfs_open_regular(dirfd, MFS_EXPORT_JOURNAL, O_NOFOLLOW, &fd, NULL))
		return false;
	root = json_loadfd(fd, 0, NULL);
	close(fd);
	ok = root && read_entries(root, dirfd, view, source, durable);
	json_decref(root);
	return ok;
}

int mfs_journal_save(int dirfd, const struct mfs_view *view, const struct mfs_fingerprint *source,
		     const uint64_t *durable, struct mfs_error *err)
{
	struct mfs_buf b = {0};
	int rc;

	mfs_buf_printf(&b, "{\"mcorefs_export\": %d, \"source\": \"%s\", \"files\": [", VERSION,
		       source->hex);
	for (uint32_t i = 0; i < view->count; i++) {
		mfs_buf_adds(&b, i ? ",\n  {\"name\": " : "\n  {\"name\": ");
		mfs_buf_add_json(&b, view->files[i].name);
		mfs_buf_printf(&b, ", \"size\": %llu, \"durable\": %llu}",
			       (unsigned long long)mfs_vfile_size(view->files[i].data),
			       (unsigned long long)durable[i]);
	}
	mfs_buf_adds(&b, "\n]}\n");
	rc = b.failed ? mfs_fail_nomem(err)
		      : mfs_commit_file(dirfd, MFS_EXPORT_JOURNAL, b.data, b.len, err);
	mfs_buf_release(&b);
	return rc;
}
