#include <math.h>
#include <stdio.h>
#include <sys/time.h>
#include <time.h>

#include "formats/base/buf.h"
#include "formats/base/clock.h"
#include "trainer/config/help.h"
#include "trainer/loop/trainer_i.h"

#define GIB ((double)(UINT64_C(1) << 30))

void mfs_log_memory(const struct mfs_trainer *t)
{
	printf("memory: %.3f GiB for %.3f million parameters:", (double)t->memory.total / GIB,
	       (double)t->params->parameters / 1e6);
	for (int i = 0; i < MFS_MEMORY_KINDS; i++)
		if (t->memory.bytes[i])
			printf("%s %s %.3f", i ? "," : "",
			       mfs_memory_kind_name((enum mfs_memory_kind)i),
			       (double)t->memory.bytes[i] / GIB);
	putchar('\n');
}

/* What was accepted without effect; with --log-args, all arguments. */
static void print_arguments(const struct mfs_train_config *c)
{
	struct mfs_buf out = {0};

	mfs_help_notes(c, &out);
	if (c->log_args)
		mfs_help_arguments(c, &out);
	if (!out.failed)
		fwrite(out.data, 1, out.len, stdout);
	mfs_buf_release(&out);
}

void mfs_log_begin(struct mfs_trainer *t)
{
	struct mfk_device_info info;
	struct mfs_loader_stats data;

	print_arguments(t->config);
	t->backend->device->info(t->device, &info);
	printf("device: %s, %s, %.1f GiB\n", t->backend->name, info.name,
	       (double)info.memory / GIB);
	mfs_log_memory(t);
	if (t->data[MFS_TRAIN]) {
		mfs_loader_stats(t->data[MFS_TRAIN], &data);
		printf("data: read by %s%s%s\n", data.engine, data.why ? ": " : "",
		       data.why ? data.why : "");
	}
	fflush(stdout);
	t->window = (struct mfs_log_window){.began_ns = mfs_now_ns()};
}

static void print_time(void)
{
	struct timeval now;
	struct tm tm;
	char text[32];

	gettimeofday(&now, NULL);
	localtime_r(&now.tv_sec, &tm);
	strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm);
	printf(" [%s.%06ld]", text, (long)now.tv_usec);
}

/* training.py: training_log. The learning rate is that of the next update, in fp32 as the optimizer
 * has it. */
static void print_window(struct mfs_trainer *t, const struct mfs_step *step)
{
	const struct mfs_log_window *w = &t->window;
	const struct mfs_progress *p = &t->progress;
	const uint64_t all = w->steps + w->skipped;
	const double ms = (double)(mfs_now_ns() - w->began_ns) / 1e6 / (double)(all ? all : 1);

	print_time();
	printf(" iteration %8llu/%8llu | consumed samples: %12llu | "
	       "elapsed time per iteration (ms): %.1f | learning rate: %.6E | "
	       "global batch size: %5llu | ",
	       (unsigned long long)p->iteration, (unsigned long long)t->iterations,
	       (unsigned long long)p->consumed_train_samples, ms,
	       (double)(float)mfs_schedule_lr(&p->schedule), (unsigned long long)step->batch);
	if (w->steps)
		printf("lm loss: %.6E | ", w->loss / (double)w->steps);
	printf("loss scale: %.1f | ", p->scaler.scale);
	if (!step->update.skipped)
		printf("grad norm: %.3f | ", step->update.grad_norm);
	printf("number of skipped iterations: %3llu | number of nan iterations: %3llu |\n",
	       (unsigned long long)w->skipped, (unsigned long long)w->not_finite);
	fflush(stdout);
}

void mfs_log_step(struct mfs_trainer *t, const struct mfs_step *step)
{
	struct mfs_log_window *w = &t->window;
	const int64_t interval = t->config->log_interval;

	if (step->update.skipped) {
		w->skipped++;
	} else {
		w->loss += step->loss;
		w->steps++;
	}
	if (!isfinite(step->loss))
		w->not_finite++;
	if (interval <= 0 || t->progress.iteration % (uint64_t)interval)
		return;
	print_window(t, step);
	*w = (struct mfs_log_window){.began_ns = mfs_now_ns()};
}

void mfs_log_evaluation(struct mfs_trainer *t, enum mfs_split split, double loss)
{
	printf(" %s loss at iteration %llu | lm loss value: %.6E | lm loss PPL: %.6E |\n",
	       split == MFS_TEST ? "test" : "validation", (unsigned long long)t->progress.iteration,
	       loss, exp(fmin(20, loss)));
	fflush(stdout);
}

void mfs_log_save(struct mfs_trainer *t, const struct mfs_save_result *s)
{
	const double seconds = (double)s->persist_ns / 1e9;

	if (s->failed) {
		fprintf(stderr,
			"mcorefs-train: the checkpoint of iteration %llu was not saved: %s; "
			"training goes on\n",
			(unsigned long long)s->iteration, s->why);
		return;
	}
	printf("  successfully saved checkpoint from iteration %7llu to %s [ t 1/1, p 1/1 ]\n",
	       (unsigned long long)s->iteration, t->config->save);
	printf("  saved %.3f GiB in %.3f s (%.2f GiB/s, %s); it held training back for %.1f ms\n",
	       (double)s->bytes / GIB, seconds, (double)s->bytes / GIB / (seconds ? seconds : 1),
	       s->engine, (double)s->stall_ns / 1e6);
	fflush(stdout);
}

void mfs_log_end(struct mfs_trainer *t, const char *stop)
{
	struct mfs_loader_stats data;

	if (t->data[MFS_TRAIN]) {
		mfs_loader_stats(t->data[MFS_TRAIN], &data);
		printf("data: %llu microbatches, waited for %.3f ms each at the 99th percentile\n",
		       (unsigned long long)data.batches, (double)data.stall_p99_ns / 1e6);
	}
	if (stop)
		printf("exiting at iteration %llu: %s\n", (unsigned long long)t->progress.iteration,
		       stop);
	fflush(stdout);
}
