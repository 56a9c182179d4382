/* Private to plan_read.c, plan_ranges.c, plan_fp8.c and plan_delta.c: a request that is being
 * read. */
#ifndef MFS_PLAN_PLAN_READ_I_H
#define MFS_PLAN_PLAN_READ_I_H

#include "formats/plan/plan_i.h"

#define MFS_PLAN_REMEMBERED                                                                        \
	16 /* files that a request knows it has checked; others cost a stat again */

/* The largest magnitudes of columns [col, ...) of a matrix, in the sources' type (fp8.h). */
struct mfs_plan_most {
	uint64_t col;
	uint8_t *magnitudes;
};

struct mfs_plan_reader;

/* What becomes of whole elements, n bytes of them as the sources store them. */
struct mfs_plan_taker_ops {
	/* They may lie in a mapping. */
	void (*put)(struct mfs_plan_reader *r, const uint8_t *p, uint64_t n);
	void (*zeros)(struct mfs_plan_reader *r, uint64_t n);
};

/* Gathers bytes [off, off + len) of a band, counted from its first one. */
typedef int mfs_plan_gatherer(struct mfs_plan_reader *r, const struct mfs_plan_band *band,
			      uint64_t off, uint64_t len);

struct mfs_plan_reader {
	const struct mfs_plan *plan;
	struct mfs_gather *g;
	const struct mfs_plan_taker_ops *taker; /* the plan's, except while scales are found out */
	uint8_t *cast_to;			/* where the next elements go once they are cast */
	struct mfs_plan_most *most;		/* while scales are found out */
	uint64_t at; /* number of the next element, where it matters which it is */
	uint32_t files[MFS_PLAN_REMEMBERED];
	const uint8_t *maps[MFS_PLAN_REMEMBERED];
	unsigned file_count;
	uint32_t current;  /* file whose bytes are being copied, for the message */
	uint64_t off, len; /* what is asked for, in the sources' bytes; of 8-bit floats in theirs */
	uint64_t apart;	   /* bytes whose elements were copied one by one */
	int rc;
	struct mfs_error *err;
};

/* Maps a file. Once a request it is checked to be the file that the plan was built from. */
int mfs_plan_map(struct mfs_plan_reader *r, uint32_t file, const uint8_t **ret);
/* Reads [off, off + len) of the sources' bytes, in the order of the target. */
int mfs_plan_gather_range(struct mfs_plan_reader *r, uint64_t off, uint64_t len);
/* Copies elements [first, first + count) of a band to to. */
int mfs_plan_copy(struct mfs_plan_reader *r, const struct mfs_plan_band *band, uint64_t first,
		  uint64_t count, uint8_t *to);

/* Visits the parts of bytes [off, off + len) of the sources' elements that lie in one band each,
 * in their order, until a visit fails. off of a visit is counted from the band's first byte. */
typedef int mfs_plan_visit(void *arg, const struct mfs_plan_band *band, uint64_t off, uint64_t len);
int mfs_plan_walk(const struct mfs_plan *plan, uint64_t off, uint64_t len, mfs_plan_visit *visit,
		  void *arg);

/* Whether the target's bytes are the sources' own, wherever these lie. */
bool mfs_plan_is_referenced(const struct mfs_plan *plan);

/* The range of the sources' bytes whose whole elements become [*off, *off + *len). Returns how many
 * bytes of the first element are before the range. */
uint64_t mfs_plan_source_range(const struct mfs_plan *plan, uint64_t *off, uint64_t *len);

/* Whether the target is 8-bit floats of wider ones, or their scales. */
static inline bool mfs_plan_is_quantised(const struct mfs_plan *plan)
{
	return plan->known || plan->parts.count;
}

/* The constant that is added to each element. */
static inline float mfs_plan_shift(const struct mfs_plan *plan)
{
	if (plan->op == MFS_OP_ADD_ONE)
		return 1;
	return plan->op == MFS_OP_SUBTRACT_ONE ? -1 : 0;
}

/* Columns of a lane that lie before a column of the band. */
static inline uint64_t mfs_plan_lane_cols(const struct mfs_plan *plan, uint32_t lane, uint64_t col)
{
	return col > lane ? (col - lane + plan->lanes - 1) / plan->lanes : 0;
}

/* ---- ranges of files (plan_ranges.c) ---- */

/* Fetches what a read of [off, off + len) touches. All that is missing is asked for at once, and
 * then each range is waited for. off and len are those of struct mfs_plan_reader. */
int mfs_plan_make_present(const struct mfs_plan *plan, uint64_t off, uint64_t len,
			  struct mfs_present *present, struct mfs_error *err);

/* ---- adapters (plan_delta.c) ---- */

/* Whole elements, with what the deltas add to them. */
mfs_plan_gatherer mfs_plan_merge;

/* ---- floats of 8 and 4 bits (plan_fp8.c) ---- */

/* Puts n elements at src of the block's file, which is mapped at map: they become the target's
 * type. */
int mfs_plan_dequantise(struct mfs_plan_reader *r, const struct mfs_plan_block *block, uint64_t src,
			const uint8_t *map, uint64_t n);
/* Puts n elements, which become 8-bit floats. Their scales are known. */
void mfs_plan_quantise(struct mfs_plan_reader *r, const uint8_t *p, uint64_t n);
/* Finds the scales of the parts that such a range of the target lies in: each is made of a whole
 * matrix, which has a plan of its own, and is looked at once. */
int mfs_plan_need_parts(const struct mfs_plan *plan, uint64_t off, uint64_t len,
			struct mfs_error *err);
/* Fills cast_to with bytes [off, off + len) of a target of MFS_OP_QUANTISE or MFS_OP_SCALES. */
void mfs_plan_fp8_range(struct mfs_plan_reader *r);
/* The sources' bytes that such a range of the target needs. */
void mfs_plan_fp8_sources(const struct mfs_plan *plan, uint64_t *off, uint64_t *len);

#endif
