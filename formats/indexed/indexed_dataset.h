/*
 * Megatron's indexed datasets: PREFIX.idx says where each sequence of tokens lies in PREFIX.bin
 * (megatron/core/datasets/indexed_dataset.py; docs/formats/indexed-dataset.md has both files, and
 * when pointers are believed).
 *
 * A dataset here is one prefix or several that stand for their concatenation, as
 * tools/merge_datasets.py would write it, without a copy. Opening reads a few pages, whatever N is,
 * unless pointers do not follow each other. A sequence that does not lie inside of .bin is an error
 * of its own (-EIO) and of no other.
 *
 * After opening, all functions may be called from any number of threads.
 */
#ifndef MFS_INDEXED_INDEXED_DATASET_H
#define MFS_INDEXED_INDEXED_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/base/tensor.h"

#define MFS_IDX_HEADER 34 /* bytes before the lengths */
/* A sequence's number is an int32 in Megatron's document index. */
#define MFS_MAX_SEQUENCES INT32_MAX

struct mfs_fileset;
struct mfs_indexed_dataset;

enum mfs_pointers {
	MFS_POINTERS_CONTIGUOUS, /* as writers lay them */
	MFS_POINTERS_REPAIRED,	 /* computed from the lengths; the file's own have overflowed */
	MFS_POINTERS_AS_WRITTEN, /* neither: gaps, overlaps, or a .bin of another size */
};

/* What is known without a pass over the sequences. Of several prefixes: sums, and the worst
 * pointers. */
struct mfs_indexed_info {
	enum mfs_dtype dtype;
	uint8_t dtype_code;
	unsigned token_size;	   /* bytes */
	bool multimodal;	   /* modes are there */
	uint64_t sequences;	   /* N */
	uint64_t document_entries; /* D */
	uint64_t bin_size;	   /* bytes, all .bin files together */
	enum mfs_pointers pointers;
	bool bin_short; /* a .bin ends before its .idx says; the sequences within it can be read */
};

/* Where a sequence lies. offset is in the concatenation of all .bin files. */
struct mfs_sequence {
	uint64_t offset; /* bytes */
	uint64_t length; /* tokens */
};

/*
 * Opens count >= 1 prefixes (paths without ".idx"). Prefixes must agree in dtype and in having
 * modes. -ENOENT: no such file; -ENOTSUP: TNTIDX, the format of fairseq and of Megatron before
 * 2021, or another version; -EINVAL: not an .idx, or one of another size than its own counts make.
 */
int mfs_indexed_dataset_open(const char *const *prefixes, size_t count,
			     struct mfs_indexed_dataset **ret, struct mfs_error *err);
/* The same of an .idx in memory (kept by the caller) and a .bin of which the size alone is known:
 * its sequences can be located, not read. */
int mfs_indexed_dataset_memory(const void *idx, uint64_t idx_size, uint64_t bin_size,
			       const char *name, struct mfs_indexed_dataset **ret,
			       struct mfs_error *err);
void mfs_indexed_dataset_free(struct mfs_indexed_dataset *d);

const struct mfs_indexed_info *mfs_indexed_dataset_info(const struct mfs_indexed_dataset *d);
/* A sentence about what is wrong with the files and was lived with (bin_short, pointers); "" if
 * nothing. */
const char *mfs_indexed_dataset_warning(const struct mfs_indexed_dataset *d);

/* -ESTALE if a file is no longer the one that was opened: a stat of each. Functions below that copy
 * tokens do this themselves, for the files they touch; the others do not. */
int mfs_indexed_dataset_check(const struct mfs_indexed_dataset *d, struct mfs_error *err);

/* Lets go of the mapped pages of the .idx files, not of the page cache: what a daemon does now and
 * then, so that its resident size does not grow with the sequences it was asked for. Passes over
 * many do it themselves. */
void mfs_indexed_dataset_drop(const struct mfs_indexed_dataset *d);

/* Arrays of the .idx as the concatenation would have them: lengths in tokens, pointers in bytes,
 * document entries, modes. [first, first+count) must lie inside (-EINVAL). -EINVAL also for a
 * negative length. */
int mfs_indexed_dataset_lengths(const struct mfs_indexed_dataset *d, uint64_t first, uint64_t count,
				int32_t *ret, struct mfs_error *err);
int mfs_indexed_dataset_pointers(const struct mfs_indexed_dataset *d, uint64_t first,
				 uint64_t count, int64_t *ret, struct mfs_error *err);
int mfs_indexed_dataset_documents(const struct mfs_indexed_dataset *d, uint64_t first,
				  uint64_t count, int64_t *ret, struct mfs_error *err);
int mfs_indexed_dataset_modes(const struct mfs_indexed_dataset *d, uint64_t first, uint64_t count,
			      int8_t *ret, struct mfs_error *err);

/* Lengths of any sequences by their numbers, which must be below N (-EINVAL). */
int mfs_indexed_dataset_gather_lengths(const struct mfs_indexed_dataset *d,
				       const int32_t *sequences, uint64_t count, int32_t *ret,
				       struct mfs_error *err);

/* Tokens of the sequences [first, end): at once where pointers are contiguous, else by a pass over
 * them. */
int mfs_indexed_dataset_token_count(const struct mfs_indexed_dataset *d, uint64_t first,
				    uint64_t end, uint64_t *ret, struct mfs_error *err);

/* One sequence. -EIO: it does not lie inside of its .bin; -EINVAL: its length is negative. */
int mfs_indexed_dataset_sequence(const struct mfs_indexed_dataset *d, uint64_t i,
				 struct mfs_sequence *ret, struct mfs_error *err);
/* Tokens [from, from+count) of sequence i: as stored, or widened to int64 (of integers alone;
 * -ENOTSUP for float dtypes). */
int mfs_indexed_dataset_read(const struct mfs_indexed_dataset *d, uint64_t i, uint64_t from,
			     uint64_t count, void *ret, struct mfs_error *err);
int mfs_indexed_dataset_tokens(const struct mfs_indexed_dataset *d, uint64_t i, uint64_t from,
			       uint64_t count, int64_t *ret, struct mfs_error *err);

/* The files behind the concatenated .bin: the longest stretch that begins at offset and lies in one
 * file. -EINVAL from its end on. *ret_set is NULL for a dataset in memory. */
struct mfs_bin_extent {
	struct mfs_fileset *set;
	uint32_t file;
	uint64_t offset, len; /* bytes, in that file */
};
int mfs_indexed_dataset_extent(const struct mfs_indexed_dataset *d, uint64_t offset,
			       struct mfs_bin_extent *ret, struct mfs_error *err);

/* The .idx file that Megatron would read for this dataset: merged, its pointers repaired. Any
 * range. */
uint64_t mfs_indexed_dataset_idx_size(const struct mfs_indexed_dataset *d);
int mfs_indexed_dataset_idx_read(const struct mfs_indexed_dataset *d, uint64_t off, void *buf,
				 size_t len, struct mfs_error *err);

/* What one pass over everything in the .idx found. */
struct mfs_indexed_report {
	uint64_t tokens;	  /* the sum of the lengths */
	uint64_t empty_sequences; /* of length 0 */
	uint64_t outside;	  /* sequences that do not lie inside of .bin */
	uint64_t bad_lengths;	  /* negative */
	uint64_t jumps; /* sequences that do not begin where the one before ends, once repaired */
	uint64_t bad_documents; /* entries below the one before or above N */
};
/* 0 if the four counts of faults are 0, else -EINVAL with a sentence about the first of them. */
int mfs_indexed_dataset_validate(const struct mfs_indexed_dataset *d,
				 struct mfs_indexed_report *ret, struct mfs_error *err);

/* Prefixes of a directory, as paths in the order of prefixes: every NAME.idx beside a NAME.bin.
 * *ret is one block of memory that the caller frees. -ENODATA if there is none. */
int mfs_indexed_dataset_list(const char *dir, char ***ret, size_t *ret_count,
			     struct mfs_error *err);

/* dtype codes: MFS_DTYPE_NONE and 0 where there is none. */
enum mfs_dtype mfs_idx_dtype(uint8_t code);
uint8_t mfs_idx_code(enum mfs_dtype dtype);

#endif
