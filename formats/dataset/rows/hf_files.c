#define _GNU_SOURCE
#include "formats/dataset/rows/hf_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/buf.h"
#include "formats/base/str.h"
#include "formats/dataset/rows/hf_dataset.h"
#include "formats/hf/hf_json.h"
#include "formats/io/directory.h"

#define JSON_MAX (64u << 20) /* bytes; features of thousands of columns take a few hundred kB */
#define SUFFIX	 ".arrow"

/* ---- JSON ---- */

static int load(const char *dir, const char *name, json_t **ret, struct mfs_error *err)
{
	char *text;
	size_t len;
	int rc = mfs_hf_slurp(dir, name, JSON_MAX, &text, &len, err);

	if (rc)
		return rc;
	rc = mfs_json_load(text, len, JSON_MAX, 0, name, ret, err);
	free(text);
	if (rc)
		return mfs_fail_in(err, "%s", dir);
	if (json_is_object(*ret))
		return 0;
	json_decref(*ret);
	return mfs_fail(err, -EINVAL, "%s/%s: not a JSON object", dir, name);
}

static bool exists(const char *dir, const char *name)
{
	char *path;
	bool found;

	if (asprintf(&path, "%s/%s", dir, name) < 0)
		return false;
	found = !access(path, F_OK);
	free(path);
	return found;
}

/* ---- save_to_disk ---- */

static int saved_name(const char *dir, const json_t *file, struct mfs_arena *arena,
		      const char **ret, struct mfs_error *err)
{
	const char *name = json_string_value(json_object_get(file, "filename"));
	const json_t *skip = json_object_get(file, "skip"), *take = json_object_get(file, "take");

	if (!name)
		return mfs_fail(err, -EINVAL, "%s/state.json: a data file without \"filename\"",
				dir);
	/* datasets before 1.2 */
	if ((skip && !json_is_null(skip)) || (take && !json_is_null(take)))
		return mfs_fail(
			err, -ENOTSUP,
			"%s/state.json: it takes only some rows of '%s' (skip, take): save the "
			"dataset again with a later version of datasets",
			dir, name);
	*ret = mfs_arena_strndup(arena, name, strlen(name));
	return *ret ? 0 : mfs_fail_nomem(err);
}

static int saved_names(const char *dir, const json_t *state, const char *key,
		       struct mfs_arena *arena, const char ***ret, uint32_t *ret_count,
		       struct mfs_error *err)
{
	const json_t *list = json_object_get(state, key);
	const size_t count = json_array_size(list);
	const char **names = mfs_arena_array(arena, count, sizeof(*names));
	int rc = 0;

	if (!names && count)
		return mfs_fail_nomem(err);
	if (list && !json_is_null(list) && !json_is_array(list))
		return mfs_fail(err, -EINVAL, "%s/state.json: \"%s\" is not a list", dir, key);
	for (size_t i = 0; i < count && !rc; i++)
		rc = saved_name(dir, json_array_get(list, i), arena, &names[i], err);
	if (rc)
		return rc;
	*ret = names;
	*ret_count = (uint32_t)count;
	return 0;
}

static int saved_files(const char *dir, struct mfs_arena *arena, struct mfs_hf_files *ret,
		       struct mfs_error *err)
{
	json_t *state;
	int rc = load(dir, "state.json", &state, err);

	if (rc)
		return rc;
	rc = saved_names(dir, state, "_data_files", arena, &ret->names, &ret->count, err);
	if (!rc) /* datasets before 2.0; later ones write the rows in their order */
		rc = saved_names(dir, state, "_indices_data_files", arena, &ret->indices,
				 &ret->index_count, err);
	json_decref(state);
	if (!rc && !ret->count)
		rc = mfs_fail(err, -ENODATA, "%s/state.json: the dataset has no rows: no data file",
			      dir);
	return rc;
}

/* ---- directories of files ---- */

static bool is_data(const char *name)
{
	const size_t len = strlen(name), suffix = strlen(SUFFIX);

	return len > suffix && !strcmp(name + len - suffix, SUFFIX) && strncmp(name, "cache-", 6);
}

static int is_data_entry(const struct dirent *e)
{
	return is_data(e->d_name);
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

bool mfs_hf_shard_of(const char *name, size_t len, unsigned *ret_shard, unsigned *ret_of)
{
	unsigned numbers[2] = {0, 0};
	const char *p;

	if (len < MFS_HF_SHARD)
		return false;
	p = name + len - MFS_HF_SHARD;
	if (p[0] != '-' || strncmp(p + 6, "-of-", 4))
		return false;
	for (int i = 0; i < 5; i++) {
		const char a = p[1 + i], b = p[10 + i];

		if (a < '0' || a > '9' || b < '0' || b > '9')
			return false;
		numbers[0] = numbers[0] * 10 + (unsigned)(a - '0');
		numbers[1] = numbers[1] * 10 + (unsigned)(b - '0');
	}
	*ret_shard = numbers[0];
	*ret_of = numbers[1];
	return true;
}

/* Is it NAME-SPLIT.arrow, or a shard of that? Names of splits have no '-' (datasets/naming.py). */
static bool is_of_split(const char *name, const char *split)
{
	size_t len = strlen(name) - strlen(SUFFIX), split_len = strlen(split);
	unsigned shard, of;

	if (mfs_hf_shard_of(name, len, &shard, &of))
		len -= MFS_HF_SHARD;
	return len > split_len && name[len - split_len - 1] == '-' &&
	       !strncmp(name + len - split_len, split, split_len);
}

/* Is b the shard that follows a? */
static bool follows(const char *a, const char *b)
{
	const size_t len = strlen(a) - strlen(SUFFIX);
	unsigned shard[2], of[2];

	return strlen(b) == strlen(a) && mfs_hf_shard_of(a, len, &shard[0], &of[0]) &&
	       mfs_hf_shard_of(b, len, &shard[1], &of[1]) && !memcmp(a, b, len - MFS_HF_SHARD) &&
	       shard[0] + 1 == shard[1] && of[0] == of[1];
}

/* Checks that shard k of n stands between its neighbours, in the order of names. */
static int check_shards(const struct mfs_hf_files *f, struct mfs_error *err)
{
	for (uint32_t i = 0; i < f->count; i++) {
		const char *name = f->names[i];
		unsigned shard, of;
		bool first, last;

		if (!mfs_hf_shard_of(name, strlen(name) - strlen(SUFFIX), &shard, &of))
			continue;
		first = !shard || (i && follows(f->names[i - 1], name));
		last = shard + 1 >= of || (i + 1 < f->count && follows(name, f->names[i + 1]));
		if (!first || !last)
			return mfs_fail(
				err, -ENODATA,
				"%s: %u files belong together with '%s', and the one %s it is "
				"missing",
				f->dir, of, name, first ? "after" : "before");
	}
	return 0;
}

/* Files of a directory; split NULL: all of them. */
static int listed_files(const char *dir, const char *split, struct mfs_arena *arena,
			struct mfs_hf_files *ret, struct mfs_error *err)
{
	struct dirent **entries;
	int n = mfs_scandir(dir, &entries, is_data_entry, by_bytes), rc = 0;

	if (n < 0)
		return mfs_fail_errno(err, "cannot list '%s'", dir);
	ret->names = mfs_arena_array(arena, (size_t)n, sizeof(*ret->names));
	for (int i = 0; i < n; i++) {
		const char *name = entries[i]->d_name;

		if (ret->names && (!split || is_of_split(name, split))) {
			ret->names[ret->count] = mfs_arena_strndup(arena, name, strlen(name));
			rc = ret->names[ret->count++] ? rc : -ENOMEM;
		}
		free(entries[i]);
	}
	free(entries);
	if (rc || !ret->names)
		return mfs_fail_nomem(err);
	return check_shards(ret, err);
}

/* ---- splits ---- */

static int add_split(struct mfs_arena *arena, const char *name, const char **list, uint32_t *count,
		     struct mfs_error *err)
{
	if (!name || !*name || *name == '.' || strchr(name, '/'))
		return mfs_fail(err, -EINVAL, "'%s' is not the name of a split", name ? name : "");
	list[*count] = mfs_arena_strndup(arena, name, strlen(name));
	return list[(*count)++] ? 0 : mfs_fail_nomem(err);
}

static int saved_splits(const char *dir, struct mfs_arena *arena, const char *const **ret,
			uint32_t *ret_count, struct mfs_error *err)
{
	const json_t *splits;
	const char **list;
	uint32_t count = 0;
	json_t *root;
	int rc = load(dir, "dataset_dict.json", &root, err);

	if (rc)
		return rc;
	splits = json_object_get(root, "splits");
	list = mfs_arena_array(arena, json_array_size(splits), sizeof(*list));
	rc = list || !json_array_size(splits) ? 0 : mfs_fail_nomem(err);
	for (size_t i = 0; i < json_array_size(splits) && !rc; i++)
		rc = add_split(arena, json_string_value(json_array_get(splits, i)), list, &count,
			       err);
	json_decref(root);
	if (!rc && !count)
		rc = mfs_fail(err, -ENODATA, "%s/dataset_dict.json: it names no split", dir);
	else if (rc)
		return mfs_fail_in(err, "%s/dataset_dict.json", dir);
	if (!rc) {
		*ret = list;
		*ret_count = count;
	}
	return rc;
}

static bool has_files(const char *dir, const char *split)
{
	struct mfs_arena arena = {0};
	struct mfs_hf_files files = {.dir = dir};
	const int rc = listed_files(dir, split, &arena, &files, NULL);

	mfs_arena_release(&arena);
	return rc || files.count; /* a missing shard is to be heard of */
}

/* The splits of a cache: those of dataset_info.json that have files. */
static int cached_splits(const char *dir, struct mfs_arena *arena, const char *const **ret,
			 uint32_t *ret_count, struct mfs_error *err)
{
	const char *name, **list;
	uint32_t count = 0;
	json_t *info, *splits, *split;
	int rc = load(dir, "dataset_info.json", &info, err);

	if (rc)
		return rc;
	splits = json_object_get(info, "splits");
	list = mfs_arena_array(arena, json_object_size(splits), sizeof(*list));
	rc = list || !json_object_size(splits) ? 0 : mfs_fail_nomem(err);
	if (!rc)
		json_object_foreach(splits, name, split)
		{
			if (!rc && has_files(dir, name))
				rc = add_split(arena, name, list, &count, err);
		}
	json_decref(info);
	if (rc)
		return mfs_fail_in(err, "%s/dataset_info.json", dir);
	*ret = list;
	*ret_count = count;
	return 0;
}

static bool is_file(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISREG(st.st_mode);
}

int mfs_hf_dataset_splits(const char *path, struct mfs_arena *arena, const char *const **ret,
			  uint32_t *ret_count, struct mfs_error *err)
{
	if (!is_file(path) && !exists(path, "state.json")) {
		if (exists(path, "dataset_dict.json"))
			return saved_splits(path, arena, ret, ret_count, err);
		if (exists(path, "dataset_info.json"))
			return cached_splits(path, arena, ret, ret_count, err);
	}
	*ret = NULL;
	*ret_count = 0;
	return 0;
}

bool mfs_hf_dataset_looks_like_one(const char *path)
{
	struct dirent **entries;
	int n;

	if (is_file(path))
		return mfs_str_ends(path, SUFFIX);
	if (exists(path, "state.json") || exists(path, "dataset_dict.json"))
		return true;
	n = mfs_scandir(path, &entries, is_data_entry, NULL);
	if (n < 0)
		return false;
	for (int i = 0; i < n; i++)
		free(entries[i]);
	free(entries);
	return n > 0;
}

/* ---- a path's files ---- */

static int one_file(const char *path, struct mfs_arena *arena, struct mfs_hf_files *ret,
		    struct mfs_error *err)
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;

	ret->dir = !slash	   ? "."
		   : slash == path ? "/"
				   : mfs_arena_strndup(arena, path, (size_t)(slash - path));
	ret->names = mfs_arena_array(arena, 1, sizeof(*ret->names));
	if (!ret->dir || !ret->names)
		return mfs_fail_nomem(err);
	ret->names[ret->count++] = mfs_arena_strndup(arena, base, strlen(base));
	return ret->names[0] ? 0 : mfs_fail_nomem(err);
}

/* How many rows a split of a cache has. */
static int cached_rows(const char *dir, const char *split, uint64_t *ret, struct mfs_error *err)
{
	const json_t *rows;
	json_t *info;
	int rc = load(dir, "dataset_info.json", &info, err);

	if (rc)
		return rc;
	rows = json_object_get(json_object_get(json_object_get(info, "splits"), split),
			       "num_examples");
	if (json_is_integer(rows) && json_integer_value(rows) >= 0)
		*ret = (uint64_t)json_integer_value(rows);
	json_decref(info);
	return 0;
}

static int files_of_split(const char *path, const char *split, struct mfs_arena *arena,
			  struct mfs_hf_files *ret, struct mfs_error *err)
{
	const char *const *splits;
	uint32_t count, i = 0;
	int rc = mfs_hf_dataset_splits(path, arena, &splits, &count, err);

	if (rc)
		return rc;
	while (i < count && strcmp(splits[i], split))
		i++;
	if (i == count)
		return mfs_fail(err, -ENOENT, "%s: it has no split '%s'", path, split);
	if (exists(path, "dataset_dict.json")) {
		ret->dir = mfs_arena_printf(arena, "%s/%s", path, split);
		return ret->dir ? saved_files(ret->dir, arena, ret, err) : mfs_fail_nomem(err);
	}
	rc = listed_files(path, split, arena, ret, err);
	return rc ? rc : cached_rows(path, split, &ret->rows, err);
}

static int files_of_path(const char *path, struct mfs_arena *arena, struct mfs_hf_files *ret,
			 struct mfs_error *err)
{
	int rc;

	if (is_file(path))
		return one_file(path, arena, ret, err);
	if (exists(path, "state.json"))
		return saved_files(path, arena, ret, err);
	if (exists(path, "dataset_dict.json"))
		return mfs_fail(err, -ENOENT, "%s: its rows are in splits (dataset_dict.json)",
				path);
	rc = listed_files(path, NULL, arena, ret, err);
	if (!rc && !ret->count)
		rc = mfs_fail(err, -ENODATA, "%s: no *.arrow file in it", path);
	return rc;
}

int mfs_hf_dataset_files(const char *path, const char *split, struct mfs_arena *arena,
			 struct mfs_hf_files *ret, struct mfs_error *err)
{
	struct mfs_hf_files files = {.dir = path, .rows = MFS_HF_ROWS_UNKNOWN};
	int rc;

	files.dir = mfs_arena_strndup(arena, path, strlen(path));
	if (!files.dir)
		return mfs_fail_nomem(err);
	rc = split ? files_of_split(path, split, arena, &files, err)
		   : files_of_path(path, arena, &files, err);
	if (!rc)
		*ret = files;
	return rc;
}
