#define _GNU_SOURCE /* asprintf */

#include "formats/tokenizer/read/tokenizer_open.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/array.h"
#include "formats/base/path.h"
#include "formats/base/str.h"
#include "formats/hf/json_scan.h"
#include "formats/io/directory.h"
#include "formats/io/slurp.h"
#include "formats/tokenizer/read/model_json.h"
#include "formats/tokenizer/read/ranks.h"
#include "formats/tokenizer/spm/spm.h"

#define FILE_MAX (512u << 20) /* bytes */

/* Files of two kinds have names that end alike: Megatron's lists of ranks are JSON, and Llama's
 * ranks are a tokenizer.model. */
static int read_json(struct mfs_tokenizer *tok, const char *path, const char *text, size_t len,
		     struct mfs_error *err)
{
	struct mfs_scan begin = {text, text + len}, vocab;

	if (mfs_scan_peek(&begin) == '[')
		return mfs_tokenizer_rank_list_read(tok, path, text, len, err);
	if (mfs_scan_find(begin, "vocab", &vocab))
		return mfs_tokenizer_tekken_read(tok, path, text, len, err);
	return mfs_tokenizer_json_read(tok, path, text, len, err);
}

static int read_model(struct mfs_tokenizer *tok, const char *path, const char *text, size_t len,
		      struct mfs_error *err)
{
	return mfs_tiktoken_is(text, len) ? mfs_tokenizer_tiktoken_read(tok, path, text, len, err)
					  : mfs_tokenizer_spm_read(tok, path, text, len, err);
}

/* In the order in which a directory is searched. */
static const struct mfs_tokenizer_kind kinds[] = {
	{"tokenizer.json", read_json},
	{"tokenizer.model", read_model},
	{"tekken.json", mfs_tokenizer_tekken_read},
	{"*.tiktoken", mfs_tokenizer_tiktoken_read},
};

static bool is_name(const struct mfs_tokenizer_kind *kind, const char *name)
{
	return kind->name[0] == '*' ? mfs_str_ends(name, kind->name + 1)
				    : mfs_str_is(name, kind->name);
}

const struct mfs_tokenizer_kind *mfs_tokenizer_kind_of(const char *path)
{
	const char *name = mfs_path_base(path);

	for (size_t i = 0; i < MFS_ARRAY_SIZE(kinds); i++)
		if (is_name(&kinds[i], name))
			return &kinds[i];
	/* a file that a person names may have another name: its end decides */
	for (size_t i = 0; i < MFS_ARRAY_SIZE(kinds); i++)
		if (mfs_str_ends(name, strrchr(kinds[i].name, '.')))
			return &kinds[i];
	return NULL;
}

/* The file of a kind in a directory. *ret NULL: it has none. */
static int find_file(const char *dir, const struct mfs_tokenizer_kind *kind, char **ret,
		     struct mfs_error *err)
{
	DIR *d = mfs_opendir(dir);
	const struct dirent *entry;
	unsigned count = 0;

	*ret = NULL;
	if (!d)
		return mfs_fail_errno(err, "cannot open '%s'", dir);
	while ((entry = readdir(d))) {
		if (!is_name(kind, entry->d_name) || count++)
			continue;
		if (asprintf(ret, "%s/%s", dir, entry->d_name) < 0)
			*ret = NULL;
	}
	closedir(d);
	if (count > 1) {
		free(*ret);
		*ret = NULL;
		return mfs_fail(err, -EINVAL, "'%s' has %u files %s, where one is expected", dir,
				count, kind->name);
	}
	return count && !*ret ? mfs_fail_nomem(err) : 0;
}

static int find_in_directory(const char *dir, const struct mfs_tokenizer_kind **ret_kind,
			     char **ret, struct mfs_error *err)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(kinds); i++) {
		const int rc = find_file(dir, &kinds[i], ret, err);

		*ret_kind = &kinds[i];
		if (rc || *ret)
			return rc;
	}
	return mfs_fail(err, -ENOENT, "'%s' has no file of a tokenizer", dir);
}

static int find(const char *path, const struct mfs_tokenizer_kind **ret_kind, char **ret,
		struct mfs_error *err)
{
	struct stat st;

	if (stat(path, &st))
		return mfs_fail_errno(err, "cannot open '%s'", path);
	if (S_ISDIR(st.st_mode))
		return find_in_directory(path, ret_kind, ret, err);
	*ret_kind = mfs_tokenizer_kind_of(path);
	if (!*ret_kind)
		return mfs_fail(err, -ENOTSUP, "'%s' has no name of a tokenizer's file", path);
	*ret = strdup(path);
	return *ret ? 0 : mfs_fail_nomem(err);
}

int mfs_tokenizer_open(const char *path, struct mfs_tokenizer **ret, struct mfs_error *err)
{
	const struct mfs_tokenizer_kind *kind = NULL;
	char *file = NULL;
	void *text = NULL;
	size_t len;
	int rc = find(path, &kind, &file, err);

	if (!rc)
		rc = mfs_slurp(file, FILE_MAX, &text, &len, err);
	if (!rc)
		rc = mfs_tokenizer_parse(kind, file, text, len, ret, err);
	free(text);
	free(file);
	return rc;
}
