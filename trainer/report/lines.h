/*
 * The lines of a run's log, character for character as Megatron prints them but for one field, so
 * that programs that read its log read ours (megatron/training/training.py: training_log,
 * evaluate_and_print_results, print_datetime; megatron/training/checkpointing.py:
 * save_checkpoint). Each ends with
 * a line break.
 */
#ifndef MFT_TRAINER_REPORT_LINES_H
#define MFT_TRAINER_REPORT_LINES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/time.h>

#include "formats/base/absent.h"
#include "formats/base/buf.h"

/* A loss: "lm loss", "load_balancing_loss". NaN, or below 0 where it cannot be: it is left out. */
struct mft_report_loss {
	const char *name;
	double value;
	bool has_sign;
};

/* Of the iterations since the last line. */
struct mft_report_iteration {
	struct timeval now;
	uint64_t iteration, iterations, consumed_samples, skipped_samples;
	double seconds;	   /* per iteration */
	double throughput; /* TFLOP/s of a GPU, or MFS_ABSENT */
	/* Ours: the share of the time that the operations need at the device's peak ("sol", speed
	 * of light); or MFS_ABSENT. */
	double sol;
	double learning_rate;
	uint64_t batch;
	const struct mft_report_loss *losses; /* means */
	unsigned loss_count;
	double loss_scale;
	double grad_norm, zeros, params_norm; /* or MFS_ABSENT */
	uint64_t skipped, not_finite;
};
void mft_report_iteration(struct mfs_buf *b, const struct mft_report_iteration *r);

/* set: "", or "-0", "-books" of one of several; at: "iteration 20", "iteration 40 on validation
 * set". Three lines, the loss between dashes. */
void mft_report_evaluation(struct mfs_buf *b, const char *set, const char *at,
			   const struct mft_report_loss *losses, unsigned count);
/* exp(min(20, loss)) */
double mft_report_perplexity(double loss);

struct mft_report_save {
	struct timeval now;
	uint64_t iteration;
	const char *dir;
	uint32_t tp, pp; /* sizes: the first rank says it */
};
void mft_report_saved(struct mfs_buf *b, const struct mft_report_save *s);

/* Why a run ends before its last iteration. */
enum mft_stop_reason {
	MFT_STOP_NOT,
	MFT_STOP_SIGNAL,
	MFT_STOP_MINUTES,  /* --exit-duration-in-mins */
	MFT_STOP_INTERVAL, /* --exit-interval */
};
struct mft_report_end {
	struct timeval now;
	enum mft_stop_reason why; /* not MFT_STOP_NOT */
	uint64_t iteration;
	double minutes; /* since the run began */
};
/* Two lines: Megatron's, which says the iteration for an interval alone, and ours with both. */
void mft_report_end(struct mfs_buf *b, const struct mft_report_end *e);

#endif
