#define _GNU_SOURCE
#include "fs/data/data_tokenizer.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/str.h"
#include "formats/io/directory.h"
#include "formats/io/fileset.h"
#include "formats/tokenizer/read/tokenizer_open.h"

struct mfs_data_tokenizer {
	char *dir; /* absolute; NULL: there is none */
	pthread_mutex_t lock;
	bool is_tried; /* this and what follows: under the lock */
	int rc;
	struct mfs_error why;
	struct mfs_tokenizer *tok;
	struct mfs_named_tokens *names;
	struct mfs_fileset *files;
};

/* Of a directory, what mfs_tokenizer_open() may read there, next to *.tiktoken. */
static const char *const read_files[] = {
	"tokenizer.json",  "tokenizer_config.json", "special_tokens_map.json",
	"tokenizer.model", "tekken.json",	    "tiktoken.json"};

int mfs_data_tokenizer_new(const char *dir, struct mfs_data_tokenizer **ret, struct mfs_error *err)
{
	struct mfs_data_tokenizer *t = calloc(1, sizeof(*t));

	if (!t)
		return mfs_fail_nomem(err);
	/* A daemon leaves its working directory. */
	if (dir && !(t->dir = realpath(dir, NULL)) && !(t->dir = strdup(dir))) {
		free(t);
		return mfs_fail_nomem(err);
	}
	pthread_mutex_init(&t->lock, NULL);
	*ret = t;
	return 0;
}

void mfs_data_tokenizer_free(struct mfs_data_tokenizer *t)
{
	if (!t)
		return;
	mfs_named_tokens_free(t->names);
	mfs_tokenizer_free(t->tok);
	mfs_fileset_free(t->files);
	pthread_mutex_destroy(&t->lock);
	free(t->dir);
	free(t);
}

static int note_file(struct mfs_data_tokenizer *t, const char *name, struct mfs_error *err)
{
	uint32_t file;
	const int rc = mfs_fileset_add(t->files, name, &file, err);

	return rc == -ENOENT ? 0 : rc;
}

static int has_ranks(const struct dirent *e)
{
	return mfs_str_ends(e->d_name, ".tiktoken");
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int note_ranks(struct mfs_data_tokenizer *t, struct mfs_error *err)
{
	struct dirent **entries;
	const int n = mfs_scandir(t->dir, &entries, has_ranks, by_bytes);
	int rc = 0;

	if (n < 0)
		return mfs_fail_errno(err, "cannot list '%s'", t->dir);
	for (int i = 0; i < n; i++) {
		rc = rc ? rc : note_file(t, entries[i]->d_name, err);
		free(entries[i]);
	}
	free(entries);
	return rc;
}

static int note_files(struct mfs_data_tokenizer *t, struct mfs_error *err)
{
	int rc = mfs_fileset_new(t->dir, &t->files, err);

	for (size_t i = 0; i < MFS_ARRAY_SIZE(read_files) && !rc; i++)
		rc = note_file(t, read_files[i], err);
	return rc ? rc : note_ranks(t, err);
}

/* Under the lock. */
static int open_once(struct mfs_data_tokenizer *t, struct mfs_error *err)
{
	int rc = note_files(t, err);

	if (!rc)
		rc = mfs_tokenizer_open(t->dir, &t->tok, err);
	if (!rc)
		rc = mfs_named_tokens_new(t->tok, &t->names, err);
	return rc ? mfs_fail_in(err, "tokenizer=%s", t->dir) : 0;
}

bool mfs_data_tokenizer_is_given(const struct mfs_data_tokenizer *t)
{
	return t->dir != NULL;
}

int mfs_data_tokenizer_names(struct mfs_data_tokenizer *t, const struct mfs_named_tokens **ret,
			     struct mfs_error *err)
{
	int rc;

	if (!t->dir)
		return mfs_fail(err, -ENODATA,
				"text needs a tokenizer: -o tokenizer=DIR names its directory");
	pthread_mutex_lock(&t->lock);
	if (!t->is_tried) {
		t->is_tried = true;
		t->rc = open_once(t, &t->why);
	}
	rc = t->rc;
	pthread_mutex_unlock(&t->lock);
	if (rc && err)
		*err = t->why;
	*ret = t->names;
	return rc;
}

struct mfs_fileset *mfs_data_tokenizer_files(struct mfs_data_tokenizer *t)
{
	return t->files;
}
