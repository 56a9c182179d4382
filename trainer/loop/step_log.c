#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

#include "formats/base/array.h"
#include "formats/base/buf.h"
#include "formats/base/clock.h"
#include "trainer/config/arguments_json.h"
#include "trainer/config/help/help.h"
#include "trainer/loop/trainer_i.h"
#include "trainer/report/flops.h"
#include "trainer/report/lines.h"

#define MFT_LOG_LOSSES (1 + MFT_LOSS_TERMS + MFT_AUX_LOSSES + MFT_MTP_MOST) /* kinds */
#define GIB	       ((double)(UINT64_C(1) << 30))

void mft_log_memory(const struct mft_trainer *t)
{
	printf("memory: %.3f GiB for %.3f million parameters:", (double)t->memory.total / GIB,
	       (double)t->params->parameters / 1e6);
	for (int i = 0; i < MFT_MEMORY_HOST; i++)
		if (t->memory.bytes[i])
			printf("%s %s %.3f", i ? "," : "",
			       mft_memory_kind_name((enum mft_memory_kind)i),
			       (double)t->memory.bytes[i] / GIB);
	if (t->memory.bytes[MFT_MEMORY_HOST])
		printf("; of the %s %.3f", mft_memory_kind_name(MFT_MEMORY_HOST),
		       (double)t->memory.bytes[MFT_MEMORY_HOST] / GIB);
	putchar('\n');
}

void mft_log_traffic(const struct mft_traffic traffic[MFT_GROUP_COUNT])
{
	bool any = false;

	printf("communication of a step:");
	for (int g = 0; g < MFT_GROUP_COUNT; g++) {
		if (!traffic[g].operations)
			continue;
		printf("%s %s %llu bytes in %llu operations", any ? "," : "",
		       mft_group_name((enum mft_group)g), (unsigned long long)traffic[g].bytes,
		       (unsigned long long)traffic[g].operations);
		any = true;
	}
	puts(any ? "" : " none");
}

/* What is measured is not worth a run's failure. */
static void log_exposure(const struct mft_trainer *t)
{
	struct mft_exposed exposed;
	struct mfs_error err;
	bool any = false;

	if (mft_exposure_sum(t->exposure, &exposed, &err))
		return;
	printf("exposed communication of a step:");
	for (int g = 0; g < MFT_GROUP_COUNT; g++) {
		if (!t->step_traffic[g].operations)
			continue;
		printf("%s %s %.1f ms", any ? "," : "", mft_group_name((enum mft_group)g),
		       1e3 * exposed.seconds[g]);
		any = true;
	}
	if (exposed.left_out)
		printf("; %llu more waits were left out", (unsigned long long)exposed.left_out);
	puts(any ? "" : " none");
}

double mft_step_flops(const struct mft_trainer *t, uint64_t batch)
{
	return mft_flops(&t->config->model, (uint64_t)t->config->seq_length,
			 t->params->padded_vocab, batch);
}

void mft_log_arguments(const struct mft_train_config *c)
{
	struct mfs_buf out = {0};

	mft_help_notes(c, &out);
	if (c->log_args)
		mft_help_arguments(c, &out);
	if (out.len && !out.failed)
		fwrite(out.data, 1, out.len, stdout);
	mfs_buf_release(&out);
}

/* What wandb.init() is given (global_vars.py: _set_wandb_writer). */
static void describe_run(const struct mft_train_config *c, struct mfs_buf *out)
{
	const struct {
		const char *name, *value;
	} words[] = {{"project", c->wandb_project},
		     {"name", c->wandb_exp_name},
		     {"entity", c->wandb_entity}};

	mfs_buf_adds(out, "{");
	for (size_t i = 0; i < MFS_ARRAY_SIZE(words); i++) {
		mfs_buf_printf(out, "\"%s\": ", words[i].name);
		if (words[i].value && *words[i].value)
			mfs_buf_add_json(out, words[i].value);
		else
			mfs_buf_adds(out, "null");
		mfs_buf_adds(out, ", ");
	}
	mfs_buf_adds(out, "\"config\": ");
	mft_arguments_json(c->values, out);
	mfs_buf_adds(out, "}");
}

/* Without a directory of its own or one to save to, where wandb itself would write. */
static int start_offline(struct mft_trainer *t, const struct mfs_buf *init, struct mfs_error *err)
{
	const struct mft_train_config *c = t->config;
	const bool own = c->wandb_save_dir && *c->wandb_save_dir;

	return mft_offline_open(own	  ? c->wandb_save_dir
				: c->save ? c->save
					  : ".",
				own ? NULL : "wandb", init, &t->offline, err);
}

static void open_offline(struct mft_trainer *t)
{
	struct mfs_buf init = {0};
	struct mfs_error err = {0};

	describe_run(t->config, &init);
	if (!start_offline(t, &init, &err))
		printf("Weights & Biases: nothing is sent; what it would be told is in %s\n",
		       mft_offline_path(t->offline));
	else
		fprintf(stderr, "mcorefs-train: %s; nothing is kept for Weights & Biases\n",
			err.msg);
	mfs_buf_release(&init);
}

/* An empty project is none (global_vars.py: _set_wandb_writer). */
static bool keeps_offline(const struct mft_train_config *c)
{
	return c->wandb_project && *c->wandb_project;
}

static void open_events(struct mft_trainer *t)
{
	const struct mft_train_config *c = t->config;
	struct mfs_error err;

	if (c->tensorboard_dir && mft_events_open(c->tensorboard_dir, &t->events, &err))
		fprintf(stderr, "mcorefs-train: %s; TensorBoard is told nothing\n", err.msg);
	if (keeps_offline(c))
		open_offline(t);
	fflush(stdout);
}

/* As Megatron does, a run begins anew where there is nothing to load; that must be seen. */
static void print_loaded(const struct mft_trainer *t)
{
	const char *load = t->config->load;

	if (t->loaded[0])
		printf("weights: %s%s, in %.2f s\n", t->loaded,
		       t->loaded_optimizer ? "" : ", with a new optimizer", t->load_seconds);
	else if (load)
		printf("WARNING: there is no checkpoint in %s, so the weights are drawn anew\n",
		       load);
	else
		printf("weights: drawn with seed %lld\n", (long long)t->config->seed);
	if (t->scales_why[0])
		printf("--fp8-recipe %s: scales are not loaded, and begin with those of the first "
		       "microbatch: %s\n",
		       t->config->fp8_recipe, t->scales_why);
	if (t->loaded[0] && !t->config->skip_train && t->progress.iteration >= t->iterations)
		printf("iteration %llu of %llu is reached already: nothing is trained; a larger "
		       "%s goes on\n",
		       (unsigned long long)t->progress.iteration, (unsigned long long)t->iterations,
		       t->config->train_samples > 0 ? "--train-samples" : "--train-iters");
}

void mft_log_begin(struct mft_trainer *t)
{
	struct mfk_device_info info;
	struct mft_loader_stats data;

	t->window = (struct mft_log_window){.began_ns = mfs_now_ns()};
	if (!t->speaks)
		return;
	mft_log_arguments(t->config);
	t->backend->device->info(t->device, &info);
	printf("device: %s, %s, %.1f GiB\n", t->backend->name, info.name,
	       (double)info.memory / GIB);
	if (t->parallel.ops)
		printf("processes: %u, started by %s, which talk through %s\n",
		       t->parallel.launch.size, t->parallel.launch.by, t->parallel.ops->name);
	if (t->peak.flops > 0)
		printf("peak: %.3f TFLOP/s, measured with a product of squares of %lld\n",
		       t->peak.flops / 1e12, (long long)t->peak.size);
	mft_log_memory(t);
	print_loaded(t);
	if (t->config->rampup_samples)
		printf("batch size: %llu to %lld over %llu samples (--rampup-batch-size, which "
		       "Megatron's main branch ignores)\n",
		       (unsigned long long)t->config->batch_steps[0].batch,
		       (long long)t->config->global_batch_size,
		       (unsigned long long)t->config->rampup_samples);
	if (t->data[MFS_TRAIN].count) {
		mft_loader_stats(t->data[MFS_TRAIN].list[0], &data);
		printf("data: read by %s%s%s\n", data.engine, data.why ? ": " : "",
		       data.why ? data.why : "");
		if (data.epoch_samples)
			printf("data: an epoch of conversations has %llu samples\n",
			       (unsigned long long)data.epoch_samples);
	}
	fflush(stdout);
	if (t->saver && !mft_saver_is_locked(t->saver))
		fprintf(stderr,
			"mcorefs-train: --save: the file system of '%s' has no locks; nothing "
			"keeps another run from saving there\n",
			t->config->save);
	open_events(t);
	mft_terminal_begin(&t->terminal, stderr, t->progress.iteration);
}

static void print(struct mft_trainer *t, struct mfs_buf *b)
{
	mft_terminal_clear(&t->terminal);
	if (t->speaks && !b->failed)
		fwrite(b->data, 1, b->len, stdout);
	fflush(stdout);
	mfs_buf_release(b);
}

void mft_log_text(struct mft_trainer *t, struct mfs_buf *lines)
{
	print(t, lines);
}

/* ---- losses ---- */

/* The names that a line has for them, in its order (training.py: training_log). */
static unsigned name_losses(const struct mft_train_config *c, const struct mft_log_losses *l,
			    double steps, struct mft_report_loss ret[MFT_LOG_LOSSES])
{
	static const char *const names[MFT_AUX_LOSSES] = {
		"load_balancing_loss", "seq_load_balancing_loss", "global_load_balancing_loss"};
	static const char *const mtp[MFT_MTP_MOST] = {"mtp_1 loss", "mtp_2 loss", "mtp_3 loss",
						      "mtp_4 loss", "mtp_5 loss", "mtp_6 loss",
						      "mtp_7 loss", "mtp_8 loss"};
	const char *const *terms = mft_net_loss_terms(c);
	const bool experts = c->model.num_experts != MFS_ABSENT;
	unsigned n = 0;

	for (; n < MFT_LOSS_TERMS && terms[n]; n++)
		ret[n] =
			(struct mft_report_loss){terms[n], l->terms[n] / steps, c->perform_rl_step};
	for (int i = 0; experts && i < MFT_AUX_LOSSES; i++)
		if (c->moe_logs_aux_loss[i])
			ret[n++] = (struct mft_report_loss){names[i], l->aux[i] / steps, false};
	if (experts && c->moe_z_loss_coeff > 0)
		ret[n++] = (struct mft_report_loss){"z_loss", l->z / steps, false};
	for (int i = 0; i < c->model.mtp_num_layers && i < MFT_MTP_MOST; i++)
		ret[n++] = (struct mft_report_loss){mtp[i], l->mtp[i] / steps, false};
	return n;
}

static struct mft_log_losses losses_of(const struct mft_step *step)
{
	const double n = step->microbatches ? (double)step->microbatches : 1;

	struct mft_log_losses ret = {.z = step->losses.z_loss / n};

	for (int i = 0; i < MFT_LOSS_TERMS; i++)
		ret.terms[i] = step->losses.loss[i];
	for (int i = 0; i < MFT_AUX_LOSSES; i++)
		ret.aux[i] = step->losses.aux[i] / n;
	for (int i = 0; i < MFT_MTP_MOST; i++)
		ret.mtp[i] = step->losses.mtp[i] / n;
	return ret;
}

static void add_losses(struct mft_log_losses *to, const struct mft_log_losses *l, bool skipped)
{
	for (int i = 0; i < MFT_LOSS_TERMS; i++)
		to->terms[i] += skipped ? 0 : l->terms[i];
	for (int i = 0; i < MFT_AUX_LOSSES; i++)
		to->aux[i] += l->aux[i];
	for (int i = 0; i < MFT_MTP_MOST; i++)
		to->mtp[i] += l->mtp[i];
	to->z += l->z;
}

static bool is_due(const struct mft_trainer *t, int64_t interval)
{
	return interval > 0 && t->progress.iteration % (uint64_t)interval == 0;
}

/* ---- TensorBoard, Weights & Biases ---- */

static bool is_told(const struct mft_trainer *t)
{
	return t->events || t->offline;
}

static void tell(struct mft_trainer *t, const char *tag, double value)
{
	if (t->events)
		mft_events_scalar(t->events, tag, value, t->progress.iteration);
	if (t->offline)
		mft_offline_value(t->offline, tag, value, t->progress.iteration);
}

/* By iterations, and for TensorBoard by samples, too. */
static void tell_both(struct mft_trainer *t, const char *tag, double value)
{
	if (t->events)
		mft_events_both(t->events, tag, value, t->progress.iteration,
				t->progress.consumed_train_samples);
	if (t->offline)
		mft_offline_value(t->offline, tag, value, t->progress.iteration);
}

/* One who cannot be told is not told again; training goes on. */
static void flush_told(struct mft_trainer *t)
{
	struct mfs_error err;

	if (t->events && mft_events_flush(t->events, &err)) {
		fprintf(stderr, "mcorefs-train: %s; TensorBoard is told nothing more\n", err.msg);
		mft_events_close(t->events);
		t->events = NULL;
	}
	if (t->offline && mft_offline_flush(t->offline, &err)) {
		fprintf(stderr, "mcorefs-train: %s; no more is kept for Weights & Biases\n",
			err.msg);
		mft_offline_close(t->offline);
		t->offline = NULL;
	}
}

void mft_log_value(struct mft_trainer *t, const char *tag, double value)
{
	tell(t, tag, value);
}

/* What is planned is there from the beginning to the end, as one block. */
static void tell_memory(struct mft_trainer *t)
{
	static const char *const tags[] = {"mem-reserved-bytes", "mem-allocated-bytes",
					   "mem-max-allocated-bytes"};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(tags); i++)
		tell(t, tags[i], (double)t->memory.total);
	tell(t, "mem-allocated-count", 1);
}

/* training.py: training_log. Losses of skipped iterations are told, too. */
static void tell_step(struct mft_trainer *t, const struct mft_step *step)
{
	const struct mft_train_config *c = t->config;
	const struct mft_progress *p = &t->progress;
	const struct mft_log_losses l = losses_of(step);
	struct mft_report_loss losses[MFT_LOG_LOSSES];
	unsigned count, i = 0;

	if (!is_told(t) || !is_due(t, c->tensorboard_log_interval))
		return;
	count = name_losses(c, &l, 1, losses);
	if (t->offline)
		mft_offline_value(t->offline, "samples vs steps", (double)p->consumed_train_samples,
				  p->iteration);
	tell_both(t, "learning-rate", mft_schedule_lr(&p->schedule));
	if (p->skipped_train_samples)
		tell(t, "skipped-train-samples", (double)p->skipped_train_samples);
	tell_both(t, "batch-size", (double)step->batch);
	for (; i < MFT_LOSS_TERMS && mft_net_loss_terms(c)[i]; i++)
		tell_both(t, losses[i].name, losses[i].value);
	if (c->log_loss_scale_to_tensorboard)
		tell_both(t, "loss-scale", p->scaler.scale);
	if (c->log_world_size_to_tensorboard)
		tell_both(t, "world-size", t->parallel.group[MFT_GROUP_WORLD].size);
	if (!step->update.skipped)
		tell_both(t, "grad-norm", step->update.grad_norm);
	if (step->zeros != MFS_ABSENT)
		tell_both(t, "num-zeros", step->zeros);
	if (step->params_norm != MFS_ABSENT)
		tell_both(t, "params-norm", step->params_norm);
	if (c->log_max_attention_logit)
		tell(t, "max_attention_logit", step->max_attention_logit);
	if (c->log_memory_to_tensorboard)
		tell_memory(t);
	for (; i < count; i++)
		tell(t, losses[i].name, losses[i].value);
	flush_told(t);
}

/* The first iteration's time is that of a beginning, and not told. */
static void tell_times(struct mft_trainer *t, const struct mft_report_iteration *line)
{
	if (!is_told(t) || !t->config->log_timers_to_tensorboard)
		return;
	if (t->logged_first)
		tell(t, "iteration-time", line->seconds);
	if (line->throughput != MFS_ABSENT)
		tell(t, "throughput", line->throughput);
	flush_told(t);
}

/* ---- iterations ---- */

/* The learning rate is that of the next update, in fp32 as the optimizer has it. */
static void print_window(struct mft_trainer *t, const struct mft_step *step)
{
	const struct mft_train_config *c = t->config;
	const struct mft_log_window *w = &t->window;
	const struct mft_progress *p = &t->progress;
	const uint64_t all = w->steps + w->skipped;
	/* of each process */
	const double flops =
		mft_step_flops(t, step->batch) / (double)t->parallel.group[MFT_GROUP_WORLD].size;
	const char *const *terms = mft_net_loss_terms(c);
	struct mft_report_loss losses[MFT_LOG_LOSSES];
	struct mft_report_iteration line = {
		.iteration = p->iteration,
		.iterations = t->iterations,
		.consumed_samples = p->consumed_train_samples,
		.skipped_samples = p->skipped_train_samples,
		.seconds = (double)(mfs_now_ns() - w->began_ns) / 1e9 / (double)(all ? all : 1),
		.throughput = MFS_ABSENT,
		.sol = MFS_ABSENT,
		.learning_rate = (double)(float)mft_schedule_lr(&p->schedule),
		.batch = step->batch,
		.losses = losses,
		.loss_scale = p->scaler.scale,
		.grad_norm = step->update.skipped ? MFS_ABSENT : step->update.grad_norm,
		.zeros = step->zeros,
		.params_norm = step->params_norm,
		.skipped = w->skipped,
		.not_finite = w->not_finite,
	};
	struct mfs_buf b = {0};

	line.loss_count = name_losses(c, &w->losses, (double)(w->steps ? w->steps : 1), losses);
	/* After the first loss of a process, Megatron reports that skipped steps have a loss of
	 * 0. */
	for (int i = 0; i < MFT_LOSS_TERMS && terms[i] && !t->has_loss; i++)
		losses[i].value = (double)NAN;
	if (c->log_throughput)
		line.throughput = flops / line.seconds / 1e12;
	if (t->peak.flops > 0)
		line.sol = mft_flops_share(flops, line.seconds, t->peak.flops);
	gettimeofday(&line.now, NULL);
	mft_report_iteration(&b, &line);
	print(t, &b);
	tell_times(t, &line);
}

bool mft_log_reports(const struct mft_trainer *t)
{
	const struct mft_train_config *c = t->config;

	return is_due(t, c->log_interval) || (c->log_interval > 0 && !t->logged_first) ||
	       ((c->tensorboard_dir || keeps_offline(c)) && is_due(t, c->tensorboard_log_interval));
}

/* Megatron says the first iteration of a process, too, whatever the interval is. */
void mft_log_step(struct mft_trainer *t, const struct mft_step *step)
{
	const int64_t interval = t->config->log_interval;
	const bool due = is_due(t, interval);
	const struct mft_log_losses l = losses_of(step);
	struct mft_log_window *w = &t->window;

	add_losses(&w->losses, &l, step->update.skipped);
	if (step->update.skipped) {
		w->skipped++;
		w->not_finite += !isfinite(step->loss);
	} else {
		w->steps++;
		t->has_loss = true;
	}
	tell_step(t, step);
	if (due || (interval > 0 && !t->logged_first))
		print_window(t, step);
	t->logged_first = true;
	if (due)
		*w = (struct mft_log_window){.began_ns = mfs_now_ns()};
	mft_terminal_show(&t->terminal, t->progress.iteration, t->iterations,
			  step->batch * (uint64_t)t->config->seq_length);
}

/* training.py: evaluate_and_print_results. */
const char *mft_log_set(const struct mft_trainer *t, enum mfs_split split, uint32_t set,
			char text[MFT_SET_NAME])
{
	const struct mfs_arg_words *names = &t->config->validation_set_names;

	text[0] = '\0';
	if (split != MFS_VALID || !t->config->multiple_validation_sets)
		return text;
	if (names->count)
		snprintf(text, MFT_SET_NAME, "-%s", names->list[set]);
	else
		snprintf(text, MFT_SET_NAME, "-%u", set);
	return text;
}

/* The caller's next line is for " vs samples". */
static void tell_evaluation(struct mft_trainer *t, const char *set, double loss)
{
	const char *loss_name = mft_net_loss_terms(t->config)[0];
	char tag[MFT_SET_NAME + 32];

	if (!is_told(t) || t->config->skip_train)
		return;
	snprintf(tag, sizeof(tag), "%s validation%s", loss_name, set);
	tell_both(t, tag, loss);
	snprintf(tag, sizeof(tag), "%s validation%s ppl", loss_name, set);
	if (t->config->log_validation_ppl_to_tensorboard)
		tell_both(t, tag, mft_report_perplexity(loss));
	flush_told(t);
}

void mft_log_evaluation(struct mft_trainer *t, enum mfs_split split, uint32_t set, bool last,
			double loss)
{
	const struct mft_report_loss losses[] = {{mft_net_loss_terms(t->config)[0], loss, false}};
	const uint64_t iteration = t->progress.iteration;
	struct mfs_buf b = {0};
	char at[80], name[MFT_SET_NAME];

	snprintf(at, sizeof(at), "iteration %llu%s", (unsigned long long)iteration,
		 split == MFS_TEST ? " on test set"
		 : last		   ? " on validation set"
				   : "");
	mft_report_evaluation(&b, mft_log_set(t, split, set, name), at, losses, 1);
	print(t, &b);
	tell_evaluation(t, name, loss);
}

void mft_log_suspect(struct mft_trainer *t)
{
	if (!t->check.why[0])
		return;
	mft_terminal_clear(&t->terminal);
	fprintf(stderr, "mcorefs-train: %s; training goes on\n", t->check.why);
}

void mft_log_save(struct mft_trainer *t, const struct mft_save_result *s)
{
	const double seconds = (double)s->persist_ns / 1e9;
	struct mfs_buf b = {0};
	struct timeval now;

	if (s->failed) {
		mft_terminal_clear(&t->terminal);
		fprintf(stderr,
			"mcorefs-train: the checkpoint of iteration %llu was not saved: %s; "
			"training goes on\n",
			(unsigned long long)s->iteration, s->why);
		return;
	}
	gettimeofday(&now, NULL);
	mft_report_saved(&b, &(struct mft_report_save){.now = now,
						       .iteration = s->iteration,
						       .dir = s->dir,
						       .tp = t->parallel.size.tp,
						       .pp = t->parallel.size.pp});
	print(t, &b);
	printf("  saved %.3f GiB in %.3f s (%.2f GiB/s, %s); the host waited %.1f ms for it\n",
	       (double)s->bytes / GIB, seconds, (double)s->bytes / GIB / (seconds ? seconds : 1),
	       s->engine, (double)s->stall_ns / 1e6);
	fflush(stdout);
}

void mft_log_save_waited(struct mft_trainer *t, double seconds)
{
	mft_terminal_clear(&t->terminal);
	printf("  training waited %.3f s for that save, as the next one is due\n", seconds);
	fflush(stdout);
}

void mft_log_lost(struct mft_trainer *t)
{
	const struct mft_saves *s = &t->saves;

	mft_terminal_clear(&t->terminal);
	fprintf(stderr, "mcorefs-train: not saved: iteration");
	for (uint64_t i = 0; i < s->lost_count; i++)
		fprintf(stderr, "%s %llu", i ? "," : "", (unsigned long long)s->lost[i]);
	if (s->more_lost)
		fprintf(stderr, " and %llu more", (unsigned long long)s->more_lost);
	if (s->durable)
		fprintf(stderr, "; the last one that this run has saved is %llu\n",
			(unsigned long long)s->durable);
	else
		fprintf(stderr, "; this run has saved none\n");
}

static void tell_end(const struct mft_trainer *t, enum mft_stop_reason stop, uint64_t began_ns)
{
	struct mft_report_end end = {.why = stop,
				     .iteration = t->progress.iteration,
				     .minutes = (double)(mfs_now_ns() - began_ns) / 60e9};
	struct mfs_buf b = {0};

	gettimeofday(&end.now, NULL);
	mft_report_end(&b, &end);
	if (!b.failed)
		fputs(b.data, stdout);
	mfs_buf_release(&b);
}

void mft_log_end(struct mft_trainer *t, enum mft_stop_reason stop, uint64_t began_ns)
{
	struct mft_loader_stats data;

	if (!t->speaks)
		return;
	mft_terminal_clear(&t->terminal);
	if (t->data[MFS_TRAIN].count) {
		mft_loader_stats(t->data[MFS_TRAIN].list[0], &data);
		printf("data: %llu microbatches, waited for %.3f ms each at the 99th percentile\n",
		       (unsigned long long)data.batches, (double)data.stall_p99_ns / 1e6);
	}
	if (t->config->log_communication)
		mft_log_traffic(t->step_traffic);
	if (t->exposure)
		log_exposure(t);
	if (stop != MFT_STOP_NOT)
		tell_end(t, stop, began_ns);
	fflush(stdout);
}
