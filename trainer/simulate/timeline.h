/*
 * How long the recorded work of a step takes on a machine.
 *
 * One process of each pipeline stage stands for all of the stage: the others do the same at the
 * same time. Streams of a process run in parallel, but communication takes multiprocessors and
 * power from the passes. They are late by a share of its time (mft_machine.busy_link), less the
 * time that they stand still meanwhile. An operation begins when its stream, the events that it
 * waits for and the host have come to it; one of several stages, when all of them have. The host
 * itself takes no time but to wait.
 */
#ifndef MFT_TRAINER_SIMULATE_TIMELINE_H
#define MFT_TRAINER_SIMULATE_TIMELINE_H

#include "trainer/simulate/machine.h"

#define MFT_TIMELINE_GROUPS 24

/* A group of one process. */
struct mft_timeline_group {
	const struct mfk_comm *comm; /* NULL: it has none */
	struct mft_machine_group machine;
	bool stages;	/* its processes are of several stages */
	bool ends_only; /* of the first and the last one alone */
};

struct mft_timeline_stage {
	const struct mfk_record *record;
	struct mft_timeline_group groups[MFT_TIMELINE_GROUPS];
};

/* Times in seconds: of the slowest stage, what its operations take. */
struct mft_timeline {
	double step;
	double products, attention, memory, host;
	double groups[MFT_TIMELINE_GROUPS];
};

/* free: a group whose operations take no time, or MFT_TIMELINE_GROUPS. -EDEADLK: the stages wait
 * for each other for ever. -EINVAL: a group's operations are in two streams of a process, where
 * its processes need not agree on their order. */
int mft_timeline_run(const struct mft_machine *m, const struct mft_timeline_stage *stages,
		     uint32_t count, unsigned free, struct mft_timeline *ret,
		     struct mfs_error *err);

#endif
