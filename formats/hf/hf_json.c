#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "formats/hf/hf_json.h"
#include "formats/io/fileset.h"

/* Python writes Infinity, which is no JSON. Returns a copy with null in its place; NULL: there is
 * none, or no memory. */
static char *without_infinity(const char *bytes, size_t len)
{
	static const char word[] = "Infinity";
	const size_t n = sizeof(word) - 1;
	char *copy = len ? malloc(len) : NULL;
	bool quoted = false, found = false;

	if (!copy)
		return NULL;
	memcpy(copy, bytes, len);
	for (size_t i = 0; i < len; i++) {
		if (copy[i] == '"')
			quoted = !quoted;
		else if (copy[i] == '\\')
			i++;
		if (quoted || len - i < n || memcmp(copy + i, word, n))
			continue;
		if (i && copy[i - 1] == '-')
			copy[i - 1] = ' ';
		memcpy(copy + i, "null    ", n);
		found = true;
	}
	if (found)
		return copy;
	free(copy);
	return NULL;
}

int mfs_json_load(const char *bytes, size_t len, size_t max, size_t flags, const char *name,
		  json_t **ret, struct mfs_error *err)
{
	json_error_t where;
	json_t *root;
	char *copy;

	if (len > max)
		return mfs_fail(err, -ENOTSUP, "%s: it has %zu bytes, more than the limit of %zu",
				name, len, max);
	root = json_loadb(bytes, len, flags | JSON_REJECT_DUPLICATES, &where);
	copy = root ? NULL : without_infinity(bytes, len);
	if (copy)
		root = json_loadb(copy, len, flags | JSON_REJECT_DUPLICATES, &where);
	free(copy);
	if (!root)
		return mfs_fail(err, -EINVAL, "%s: not valid JSON at line %d, column %d", name,
				where.line, where.column);
	*ret = root;
	return 0;
}

/* 15 digits print 1e-05 as it was written; the rare number that needs more gets 17. */
static char *dump(const json_t *root)
{
	const size_t flags = JSON_INDENT(2) | JSON_SORT_KEYS;
	char *text = json_dumps(root, flags | JSON_REAL_PRECISION(15));
	json_t *again = text ? json_loads(text, 0, NULL) : NULL;
	const bool exact = again && json_equal(again, root);

	json_decref(again);
	if (exact)
		return text;
	free(text);
	return json_dumps(root, flags | JSON_REAL_PRECISION(17));
}

int mfs_json_text(const json_t *root, char **ret, size_t *ret_len, struct mfs_error *err)
{
	char *text = dump(root), *longer;
	size_t len;

	if (!text)
		return mfs_fail_nomem(err);
	len = strlen(text);
	longer = realloc(text, len + 2);
	if (!longer) {
		free(text);
		return mfs_fail_nomem(err);
	}
	memcpy(longer + len, "\n", 2);
	*ret = longer;
	*ret_len = len + 1;
	return 0;
}

int mfs_hf_slurp_added(struct mfs_fileset *set, const char *name, uint64_t max, char **ret,
		       size_t *ret_len, struct mfs_error *err)
{
	uint32_t file;
	uint64_t size;
	char *bytes;
	int rc = mfs_fileset_add(set, name, &file, err);

	if (rc)
		return rc;
	size = mfs_fileset_size(set, file);
	if (size > max)
		return mfs_fail(err, -ENOTSUP,
				"%s/%s: it has %llu bytes, more than the limit of %llu",
				mfs_fileset_dir(set), name, (unsigned long long)size,
				(unsigned long long)max);
	bytes = malloc((size_t)size + 1);
	if (!bytes)
		return mfs_fail_nomem(err);
	rc = mfs_fileset_read(set, file, 0, bytes, (size_t)size, err);
	if (rc) {
		free(bytes);
		return rc;
	}
	bytes[size] = '\0';
	*ret = bytes;
	*ret_len = (size_t)size;
	return 0;
}

int mfs_hf_slurp_counted(const char *dir, const char *name, uint64_t max, char **ret,
			 size_t *ret_len, struct mfs_access_fold *access, struct mfs_error *err)
{
	struct mfs_fileset *set;
	int rc = mfs_fileset_new(dir, &set, err);

	if (rc)
		return rc;
	rc = mfs_hf_slurp_added(set, name, max, ret, ret_len, err);
	if (!rc && access)
		mfs_access_merge(access, mfs_fileset_access(set));
	mfs_fileset_free(set);
	return rc;
}

int mfs_hf_slurp(const char *dir, const char *name, uint64_t max, char **ret, size_t *ret_len,
		 struct mfs_error *err)
{
	return mfs_hf_slurp_counted(dir, name, max, ret, ret_len, NULL, err);
}
