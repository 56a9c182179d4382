/*
 * Tokens of microbatches on their way from files. A sample's pieces are resolved to ranges of files
 * (mfs_rows_extent), and each range is one read in flight. What lies in no file is read through its
 * rows.
 *
 * One thread. A fetch that has begun is finished or drained before its memory goes.
 */
#ifndef MFT_TRAINER_DATA_TOKEN_FETCH_H
#define MFT_TRAINER_DATA_TOKEN_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/dataset/gpt/samples.h"
#include "formats/io/io_engine.h"

struct mfs_fileset;

/* Tokens that lie together, within one sample. */
struct mft_fetch_part {
	const struct mfs_rows *rows;
	uint32_t at, count; /* elements of raw */
	bool wide;	    /* they are int64, whatever the rows are */
	bool lacking;	    /* the sample has none there, and raw is not filled */
	bool read;	    /* io reads them */
	struct mfs_io io;
	struct iovec iov;
	struct mfs_fileset *set; /* for messages */
	uint32_t file;
	uint64_t offset;
	struct mft_fetch *of;
};

/* A microbatch: B samples of S + 1 tokens. */
struct mft_fetch {
	/* [B (S + 1)]. The tokens of a part begin at its element, and are of the rows' type. */
	int64_t *raw;
	struct mft_fetch_part *parts;
	uint32_t part_count, part_room;
	uint32_t next, left; /* the next one to be submitted; reads not done yet */
	uint64_t bytes;	     /* read */
	int rc;		     /* of the first read that failed */
	struct mfs_error err;
};

#define MFT_PAD_TOKEN_ID (-1) /* what is padding where no token is: Megatron's _PAD_TOKEN_ID */

struct mft_fetcher;

/* engine: owned, also after a failure. */
int mft_fetcher_new(struct mfs_samples *samples, struct mfs_io_engine *engine, unsigned depth,
		    struct mft_fetcher **ret, struct mfs_error *err);
/* Nothing may be in flight. */
void mft_fetcher_free(struct mft_fetcher *f);

/* Resolves samples, whose indices are made if they are not there yet. Before it, raw is set and
 * everything else of *ret is as it was, or zero. */
int mft_fetch_plan(struct mft_fetcher *f, const uint64_t *samples, uint32_t count,
		   struct mft_fetch *ret, struct mfs_error *err);
/* Hands reads to the engine, as many as it takes. */
int mft_fetch_submit(struct mft_fetcher *f, struct mft_fetch *p, struct mfs_error *err);
/* Waits until a fetch that was planned has all of its tokens. Its error is p->err. */
int mft_fetch_finish(struct mft_fetcher *f, struct mft_fetch *p, struct mfs_error *err);
/* Waits until nothing is in flight, and forgets what came. */
void mft_fetcher_drain(struct mft_fetcher *f);

#endif
