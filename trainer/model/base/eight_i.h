/* What eight.c and eight_delayed.c share. */
#ifndef MFT_TRAINER_MODEL_BASE_EIGHT_I_H
#define MFT_TRAINER_MODEL_BASE_EIGHT_I_H

#include "trainer/model/base/eight.h"

/* A weight's operands. */
struct mft_eight_operands {
	bool planned;
	uint64_t rows, columns, scales; /* offsets in memory */
	uint64_t made;			/* in which step; 0: never */
	int64_t first;			/* number of its first group among all linears' groups */
	int64_t groups;
	int64_t most;		 /* rows of its operands at most */
	bool fresh[MFT_FACTORS]; /* its scale is still to be found; mft_eight_find_scales() */
};

/* Memory that is shared by all linears, one after the other. */
enum mft_eight_area {
	MFT_AREA_ROWS,	  /* of x or of dy */
	MFT_AREA_COLUMNS, /* of x */
	MFT_AREA_DY_COLUMNS,
	MFT_AREA_WEIGHT, /* with FSDP */
	MFT_AREA_SCALES, /* of x, of the weight and of dy, one after the other */
	MFT_EIGHT_AREAS,
};

/* Scales of a direction, [count], and what was seen before: offsets in memory. */
struct mft_eight_table {
	int64_t count;
	uint64_t scales, history, amax;
};

/* With delayed scaling. */
struct mft_eight_delayed {
	int64_t groups; /* of all linears */
	/* forward has scales of inputs and weights, two for each group. */
	struct mft_eight_table forward, backward;
	struct mft_at now;	  /* of forward's, what a pass uses */
	struct mft_scales scales; /* of both, for checkpoints */
};

struct mft_eight {
	struct mft_recipe recipe;
	struct mft_eight_operands *weights; /* [params->count], of the first of a group */
	uint64_t step;
	uint64_t bytes[MFT_EIGHT_AREAS], at[MFT_EIGHT_AREAS];
	uint64_t scales; /* bytes of one matrix's */
	struct mft_eight_delayed delayed;
};

/* The scales of a linear's groups in the tables. */
struct mfk_scale *mft_eight_table_scales(const struct mft_net *net,
					 const struct mft_eight_weight *w, enum mft_factor which);

#endif
