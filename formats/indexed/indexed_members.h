/* The members of an indexed dataset: the prefixes that it is made of, for code that computes with
 * the numbers in their files. */
#ifndef MFS_INDEXED_INDEXED_MEMBERS_H
#define MFS_INDEXED_INDEXED_MEMBERS_H

#include "formats/base/arena.h"
#include "formats/indexed/indexed_dataset.h"

/* Repaired pointers: a sum of lengths is kept for every so many sequences. */
#define MFS_IDX_SUM_STRIDE 256

struct mfs_idx_member {
	const char *name;		       /* the prefix, for messages */
	struct mfs_fileset *idx_set, *bin_set; /* NULL: in memory */
	uint32_t idx_file, bin_file;
	const uint8_t *idx; /* mapped: read under the guard alone */
	uint64_t sequences, entries, bin_size;
	uint64_t pointers_at, documents_at, modes_at; /* offsets in idx; the lengths are at 34 */
	uint8_t code;
	bool multimodal, bin_short;
	unsigned token_size;
	enum mfs_pointers_kind pointers;
	uint64_t *sums; /* MFS_POINTERS_REPAIRED: tokens before sequence i * MFS_IDX_SUM_STRIDE */
	/* What lies before this member in the concatenation. Its document entries but the first,
	 * which is 0, follow the ones of the members before. */
	uint64_t first_sequence, first_entry, first_byte;
};

struct mfs_indexed_dataset {
	struct mfs_indexed_info info;
	struct mfs_idx_member *members;
	size_t member_count;
	/* Two of each directory: tokens that are served must not cost the .idx its mapped pages. */
	struct mfs_fileset **sets;
	size_t set_count;
	char warning[256];
	struct mfs_arena arena;
};

/* The member that holds sequence i, i < N; members without sequences hold none. */
const struct mfs_idx_member *mfs_idx_member_of(const struct mfs_indexed_dataset *d, uint64_t i);

/* Arrays of one member as they are in its file; the range must lie inside. */
int mfs_idx_lengths(const struct mfs_idx_member *p, uint64_t first, uint64_t count, int32_t *ret,
		    struct mfs_error *err);
/* Byte offsets in the member's own .bin, repaired where they have to be. */
int mfs_idx_pointers(const struct mfs_idx_member *p, uint64_t first, uint64_t count, int64_t *ret,
		     struct mfs_error *err);

#endif
