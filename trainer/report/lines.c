#include "trainer/report/lines.h"

#include <math.h>
#include <string.h>
#include <time.h>

static void add_clock(struct mfs_buf *b, struct timeval now)
{
	struct tm tm;
	char text[32];

	localtime_r(&now.tv_sec, &tm);
	strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm);
	mfs_buf_printf(b, "%s.%06ld", text, (long)now.tv_usec);
}

static void add_time(struct mfs_buf *b, struct timeval now)
{
	mfs_buf_adds(b, " [");
	add_clock(b, now);
	mfs_buf_adds(b, "]");
}

/* Python's NaN has no sign. */
static double plain(double value)
{
	return isnan(value) ? (double)NAN : value;
}

static bool is_known(double value)
{
	return value != MFS_ABSENT;
}

void mft_report_iteration(struct mfs_buf *b, const struct mft_report_iteration *r)
{
	add_time(b, r->now);
	mfs_buf_printf(b, " iteration %8llu/%8llu | consumed samples: %12llu |",
		       (unsigned long long)r->iteration, (unsigned long long)r->iterations,
		       (unsigned long long)r->consumed_samples);
	if (r->skipped_samples)
		mfs_buf_printf(b, " skipped samples: %12llu |",
			       (unsigned long long)r->skipped_samples);
	mfs_buf_printf(b, " elapsed time per iteration (ms): %.1f |", r->seconds * 1000);
	if (is_known(r->throughput))
		mfs_buf_printf(b, " throughput per GPU (TFLOP/s/GPU): %.1f |", r->throughput);
	if (is_known(r->sol))
		mfs_buf_printf(b, " sol: %.1f%% |", r->sol * 100);
	mfs_buf_printf(b, " learning rate: %.6E | global batch size: %5llu |", r->learning_rate,
		       (unsigned long long)r->batch);
	for (unsigned i = 0; i < r->loss_count; i++)
		if (r->losses[i].value >= 0 || (r->losses[i].has_sign && r->losses[i].value < 0))
			mfs_buf_printf(b, " %s: %.6E |", r->losses[i].name, r->losses[i].value);
	mfs_buf_printf(b, " loss scale: %.1f |", r->loss_scale);
	if (is_known(r->grad_norm))
		mfs_buf_printf(b, " grad norm: %.3f |", plain(r->grad_norm));
	if (is_known(r->zeros))
		mfs_buf_printf(b, " num zeros: %.1f |", r->zeros);
	if (is_known(r->params_norm))
		mfs_buf_printf(b, " params norm: %.3f |", plain(r->params_norm));
	mfs_buf_printf(b,
		       " number of skipped iterations: %3llu | number of nan iterations: %3llu |\n",
		       (unsigned long long)r->skipped, (unsigned long long)r->not_finite);
}

double mft_report_perplexity(double loss)
{
	return exp(fmin(20, loss));
}

static void add_dashes(struct mfs_buf *b, size_t count)
{
	while (count--)
		mfs_buf_add(b, "-", 1);
	mfs_buf_add(b, "\n", 1);
}

void mft_report_evaluation(struct mfs_buf *b, const char *set, const char *at,
			   const struct mft_report_loss *losses, unsigned count)
{
	struct mfs_buf line = {0};

	mfs_buf_printf(&line, " validation%s loss at %s | ", set, at);
	for (unsigned i = 0; i < count; i++)
		mfs_buf_printf(&line, "%s value: %.6E | %s PPL: %.6E | ", losses[i].name,
			       plain(losses[i].value), losses[i].name,
			       plain(mft_report_perplexity(losses[i].value)));
	add_dashes(b, line.len + 1);
	mfs_buf_add(b, line.data, line.len);
	mfs_buf_add(b, "\n", 1);
	add_dashes(b, line.len + 1);
	b->failed |= line.failed;
	mfs_buf_release(&line);
}

void mft_report_saved(struct mfs_buf *b, const struct mft_report_save *s)
{
	mfs_buf_adds(b, " ");
	add_time(b, s->now);
	mfs_buf_printf(b,
		       " successfully saved checkpoint from iteration %7llu to %s "
		       "[ t 1/%u, gtp_remat 1/1, p 1/%u ]\n",
		       (unsigned long long)s->iteration, s->dir, s->tp, s->pp);
}

void mft_report_end(struct mfs_buf *b, const struct mft_report_end *e)
{
	static const char *const reasons[] = {NULL, "a signal asked for it",
					      "--exit-duration-in-mins is over",
					      "--exit-interval has come"};
	const unsigned long long iteration = e->iteration;

	mfs_buf_adds(b, "[exiting program ");
	if (e->why == MFT_STOP_SIGNAL)
		mfs_buf_adds(b, "after receiving SIGTERM.");
	else if (e->why == MFT_STOP_MINUTES)
		mfs_buf_printf(b, "after %g minutes", e->minutes);
	else
		mfs_buf_printf(b, "at iteration %llu", iteration);
	mfs_buf_adds(b, "] datetime: ");
	add_clock(b, e->now);
	mfs_buf_printf(b, " \nexiting at iteration %llu: %s\n", iteration, reasons[e->why]);
}
