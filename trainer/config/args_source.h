/* The values of flags as a source of arguments: what a Namespace of the run would have. */
#ifndef MFS_TRAINER_CONFIG_ARGS_SOURCE_H
#define MFS_TRAINER_CONFIG_ARGS_SOURCE_H

#include "formats/args/source.h"
#include "trainer/config/value.h"

/* values outlive the source. */
struct mfs_args_source mfs_args_of_flags(const struct mfs_flag_values *values);

#endif
