/* Private to formats/plan/plan_read.c, plan_fp8.c and plan_delta.c: a request that is being
 * read. */
#ifndef MFS_PLAN_PLAN_READ_I_H
#define MFS_PLAN_PLAN_READ_I_H

#include "formats/plan/plan_i.h"

#define MFS_PLAN_REMEMBERED                                                                        \
	16 /* files that a request knows it has checked; others cost a stat again */

/* The largest magnitudes of columns [col, ...) of a matrix, in the sources' type (base/fp8.h). */
struct mfs_plan_most {
	uint64_t col;
	uint8_t *magnitudes;
};

struct mfs_plan_reader {
	const struct mfs_plan *plan;
	struct mfs_gather *g;
	uint8_t *cast_to; /* where the next elements go once they are cast; NULL: they stay */
	struct mfs_plan_most *most; /* elements are only looked at; NULL: they are given away */
	uint64_t at;		    /* number of the next element, where it matters which it is */
	uint32_t files[MFS_PLAN_REMEMBERED];
	const uint8_t *maps[MFS_PLAN_REMEMBERED];
	unsigned file_count;
	uint32_t current;  /* file whose bytes are being copied, for the message */
	uint64_t off, len; /* of the sources' bytes, in the order of the target */
	uint64_t apart;	   /* bytes whose elements were copied one by one */
	int rc;
	struct mfs_error *err;
};

/* Maps a file. Once a request it is checked to be the file that the plan was built from. */
int mfs_plan_map(struct mfs_plan_reader *r, uint32_t file, const uint8_t **ret);
/* Reads [off, off + len). rc is its result. */
void mfs_plan_gather_range(struct mfs_plan_reader *r);

/* Gives whole elements away, which may lie in a mapping. */
void mfs_plan_put(struct mfs_plan_reader *r, const uint8_t *p, uint64_t n);
/* Copies elements [first, first + count) of a band to to. */
int mfs_plan_copy(struct mfs_plan_reader *r, const struct mfs_plan_band *band, uint64_t first,
		  uint64_t count, uint8_t *to);

/* ---- adapters (plan_delta.c) ---- */

/* Reads [off, off + len) of a band's bytes, whole elements, with what the deltas add to them. */
int mfs_plan_merge(struct mfs_plan_reader *r, const struct mfs_plan_band *band, uint64_t off,
		   uint64_t len);

/* ---- floats of 8 and 4 bits (plan_fp8.c) ---- */

/* Puts n elements at src of the block's file, which is mapped at map: they become the target's
 * type. */
int mfs_plan_dequantise(struct mfs_plan_reader *r, const struct mfs_plan_block *block, uint64_t src,
			const uint8_t *map, uint64_t n);
/* Puts n elements, which become 8-bit floats. Their scales are known. */
void mfs_plan_quantise(struct mfs_plan_reader *r, const uint8_t *p, uint64_t n);
/* Raises most to n elements. */
void mfs_plan_raise(struct mfs_plan_reader *r, const uint8_t *p, uint64_t n);
/* Fills cast_to with bytes [off, off + len) of a target of MFS_OP_QUANTISE or MFS_OP_SCALES. */
void mfs_plan_fp8_range(struct mfs_plan_reader *r);
/* The sources' bytes that such a range of the target needs. */
void mfs_plan_fp8_sources(const struct mfs_plan *plan, uint64_t *off, uint64_t *len);

#endif
