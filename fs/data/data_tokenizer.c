#define _GNU_SOURCE
#include "fs/data/data_tokenizer.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
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

/* Of a directory, what mfs_tokenizer_open() may read there. */
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

static int note_files(struct mfs_data_tokenizer *t, struct mfs_error *err)
{
	int rc = mfs_fileset_new(t->dir, &t->files, err);
	uint32_t file;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(read_files) && !rc; i++) {
		rc = mfs_fileset_add(t->files, read_files[i], &file, err);
		if (rc == -ENOENT)
			rc = 0;
	}
	return rc;
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
