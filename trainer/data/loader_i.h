/* A loader on an engine that the caller brings. */
#ifndef MFT_TRAINER_DATA_LOADER_I_H
#define MFT_TRAINER_DATA_LOADER_I_H

#include "formats/io/io_engine.h"
#include "trainer/data/loader.h"

#define MFT_LOADER_DEPTH 64 /* reads in flight */

/* As mft_loader_new(), with an engine that has room for MFT_LOADER_DEPTH reads. The loader owns the
 * engine, also after a failure. */
int mft_loader_new_on(const struct mft_train_config *config, enum mfs_split split, uint32_t set,
		      uint64_t consumed, uint32_t micro, uint64_t vocab,
		      const struct mft_slot_memory_ops *memory, struct mfs_io_engine *engine,
		      struct mft_loader **ret, struct mfs_error *err);

#endif
