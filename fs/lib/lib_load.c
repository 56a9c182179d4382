/* Loads of the library: boxes of a view's tensors. */
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/io/fileset.h"
#include "formats/load/box_load.h"
#include "fs/lib/lib_i.h"

void mcorefs_trim(void)
{
	mfs_load_forget();
}

struct mcorefs_load {
	struct mcorefs_view *view;
	struct mfs_load *load;
};

static int check_options(const struct mcorefs_load_options *o, struct mfs_error *err)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(o->reserved); i++)
		if (o->reserved[i])
			return mfs_fail(err, -EINVAL,
					"the options of the load are of a newer release: their "
					"reserved members must be 0");
	if ((unsigned)o->direct <= MCOREFS_DIRECT_ALWAYS && o->device >= -1)
		return 0;
	return mfs_fail(err, -EINVAL,
			"a load's device is %d and its direct %d: expected a device "
			"from -1 on, and one of enum mcorefs_direct",
			o->device, (int)o->direct);
}

static int find_box(struct mcorefs_view *view, const struct mcorefs_box *box,
		    struct mfs_load_box *ret, struct mfs_error *err)
{
	const struct mfs_lib_tensor *t;
	int rc = mfs_lib_tensor_at(view, box->tensor, &t, err);

	if (rc)
		return rc;
	*ret = (struct mfs_load_box){
		.name = t->name,
		.file = view->view->files[t->file].data,
		.at = t->off,
		.item = mfs_dtype_size(t->dtype),
		.ndim = t->ndim,
		.shape = t->shape,
		.begin = box->begin,
		.end = box->end,
		.to = box->to,
		.room = box->room,
		.strides = box->strides,
	};
	for (size_t i = 0; i < MFS_ARRAY_SIZE(box->reserved); i++)
		if (box->reserved[i])
			return mfs_fail(
				err, -EINVAL,
				"tensor '%s': a box of it is of a newer release: its reserved "
				"members must be 0",
				t->name);
	if (!box->begin == !box->end)
		return 0;
	return mfs_fail(err, -EINVAL, "tensor '%s': a box has a begin and an end, or neither",
			t->name);
}

static bool is_remote(const struct mfs_view *view)
{
	for (uint32_t i = 0; i < view->set_count; i++)
		if (mfs_fileset_is_remote(view->sets[i]))
			return true;
	return false;
}

static int start(struct mcorefs_load *load, const struct mcorefs_box *boxes, size_t count,
		 const struct mcorefs_load_options *options, struct mfs_error *err)
{
	const struct mfs_load_options o = {.device = options->device,
					   .threads = options->threads,
					   .memory = options->memory,
					   .direct = (enum mfs_load_direct)options->direct,
					   .is_remote = is_remote(load->view->view)};
	struct mfs_load_box *found;
	int rc = check_options(options, err);

	if (!rc)
		rc = mfs_lib_check(load->view->source, err);
	if (rc)
		return rc;
	found = calloc(count + 1, sizeof(*found));
	if (!found)
		return mfs_fail_nomem(err);
	for (size_t i = 0; i < count && !rc; i++)
		rc = find_box(load->view, &boxes[i], &found[i], err);
	if (!rc)
		rc = mfs_load_start(found, count, &o, &load->load, err);
	free(found);
	return rc;
}

int mcorefs_load_start(struct mcorefs_view *view, const struct mcorefs_box *boxes, size_t count,
		       const struct mcorefs_load_options *options, struct mcorefs_load **ret,
		       struct mcorefs_error *ret_err)
{
	static const struct mcorefs_load_options plain = {.device = -1};
	struct mcorefs_load *load = calloc(1, sizeof(*load));
	struct mfs_error err = {0};
	int rc = load ? 0 : mfs_fail_nomem(&err);

	if (!rc) {
		load->view = view;
		rc = start(load, boxes, count, options ? options : &plain, &err);
	}
	if (rc)
		free(load);
	else
		*ret = load;
	return mfs_lib_tell(ret_err, rc, &err);
}

/* What was gathered was checked when it was read, and may have changed after the first bytes. */
static int check_sources(const struct mcorefs_load *load, struct mfs_error *err)
{
	struct mfs_load_state s;

	mfs_load_tell(load->load, &s);
	return s.gathered ? mfs_view_check_sources(load->view->view, err) : 0;
}

int mcorefs_load_next(struct mcorefs_load *load, int timeout_ms, size_t *ret,
		      struct mcorefs_error *ret_err)
{
	struct mfs_error err = {0};
	int rc = mfs_lib_check(load->view->source, &err);

	if (!rc)
		rc = mfs_load_next(load->load, timeout_ms, ret, &err);
	if (rc > 0)
		return rc;
	if (!rc)
		rc = check_sources(load, &err);
	return mfs_lib_tell(ret_err, rc, &err);
}

int mcorefs_load_wait(struct mcorefs_load *load, struct mcorefs_error *ret_err)
{
	struct mfs_error err = {0};
	int rc = mfs_lib_check(load->view->source, &err);

	if (!rc)
		rc = mfs_load_wait(load->load, &err);
	if (!rc)
		rc = check_sources(load, &err);
	return mfs_lib_tell(ret_err, rc, &err);
}

int mcorefs_load_fill(struct mcorefs_view *view, const struct mcorefs_box *boxes, size_t count,
		      const struct mcorefs_load_options *options, struct mcorefs_error *ret_err)
{
	struct mcorefs_load *load;
	int rc = mcorefs_load_start(view, boxes, count, options, &load, ret_err);

	if (rc)
		return rc;
	rc = mcorefs_load_wait(load, ret_err);
	mcorefs_load_free(load);
	return rc;
}

void mcorefs_load_cancel(struct mcorefs_load *load)
{
	if (!mfs_lib_check(load->view->source, NULL))
		mfs_load_cancel(load->load);
}

void mcorefs_load_state(struct mcorefs_load *load, struct mcorefs_load_state *ret)
{
	struct mfs_load_state s;

	mfs_load_tell(load->load, &s);
	*ret = (struct mcorefs_load_state){
		.bytes = s.bytes,
		.done = s.done,
		.read = s.read,
		.cached = s.cached,
		.direct = s.direct,
		.computed = s.gathered,
		.threads = s.threads,
		.engine = s.engine,
		.buffers = s.buffers,
		.gds = s.gds,
		.gds_bytes = s.gds_bytes,
	};
}

void mcorefs_load_free(struct mcorefs_load *load)
{
	if (!load || mfs_lib_check(load->view->source, NULL))
		return;
	mfs_load_free(load->load);
	free(load);
}
