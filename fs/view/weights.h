/* Files of weights of a view. */
#ifndef MFS_FS_VIEW_WEIGHTS_H
#define MFS_FS_VIEW_WEIGHTS_H

#include "formats/model/hf_weights.h"
#include "fs/view/view.h"

/* Adds the files of all tensors, and their index if there is more than one. w is not needed
 * afterwards; its targets are. */
int mfs_view_add_weights(struct mfs_view *v, const struct mfs_hf_weights *w,
			 const struct mfs_hf_container *container,
			 const struct mfs_view_options *options, struct mfs_error *err);

#endif
