/* The values of flags as a source of arguments: what a Namespace of the run would have. */
#ifndef MFT_TRAINER_CONFIG_FLAGS_SOURCE_H
#define MFT_TRAINER_CONFIG_FLAGS_SOURCE_H

#include "formats/args/args_source.h"
#include "trainer/config/value.h"

/* values outlive the source. */
struct mfs_args_source mft_args_of_flags(const struct mft_flag_values *values);

#endif
