#define _GNU_SOURCE
#include "fs/cli/progress.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "fs/cli/text.h"

#define REDRAW_SECONDS 0.1
#define BAR_COLUMNS    20

static double now(void)
{
	return (double)mfs_now_ns() * 1e-9;
}

void mfs_progress_init(struct mfs_progress *p, FILE *to, uint64_t start, uint64_t total)
{
	*p = (struct mfs_progress){
		.to = to,
		.shown = isatty(fileno(to)),
		.total = total,
		.start = start,
		.began = now(),
	};
}

double mfs_progress_seconds(const struct mfs_progress *p)
{
	return now() - p->began;
}

static void bar(char *text, unsigned filled)
{
	*text = '\0';
	for (unsigned i = 0; i < BAR_COLUMNS; i++)
		strcat(text, i < filled ? "#" : "·");
}

/* Without a total, as for a pipe. */
static void draw_open(const struct mfs_progress *p, const char *label, uint64_t done)
{
	const double seconds = mfs_progress_seconds(p);
	char bytes[MFS_HUMAN], speed[MFS_HUMAN];

	fprintf(p->to, "\r%s  %s  %s/s\033[K", label, mfs_human_bytes(done, bytes),
		mfs_human_bytes(seconds > 0 ? (uint64_t)((double)(done - p->start) / seconds) : 0,
				speed));
	fflush(p->to);
}

static void draw(const struct mfs_progress *p, const char *label, uint64_t done)
{
	double seconds = mfs_progress_seconds(p), part = p->total ? (double)done / p->total : 1;
	double rate = seconds > 0 ? (double)(done - p->start) / seconds : 0;
	char bytes[MFS_HUMAN], total[MFS_HUMAN], speed[MFS_HUMAN], eta[MFS_HUMAN] = "";
	char line[512], blocks[BAR_COLUMNS * 3 + 1];
	/* The bar takes 20 columns, and the numbers at most 50. */
	int room = (int)mfs_columns(p->to) - BAR_COLUMNS - 50;

	bar(blocks, (unsigned)(part * BAR_COLUMNS));
	if (rate > 0)
		mfs_human_seconds((double)(p->total - done) / rate, eta);
	snprintf(line, sizeof(line), "%.*s%s[%s] %3d%%  %s of %s  %s/s  %s", room > 8 ? room : 0,
		 label, room > 8 ? "  " : "", blocks, (int)(part * 100),
		 mfs_human_bytes(done, bytes), mfs_human_bytes(p->total, total),
		 mfs_human_bytes((uint64_t)rate, speed), eta);
	fprintf(p->to, "\r%s\033[K", line);
	fflush(p->to);
}

void mfs_progress_update(struct mfs_progress *p, const char *label, uint64_t done)
{
	double t;

	if (!p->shown)
		return;
	t = now();
	if (t - p->drawn < REDRAW_SECONDS)
		return;
	p->drawn = t;
	if (p->total)
		draw(p, label, done);
	else
		draw_open(p, label, done);
}

void mfs_progress_clear(struct mfs_progress *p)
{
	if (p->shown && p->drawn) {
		fputs("\r\033[K", p->to);
		fflush(p->to);
	}
}
