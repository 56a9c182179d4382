#define _GNU_SOURCE
#include "fs/view/why_not.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/ckpt/ckpt.h"
#include "formats/io/fileset.h"
#include "fs/view/keeper.h"
#include "fs/view/build.h"

/* Of what will not change alone: what failed for want of memory, say, is tried again by whoever enters. */
static int keep_reason(int rc, const struct mfs_error *err, char **ret)
{
	if (!rc || !mfs_keeper_lasts(rc))
		return 0;
	*ret = strdup(err->msg);
	return *ret ? 0 : -ENOMEM;
}

int mfs_why_not_find(struct mfs_ckpt *ckpt, const struct mfs_view_options *opt,
		     struct mfs_why_not *ret)
{
	struct mfs_error why;
	int rc;

	*ret = (struct mfs_why_not){0};
	rc = keep_reason(mfs_view_hf_check(ckpt, opt, &why), &why, &ret->hf);
	if (!rc)
		rc = keep_reason(mfs_view_megatron_possible(ckpt, opt, &why), &why, &ret->megatron);
	if (ret->hf || ret->megatron)
		ret->access = *mfs_fileset_access(mfs_ckpt_files(ckpt));
	return rc;
}

void mfs_why_not_release(struct mfs_why_not *w)
{
	free(w->hf);
	free(w->megatron);
	*w = (struct mfs_why_not){0};
}

static char *text_of(const struct mfs_why_not *w)
{
	char *text;

	if (asprintf(&text, "%s%s%s%s%s%s", w->hf ? "hf: " : "", w->hf ? w->hf : "",
		     w->hf ? "\n" : "", w->megatron ? "megatron: " : "",
		     w->megatron ? w->megatron : "", w->megatron ? "\n" : "") < 0)
		return NULL;
	return text;
}

int mfs_why_not_view(const struct mfs_why_not *w, int64_t mtime_ns, struct mfs_view **ret,
		     struct mfs_error *err)
{
	struct mfs_view *view = calloc(1, sizeof(*view));
	char *text = view ? text_of(w) : NULL;
	int rc;

	if (!text) {
		free(view);
		return mfs_fail_nomem(err);
	}
	mfs_view_note_read(view, &w->access);
	view->mtime_ns = mtime_ns;
	rc = mfs_view_add_bytes(view, MFS_WHY_NOT_FILE, text, strlen(text), err);
	if (!rc)
		rc = mfs_view_finish(view, err);
	if (rc) {
		mfs_view_free(view);
		return rc;
	}
	*ret = view;
	return 0;
}
