/*
 * What `mcorefs sample` was asked, and what is known of the run. Private to fs/sample.
 *
 * sample.c reads the command line. sample_plan.c fills in what it leaves open, from -o and from the
 * arguments in the checkpoint. sample_data.c makes rows of prefixes. sample_batch.c draws the
 * step's samples, and print.c prints or writes them, as text by sample_text.c.
 */
#ifndef MFS_FS_SAMPLE_SAMPLE_H
#define MFS_FS_SAMPLE_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/absent.h"
#include "formats/base/buf.h"
#include "formats/base/error.h"
#include "formats/dataset/gpt/sampler.h"
#include "formats/dataset/gpt/samples.h"
#include "formats/dataset/rows/rows_open.h"
#include "formats/args/megatron_data_args.h"
#include "fs/data/data_run.h"
#include "fs/cli/options.h"

struct mfs_data;

/* The command line. Texts that were not given are NULL or empty. */
struct mfs_sample_options {
	struct mfs_buf data_path, train_data_path;
	const char *data_args_path, *split, *dataloader_type, *megatron, *surplus, *npy, *bin;
	uint64_t step, seq_length, seed, train_samples, train_iters;
	uint64_t global_batch_size, micro_batch_size, data_parallel_size, rank, consumed_samples;
	uint64_t eod, pad;
	bool no_data_sharding, eod_mask_loss, text;
};

extern const struct mfs_sample_options mfs_sample_none_given;

/* A plan in which everything that a sample needs is settled. */
struct mfs_sample_plan {
	uint64_t step, batch; /* samples of the whole step */
	uint64_t rank;	      /* MFS_ABSENT_U64: those of all */
	bool has_ranks;	      /* microbatches are known, and who gets which */
	struct mfs_data_run words;
	struct mfs_sampler_config sampler; /* but for total */
	uint64_t microbatch; /* the step's first one, counted from the sampler's beginning */
	bool loss_mask;
	int64_t eod, pad; /* what loss_mask leaves out, as an input and as a label; -1: nothing */
};

/* args: those of the checkpoint, or NULL. data: that of the mount's options, or NULL. Returns an
 * exit code; what is wrong has been printed. On success the plan is released with
 * mfs_sample_plan_release(). */
int mfs_sample_make_plan(const struct mfs_sample_options *o, const struct mfs_data_options *mount,
			 const struct mfs_megatron_data_args *args, const struct mfs_data *data,
			 struct mfs_sample_plan *ret);
void mfs_sample_plan_release(struct mfs_sample_plan *plan);

/* Rows of prefixes: of datasets in data, and of files at other paths, which are opened. */
struct mfs_sample_data {
	const struct mfs_data *data; /* or NULL */
	struct mfs_rows_table paths;
};
/* mfs_samples_resolve; arg is a struct mfs_sample_data. */
int mfs_sample_resolve(void *arg, const char *prefix, const struct mfs_rows **ret,
		       struct mfs_error *err);
void mfs_sample_data_release(struct mfs_sample_data *d);

/* A sample that the step draws. */
struct mfs_sample_drawn {
	uint64_t sample, microbatch; /* the latter within the step */
	uint32_t rank;
};
/* The step's samples, microbatch by microbatch and ranks in order. The caller frees *ret. */
int mfs_sample_draw(const struct mfs_sample_plan *plan, const struct mfs_samples *samples,
		    struct mfs_sample_drawn **ret, uint64_t *ret_count, struct mfs_error *err);

struct mfs_root;
struct mfs_tokenizer;
/* The tokenizer of a run: that of -o tokenizer= or ref=, or the one next to the checkpoint or the
 * datasets. -ENODATA: there is none. */
int mfs_sample_find_tokenizer(struct mfs_root *root, const struct mfs_options *mount,
			      struct mfs_tokenizer **ret, struct mfs_error *err);
struct mfs_named_tokens;
/* Appends tokens as the text that they stand for (formats/dataset/text/named_tokens.h), a JSON
 * string. */
int mfs_sample_add_text(struct mfs_buf *to, const struct mfs_named_tokens *names,
			const int64_t *tokens, uint64_t count, struct mfs_error *err);

/* names: prints text in the place of tokens; or NULL. Returns an exit code. */
int mfs_sample_output(const struct mfs_sample_options *o, const struct mfs_sample_plan *plan,
		      struct mfs_samples *samples, const struct mfs_named_tokens *names,
		      const struct mfs_sample_drawn *drawn, uint64_t count);

#endif
