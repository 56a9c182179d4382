/* A loader on an engine that the caller brings. */
#ifndef MFS_TRAINER_DATA_LOADER_I_H
#define MFS_TRAINER_DATA_LOADER_I_H

#include "formats/io/io_engine.h"
#include "trainer/data/loader.h"

#define MFS_LOADER_DEPTH 64 /* reads in flight */

/* As mfs_loader_new(), with an engine that has room for MFS_LOADER_DEPTH reads. The loader owns the
 * engine, also after a failure. */
int mfs_loader_new_on(const struct mfs_train_config *config, enum mfs_split split, uint32_t set,
		      uint64_t consumed, uint32_t micro, uint64_t vocab,
		      const struct mfs_slot_memory *memory, struct mfs_io_engine *engine,
		      struct mfs_loader **ret, struct mfs_error *err);

#endif
