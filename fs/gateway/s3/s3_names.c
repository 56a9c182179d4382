/* The names that keys begin with. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/grow.h"
#include "fs/gateway/s3/s3_i.h"

void mfs_s3_names_add(struct mfs_s3_names *names, const char *text)
{
	char *copy = strdup(text);

	if (!copy || mfs_grow(&names->list, names->count)) {
		free(copy);
		names->failed = true;
		return;
	}
	names->list[names->count++] = copy;
}

/* Orders names as if each ended in a slash, as keys do: "a-b" is before "a". */
static int name_order(const void *a, const void *b)
{
	const char *x = *(char *const *)a, *y = *(char *const *)b;

	for (; *x && *x == *y; x++, y++)
		;
	if (*x == *y)
		return 0;
	return (unsigned char)(*x ? *x : '/') < (unsigned char)(*y ? *y : '/') ? -1 : 1;
}

void mfs_s3_names_sort(struct mfs_s3_names *names)
{
	if (names->count)
		qsort(names->list, names->count, sizeof(*names->list), name_order);
}

struct finder {
	const struct mfs_call *call;
	struct mfs_s3_names *names;
	enum mfs_repo_kind kind;
};

static int find_name(void *arg, const char *name)
{
	struct finder *f = arg;
	char text[MFS_REPO_NAME + 16];

	snprintf(text, sizeof(text), "%s%s", f->kind == MFS_REPO_DATASET ? "datasets/" : "", name);
	if (mfs_call_allows(f->call, f->kind, name))
		mfs_s3_names_add(f->names, text);
	return 0;
}

void mfs_s3_names_find(const struct mfs_call *c, struct mfs_s3_names *ret)
{
	struct finder models = {c, ret, MFS_REPO_MODEL}, data = {c, ret, MFS_REPO_DATASET};

	*ret = (struct mfs_s3_names){0};
	ret->rc = mfs_repos_each(c->gateway->repos, MFS_REPO_MODEL, find_name, &models);
	if (!ret->rc)
		ret->rc = mfs_repos_each(c->gateway->repos, MFS_REPO_DATASET, find_name, &data);
	mfs_s3_names_sort(ret);
}

void mfs_s3_names_release(struct mfs_s3_names *names)
{
	for (unsigned i = 0; i < names->count; i++)
		free(names->list[i]);
	free(names->list);
	*names = (struct mfs_s3_names){0};
}

bool mfs_s3_is_in(const char *name, const char *bucket)
{
	const size_t len = strlen(bucket);

	return !strncmp(name, bucket, len) && name[len] == '/';
}

bool mfs_s3_bucket_is(struct mfs_call *c, const struct mfs_s3_names *names, const char *bucket)
{
	for (unsigned i = 0; i < names->count; i++)
		if (mfs_s3_is_in(names->list[i], bucket))
			return true;
	if (names->rc)
		mfs_reply_unlisted(c->reply, names->rc);
	else if (c->grant->rules && !c->grant->known)
		mfs_s3_error(c, 403, "AccessDenied", "it is not for those who do not sign");
	else
		mfs_s3_error(c, 404, "NoSuchBucket", "there is no such bucket");
	return false;
}

void mfs_s3_names_add_once(struct mfs_s3_names *names, const char *text, size_t len)
{
	char *copy;

	for (unsigned i = 0; i < names->count; i++)
		if (!strncmp(names->list[i], text, len) && !names->list[i][len])
			return;
	copy = strndup(text, len);
	if (copy)
		mfs_s3_names_add(names, copy);
	else
		names->failed = true;
	free(copy);
}
