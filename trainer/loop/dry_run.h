/* --dry-run: what a run would take, without a device. */
#ifndef MFS_TRAINER_LOOP_DRY_RUN_H
#define MFS_TRAINER_LOOP_DRY_RUN_H

#include "trainer/config/config.h"
#include "trainer/parallel/launch.h"
#include "trainer/parallel/parallel.h"
#include "trainer/simulate/timeline.h"

/* A stage's process, the first of its ranks. */
struct mfs_plan_stage {
	uint64_t bytes;	      /* of the device */
	const char *remedies; /* mfs_memory_remedies() */
	bool of_experts;      /* mfs_memory_is_of_experts() */
	uint64_t host_bytes;  /* of the host, for the optimizer's state */
	/* with a machine: what it was asked in a step, and in which groups */
	struct mfk_record record;
	struct mfs_timeline_group groups[MFS_TIMELINE_GROUPS];
	struct mfs_traffic traffic[MFS_GROUP_COUNT];
};

struct mfs_plan {
	struct mfs_plan_stage *stages;
	uint32_t stage_count, processes;
	uint64_t most;	      /* bytes of the stage that needs the most */
	double tokens, flops; /* of a step; Megatron's count */
	/* with a machine */
	struct mfs_timeline time;
	double exposed[MFS_GROUP_COUNT]; /* seconds that a step would be shorter without */
};

/* says: print on standard output what memory each stage needs. machine may be NULL. config gets the
 * settings of its checkpoint. The caller releases ret, also after a failure. */
int mfs_plan_run(struct mfs_train_config *config, const struct mfs_launch *launch,
		 const struct mfs_machine *machine, bool says, struct mfs_plan *ret,
		 struct mfs_error *err);
void mfs_plan_release(struct mfs_plan *p);

/* The machine of --machine, which is given. */
int mfs_dry_run_machine(const struct mfs_train_config *config, struct mfs_machine *ret,
			struct mfs_error *err);

/* All of --dry-run. Returns an exit code. */
int mfs_dry_run(struct mfs_train_config *config, const struct mfs_launch *launch);

#endif
