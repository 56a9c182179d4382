/* The files of a torch_dist view (dist_view_i.h). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/megatron/write/dist_keys.h"
#include "formats/megatron/write/extra_items.h"
#include "formats/optim/rules/settings.h"

/* Core since 0.19 reads the first two keys and skips the others. Older releases need all four. */
const char mfs_megatron_dist_json[] =
	"{\"sharded_backend\": \"torch_dist\", \"sharded_backend_version\": 1, "
	"\"common_backend\": \"torch\", \"common_backend_version\": 1}";

/* ---- what the view is made of ---- */

/* The distributed optimizer has another name for the fp32 parameters than other optimizers. */
int mfs_dist_begin(struct mfs_megatron_dist *d, enum mfs_optim_kind kind, struct mfs_error *err)
{
	int rc;

	d->args = mfs_ckpt_args(d->options.ckpt);
	d->vocab = mfs_layout_vocab(&d->options.layout, d->options.ckpt, d->options.vocab);
	d->numbered = d->options.layout.hybrid || mfs_dist_numbers_layers(d->args);
	d->kind = kind;
	rc = mfs_torch_items_new(&d->items, err);
	return rc ? rc : mfs_extra_item_write(NULL, &d->none, err);
}

static int fill(struct mfs_megatron_dist *d, struct mfs_error *err)
{
	const struct mfs_megatron_options *o = &d->options;
	const enum mfs_optim_kind kind =
		o->optimizer ? mfs_optim_info(o->ckpt)->kind : MFS_OPTIM_NONE;
	int rc = mfs_dist_begin(d, kind, err);

	if (!rc)
		rc = mfs_dist_rng(d, err);
	if (!rc)
		rc = mfs_dist_tensors(d, err);
	if (!rc)
		rc = mfs_dist_measure_extras(d, err);
	return rc ? rc : mfs_dist_place(d, err);
}

/* ---- files ---- */

/* Owns bytes, even if it fails. */
static int add_bytes(const struct mfs_file_sink *sink, const char *path, struct mfs_buf *bytes,
		     struct mfs_error *err)
{
	struct mfs_vfile *f = NULL;
	int rc = bytes->failed ? mfs_fail_nomem(err) : mfs_vfile_new(&f, err);

	if (!rc)
		rc = mfs_vfile_add_literal(f, bytes->data, bytes->len, err);
	if (rc) {
		mfs_buf_release(bytes);
		mfs_vfile_free(f);
		return rc;
	}
	return sink->add(sink->arg, path, f, err);
}

typedef int (*write_fn)(const struct mfs_megatron_dist *d, struct mfs_buf *out,
			struct mfs_error *err);

static int add_written(const struct mfs_megatron_dist *d, const struct mfs_file_sink *sink,
		       const char *path, write_fn write, struct mfs_error *err)
{
	struct mfs_buf bytes = {0};
	int rc = write(d, &bytes, err);

	if (rc) {
		mfs_buf_release(&bytes);
		return rc;
	}
	return add_bytes(sink, path, &bytes, err);
}

static int write_json(const struct mfs_megatron_dist *d, struct mfs_buf *out, struct mfs_error *err)
{
	(void)d, (void)err;
	mfs_buf_adds(out, mfs_megatron_dist_json);
	return 0;
}

static int build_index(void *arg, struct mfs_vfile *parts, struct mfs_error *err)
{
	struct mfs_buf bytes = {0};
	int rc = mfs_dist_index(arg, &bytes, err);

	if (!rc)
		rc = mfs_vfile_add_literal(parts, bytes.data, bytes.len, err);
	if (rc)
		mfs_buf_release(&bytes);
	return rc;
}

/* .metadata is written once for its size, which a listing needs, and again when it is first read.
 * It alone takes memory in a large model, some 130 bytes a chunk. */
static int add_index(struct mfs_megatron_dist *d, const struct mfs_file_sink *sink,
		     struct mfs_error *err)
{
	struct mfs_buf bytes = {0};
	struct mfs_vfile *f;
	int rc = mfs_dist_index(d, &bytes, err);

	if (!rc)
		rc = mfs_vfile_new_lazy(bytes.len, build_index, d, &f, err);
	mfs_buf_release(&bytes);
	return rc ? rc : sink->add(sink->arg, ".metadata", f, err);
}

static int add_data(const struct mfs_megatron_dist *d, const struct mfs_file_sink *sink,
		    struct mfs_error *err)
{
	char name[MFS_DIST_FILE_NAME_SIZE];
	struct mfs_vfile *data;
	int rc = 0;

	for (uint32_t i = 0; i < d->units * MFS_DIST_KINDS && !rc; i++) {
		const struct mfs_dist_file *f = &d->files[i];

		if (!f->size)
			continue;
		mfs_dist_file_name(name, f->unit, f->kind);
		rc = mfs_dist_data(f, &data, err);
		if (!rc)
			rc = sink->add(sink->arg, name, data, err);
	}
	return rc;
}

static int add_files(struct mfs_megatron_dist *d, const struct mfs_file_sink *sink,
		     struct mfs_error *err)
{
	int rc = add_written(d, sink, "metadata.json", write_json, err);

	if (!rc)
		rc = add_written(d, sink, "common.pt", mfs_dist_common, err);
	if (!rc)
		rc = add_index(d, sink, err);
	return rc ? rc : add_data(d, sink, err);
}

int mfs_megatron_dist_new(const struct mfs_megatron_options *options,
			  const struct mfs_file_sink *sink, struct mfs_megatron_dist **ret,
			  struct mfs_error *err)
{
	struct mfs_megatron_dist *d = calloc(1, sizeof(*d));
	int rc;

	*ret = d;
	if (!d)
		return mfs_fail_nomem(err);
	d->options = *options;
	rc = fill(d, err);
	return rc ? rc : add_files(d, sink, err);
}

void mfs_dist_end(struct mfs_megatron_dist *d)
{
	for (uint32_t i = 0; i < d->rng_item_count; i++)
		mfs_buf_release(&d->rng_items[i]);
	free(d->rng_items);
	free(d->rng);
	mfs_buf_release(&d->none);
	mfs_torch_items_free(d->items);
	free(d->tensors);
	free(d->extras);
	free(d->files);
}

void mfs_megatron_dist_free(struct mfs_megatron_dist *d)
{
	if (!d)
		return;
	mfs_dist_end(d);
	free(d);
}
