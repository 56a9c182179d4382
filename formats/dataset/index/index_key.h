/*
 * The names by which Megatron finds an index again below --data-cache-path. A name is the MD5 of a
 * JSON text that describes what the index is of. The text also lies next to the index as
 * description.txt (megatron/core/datasets/megatron_dataset.py, blended_dataset.py:
 * unique_identifiers). docs/formats/gpt-dataset.md has its keys by release.
 */
#ifndef MFS_DATASET_INDEX_INDEX_KEY_H
#define MFS_DATASET_INDEX_INDEX_KEY_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/dataset/gpt/gpt_rules.h"
#include "formats/dataset/gpt/splits.h"

#define MFS_INDEX_FIRST_CORE  4 /* of megatron-core 0.4 */
#define MFS_INDEX_DIGEST_SIZE 33
#define MFS_INDEX_NAME_SIZE   96

struct mfs_index_key {
	char *text; /* of description.txt, without a line break at the end */
	size_t len;
	char digest[MFS_INDEX_DIGEST_SIZE]; /* of the text: MD5, in hex */
};

/* What all datasets of a run have in common. */
struct mfs_index_run {
	uint32_t seed; /* --seed */
	uint32_t seq_length;
	/* --split to the letter; NULL: none, as with --train-data-path and its like */
	const char *split;
	/* unique_identifiers of Megatron's tokenizer, an object; NULL: core 0.4 alone does
	 * without */
	json_t *tokenizer;
	struct mfs_dataset_rules rules;
};

/* One dataset: a prefix to the letter of --data-path, and the samples it is asked for (or
 * MFS_GPT_ONE_EPOCH). */
struct mfs_index_member {
	const char *path;
	uint64_t samples;
};

/* Which samples a blend takes. */
struct mfs_index_weights {
	const double *
		weights; /* as BlendedDataset has them: normalised (twice, where they were given) */
	uint64_t size;	 /* samples */
	const uint64_t *lengths; /* instead of both: each dataset has so many, all are taken once */
};

/* The names of the index files of one dataset, and of a blend, as the run's Megatron hashes them.
 * -ENOTSUP: that Megatron is older than core 0.4, or MD5 is switched off here; -EINVAL: --split is
 * not a split, or there is no tokenizer. */
int mfs_index_key_gpt(const struct mfs_index_run *run, const struct mfs_index_member *dataset,
		      enum mfs_split split, struct mfs_index_key *ret, struct mfs_error *err);
int mfs_index_key_blend(const struct mfs_index_run *run, const struct mfs_index_member *datasets,
			size_t count, const struct mfs_index_weights *weights, enum mfs_split split,
			struct mfs_index_key *ret, struct mfs_error *err);
void mfs_index_key_release(struct mfs_index_key *key);

/* The MD5 of any bytes, in hex. -ENOTSUP as above. */
int mfs_index_digest(const void *bytes, size_t len, char ret[MFS_INDEX_DIGEST_SIZE],
		     struct mfs_error *err);

/* Name of a file: "DIGEST-GPTDataset-train-document_index.npy"; before core 0.7 without the split.
 * dataset: "GPTDataset", "BlendedDataset"; what: "description.txt", "shuffle_index.npy". */
void mfs_index_name(const char *digest, const char *dataset, enum mfs_split split, const char *what,
		    const struct mfs_dataset_rules *rules, char ret[MFS_INDEX_NAME_SIZE]);

#endif
