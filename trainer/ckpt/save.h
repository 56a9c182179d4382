/*
 * Saves that do not stop training.
 *
 * start() notes what is to be saved, and returns. A thread of its own copies the state out, bucket
 * by bucket, through a ring of pinned buffers while the next forward and backward run, and writes
 * it with io_uring and O_DIRECT. fence() holds the update back until the buckets it overwrites are
 * copied: only an update changes state. A save that fails is logged and dropped; training goes on.
 *
 * A save becomes visible whole or not at all. Its files are written and synced in iter_NNNNNNN.tmp,
 * .metadata last; the directory gets its name by rename, and then the tracker. A crash at any point
 * leaves the old checkpoint or the new one. integrity.json has the SHA-256 of each file, computed
 * on the way.
 *
 * Of many processes each writes its part of one checkpoint (save_boxes.c). The first one has the
 * directory's lock, writes what is no process's own, and commits when all have written
 * (save_agree.c). A save that fails in one of them is forgotten by all.
 */
#ifndef MFT_TRAINER_CKPT_SAVE_H
#define MFT_TRAINER_CKPT_SAVE_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "kernels/kernels.h"
#include "trainer/ckpt/run_progress.h"
#include "trainer/config/config.h"
#include "trainer/params/params.h"
#include "trainer/parallel/parallel.h"

struct mft_saver;

/* While there is a saver of a directory, no other process makes one: the file is locked, and the
 * kernel lets go of it when the process ends. The file stays. */
#define MFT_SAVE_LOCK ".mcorefs-train.lock"

/* An iteration of a saver that mft_saver_own() was called of has this file. */
#define MFT_SAVE_OWN ".mcorefs-train.own"

/* Where the file system cannot exchange names, an older iteration that is saved again has this
 * ending for a moment. After a crash in that moment a load takes it, if there is none without the
 * ending; the next saver gives it its name back. */
#define MFT_SAVE_ASIDE ".old"

/* Saves that stay, below --save; and those of --non-persistent-save-interval, in a directory of
 * their own, of which the last one stays. */
enum mft_save_kind { MFT_SAVE_PERSISTENT, MFT_SAVE_NON_PERSISTENT, MFT_SAVE_KINDS };

/* Of all processes. tokenizer_dir: whose files go along; NULL: none. -EBUSY: another run saves into
 * the directory. */
int mft_saver_new(const struct mft_train_config *config, const struct mft_params *params,
		  const struct mft_parallel *parallel, const struct mfk_backend *backend,
		  struct mfk_device *device, const char *tokenizer_dir, struct mft_saver **ret,
		  struct mfs_error *err);
/* Whether the saver holds the locks on its directories, which the first process asks for. False: a
 * file system has no locks, so that nobody can tell who else saves there. */
bool mft_saver_is_locked(const struct mft_saver *s);
/* Makes the directory of saves that stay the saver's alone: iterations that an earlier one has left
 * in it, which this one would save among, are removed. The first process calls it, before any
 * begins to save; from then on the saver removes and replaces only iterations of such savers.
 * -EEXIST: the directory has one that is of no such saver; -ENOLCK: it has one, and nobody can tell
 * whether its saver is still there. Nothing is removed then. */
int mft_saver_own(struct mft_saver *s, struct mfs_error *err);
/* Waits for a save in flight; of many processes, which may not all have come here, forgets it. */
void mft_saver_free(struct mft_saver *s);

/* Begins to save the state as it is at this point of ctx, in all processes. -EBUSY: a save is in
 * flight. */
int mft_saver_start(struct mft_saver *s, struct mfk_ctx *ctx, enum mft_save_kind kind,
		    const struct mft_progress *progress, struct mfs_error *err);

/* Before an update of elements [first, first+count) of the flat buffers: operations of ctx that are
 * submitted from here on wait until these are copied. Host waits count as stall. */
void mft_saver_fence(struct mft_saver *s, struct mfk_ctx *ctx, uint64_t first, uint64_t count);

struct mft_save_result {
	uint64_t iteration;
	const char *dir; /* the saver's: where it was saved */
	bool failed;
	char why[640];
	uint64_t bytes;	     /* of the whole; the first process knows them */
	uint64_t stall_ns;   /* how long fences kept the host waiting; the device may wait longer */
	uint64_t persist_ns; /* from start to durable */
	const char *engine;  /* "io_uring, O_DIRECT" */
};
/* True: a save has ended since the last call. wait: until the one in flight has. All processes call
 * it, and have the same answer; why a save failed, the first one knows. */
bool mft_saver_ended(struct mft_saver *s, bool wait, struct mft_save_result *ret);

#endif
