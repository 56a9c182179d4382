#include "formats/megatron/write/extra_items.h"

#include "formats/megatron/write/dist_archive.h"

int mfs_extra_item_write(const struct mfs_extra_state *s, struct mfs_buf *out,
			 struct mfs_error *err)
{
	struct mfs_dist_archive a;
	struct mfs_buf bytes = {0};
	int rc = s ? mfs_extra_state_write(s, &bytes, err) : 0;

	mfs_dist_archive_begin(&a);
	mfs_pickle_list_begin(&a.w);
	if (bytes.len && !rc)
		rc = mfs_dist_archive_bytes(&a, bytes.data, bytes.len, err);
	else
		mfs_pickle_none(&a.w);
	mfs_pickle_list_end(&a.w);
	rc = mfs_dist_archive_end(&a, "archive", rc, out, err);
	mfs_buf_release(&bytes);
	return rc;
}
