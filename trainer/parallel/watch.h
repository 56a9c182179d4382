/*
 * A watchdog: a process that makes no progress says where it is, and ends. Its launcher ends the
 * others then (mpirun, torchrun and srun --kill-on-bad-exit do), so that no run waits for a process
 * that hangs.
 *
 * The run's thread beats: where an operation of a group begins and ends, and at each microbatch. A
 * thread of the watch looks whether it did. What hangs is mostly another process: all that wait for
 * it say so, and the one that says nothing, or another thing than the others, is the one.
 *
 * Source: --distributed-timeout-minutes (megatron/training/initialize.py: the timeout of
 * init_process_group), --distributed-timeout-seconds-after-init (training.py: train).
 */
#ifndef MFT_TRAINER_PARALLEL_WATCH_H
#define MFT_TRAINER_PARALLEL_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "trainer/parallel/launch.h"

struct mft_watch;

/* Begins to watch. Without a beat for so many seconds, the process says it on standard error and
 * exits with the status. */
int mft_watch_new(const struct mft_launch *launch, double seconds, int status,
		  struct mft_watch **ret, struct mfs_error *err);
void mft_watch_free(struct mft_watch *w);

/* For the run's thread; with w NULL they do nothing. */

/* Other seconds from now on. */
void mft_watch_limit(struct mft_watch *w, double seconds);
/* The iteration that begins, or what else: "the end". For the message; until then it is the start.
 * The text lives as long as the watch. */
void mft_watch_iteration(struct mft_watch *w, uint64_t iteration);
void mft_watch_phase(struct mft_watch *w, const char *phase);
/* What begins, "an all-reduce", and whose, "dp"; NULL: nobody else has a part. Both live as long as
 * the watch. */
void mft_watch_begin(struct mft_watch *w, const char *what, const char *group);
void mft_watch_end(struct mft_watch *w);
/* What may take as long as it takes, such as a save, begins or ends: nobody looks meanwhile. Such
 * things may lie within one another. */
void mft_watch_rest(struct mft_watch *w, bool begins);

#endif
