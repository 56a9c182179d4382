/* What -o tokenizer_id= names: identifiers of a tokenizer, or descriptions of an earlier run's indices. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/dataset/index/index_key.h"
#include "formats/dataset/index/python_json.h"
#include "formats/io/fileset.h"
#include "fs/data/cache.h"

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
			rc = mfs_fail(err, -ENOTSUP, "%s/%s: %zu bytes are no description", dir,
				      name, len);
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

static void free_entries(struct dirent **list, int count)
{
	for (int i = 0; i < count; i++)
		free(list[i]);
	free(list);
}

/* The name begins with the text's own digest. */
static bool is_its_name(const char *name, const char *text, size_t len)
{
	char digest[MFS_INDEX_DIGEST_SIZE];

	return !mfs_index_digest(text, len, digest, NULL) &&
	       !strncmp(name, digest, strlen(digest)) && name[strlen(digest)] == '-';
}

static int visit(const char *dir, const char *name, const struct mfs_dataset_rules *rules,
		 mfs_cache_description_fn *fn, void *arg, struct mfs_access_fold *access,
		 struct mfs_error *err)
{
	struct mfs_index_description d;
	struct mfs_error why;
	char *text;
	size_t len;
	int rc = slurp(dir, name, &text, &len, access, &why);

	if (rc)
		return 0;
	if (is_its_name(name, text, len) &&
	    !mfs_index_description_parse(text, len, rules, &d, &why)) {
		rc = fn(arg, &d, err);
		mfs_index_description_release(&d);
	}
	free(text);
	return rc;
}

int mfs_cache_descriptions(const char *dir, const struct mfs_dataset_rules *rules,
			   mfs_cache_description_fn *fn, void *arg, struct mfs_access_fold *access,
			   struct mfs_error *err)
{
	struct dirent **list;
	const int count = scandir(dir, &list, is_description, alphasort);
	int rc = 0;

	if (count < 0)
		return mfs_fail(err, -errno, "%s: %s", dir, strerror(errno));
	for (int i = 0; i < count && !rc; i++)
		rc = visit(dir, list[i]->d_name, rules, fn, arg, access, err);
	free_entries(list, count);
	return rc;
}

/* ---- the tokenizer ---- */

struct search {
	const char *dir;
	json_t *tokenizer;
};

static int take_tokenizer(void *arg, const struct mfs_index_description *d, struct mfs_error *err)
{
	struct search *s = arg;

	if (!s->tokenizer)
		s->tokenizer = json_incref(d->run.tokenizer);
	else if (!json_equal(s->tokenizer, d->run.tokenizer))
		return mfs_fail(
			err, -EINVAL,
			"tokenizer_id: the descriptions in %s name two tokenizers; name one "
			"of the files",
			s->dir);
	return 0;
}

static int of_directory(const char *dir, const struct mfs_dataset_rules *rules, json_t **ret,
			struct mfs_access_fold *access, struct mfs_error *err)
{
	struct search s = {.dir = dir};
	int rc = mfs_cache_descriptions(dir, rules, take_tokenizer, &s, access, err);

	if (!rc && !s.tokenizer)
		rc = mfs_fail(err, -ENODATA,
			      "tokenizer_id: %s has no *" SUFFIX
			      " that this version of Megatron would have written",
			      dir);
	if (rc) {
		json_decref(s.tokenizer);
		return rc;
	}
	*ret = s.tokenizer;
	return 0;
}

/* The tokenizer of a description, or the object itself. */
static json_t *tokenizer_of(json_t *root)
{
	json_t *members = json_object_get(root, "datasets");
	json_t *tokenizer =
		json_object_get(members ? json_array_get(members, 0) : root, "tokenizer");

	return json_incref(json_is_object(tokenizer) ? tokenizer : root);
}

static int of_file(const char *path, json_t **ret, struct mfs_access_fold *access,
		   struct mfs_error *err)
{
	const char *slash = strrchr(path, '/');
	json_error_t where;
	json_t *root;
	char *dir, *text;
	size_t len;
	int rc;

	dir = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
	if (!dir)
		return mfs_fail_nomem(err);
	rc = slurp(dir, slash ? slash + 1 : path, &text, &len, access, err);
	free(dir);
	if (rc)
		return mfs_fail_in(err, "tokenizer_id");
	root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where);
	free(text);
	if (!json_is_object(root)) {
		json_decref(root);
		return mfs_fail(
			err, -EINVAL,
			"tokenizer_id: %s is no JSON object: it holds unique_identifiers of "
			"Megatron's tokenizer",
			path);
	}
	*ret = tokenizer_of(root);
	json_decref(root);
	return 0;
}

int mfs_cache_tokenizer(const char *path, const struct mfs_dataset_rules *rules, json_t **ret,
			struct mfs_access_fold *access, struct mfs_error *err)
{
	struct stat st;

	if (stat(path, &st))
		return mfs_fail(err, -EINVAL, "tokenizer_id: %s: %s", path, strerror(errno));
	return S_ISDIR(st.st_mode) ? of_directory(path, rules, ret, access, err)
				   : of_file(path, ret, access, err);
}
