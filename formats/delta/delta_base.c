#include "formats/delta/delta_base.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/buf.h"
#include "formats/hf/hf_json.h"
#include "formats/io/commit.h"

#define MOST (256u << 20) /* bytes */

int mfs_delta_base_write(const char *dir, const struct mfs_delta_base *base, struct mfs_error *err)
{
	struct mfs_buf out = {0};
	int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc;

	if (dirfd < 0)
		return mfs_fail_errno(err, "'%s'", dir);
	mfs_buf_adds(&out, "{\n  \"base\": ");
	mfs_buf_add_json(&out, base->source);
	mfs_buf_adds(&out, ",\n  \"view\": ");
	mfs_buf_add_json(&out, base->view);
	mfs_buf_printf(&out, ",\n  \"checksum_format\": \"%s\",\n  \"checksums\": {",
		       mfs_delta_sum_word(base->sum));
	for (uint32_t i = 0; i < base->count; i++) {
		mfs_buf_adds(&out, i ? ",\n    " : "\n    ");
		mfs_buf_add_json(&out, base->sums[i].name);
		mfs_buf_printf(&out, ": \"%s\"", base->sums[i].sum);
	}
	mfs_buf_adds(&out, "\n  }\n}\n");
	rc = out.failed ? mfs_fail_nomem(err)
			: mfs_commit_file(dirfd, MFS_DELTA_BASE_FILE, out.data, out.len, err);
	mfs_buf_release(&out);
	close(dirfd);
	return rc;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct mfs_delta_base_sum *)a)->name,
		      ((const struct mfs_delta_base_sum *)b)->name);
}

static int read_sums(const json_t *sums, struct mfs_delta_base *b, struct mfs_error *err)
{
	const char *name;
	json_t *v;

	b->sums = mfs_arena_array(&b->arena, json_object_size(sums) + 1, sizeof(*b->sums));
	if (!b->sums)
		return mfs_fail_nomem(err);
	json_object_foreach((json_t *)sums, name, v)
	{
		struct mfs_delta_base_sum *s = &b->sums[b->count++];

		if (!json_is_string(v))
			return mfs_fail(err, -EINVAL, "the checksum of tensor '%s' is no string",
					name);
		s->name = mfs_arena_printf(&b->arena, "%s", name);
		s->sum = mfs_arena_printf(&b->arena, "%s", json_string_value(v));
		if (!s->name || !s->sum)
			return mfs_fail_nomem(err);
	}
	if (b->count)
		qsort(b->sums, b->count, sizeof(*b->sums), by_name);
	return 0;
}

static int read_text(const json_t *root, const char *key, struct mfs_arena *arena, const char **ret,
		     struct mfs_error *err)
{
	const char *text = json_string_value(json_object_get(root, key));

	if (!text)
		return mfs_fail(err, -ENODATA, "it has no '%s'", key);
	*ret = mfs_arena_printf(arena, "%s", text);
	return *ret ? 0 : mfs_fail_nomem(err);
}

/* A relative path begins in the chain's directory, and not in that of the process. */
static int read_source(const json_t *root, const char *dir, struct mfs_delta_base *b,
		       struct mfs_error *err)
{
	int rc = read_text(root, "base", &b->arena, &b->source, err);

	if (rc || *b->source == '/' || strstr(b->source, "://"))
		return rc;
	b->source = mfs_arena_printf(&b->arena, "%s/%s", dir, b->source);
	return b->source ? 0 : mfs_fail_nomem(err);
}

static int read_all(const json_t *root, const char *dir, struct mfs_delta_base *b,
		    struct mfs_error *err)
{
	const char *word;
	int rc = read_source(root, dir, b, err);

	if (!rc)
		rc = read_text(root, "view", &b->arena, &b->view, err);
	if (!rc)
		rc = read_text(root, "checksum_format", &b->arena, &word, err);
	if (!rc)
		rc = mfs_delta_sum_parse(word, &b->sum, err);
	return rc ? rc : read_sums(json_object_get(root, "checksums"), b, err);
}

int mfs_delta_base_read(const char *dir, struct mfs_delta_base *ret, struct mfs_error *err)
{
	json_t *root = NULL;
	char *text;
	size_t len;
	int rc = mfs_hf_slurp(dir, MFS_DELTA_BASE_FILE, MOST, &text, &len, err);

	*ret = (struct mfs_delta_base){0};
	if (rc)
		return rc;
	rc = mfs_json_load(text, len, MOST, 0, MFS_DELTA_BASE_FILE, &root, err);
	free(text);
	if (!rc) {
		rc = read_all(root, dir, ret, err);
		if (rc)
			mfs_fail_in(err, MFS_DELTA_BASE_FILE);
	}
	json_decref(root);
	if (rc) {
		mfs_delta_base_release(ret);
		mfs_fail_in(err, "%s", dir);
	}
	return rc;
}

void mfs_delta_base_release(struct mfs_delta_base *base)
{
	mfs_arena_release(&base->arena);
	*base = (struct mfs_delta_base){0};
}

const char *mfs_delta_base_find(const struct mfs_delta_base *base, const char *name)
{
	const struct mfs_delta_base_sum key = {.name = name}, *found;

	if (!base->count)
		return NULL;
	found = bsearch(&key, base->sums, base->count, sizeof(key), by_name);
	return found ? found->sum : NULL;
}
