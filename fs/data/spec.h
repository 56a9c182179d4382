/*
 * Names of directories of training samples, below data/NAME/samples:
 *
 *   {train|valid|test}-s{S}[-n{N}][-seed{K}][-split{A,B,C}]        train-s4096-n1000000-split99,1,0
 *
 * S tokens of each sample (and one that labels alone need), N samples asked for as Megatron asks
 * for them (without: one epoch), seed K (without: 1234), --split (without: the mount's, else
 * Megatron's default).
 */
#ifndef MFS_FS_DATA_SPEC_H
#define MFS_FS_DATA_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/dataset/gpt/splits.h"

#define MFS_SPEC_SIZE 192 /* holds any name */

struct mfs_samples_spec {
	enum mfs_split of;
	uint32_t seq_length;
	uint64_t samples; /* MFS_GPT_ONE_EPOCH: not given */
	uint32_t seed;
	char split[96]; /* "": not given */
};

/* False: no such name. Numbers are decimal without leading zeros, parts stand in the order
 * above. */
bool mfs_samples_spec_parse(const char *name, struct mfs_samples_spec *ret);
/* The shortest name; returns text. */
const char *mfs_samples_spec_name(const struct mfs_samples_spec *s, char text[MFS_SPEC_SIZE]);

/*
 * s{S}[-train{N}][-valid{N}][-test{N}][-seed{K}][-split{A,B,C}]: sequence length, samples asked
 * for, --seed and --split of a run. The defaults are one epoch, 1234, and split (-o) or else
 * Megatron's default.
 */
struct mfs_cache_spec {
	uint32_t seq_length, seed;
	uint64_t samples[MFS_SPLITS];
	const char *split; /* points into the name; NULL: not given */
};
/* Takes the name of a cache apart. -ENOENT: the name is no such name; -EINVAL: it is one, and a
 * number in it is impossible. */
int mfs_cache_spec_parse(const char *name, struct mfs_cache_spec *ret, struct mfs_error *err);

#endif
