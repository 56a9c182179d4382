/* Megatron views of a checkpoint (ckpt_dir.h): all are made, and all of their bytes read. */
#include "formats/base/array.h"
#include "formats/optim/read/optim_open.h"
#include "tests/fuzz/ckpt_dir.h"

#include "fs/view/kind.h"
#include "fs/view/view.h"

#define MAX_READ (1u << 16) /* at once */

static const char *const names[] = {"megatron/torch/tp1-pp1", "megatron/torch/tp2-pp1",
				    "megatron/torch_dist", "megatron/hybrid_torch/tp2-pp1",
				    "megatron/hybrid_torch_dist"};

/* What a file's size promises is there; of a damaged source, the refusal is as good. */
static int read_file(struct mfs_vfile *f, struct mfs_error *err)
{
	static uint8_t bytes[MAX_READ];
	const uint64_t size = mfs_vfile_size(f);
	int rc = 0;

	for (uint64_t at = 0; at < size && !rc; at += MAX_READ) {
		size_t read = 0;

		rc = mfs_vfile_pread(f, at, bytes, MAX_READ, &read, err);
		fuzz_require(rc || read == mfs_min_u64(size - at, MAX_READ));
	}
	return rc;
}

static int show(struct mfs_ckpt *ckpt, const char *name, struct mfs_error *err)
{
	const struct mfs_view_options opt = {0};
	const struct mfs_view_origin source = {.options = &opt, .ckpt = ckpt, .number = 1};
	const char *spec;
	const struct mfs_view_kind *kind =
		mfs_view_kind_find(&mfs_ckpt_views, MFS_VIEW_OF_FULL, name, &spec);
	struct mfs_view *view;
	int rc = kind->open(&source, spec, &view, err);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < view->count && !rc; i++)
		rc = read_file(view->files[i].data, err);
	mfs_view_free(view);
	return rc;
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	struct mfs_ckpt *ckpt;
	int rc, first = 0;

	fuzz_make_dir();
	fuzz_write_files(bytes, len);
	rc = mfs_optim_open(fuzz_dir, &ckpt, err);
	if (!rc) {
		for (size_t i = 0; i < MFS_ARRAY_SIZE(names); i++) {
			struct mfs_error why = {0};

			rc = show(ckpt, names[i], &why);
			fuzz_require(rc <= 0 && (!rc || (why.msg[0] && why.code == rc)));
			if (!rc || first)
				continue;
			first = rc;
			*err = why;
		}
		rc = first;
		mfs_ckpt_free(ckpt);
	}
	fuzz_remove_dir();
	return rc;
}

FUZZ_TARGET
