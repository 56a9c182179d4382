/* Private to dist*.c, the reader of torch_dist. */
#ifndef MFS_CKPT_READ_DIST_I_H
#define MFS_CKPT_READ_DIST_I_H

#include "formats/ckpt/read/dist.h"

/* Reads the index, adds its files, and checks that all items lie in them (dist_index.c). */
int mfs_dist_open_index(struct mfs_dist_reader *r);
/* Makes an index of zarr's directories, and adds their files (dist_arrays.c). */
int mfs_dist_index_arrays(struct mfs_dist_reader *r);
extern const struct mfs_ckpt_format mfs_dist_zarr;
/* Whether any tensor of the index is the model's. */
bool mfs_dist_has_model(const struct mfs_dist_reader *r);
/* Notes the states of modules (ckpt/extra_states.h, dist_extra.c). */
int mfs_dist_note_extras(struct mfs_dist_reader *r);
/* Adds the found chunks of the model's tensors (dist_tensors.c). */
int mfs_dist_add_tensors(struct mfs_dist_reader *r);

/* ---- for makers (dist.c) ---- */

extern const struct mfs_ckpt_format mfs_dist_format; /* torch_dist */
bool mfs_dist_reads_optimizer(const struct mfs_dist_reader *r);
/* The state in common.pt, or in the item that replaced it, with its arguments. */
int mfs_dist_read_common(struct mfs_dist_reader *r);
/* Like mfs_dist_read_common(), of src, which begins at base of file id. file: its name, for
 * messages. */
int mfs_dist_read_state(struct mfs_dist_reader *r, const struct mfs_source *src, const char *file,
			uint32_t id, uint64_t base);
/* Arguments that ckpt->told has, of folder of the checkpoint's, or NULL: of the person's reference,
 * which is there. -ENOENT: the folder has no config.json. */
int mfs_dist_read_told(struct mfs_dist_reader *r, const char *folder);
/* A key of an optimizer's state. NULL: there is none. */
const char *mfs_dist_optimizer_key(const struct mfs_dist_reader *r);
/* The list of random states in a byte item (format.h). */
mfs_value mfs_dist_rng_list(const struct mfs_pickle *doc);

#endif
