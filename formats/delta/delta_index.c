#include "formats/delta/delta_index.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/grow.h"
#include "formats/base/path.h"
#include "formats/base/str.h"
#include "formats/hf/hf_json.h"
#include "formats/hf/safetensors.h"
#include "formats/io/directory.h"
#include "formats/io/fileset.h"

#define INDEX_MAX   (256u << 20) /* bytes */
#define SAFETENSORS ".safetensors"

/* ---- the index ---- */

static int load_index(const char *dir, struct mfs_fileset *files, json_t **ret,
		      struct mfs_error *err)
{
	char *text;
	size_t len;
	int rc = files ? mfs_hf_slurp_added(files, MFS_DELTA_INDEX, INDEX_MAX, &text, &len, err)
		       : mfs_hf_slurp(dir, MFS_DELTA_INDEX, INDEX_MAX, &text, &len, err);

	if (rc)
		return rc;
	rc = mfs_json_load(text, len, INDEX_MAX, 0, MFS_DELTA_INDEX, ret, err);
	if (rc)
		mfs_fail_in(err, "%s", dir);
	free(text);
	return rc;
}

static const json_t *metadata_of(const json_t *index)
{
	return json_object_get(index, "metadata");
}

int mfs_delta_looks_like_one(const char *dir, bool *ret, struct mfs_error *err)
{
	json_t *index;
	int rc = load_index(dir, NULL, &index, err);

	if (rc)
		return rc;
	*ret = json_object_get(metadata_of(index), "delta_encoding");
	json_decref(index);
	return 0;
}

/* Writers write it as a number, or as text of six digits. */
static int read_version(const json_t *metadata, const char *key, uint32_t *ret,
			struct mfs_error *err)
{
	const json_t *v = json_object_get(metadata, key);
	const char *text = json_string_value(v);
	json_int_t n = json_is_integer(v) ? json_integer_value(v) : -1;
	char *end;

	if (text && *text >= '0' && *text <= '9' && strlen(text) < 12) {
		n = strtoll(text, &end, 10);
		if (*end)
			n = -1;
	}
	if (!v)
		return mfs_fail(err, -ENODATA, "its metadata has no '%s'", key);
	if (n < 0 || n > UINT32_MAX)
		return mfs_fail(err, -EINVAL, "'%s' of its metadata is no number of a version",
				key);
	*ret = (uint32_t)n;
	return 0;
}

static int read_word(const json_t *metadata, const char *key, const char **ret,
		     struct mfs_error *err)
{
	*ret = json_string_value(json_object_get(metadata, key));
	return *ret ? 0 : mfs_fail(err, -ENODATA, "its metadata has no '%s'", key);
}

static int read_meta(const json_t *metadata, struct mfs_delta_meta *ret, struct mfs_error *err)
{
	const char *word;
	int rc = read_version(metadata, "version", &ret->version, err);

	if (!rc)
		rc = read_version(metadata, "base_version", &ret->base_version, err);
	if (!rc)
		rc = read_word(metadata, "delta_encoding", &word, err);
	if (!rc)
		rc = mfs_delta_encoding_parse(word, &ret->encoding, err);
	if (!rc)
		rc = read_word(metadata, "checksum_format", &word, err);
	if (!rc)
		rc = mfs_delta_sum_parse(word, &ret->sum, err);
	if (!rc)
		rc = read_word(metadata, "compression_format", &word, err);
	if (!rc && strcmp(word, "zstd"))
		rc = mfs_fail(err, -ENOTSUP, "a delta is compressed by 'zstd', found '%.40s'",
			      word);
	return rc;
}

/* ---- files of weights ---- */

static bool is_sum(const char *text, enum mfs_delta_sum_kind kind)
{
	const size_t digits = kind == MFS_DELTA_XXH3_128 ? 32 : 8;

	return strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

static int by_key(const void *a, const void *b)
{
	return strcmp(((const struct mfs_safetensors_text *)a)->key,
		      ((const struct mfs_safetensors_text *)b)->key);
}

/* The metadata is sorted. */
static const char *find_sum(const struct mfs_safetensors *st, const char *name)
{
	const struct mfs_safetensors_text key = {.key = name}, *found;

	if (!st->metadata_count)
		return NULL;
	found = bsearch(&key, st->metadata, st->metadata_count, sizeof(key), by_key);
	return found ? found->value : NULL;
}

static int add_change(struct mfs_delta *d, const struct mfs_source *file,
		      const struct mfs_safetensors *st, uint32_t i, struct mfs_error *err)
{
	const struct mfs_safetensors_tensor *t = &st->tensors[i];
	const char *sum = find_sum(st, t->name);
	struct mfs_delta_change *c;

	if (!sum)
		return mfs_fail(err, -ENODATA, "%s: tensor '%s' has no checksum in __metadata__",
				file->name, t->name);
	if (!is_sum(sum, d->meta.sum))
		return mfs_fail(err, -EINVAL,
				"%s: the checksum of tensor '%s' is '%.40s', and no %s", file->name,
				t->name, sum, mfs_delta_sum_word(d->meta.sum));
	if (mfs_grow(&d->changes, d->count))
		return mfs_fail_nomem(err);
	c = &d->changes[d->count++];
	*c = (struct mfs_delta_change){
		.name = mfs_arena_strndup(&d->arena, t->name, strlen(t->name)),
		.sum = mfs_arena_strndup(&d->arena, sum, strlen(sum)),
		.bytes = mfs_source_range(file, st->data + t->begin, t->end - t->begin)};
	return c->name && c->sum ? 0 : mfs_fail_nomem(err);
}

static int read_file(struct mfs_delta *d, const char *name, struct mfs_error *err)
{
	struct mfs_safetensors st;
	struct mfs_source file;
	uint32_t number;
	int rc = mfs_fileset_add(d->files, name, &number, err);

	if (rc)
		return rc;
	file = mfs_source_file(d->files, number);
	rc = mfs_safetensors_open(&file, &st, err);
	if (rc)
		return rc;
	if (st.metadata_count)
		qsort(st.metadata, st.metadata_count, sizeof(*st.metadata), by_key);
	for (uint32_t i = 0; i < st.count && !rc; i++)
		rc = add_change(d, &file, &st, i, err);
	mfs_safetensors_release(&st);
	return rc;
}

static int is_weights(const struct dirent *e)
{
	return *e->d_name != '.' && mfs_str_ends(e->d_name, SAFETENSORS);
}

/* SGLang applies all files that are there, whatever the index names. */
static int read_files(struct mfs_delta *d, const char *dir, struct mfs_error *err)
{
	struct dirent **names;
	const int n = mfs_scandir(dir, &names, is_weights, alphasort);
	int rc = n < 0 ? mfs_fail_errno(err, "'%s'", dir) : 0;

	for (int i = 0; i < n; i++) {
		if (!rc)
			rc = read_file(d, names[i]->d_name, err);
		free(names[i]);
	}
	if (n >= 0)
		free(names);
	return rc;
}

/* ---- the whole ---- */

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct mfs_delta_change *)a)->name,
		      ((const struct mfs_delta_change *)b)->name);
}

static int sort_changes(struct mfs_delta *d, struct mfs_error *err)
{
	if (!d->count)
		return 0;
	qsort(d->changes, d->count, sizeof(*d->changes), by_name);
	for (uint32_t i = 1; i < d->count; i++)
		if (!strcmp(d->changes[i - 1].name, d->changes[i].name))
			return mfs_fail(err, -EINVAL, "tensor '%s' is in it twice",
					d->changes[i].name);
	return 0;
}

/* What the index names must be there: files may still be on their way. */
static int check_map(const struct mfs_delta *d, const json_t *map, struct mfs_error *err)
{
	const char *name;
	json_t *file;

	if (!json_is_object(map))
		return mfs_fail(err, -ENODATA, MFS_DELTA_INDEX " has no 'weight_map'");
	json_object_foreach((json_t *)map, name, file)
	{
		const struct mfs_delta_change *c = mfs_delta_find(d, name);

		if (!json_is_string(file))
			return mfs_fail(err, -EINVAL, "'weight_map' names no file for tensor '%s'",
					name);
		if (!c ||
		    strcmp(mfs_fileset_name(d->files, c->bytes.index), json_string_value(file)))
			return mfs_fail(err, -ENODATA, "tensor '%s' is missing in %.100s", name,
					json_string_value(file));
	}
	return 0;
}

static int read_all(struct mfs_delta *d, const char *dir, struct mfs_error *err)
{
	json_t *index;
	int rc = load_index(dir, d->files, &index, err);

	if (rc)
		return rc;
	rc = read_meta(metadata_of(index), &d->meta, err);
	if (!rc)
		rc = read_files(d, dir, err);
	if (!rc)
		rc = sort_changes(d, err);
	if (!rc)
		rc = check_map(d, json_object_get(index, "weight_map"), err);
	json_decref(index);
	return rc ? mfs_fail_in(err, "%s", dir) : 0;
}

int mfs_delta_open(const char *dir, struct mfs_delta **ret, struct mfs_error *err)
{
	struct mfs_delta *d = calloc(1, sizeof(*d));
	struct mfs_error why;
	int rc = d ? mfs_fileset_new(dir, &d->files, &why) : mfs_fail_nomem(&why);

	if (!rc)
		rc = read_all(d, dir, &why);
	if (rc) {
		mfs_delta_free(d);
		return mfs_fail(err, rc, "%s", why.msg);
	}
	*ret = d;
	return 0;
}

void mfs_delta_free(struct mfs_delta *d)
{
	if (!d)
		return;
	mfs_fileset_free(d->files);
	free(d->changes);
	mfs_arena_release(&d->arena);
	free(d);
}

const struct mfs_delta_change *mfs_delta_find(const struct mfs_delta *d, const char *name)
{
	const struct mfs_delta_change key = {.name = name};

	return d->count ? bsearch(&key, d->changes, d->count, sizeof(*d->changes), by_name) : NULL;
}

static int by_number(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

int mfs_delta_versions(const char *dir, uint32_t **ret, uint32_t *ret_count, struct mfs_error *err)
{
	DIR *d = mfs_opendir(dir);
	uint32_t *list = NULL, count = 0, version;
	struct dirent *e;
	int rc = d ? 0 : mfs_fail_errno(err, "cannot read directory '%s'", dir);

	while (!rc && (e = readdir(d))) {
		if (!mfs_delta_dir_version(e->d_name, &version))
			continue;
		if (mfs_grow(&list, count))
			rc = mfs_fail_nomem(err);
		else
			list[count++] = version;
	}
	if (d)
		closedir(d);
	if (rc) {
		free(list);
		return rc;
	}
	if (count)
		qsort(list, count, sizeof(*list), by_number);
	*ret = list;
	*ret_count = count;
	return 0;
}

bool mfs_delta_looks_like_chain(const char *dir, uint32_t *ret_only)
{
	const char *base = mfs_path_base(dir);
	uint32_t *list = NULL, count = 0;
	bool is_delta = false;

	*ret_only = 0;
	if (mfs_delta_dir_version(base, ret_only) && *ret_only)
		return !mfs_delta_looks_like_one(dir, &is_delta, NULL) && is_delta;
	if (mfs_delta_versions(dir, &list, &count, NULL))
		return false;
	free(list);
	return count;
}
