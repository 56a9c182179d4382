/*
 * The tracker of a checkpoint root, and the names of iterations: what megatron/training/
 * checkpointing.py writes and reads (get_checkpoint_tracker_filename, read_metadata).
 */
#ifndef MFS_MEGATRON_TRACKER_H
#define MFS_MEGATRON_TRACKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MFS_TRACKER_FILE "latest_checkpointed_iteration.txt"
/* Megatron-Bridge's, a dict of tensors in torch.save's format, whose 'step' is the iteration
 * (megatron/bridge/training/utils/checkpoint_utils.py). It counts where there is no other: Bridge
 * writes both. */
#define MFS_TRAIN_STATE_FILE "latest_train_state.pt"
#define MFS_RELEASE	     (-1) /* number of release/: in front of all others */

enum mfs_tracker_kind {
	MFS_TRACKER_NONE,
	MFS_TRACKER_NUMBER,
	MFS_TRACKER_RELEASE,
	MFS_TRACKER_BAD,
};

struct mfs_tracker {
	enum mfs_tracker_kind kind;
	int64_t number; /* of NUMBER and RELEASE */
	bool no_file;	/* of BAD: it is no regular file, and has no text */
	char text[32];	/* its text, printable */
};

/* Reads the tracker of a root. *t holds what the last read found (zero-filled: never read), and
 * keeps it while the file is empty. */
void mfs_tracker_read(const char *source, struct mfs_tracker *t);

/* The iteration that a train state's number says. False: it is none, and *ret stays. */
bool mfs_tracker_iteration(double number, int64_t *ret);

/* Reads "iter_0000040" and "release", exactly as Megatron writes them. False: any other name. */
bool mfs_iteration_number(const char *name, int64_t *ret);

/* Reads these names and verl's "global_step_40". For code that looks at a directory and does not
 * write to it. */
bool mfs_iteration_number_of_any(const char *name, int64_t *ret);

/* Why an iteration must not be shown yet, written into text. NULL: it may be shown. */
const char *mfs_tracker_holds(const struct mfs_tracker *t, int64_t number, char *text, size_t size);

#endif
