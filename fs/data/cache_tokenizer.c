/* What -o tokenizer_id= names: the identifiers of a tokenizer, or descriptions that an earlier run
 * has left. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/path.h"
#include "formats/dataset/index/index_key.h"
#include "formats/dataset/index/python_json.h"
#include "formats/io/fileset.h"
#include "fs/data/index_cache.h"

#define SUFFIX "-description.txt"

/* A whole file of dir. */
static int slurp(const char *dir, const char *name, char **ret, size_t *ret_len,
		 struct mfs_access_fold *access, struct mfs_error *err)
{
	struct mfs_fileset *set;
	uint32_t file;
	char *bytes = NULL;
	size_t len = 0;
	int rc = mfs_fileset_new(dir, &set, err);

	if (rc)
		return rc;
	rc = mfs_fileset_add(set, name, &file, err);
	if (!rc) {
		len = mfs_fileset_size(set, file);
		if (len > MFS_PYTHON_JSON_MAX)
			rc = mfs_fail(err, -ENOTSUP, "%s/%s: a description cannot have %zu bytes",
				      dir, name, len);
	}
	if (!rc) {
		bytes = malloc(len + 1);
		rc = bytes ? mfs_fileset_read(set, file, 0, bytes, len, err) : mfs_fail_nomem(err);
	}
	if (!rc && access)
		mfs_access_merge(access, mfs_fileset_access(set));
	mfs_fileset_free(set);
	if (rc) {
		free(bytes);
		return rc;
	}
	*ret = bytes;
	*ret_len = len;
	return 0;
}

/* ---- a directory of descriptions ---- */

static int is_description(const struct dirent *e)
{
	const size_t len = strlen(e->d_name), suffix = strlen(SUFFIX);

	return len >= suffix && !strcmp(e->d_name + len - suffix, SUFFIX);
}

/* The name begins with the text's own digest. */
static bool is_its_name(const char *name, const char *text, size_t len)
{
	char digest[MFS_INDEX_DIGEST_SIZE];

	return !mfs_index_digest(text, len, digest, NULL) &&
	       !strncmp(name, digest, strlen(digest)) && name[strlen(digest)] == '-';
}

/* The tokenizer of a description, or the object itself. */
static json_t *tokenizer_of(json_t *root)
{
	json_t *members = json_object_get(root, "datasets");
	json_t *tokenizer =
		json_object_get(members ? json_array_get(members, 0) : root, "tokenizer");

	return json_is_object(tokenizer) ? tokenizer : root;
}

/* Writes what was read again. If that gives the same text, nothing in it was misunderstood. */
static bool is_written_so(json_t *root, const char *text, size_t len)
{
	char *again;
	size_t again_len;
	bool same;

	if (mfs_python_json(root, &again, &again_len, NULL))
		return false;
	same = again_len == len && !memcmp(again, text, len);
	free(again);
	return same;
}

/* NULL: no description, or one without a tokenizer. */
static json_t *read_description(const char *dir, const char *name, struct mfs_access_fold *access)
{
	json_t *root = NULL, *tokenizer = NULL;
	char *text;
	size_t len;

	if (slurp(dir, name, &text, &len, access, NULL))
		return NULL;
	if (is_its_name(name, text, len))
		root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	if (json_is_object(root) && is_written_so(root, text, len) && tokenizer_of(root) != root)
		tokenizer = json_incref(tokenizer_of(root));
	json_decref(root);
	free(text);
	return tokenizer;
}

/* Of all descriptions in the directory: *ret is NULL if there is none. */
static int agree(const char *dir, struct dirent **list, int count, json_t **ret,
		 struct mfs_access_fold *access, struct mfs_error *err)
{
	for (int i = 0; i < count; i++) {
		json_t *tokenizer = read_description(dir, list[i]->d_name, access);
		const bool same = !tokenizer || !*ret || json_equal(*ret, tokenizer);

		if (!*ret)
			*ret = tokenizer;
		else
			json_decref(tokenizer);
		if (!same)
			return mfs_fail(err, -EINVAL,
					"tokenizer_id: the descriptions in %s name two tokenizers; "
					"name one of the files",
					dir);
	}
	return *ret ? 0
		    : mfs_fail(err, -ENODATA,
			       "tokenizer_id: %s has no *" SUFFIX
			       " that Megatron would have written",
			       dir);
}

static int of_directory(const char *dir, json_t **ret, struct mfs_access_fold *access,
			struct mfs_error *err)
{
	struct dirent **list;
	const int count = scandir(dir, &list, is_description, alphasort);
	json_t *tokenizer = NULL;
	int rc;

	if (count < 0)
		return mfs_fail_errno(err, "%s", dir);
	rc = agree(dir, list, count, &tokenizer, access, err);
	for (int i = 0; i < count; i++)
		free(list[i]);
	free(list);
	if (rc)
		json_decref(tokenizer);
	else
		*ret = tokenizer;
	return rc;
}

/* ---- both ---- */

static int of_file(const char *path, json_t **ret, struct mfs_access_fold *access,
		   struct mfs_error *err)
{
	char *dir = mfs_path_parent(path), *text;
	json_error_t where;
	json_t *root;
	size_t len;
	int rc;

	if (!dir)
		return mfs_fail_nomem(err);
	rc = slurp(dir, mfs_path_base(path), &text, &len, access, err);
	free(dir);
	if (rc)
		return mfs_fail_in(err, "tokenizer_id");
	root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where);
	free(text);
	if (!json_is_object(root)) {
		json_decref(root);
		return mfs_fail(
			err, -EINVAL,
			"tokenizer_id: %s is not a JSON object: expected the unique_identifiers "
			"of Megatron's tokenizer",
			path);
	}
	*ret = json_incref(tokenizer_of(root));
	json_decref(root);
	return 0;
}

int mfs_cache_tokenizer(const char *path, json_t **ret, struct mfs_access_fold *access,
			struct mfs_error *err)
{
	struct stat st;

	if (stat(path, &st))
		return mfs_fail(err, -EINVAL, "tokenizer_id: %s: %s", path, strerror(errno));
	return S_ISDIR(st.st_mode) ? of_directory(path, ret, access, err)
				   : of_file(path, ret, access, err);
}
