#include "fs/data/data_text.h"

#include <errno.h>
#include <stdlib.h>
#include <xxhash.h>

#include "formats/base/buf.h"
#include "formats/base/grow.h"
#include "formats/tokenizer/tokenizer.h"
#include "fs/data/data_i.h"
#include "fs/data/data_tokenizer.h"
#include "fs/data/hf_directory.h"
#include "fs/view/build.h"

void mfs_data_texts_release(struct mfs_data_texts *texts)
{
	for (size_t i = 0; i < texts->count; i++)
		mfs_text_lengths_free(texts->list[i].lengths);
	free(texts->list);
	pthread_mutex_destroy(&texts->lock);
}

int mfs_data_text_possible(const struct mfs_dataset *d, const struct mfs_rows *rows,
			   struct mfs_error *err)
{
	const struct mfs_named_tokens *names;
	int64_t least, most;
	int rc = mfs_data_tokenizer_names(d->tokenizer, &names, err);

	if (rc)
		return rc;
	if (!mfs_dtype_range(rows->dtype, &least, &most))
		return mfs_fail(err, -ENOTSUP, "%s: tokens of type %s are not integers", rows->name,
				mfs_dtype_torch(rows->dtype));
	if (d->options->text_scan ||
	    (rows->tokens <= MFS_DATA_TEXT_TOKENS && rows->rows <= MFS_DATA_TEXT_ROWS))
		return 0;
	return mfs_fail(err, -EINVAL,
			"how long the texts of %llu rows with %llu tokens are is not known: -o "
			"text_scan reads all of them when a view is first opened, and -o "
			"dataset_cache=DIR keeps what it finds",
			(unsigned long long)rows->rows, (unsigned long long)rows->tokens);
}

uint64_t mfs_data_text_hash(const struct mfs_dataset *d)
{
	const struct mfs_named_tokens *names;

	return mfs_data_tokenizer_names(d->tokenizer, &names, NULL)
		       ? 0
		       : mfs_tokenizer_hash(mfs_named_tokens_of(names));
}

/* ---- lengths ---- */

/* A hash of all that lengths depend on. */
static int make_key(const struct mfs_rows *rows, const char *spec,
		    const struct mfs_named_tokens *names, uint64_t *ret, struct mfs_error *err)
{
	struct mfs_buf b = {0};
	bool failed;

	mfs_buf_printf(&b, "%016llx\n%llu\n",
		       (unsigned long long)mfs_tokenizer_hash(mfs_named_tokens_of(names)),
		       (unsigned long long)rows->vocab_size);
	for (size_t i = 0; i < rows->bad.count; i++)
		mfs_buf_printf(&b, "%llu-%llu\n", (unsigned long long)rows->bad.list[i].first,
			       (unsigned long long)rows->bad.list[i].end);
	mfs_data_describe_rows(rows, spec, &b);
	failed = b.failed;
	*ret = XXH3_64bits(failed ? "" : b.data, failed ? 0 : b.len);
	mfs_buf_release(&b);
	return failed ? mfs_fail_nomem(err) : 0;
}

/* Under the lock: two views that are opened at once measure once. */
static int find_lengths(struct mfs_dataset *d, const struct mfs_rows *rows,
			const struct mfs_named_tokens *names, uint64_t key,
			const struct mfs_text_lengths **ret, struct mfs_error *err)
{
	const struct mfs_text_store store = {.dir = d->options->cache, .key = key};
	struct mfs_data_texts *t = &d->texts;
	struct mfs_text_lengths *l;
	int rc;

	for (size_t i = 0; i < t->count; i++)
		if (t->list[i].key == key) {
			*ret = t->list[i].lengths;
			return 0;
		}
	if (mfs_grow(&t->list, t->count))
		return mfs_fail_nomem(err);
	rc = mfs_text_lengths_open(rows, names, &store, 0, &l, err);
	if (rc)
		return rc;
	t->list[t->count].key = key;
	t->list[t->count++].lengths = l;
	*ret = l;
	return 0;
}

static int get_lengths(struct mfs_dataset *d, const struct mfs_rows *rows, const char *spec,
		       const struct mfs_named_tokens *names, const struct mfs_text_lengths **ret,
		       struct mfs_error *err)
{
	uint64_t key;
	int rc = make_key(rows, spec, names, &key, err);

	if (rc)
		return rc;
	pthread_mutex_lock(&d->texts.lock);
	rc = find_lengths(d, rows, names, key, ret, err);
	pthread_mutex_unlock(&d->texts.lock);
	return rc;
}

/* ---- a view's ---- */

int mfs_data_text_open(struct mfs_dataset *d, struct mfs_data_view *v, const struct mfs_rows *rows,
		       const char *spec, struct mfs_row_text **ret, struct mfs_error *err)
{
	const struct mfs_text_lengths *lengths;
	const struct mfs_named_tokens *names;
	int rc = mfs_data_tokenizer_names(d->tokenizer, &names, err);

	if (!rc)
		rc = get_lengths(d, rows, spec, names, &lengths, err);
	if (!rc)
		rc = mfs_row_text_new(rows, names, lengths, ret, err);
	if (rc)
		return rc;
	if (!v->text_count)
		mfs_view_note_sources(&v->public, mfs_data_tokenizer_files(d->tokenizer));
	v->texts[v->text_count++] = *ret;
	return 0;
}
