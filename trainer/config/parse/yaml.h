/*
 * Flags from a YAML file: --yaml-cfg FILE, or --config FILE.
 *
 *   megatron:                       names are dests or flags, with or without hyphens before
 *     num_layers: 4
 *     --lr: 1e-3
 *     bf16: true
 *     data_path: [0.7, tales, 0.3, notes]
 *
 * and the sections of Megatron-Bridge's ConfigContainer, with its names for the same things:
 * model, train, optimizer, scheduler, dataset, checkpoint, logger, rng, tokenizer, ddp and others.
 * They may be a person's, or a run_config.yaml that Bridge has saved with all its fields
 * (yaml_names.h, yaml_i.h; docs/TRAINING.md).
 *
 * The file is somebody's: its size, depth and number of nodes are limited. Further documents are
 * refused, and so are aliases, anchors and tags unless it begins with _target_, as what Bridge has
 * saved does.
 */
#ifndef MFT_TRAINER_CONFIG_PARSE_YAML_H
#define MFT_TRAINER_CONFIG_PARSE_YAML_H

#include <stddef.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "trainer/config/value.h"

/* Sets each value that the command line has not set. Messages begin with the file's name, and have
 * the line. -EINVAL; -ENOTSUP: a value that is not supported; -errno if the file cannot be read. */
int mft_yaml_read(const char *path, struct mft_flag_values *v, struct mfs_arena *arena,
		  struct mfs_error *err);
/* The bytes of a file of at most MFS_YAML_BYTES, or one more; the caller frees them. */
int mft_yaml_slurp(const char *path, char **ret, size_t *ret_len, struct mfs_error *err);
int mft_yaml_parse(const char *name, const void *bytes, size_t len, struct mft_flag_values *v,
		   struct mfs_arena *arena, struct mfs_error *err);

#endif
