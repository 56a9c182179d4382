/* Samples as text: which tokenizer, and what its tokens say. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "formats/base/path.h"
#include "formats/dataset/text/named_tokens.h"
#include "formats/tokenizer/read/tokenizer_open.h"
#include "fs/sample/sample.h"
#include "fs/source/root.h"
#include "fs/view/view.h"

/* DIR/tokenizer, if there is one. */
static char *tokenizer_in(const char *dir)
{
	char *path = NULL;

	if (!dir || asprintf(&path, "%s/tokenizer", dir) < 0)
		return NULL;
	if (mfs_view_has_tokenizer(path))
		return path;
	free(path);
	return NULL;
}

static char *tokenizer_next_to(const char *file)
{
	char *dir = mfs_path_parent(file), *path = tokenizer_in(dir);

	free(dir);
	return path;
}

/* Megatron saves one in each iteration; people have theirs in the directory of all, or next to a
 * dataset. */
static char *find(struct mfs_root *root)
{
	const struct mfs_root_snapshot *s = mfs_root_snapshot(root);
	char *path = s->latest ? tokenizer_in(mfs_iteration_path(s->latest)) : NULL;

	if (!path)
		path = tokenizer_in(mfs_root_source(root));
	return path ? path : tokenizer_next_to(mfs_root_source(root));
}

int mfs_sample_find_tokenizer(struct mfs_root *root, const struct mfs_options *mount,
			      struct mfs_tokenizer **ret, struct mfs_error *err)
{
	const char *given = mount->view.tokenizer ? mount->view.tokenizer : mount->view.ref;
	char *found = given ? NULL : find(root);
	int rc;

	if (!given && !found)
		return mfs_fail(
			err, -ENODATA,
			"--text: there is no tokenizer next to '%s': -o tokenizer=DIR names "
			"one",
			mfs_root_source(root));
	rc = mfs_tokenizer_open(given ? given : found, ret, err);
	free(found);
	return rc;
}

int mfs_sample_add_text(struct mfs_buf *to, const struct mfs_named_tokens *names,
			const int64_t *tokens, uint64_t count, struct mfs_error *err)
{
	struct mfs_named_decoder *d;
	struct mfs_buf text = {0};
	int rc = mfs_named_decoder_new(names, &d, err);

	if (rc)
		return rc;
	rc = mfs_named_decode(d, tokens, count, &text, err);
	if (!rc)
		rc = mfs_named_decode_end(d, &text, err);
	if (!rc)
		mfs_buf_add_json_bytes(to, text.data, text.len);
	mfs_buf_release(&text);
	mfs_named_decoder_free(d);
	return rc;
}
