/*
 * Writes the argparse.Namespace `args` of a state dict, for a model that no run of Megatron has
 * written. Names and values are those of megatron/training/arguments.py. If a release renamed an
 * argument, both names are written. megatron_args.h reads it.
 */
#ifndef MFS_ARGS_NAMESPACE_H
#define MFS_ARGS_NAMESPACE_H

#include "formats/args/megatron_args.h"
#include "formats/torch/pickle_write.h"

/* Writes one value, the Namespace. */
void mfs_namespace_write(struct mfs_pickle_writer *w, const struct mfs_megatron_args *a);

#endif
