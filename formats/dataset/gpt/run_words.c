#include "formats/dataset/gpt/run_words.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/hf/hf_json.h"
#include "formats/io/regular.h"

#define MAX_WORDS_FILE (64u << 20) /* bytes */

/* ---- files ---- */

/* What a file says goes into the run. */
typedef int file_parser(const char *text, size_t len, struct mfs_data_run *r,
			struct mfs_error *err);

static int read_file(int fd, size_t size, file_parser *parse, struct mfs_data_run *r,
		     struct mfs_error *err)
{
	char *text = malloc(size + 1);
	ssize_t n;
	int rc;

	if (!text)
		return mfs_fail_nomem(err);
	n = read(fd, text, size);
	if (n < 0)
		rc = mfs_fail(err, -errno, "%s", strerror(errno));
	else
		rc = parse(text, (size_t)n, r, err);
	free(text);
	return rc;
}

static int parse_file(const char *path, file_parser *parse, struct mfs_data_run *r,
		      struct mfs_error *err)
{
	struct stat st;
	int fd = -1, rc = mfs_open_regular(AT_FDCWD, path, 0, &fd, &st);

	if (rc && rc != -EINVAL)
		mfs_error_set(err, rc, "%s", strerror(-rc));
	else if (rc || st.st_size > MAX_WORDS_FILE)
		rc = mfs_fail(err, -EINVAL, "not a file of prefixes and weights");
	else
		rc = read_file(fd, (size_t)st.st_size, parse, r, err);
	if (fd >= 0)
		close(fd);
	return rc ? mfs_fail_in(err, "%s", path) : 0;
}

static int parse_text(const char *text, size_t len, struct mfs_data_run *r, struct mfs_error *err)
{
	r->run.blend = &r->all;
	return mfs_blend_args_parse_text(text, len, &r->all, err);
}

/* A weight may be written as a number. */
static const char *word_of(const json_t *item, struct mfs_arena *arena)
{
	if (json_is_string(item))
		return json_string_value(item);
	return json_is_number(item) ? mfs_arena_printf(arena, "%.17g", json_number_value(item))
				    : NULL;
}

static int parse_list(const json_t *list, struct mfs_arena *arena, struct mfs_blend_args *ret,
		      struct mfs_error *err)
{
	const size_t count = json_array_size(list);
	const char **words = mfs_arena_array(arena, count + 1, sizeof(*words));

	if (!words)
		return mfs_fail_nomem(err);
	for (size_t i = 0; i < count; i++) {
		words[i] = word_of(json_array_get(list, i), arena);
		if (!words[i])
			return mfs_fail(err, -EINVAL, "word %zu is neither text nor a number", i);
	}
	return mfs_blend_args_parse(words, count, ret, err);
}

static int parse_member(const json_t *value, struct mfs_blend_args *ret, struct mfs_error *err)
{
	struct mfs_arena arena = {0};
	int rc;

	if (json_is_string(value))
		return mfs_blend_args_parse_text(json_string_value(value),
						 json_string_length(value), ret, err);
	if (!json_is_array(value))
		return mfs_fail(err, -EINVAL, "expected words, a list of words, or null");
	rc = parse_list(value, &arena, ret, err);
	mfs_arena_release(&arena);
	return rc;
}

static int parse_per_split(const char *text, size_t len, struct mfs_data_run *r,
			   struct mfs_error *err)
{
	json_t *root = NULL;
	int rc = mfs_json_load(text, len, MAX_WORDS_FILE, 0, "datasets of each split", &root, err);

	for (int i = 0; i < MFS_SPLITS && !rc; i++) {
		const char *name = mfs_split_name((enum mfs_split)i);
		const json_t *value = json_object_get(root, name);

		if (!value)
			rc = mfs_fail(err, -EINVAL, "\"%s\" is missing", name);
		if (rc || json_is_null(value))
			continue;
		rc = parse_member(value, &r->split[i], err);
		if (rc)
			mfs_fail_in(err, "%s", name);
		r->run.per_split[i] = &r->split[i];
	}
	json_decref(root);
	return rc;
}

/* ---- words ---- */

static int parse_words(const char *what, const char *text, struct mfs_blend_args *ret,
		       struct mfs_error *err)
{
	int rc = mfs_blend_args_parse_text(text, strlen(text), ret, err);

	return rc ? mfs_fail_in(err, "%s", what) : 0;
}

static int parse_splits(const struct mfs_data_words *words, struct mfs_data_run *r,
			struct mfs_error *err)
{
	bool any = false;
	int rc = 0;

	if (words->per_split_data_args_path)
		return parse_file(words->per_split_data_args_path, parse_per_split, r, err);
	for (int i = 0; i < MFS_SPLITS && !rc; i++) {
		if (!words->split_data_path[i])
			continue;
		rc = parse_words(mfs_split_name((enum mfs_split)i), words->split_data_path[i],
				 &r->split[i], err);
		r->run.per_split[i] = &r->split[i];
		any = true;
	}
	return rc || any ? rc : mfs_fail(err, -ENODATA, "no data path was given");
}

static int parse_all(const struct mfs_data_words *words, struct mfs_data_run *r,
		     struct mfs_error *err)
{
	if (words->data_path && words->data_args_path)
		return mfs_fail(err, -EINVAL, "data path and data args path exclude each other");
	for (int i = 0; i < MFS_SPLITS; i++)
		if (words->split_data_path[i])
			return mfs_fail(err, -EINVAL,
					"a data path of all splits and one of the %s split exclude "
					"each other",
					mfs_split_name((enum mfs_split)i));
	if (words->per_split_data_args_path)
		return mfs_fail(err, -EINVAL,
				"a data path of all splits and a file of each split's exclude "
				"each other");
	if (words->data_args_path)
		return parse_file(words->data_args_path, parse_text, r, err);
	r->run.blend = &r->all;
	return parse_words("data path", words->data_path, &r->all, err);
}

int mfs_data_run_parse(const struct mfs_data_words *words, struct mfs_data_run *ret,
		       struct mfs_error *err)
{
	int rc;

	*ret = (struct mfs_data_run){0};
	rc = words->data_path || words->data_args_path ? parse_all(words, ret, err)
						       : parse_splits(words, ret, err);
	if (rc)
		mfs_data_run_release(ret);
	return rc;
}

int mfs_data_run_parse_bytes(const char *text, size_t len, bool per_split, struct mfs_data_run *ret,
			     struct mfs_error *err)
{
	int rc;

	*ret = (struct mfs_data_run){0};
	rc = per_split ? parse_per_split(text, len, ret, err) : parse_text(text, len, ret, err);
	if (rc)
		mfs_data_run_release(ret);
	return rc;
}

int mfs_data_run_single(const char *prefix, struct mfs_data_run *ret, struct mfs_error *err)
{
	*ret = (struct mfs_data_run){0};
	ret->run.blend = &ret->all;
	return mfs_blend_args_parse(&prefix, 1, &ret->all, err);
}

void mfs_data_run_release(struct mfs_data_run *r)
{
	mfs_blend_args_release(&r->all);
	for (int i = 0; i < MFS_SPLITS; i++)
		mfs_blend_args_release(&r->split[i]);
	r->run = (struct mfs_run){0};
}
