/* --dry-run: what a run would take, without a device. */
#ifndef MFT_TRAINER_LOOP_DRY_RUN_H
#define MFT_TRAINER_LOOP_DRY_RUN_H

#include "trainer/config/config.h"
#include "trainer/parallel/launch.h"
#include "trainer/parallel/parallel.h"
#include "trainer/simulate/timeline.h"

/* A stage's process, the first of its ranks. */
struct mft_plan_stage {
	uint64_t bytes;	      /* of the device */
	const char *remedies; /* mft_memory_remedies() */
	bool of_experts;      /* mft_memory_is_of_experts() */
	uint64_t host_bytes;  /* of the host, for the optimizer's state */
	/* with a machine: what it was asked in a step, and in which groups */
	struct mfk_record record;
	struct mft_timeline_group groups[MFT_TIMELINE_GROUPS];
	struct mft_traffic traffic[MFT_GROUP_COUNT];
};

struct mft_plan {
	struct mft_plan_stage *stages;
	uint32_t stage_count, processes;
	uint64_t most;	      /* bytes of the stage that needs the most */
	double tokens, flops; /* of a step; Megatron's count */
	/* with a machine */
	struct mft_timeline time;
	double exposed[MFT_GROUP_COUNT]; /* seconds that a step would be shorter without */
};

/* says: print on standard output what memory each stage needs. machine may be NULL. config gets the
 * settings of its checkpoint. The caller releases ret, also after a failure. */
int mft_plan_run(struct mft_train_config *config, const struct mft_launch *launch,
		 const struct mft_machine *machine, bool says, struct mft_plan *ret,
		 struct mfs_error *err);
void mft_plan_release(struct mft_plan *p);

/* The machine of --machine, which is given. */
int mft_dry_run_machine(const struct mft_train_config *config, struct mft_machine *ret,
			struct mfs_error *err);

/* All of --dry-run. Returns an exit code. */
int mft_dry_run(struct mft_train_config *config, const struct mft_launch *launch);

#endif
