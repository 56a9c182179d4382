/*
 * Megatron's indexed datasets: PREFIX.idx says where each sequence of tokens lies in PREFIX.bin
 * (megatron/core/datasets/indexed_dataset.py). docs/formats/indexed-dataset.md describes both
 * files, and when pointers are believed.
 *
 * A dataset here is one prefix, or several that stand for their concatenation: what
 * tools/merge_datasets.py would write, without a copy. Opening reads a few pages, whatever N is,
 * unless pointers do not follow each other. A sequence that does not lie inside .bin is an error
 * (-EIO) of that sequence alone.
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

enum mfs_pointers_kind {
	MFS_POINTERS_CONTIGUOUS, /* as writers lay them */
	MFS_POINTERS_REPAIRED,	 /* computed from the lengths; the file's own have overflowed */
	MFS_POINTERS_AS_WRITTEN, /* neither: gaps, overlaps, or a .bin of another size */
};

/* What is known without a pass over the sequences. For several prefixes: the sums, and the worst
 * kind of pointers. */
struct mfs_indexed_info {
	enum mfs_dtype dtype;
	uint8_t dtype_code;
	unsigned token_size;	   /* bytes */
	bool multimodal;	   /* modes are there */
	uint64_t sequences;	   /* N */
	uint64_t document_entries; /* D */
	uint64_t bin_size;	   /* bytes, all .bin files together */
	enum mfs_pointers_kind pointers;
	bool bin_short; /* a .bin ends before its .idx says; the sequences within it can be read */
};

/* Where a sequence lies. offset is in the concatenation of all .bin files. */
struct mfs_sequence {
	uint64_t offset; /* bytes */
	uint64_t length; /* tokens */
};

/*
 * Opens count >= 1 prefixes (paths without ".idx"). They must have the same dtype, and all or none
 * must have modes. -ENOENT: no such file. -ENOTSUP: TNTIDX, the format of fairseq and of Megatron
 * before 2021, or another version. -EINVAL: not an .idx, or its size does not follow from its
 * counts.
 */
int mfs_indexed_dataset_open(const char *const *prefixes, size_t count,
			     struct mfs_indexed_dataset **ret, struct mfs_error *err);
/* Like mfs_indexed_dataset_open(), for an .idx in memory, which the caller keeps, and a .bin of
 * which only the size is known. Its sequences can be located, but not read. */
int mfs_indexed_dataset_memory(const void *idx, uint64_t idx_size, uint64_t bin_size,
			       const char *name, struct mfs_indexed_dataset **ret,
			       struct mfs_error *err);
void mfs_indexed_dataset_free(struct mfs_indexed_dataset *d);

const struct mfs_indexed_info *mfs_indexed_dataset_info(const struct mfs_indexed_dataset *d);
/* A sentence about faults of the files that do not keep them from being read (bin_short, pointers);
 * "": there are none. */
const char *mfs_indexed_dataset_warning(const struct mfs_indexed_dataset *d);

/* -ESTALE: a file is no longer the one that was opened. It costs a stat for each file. Functions
 * below that copy tokens check the files that they touch themselves; the others do not. */
int mfs_indexed_dataset_check(const struct mfs_indexed_dataset *d, struct mfs_error *err);

/* Drops the mapped pages of the .idx files, but not the page cache. A daemon calls it now and then,
 * so that its resident size does not grow with the sequences that it served. Functions that pass
 * over many sequences do it themselves. */
void mfs_indexed_dataset_drop(const struct mfs_indexed_dataset *d);

/* Arrays of the .idx of the concatenation: lengths in tokens, pointers in bytes, document entries,
 * modes. -EINVAL: [first, first+count) does not lie inside, or a length is negative. */
int mfs_indexed_dataset_lengths(const struct mfs_indexed_dataset *d, uint64_t first, uint64_t count,
				int32_t *ret, struct mfs_error *err);
int mfs_indexed_dataset_pointers(const struct mfs_indexed_dataset *d, uint64_t first,
				 uint64_t count, int64_t *ret, struct mfs_error *err);
int mfs_indexed_dataset_documents(const struct mfs_indexed_dataset *d, uint64_t first,
				  uint64_t count, int64_t *ret, struct mfs_error *err);
int mfs_indexed_dataset_modes(const struct mfs_indexed_dataset *d, uint64_t first, uint64_t count,
			      int8_t *ret, struct mfs_error *err);

/* The lengths of any sequences, by number. -EINVAL: a number is N or more. */
int mfs_indexed_dataset_gather_lengths(const struct mfs_indexed_dataset *d,
				       const int32_t *sequences, uint64_t count, int32_t *ret,
				       struct mfs_error *err);

/* The number of tokens in the sequences [first, end). It is known at once if pointers are
 * contiguous, else it takes a pass over the sequences. */
int mfs_indexed_dataset_token_count(const struct mfs_indexed_dataset *d, uint64_t first,
				    uint64_t end, uint64_t *ret, struct mfs_error *err);

/* One sequence. -EIO: it does not lie inside of its .bin; -EINVAL: its length is negative. */
int mfs_indexed_dataset_sequence(const struct mfs_indexed_dataset *d, uint64_t i,
				 struct mfs_sequence *ret, struct mfs_error *err);
/* Copies the tokens [from, from+count) of sequence i: as they are stored, or widened to int64
 * (-ENOTSUP: the dtype is a float). */
int mfs_indexed_dataset_read(const struct mfs_indexed_dataset *d, uint64_t i, uint64_t from,
			     uint64_t count, void *ret, struct mfs_error *err);
int mfs_indexed_dataset_tokens(const struct mfs_indexed_dataset *d, uint64_t i, uint64_t from,
			       uint64_t count, int64_t *ret, struct mfs_error *err);

/* The longest stretch of the concatenated .bin that begins at offset and lies in one file. -EINVAL:
 * offset is at its end or past it. *ret_set is NULL for a dataset in memory. */
struct mfs_bin_extent {
	struct mfs_fileset *set;
	uint32_t file;
	uint64_t offset, len; /* bytes, in that file */
};
int mfs_indexed_dataset_extent(const struct mfs_indexed_dataset *d, uint64_t offset,
			       struct mfs_bin_extent *ret, struct mfs_error *err);

/* Any range of the .idx that Megatron would read for this dataset: merged, with its pointers
 * repaired. */
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
/* Reads all of the .idx once and counts. -EINVAL: outside, bad_lengths, jumps or bad_documents is
 * not 0; the sentence is about the first fault, and *ret has all counts. */
int mfs_indexed_dataset_validate(const struct mfs_indexed_dataset *d,
				 struct mfs_indexed_report *ret, struct mfs_error *err);

/* The prefixes of a directory, as sorted paths: every NAME.idx that has a NAME.bin next to it. *ret
 * is one block of memory, which the caller frees. -ENODATA: there are none. */
int mfs_indexed_dataset_list(const char *dir, char ***ret, size_t *ret_count,
			     struct mfs_error *err);

/* The dtype of a code, and the code of a dtype; MFS_DTYPE_NONE or 0: there is none. */
enum mfs_dtype mfs_idx_dtype(uint8_t code);
uint8_t mfs_idx_code(enum mfs_dtype dtype);

#endif
