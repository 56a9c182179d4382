/* Private to trainer/loop: a run that is open. */
#ifndef MFT_TRAINER_LOOP_TRAINER_I_H
#define MFT_TRAINER_LOOP_TRAINER_I_H

#include "formats/base/error.h"
#include "kernels/kernels.h"
#include "trainer/ckpt/load.h"
#include "trainer/ckpt/run_progress.h"
#include "trainer/ckpt/save.h"
#include "trainer/config/batch_schedule.h"
#include "trainer/config/config.h"
#include "trainer/data/loader.h"
#include "trainer/loop/step_check.h"
#include "trainer/loop/peak.h"
#include "trainer/model/net.h"
#include "trainer/params/memory.h"
#include "trainer/params/params.h"
#include "trainer/optim/sync.h"
#include "trainer/optim/update.h"
#include "trainer/report/events.h"
#include "trainer/report/offline.h"
#include "trainer/report/lines.h"
#include "trainer/report/terminal.h"
#include "trainer/parallel/exposure.h"
#include "trainer/parallel/parallel.h"

/* Microbatches whose first pass may still be under way, and losses that may. */
#define MFT_BATCHES_IN_FLIGHT 2

#define MFT_LOST_SAVES 8 /* whose numbers are logged at the end */

/* What became of a run's saves. */
struct mft_saves {
	uint64_t last;	  /* iteration of the last persistent one, or that the run began with */
	uint64_t durable; /* of the last one that is on disk; 0: none is */
	bool failed;	  /* the last one */
	/* iterations that were not saved, and how many more */
	uint64_t lost[MFT_LOST_SAVES], lost_count, more_lost;
};

struct mft_trainer {
	struct mft_train_config *config;
	const struct mfk_backend *backend; /* NULL: --dry-run without a device */
	struct mfk_device *device;
	struct mfk_ctx *ctx;
	struct mft_peak peak; /* of the device, with --log-throughput */
	struct mft_parallel parallel;
	/* up to now, and of the last step */
	struct mft_traffic traffic[MFT_GROUP_COUNT], step_traffic[MFT_GROUP_COUNT];
	/* NULL: no --log-communication, or another process logs it */
	struct mft_exposure *exposure;
	struct mft_memory memory;
	struct mft_flat_places places;
	struct mft_params *params;
	struct mft_net *net;
	struct mft_sync *sync;
	struct mft_update *update;
	struct mft_sets {
		struct mft_loader **list; /* one, or validation sets that are kept apart */
		uint32_t count;		  /* 0: there is no data */
	} data[MFS_SPLITS];
	struct mft_rl *rl; /* NULL: no --perform-rl-step */
	/* rl_reference.c: what lies in host memory, weights and then buffers */
	struct mft_reference {
		char *weights, *some; /* some: what changes places at a time */
		uint64_t bytes, some_bytes;
		bool taken;
	} reference;
	struct mft_saver *saver; /* NULL: no --save */
	struct mft_saves saves;
	struct mft_progress progress;
	bool speaks;	     /* to the log, for all processes */
	uint64_t iterations; /* of the whole run */
	char loaded[640];    /* what the run began with; empty: drawn weights */
	bool loaded_optimizer;
	/* Why scales of products of 8 bits were not loaded; empty: they were, or there are none. */
	char scales_why[MFT_SCALES_WHY];
	double load_seconds; /* that this process took for its part */

	/* what the log has not shown yet: sums over steps */
	struct mft_log_window {
		struct mft_log_losses {
			double terms[MFT_LOSS_TERMS], aux[MFT_AUX_LOSSES], z, mtp[MFT_MTP_MOST];
		} losses;
		uint64_t steps, skipped, not_finite; /* steps: with a loss */
		int64_t began_ns;
	} window;
	bool logged_first;
	bool has_loss;		     /* a step of this process was not skipped */
	struct mft_events *events;   /* NULL: no --tensorboard-dir */
	struct mft_offline *offline; /* NULL: no --wandb-project */
	struct mft_terminal terminal;

	/* what the stage does in a step of so many microbatches */
	struct mft_pipeline pipeline;
	struct mft_pipeline_shape pipeline_shape;

	/* batches that the device may still be reading */
	struct mft_batch_in_flight {
		struct mft_batch_source of;
		const struct mft_batch *batch; /* NULL: none */
		struct mfk_event *done;
	} in_flight[MFT_BATCHES_IN_FLIGHT];
	unsigned next_in_flight;
	/* losses that are on their way to the host */
	struct mft_loss_in_flight {
		uint64_t microbatch; /* 1, 2, ... of a step; 0: none */
		double *losses;	     /* pinned: the step's losses up to this one */
		struct mfk_event *done;
	} losses[MFT_BATCHES_IN_FLIGHT];
	unsigned next_loss;
	struct mft_straggler *straggler; /* NULL: no --log-straggler */
	double loss_before; /* losses of the step's microbatches that have been looked at */
	struct mft_check check;
};

/* begin.c */
/* Opens everything, in order, and loads or draws the parameters. With dry_run it ends before the
 * device is needed, unless there is a recorder (kernels/record): then it goes on with that, drawn
 * parameters and generated data. On failure everything that was opened is in *ret and must be
 * closed. */
int mft_trainer_open(struct mft_train_config *config, const struct mft_launch *launch,
		     const struct mfk_backend *recorder, struct mft_trainer *ret,
		     struct mfs_error *err);
/* A part of it: the device, a context and the groups of processes. config is settled. */
int mft_trainer_open_processes(struct mft_trainer *t, const struct mft_launch *launch,
			       const struct mfk_backend *recorder, struct mfs_error *err);
/* --tokenizer-model, where it is a directory; NULL: it is none. */
const char *mft_trainer_tokenizer(const struct mft_train_config *config);
/* -ETIMEDOUT: all is closed, and others do not end (mft_parallel_close). */
int mft_trainer_close(struct mft_trainer *t, struct mfs_error *err);

/* batches.c */
struct mft_microbatches {
	struct mft_batch_source from;
	uint64_t count;
	bool backward;
	bool per_token;	 /* the gradient is not divided by the microbatch's tokens */
	double scale;	 /* another factor of the gradient */
	bool old_is_own; /* trainer/model/base/pass.h */
	/* [count][mft_trainer_tokens()], pinned: gets log-probs of the labels where the last stage
	 * is; NULL: they are not wanted */
	float *log_probs;
};
/* Submits this process's next microbatches, in the order of its stage. Adds tokens whose
 * loss counts to *counted: those of its samples, whichever stage it is. */
int mft_trainer_run(struct mft_trainer *t, const struct mft_microbatches *m, double *counted,
		    struct mfs_error *err);
/* Tokens of a microbatch that are this process's. */
uint64_t mft_trainer_tokens(const struct mft_trainer *t);
/* Microbatches of each process in a batch of so many samples. */
uint64_t mft_trainer_microbatches(const struct mft_trainer *t, uint64_t batch);
/* Losses of all processes: sums over stages; over those that share the samples, the loss of tokens
 * is the sum and the others are means. */
int mft_trainer_losses(struct mft_trainer *t, struct mft_net_losses *ret, struct mfs_error *err);
/* Looks at the losses of the batches in flight, and gives them back. The context must have been
 * waited for. */
void mft_trainer_batches_done(struct mft_trainer *t);
/* Opens the data of a split, from the samples that were consumed. -ENODATA: it has none. */
int mft_trainer_open_data(struct mft_trainer *t, enum mfs_split split, struct mfs_error *err);
void mft_trainer_close_data(struct mft_trainer *t);

/* step.c */
struct mft_step {
	uint64_t batch; /* samples */
	double loss;	/* mean over counted tokens */
	struct mft_net_losses losses;
	struct mft_update_result update;
	uint64_t microbatches;
	double params_norm, zeros;  /* of steps that are reported, if asked for; else MFS_ABSENT */
	double max_attention_logit; /* with --qk-clip or --log-max-attention-logit */
};
/* What t->check rejects changes nothing: neither weights nor progress. */
int mft_trainer_step(struct mft_trainer *t, struct mft_step *ret, struct mfs_error *err);
/* --iterations-to-skip: an iteration that draws its samples and trains with none. */
int mft_trainer_skip(struct mft_trainer *t, struct mfs_error *err);

/* evaluate.c */
/* The mean loss of eval_iters batches of a split's set, or of all of it with full_validation. */
int mft_trainer_evaluate(struct mft_trainer *t, enum mfs_split split, uint32_t set,
			 double *ret_loss, struct mfs_error *err);

/* saves.c */
/* Begins a save of the state as it is, when the one in flight has ended. */
void mft_saves_begin(struct mft_trainer *t, enum mft_save_kind kind);
/* Says what became of a save that has ended. wait: of the one in flight. */
void mft_saves_look(struct mft_trainer *t, bool wait);
/* Waits for the last one, and says which iterations are lost. False: the last one failed. */
bool mft_saves_end(struct mft_trainer *t);

/* rl_reference.c: the reference of a run whose loss has a KL term */
int mft_reference_new(struct mft_trainer *t, struct mfs_error *err);
/* Bytes of the host that it takes. */
uint64_t mft_reference_bytes(const struct mft_trainer *t);
void mft_reference_release(struct mft_trainer *t);
/* Takes the weights as they are; or, with --pretrained-checkpoint, reads that one's into their
 * place first, where the run's own are read afterwards. */
int mft_reference_take(struct mft_trainer *t, struct mfs_error *err);
int mft_reference_load(struct mft_trainer *t, struct mfs_error *err);

/* step_log.c: what a run says, on standard output */
/* What was accepted without effect, or as something else; with --log-args, all arguments. */
void mft_log_arguments(const struct mft_train_config *c);
void mft_log_memory(const struct mft_trainer *t);
/* What a process says to each group in a step. */
void mft_log_traffic(const struct mft_traffic traffic[MFT_GROUP_COUNT]);
void mft_log_begin(struct mft_trainer *t);
void mft_log_step(struct mft_trainer *t, const struct mft_step *step);
/* True if mft_log_step() is going to report the iteration that is done. */
bool mft_log_reports(const struct mft_trainer *t);
#define MFT_SET_NAME 80
/* "-0", "-NAME", or "" where sets of the split are not kept apart. */
const char *mft_log_set(const struct mft_trainer *t, enum mfs_split split, uint32_t set,
			char text[MFT_SET_NAME]);
/* last: after the last iteration. */
void mft_log_evaluation(struct mft_trainer *t, enum mfs_split split, uint32_t set, bool last,
			double loss);
void mft_log_suspect(struct mft_trainer *t);
/* A value for TensorBoard and Weights & Biases, of this iteration. */
void mft_log_value(struct mft_trainer *t, const char *tag, double value);
/* Lines of another's, which are released. */
void mft_log_text(struct mft_trainer *t, struct mfs_buf *lines);
void mft_log_save(struct mft_trainer *t, const struct mft_save_result *s);
/* Logs that a save has waited for the one before it. */
void mft_log_save_waited(struct mft_trainer *t, double seconds);
/* The iterations that no save of theirs has got to the disk. */
void mft_log_lost(struct mft_trainer *t);
void mft_log_end(struct mft_trainer *t, enum mft_stop_reason stop, uint64_t began_ns);
/* Floating-point operations of a batch (trainer/report/flops.h). */
double mft_step_flops(const struct mft_trainer *t, uint64_t batch);

/* straggler.c: --log-straggler; without it these do nothing. */
int mft_straggler_new(struct mft_trainer *t, struct mfs_error *err);
void mft_straggler_free(struct mft_straggler *s);
/* A step's microbatches begin; one has waited so long for its data; they end. */
void mft_straggler_begin(struct mft_trainer *t);
void mft_straggler_waited(struct mft_trainer *t, int64_t ns);
int mft_straggler_end(struct mft_trainer *t, struct mfs_error *err);
/* A step is done: reports at each --log-interval. All ranks call it. */
int mft_straggler_step(struct mft_trainer *t, const struct mft_step *step, struct mfs_error *err);

/* stop_signal.c: a signal that ends the run after the step in flight, with a save. */
void mft_stop_on(int signal);
int mft_stop_signal(void); /* the signal that came; 0: none */

#endif
