/*
 * The arguments of a run, written: the argparse.Namespace `args` of a state dict for a model that
 * no run of Megatron's has written. Names and values are those of megatron/training/arguments.py;
 * both spellings where a release renamed one. Read back by megatron_args.h.
 */
#ifndef MFS_MEGATRON_NAMESPACE_H
#define MFS_MEGATRON_NAMESPACE_H

#include "formats/torch/megatron_args.h"
#include "formats/torch/pickle_write.h"

/* Writes one value. */
void mfs_namespace_write(struct mfs_pickle_writer *w, const struct mfs_megatron_args *a);

#endif
