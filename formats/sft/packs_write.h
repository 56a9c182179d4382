/*
 * Packed samples as a file, as Megatron-Bridge has them (data/packing/parquet.py:
 * write_packed_parquet): a row for each sample, of the columns input_ids (int32), loss_mask (int8)
 * and seq_start_id (int32), each a list; row_packs.c says what they are. The file is Parquet, or
 * JSON lines of objects with the same members.
 */
#ifndef MFS_FORMATS_SFT_PACKS_WRITE_H
#define MFS_FORMATS_SFT_PACKS_WRITE_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/sft/documents.h"

/* The most places of a sample: a page of Parquet has less than 2^31 bytes. */
#define MFS_PACKS_LENGTH (1u << 28)

struct mfs_packs {
	const struct mfs_documents *documents; /* by mfs_documents_pack() */
	uint64_t samples;
	/* If more than 1, each document is written with as many pad as make its tokens, all but
	 * the last one, a multiple of this. */
	uint32_t multiple;
	int32_t pad;
};

/* Writes all samples to a file that is empty. 0 or -errno. */
int mfs_packs_write(const struct mfs_packs *packs, bool parquet, int fd);

#endif
