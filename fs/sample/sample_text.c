/* Samples as text: which tokenizer, and what its tokens say. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "formats/base/path.h"
#include "formats/tokenizer/read/tokenizer_open.h"
#include "formats/tokenizer/tokenizer.h"
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

/* The text so far. */
struct decoding {
	const struct mfs_tokenizer *tok;
	struct mfs_decoder *decoder, *trial;
	struct mfs_buf text, alone;
};

/* Whether it is a special token that the decoder leaves out, as SentencePiece does. */
static int is_left_out(struct decoding *d, uint32_t id, bool *ret, struct mfs_error *err)
{
	int rc;

	*ret = false;
	if (!mfs_tokenizer_is_special(d->tok, id))
		return 0;
	d->alone.len = 0;
	rc = mfs_decode(d->trial, &id, 1, &d->alone, err);
	if (!rc)
		rc = mfs_decode_end(d->trial, &d->alone, err);
	*ret = !rc && !d->alone.len;
	return rc;
}

/* What is left out is added by its name, and what is no token by its number. Before these the
 * decoder's text ends: it may hold back bytes. */
static int add_token(struct decoding *d, int64_t token, struct mfs_error *err)
{
	const uint32_t id = (uint32_t)token;
	const char *name = NULL;
	bool left_out = false;
	size_t len;
	int rc = 0;

	if (token >= 0 && token < mfs_tokenizer_size(d->tok))
		name = mfs_tokenizer_token(d->tok, id, &len);
	if (name)
		rc = is_left_out(d, id, &left_out, err);
	if (rc || (name && !left_out))
		return rc ? rc : mfs_decode(d->decoder, &id, 1, &d->text, err);
	rc = mfs_decode_end(d->decoder, &d->text, err);
	if (name)
		mfs_buf_add(&d->text, name, len);
	else
		mfs_buf_printf(&d->text, "<%lld>", (long long)token);
	return rc;
}

static int begin(struct decoding *d, const struct mfs_tokenizer *tok, struct mfs_error *err)
{
	int rc;

	*d = (struct decoding){.tok = tok};
	rc = mfs_decoder_new(tok, false, &d->decoder, err);
	return rc ? rc : mfs_decoder_new(tok, false, &d->trial, err);
}

static void end(struct decoding *d)
{
	mfs_decoder_free(d->decoder);
	mfs_decoder_free(d->trial);
	mfs_buf_release(&d->text);
	mfs_buf_release(&d->alone);
}

int mfs_sample_add_text(struct mfs_buf *to, const struct mfs_tokenizer *tok, const int64_t *tokens,
			uint64_t count, struct mfs_error *err)
{
	struct decoding d;
	int rc = begin(&d, tok, err);

	for (uint64_t i = 0; i < count && !rc; i++)
		rc = add_token(&d, tokens[i], err);
	if (!rc)
		rc = mfs_decode_end(d.decoder, &d.text, err);
	if (!rc && d.text.failed)
		rc = mfs_fail_nomem(err);
	if (!rc)
		mfs_buf_add_json_bytes(to, d.text.data, d.text.len);
	end(&d);
	return rc;
}
