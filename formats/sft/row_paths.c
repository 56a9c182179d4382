#define _GNU_SOURCE
#include "formats/sft/row_paths.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/array.h"
#include "formats/base/buf.h"
#include "formats/base/path.h"
#include "formats/base/str.h"
#include "formats/dataset/rows/hf_dataset.h"
#include "formats/dataset/rows/hf_files.h"
#include "formats/io/directory.h"

static const char *const suffixes[] = {".parquet", ".jsonl", ".arrow"};

struct search {
	struct mfs_arena *arena;
	const char *dir;
	const char *split; /* NULL: the only one */
	bool has_split;	   /* it has been seen */
	const char **paths;
	uint32_t count;
};

static bool is_directory(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static int add(struct search *s, const char *dir, const char *name, struct mfs_error *err)
{
	s->paths[s->count] = mfs_arena_printf(s->arena, "%s/%s", dir, name);
	return s->paths[s->count++] ? 0 : mfs_fail_nomem(err);
}

/* ---- datasets of Arrow files ---- */

static int several_splits(const char *dir, const char *const *splits, uint32_t count,
			  struct mfs_error *err)
{
	struct mfs_buf names = {0};
	int rc;

	for (uint32_t i = 0; i < count; i++)
		mfs_buf_printf(&names, "%s%s", i ? ", " : "", splits[i]);
	rc = mfs_fail(err, -ENOENT,
		      "%s: its rows are in splits: expected one of them, as %s/%s; "
		      "found %s",
		      dir, dir, count ? splits[0] : "train", names.data ? names.data : "none");
	mfs_buf_release(&names);
	return rc;
}

static int find_saved(struct search *s, struct mfs_error *err)
{
	const char *const *splits;
	struct mfs_hf_files files;
	uint32_t count;
	int rc = mfs_hf_dataset_splits(s->dir, s->arena, &splits, &count, err);

	if (rc)
		return rc;
	if (!s->split && count > 1)
		return several_splits(s->dir, splits, count, err);
	if (!s->split && count)
		s->split = splits[0];
	rc = mfs_hf_dataset_files(s->dir, s->split, s->arena, &files, err);
	if (rc)
		return rc;
	if (files.index_count)
		return mfs_fail(err, -ENOTSUP,
				"%s: its rows are in another order than in their files: "
				"flatten_indices() and save_to_disk() write them in theirs",
				s->dir);
	s->paths = mfs_arena_array(s->arena, files.count, sizeof(*s->paths));
	if (!s->paths)
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < files.count && !rc; i++)
		rc = add(s, files.dir, files.names[i], err);
	return rc;
}

/* ---- the Hub's files ---- */

/* Length of a file's name without its suffix; 0: it has none of those. */
static size_t stem_of(const char *name)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(suffixes); i++)
		if (mfs_str_ends(name, suffixes[i]))
			return strlen(name) - strlen(suffixes[i]);
	return 0;
}

static int has_rows(const struct dirent *e)
{
	return stem_of(e->d_name) > 0 && *e->d_name != '.';
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

/* What stands in a name before its shard. */
static char *split_of(struct search *s, const char *name, unsigned *ret_shard, unsigned *ret_of)
{
	size_t len = stem_of(name);

	*ret_shard = *ret_of = 0;
	if (mfs_hf_shard_of(name, len, ret_shard, ret_of))
		len -= MFS_HF_SHARD;
	return mfs_arena_strndup(s->arena, name, len);
}

static int shard_missing(const struct search *s, const char *split, uint32_t shard, unsigned of,
			 struct mfs_error *err)
{
	return mfs_fail(err, -ENODATA, "%s: expected shard %u of %u of '%s', found none", s->dir,
			shard, of, split);
}

/* Rows of a file that is no shard, or one of other shards, may be those of the files before it. */
static int check_form(const struct search *s, const char *name, unsigned shard, unsigned of,
		      unsigned of_before, struct mfs_error *err)
{
	if (!s->count || (of && of == of_before && shard >= s->count))
		return 0;
	return mfs_fail(err, -EINVAL,
			"%s: a split is in two forms: expected one file, or shards of one number, "
			"found %s and %s",
			s->dir, mfs_path_base(s->paths[s->count - 1]), name);
}

/* Takes the files of the split, or of the first one: names of all splits go to *ret_splits. */
static int take_files(struct search *s, struct dirent **entries, int n, const char **splits,
		      uint32_t *ret_splits, struct mfs_error *err)
{
	unsigned shard, of, whole = 0;
	int rc = 0;

	*ret_splits = 0;
	for (int i = 0; i < n && !rc; i++) {
		const char *split = split_of(s, entries[i]->d_name, &shard, &of);

		if (!split)
			return mfs_fail_nomem(err);
		if (!*ret_splits || strcmp(splits[*ret_splits - 1], split))
			splits[(*ret_splits)++] = split;
		if (s->split ? strcmp(s->split, split) : *ret_splits > 1)
			continue;
		s->has_split = true;
		rc = check_form(s, entries[i]->d_name, shard, of, whole, err);
		if (rc)
			return rc;
		if (shard != s->count && of)
			return shard_missing(s, split, s->count, of, err);
		whole = of;
		rc = add(s, s->dir, entries[i]->d_name, err);
	}
	if (!rc && s->count < whole)
		rc = shard_missing(s, s->split ? s->split : splits[0], s->count, whole, err);
	return rc;
}

static int find_listed(struct search *s, struct mfs_error *err)
{
	struct dirent **entries;
	const char **splits;
	uint32_t split_count = 0;
	int n = mfs_scandir(s->dir, &entries, has_rows, by_bytes), rc;

	if (n < 0)
		return mfs_fail_errno(err, "cannot list '%s'", s->dir);
	splits = mfs_arena_array(s->arena, (size_t)n + 1, sizeof(*splits));
	s->paths = mfs_arena_array(s->arena, (size_t)n + 1, sizeof(*s->paths));
	rc = splits && s->paths ? take_files(s, entries, n, splits, &split_count, err)
				: mfs_fail_nomem(err);
	for (int i = 0; i < n; i++)
		free(entries[i]);
	free(entries);
	if (!rc && !s->split && split_count > 1)
		rc = several_splits(s->dir, splits, split_count, err);
	if (!rc && !s->count)
		rc = mfs_fail(err, -ENODATA,
			      "%s: expected an HF dataset, or .parquet, .jsonl or .arrow files, "
			      "found none%s%s",
			      s->dir, s->split ? " of split " : "", s->split ? s->split : "");
	return rc;
}

/* ---- all ---- */

static int find_in(struct search *s, struct mfs_error *err)
{
	char *data;

	if (mfs_hf_dataset_looks_like_one(s->dir))
		return find_saved(s, err);
	data = mfs_arena_printf(s->arena, "%s/data", s->dir);
	if (!data)
		return mfs_fail_nomem(err);
	if (is_directory(data))
		s->dir = data;
	return find_listed(s, err);
}

/* A path that is not there may be a split of the directory before it; else it is a file. */
static int find_split(struct search *s, const char *path, struct mfs_error *err)
{
	char *parent;
	struct stat st;
	int rc = -ENOENT;

	if (!stat(path, &st) || stem_of(path))
		return rc;
	parent = mfs_path_parent(path);
	s->dir = parent ? mfs_arena_strndup(s->arena, parent, strlen(parent)) : NULL;
	s->split = mfs_path_base(path);
	free(parent);
	if (s->dir && is_directory(s->dir))
		rc = find_in(s, err);
	return rc && !s->has_split ? -ENOENT : rc;
}

int mfs_row_paths(const char *path, struct mfs_arena *arena, const char *const **ret,
		  uint32_t *ret_count, struct mfs_error *err)
{
	struct search s = {.arena = arena, .dir = path};
	int rc = is_directory(path) ? find_in(&s, err) : find_split(&s, path, err);

	if (rc == -ENOENT && !is_directory(path)) {
		rc = 0;
		s.paths = mfs_arena_array(arena, 1, sizeof(*s.paths));
		if (!s.paths)
			return mfs_fail_nomem(err);
		s.paths[0] = path;
		s.count = 1;
	}
	if (rc)
		return rc;
	*ret = s.paths;
	*ret_count = s.count;
	return 0;
}
