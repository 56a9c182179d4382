#include "fs/gateway/web/loss_curve.h"

#include <math.h>
#include <stdbool.h>

#define WIDTH  600
#define HEIGHT 160
#define LEFT   48 /* room for the numbers left of it */
#define BELOW  20
#define ABOVE  10
#define DRAWN  300 /* points: more are not seen */

struct frame {
	double low, high, begins;
	int64_t first, last;
	uint32_t points;
};

static struct frame frame_of(const struct mfs_curve *c)
{
	struct frame f = {0};

	for (uint32_t i = 0; i < c->count; i++) {
		const struct mfs_curve_point *p = &c->points[i];

		if (!isfinite(p->value))
			continue;
		f.begins = f.points ? f.begins : p->value;
		f.low = f.points ? fmin(f.low, p->value) : p->value;
		f.high = f.points ? fmax(f.high, p->value) : p->value;
		f.first = f.points ? f.first : p->step;
		f.last = p->step;
		f.points++;
	}
	return f;
}

static double x_of(const struct frame *f, int64_t step)
{
	const double span = (double)f->last - (double)f->first;

	return LEFT + (WIDTH - LEFT) * (span > 0 ? ((double)step - (double)f->first) / span : 0);
}

/* Halves, since the difference of two finite numbers may be none. */
static double y_of(const struct frame *f, double value)
{
	const double span = f->high / 2 - f->low / 2;

	return ABOVE +
	       (HEIGHT - ABOVE - BELOW) * (span > 0 ? (f->high / 2 - value / 2) / span : 0.5);
}

static void add_line(struct mfs_buf *b, const struct mfs_curve *c, const struct frame *f)
{
	const uint32_t every = f->points / DRAWN + 1;
	uint32_t n = 0;

	mfs_buf_adds(b, "<polyline points=\"");
	for (uint32_t i = 0; i < c->count; i++) {
		const struct mfs_curve_point *p = &c->points[i];

		if (!isfinite(p->value) || (n++ % every && p->step != f->last))
			continue;
		mfs_buf_printf(b, "%.1f,%.1f ", x_of(f, p->step), y_of(f, p->value));
	}
	mfs_buf_adds(b, "\"/>");
}

void mfs_page_add_curve(struct mfs_buf *b, const struct mfs_curve *c)
{
	const struct frame f = frame_of(c);
	const int floor = HEIGHT - BELOW;

	if (f.points < 2)
		return;
	mfs_buf_printf(b,
		       "<svg class=curve viewBox=\"0 0 %d %d\" role=img aria-label=\"Training loss "
		       "from iteration %lld to %lld: %.4g at first, between %.4g and %.4g\">",
		       WIDTH, HEIGHT, (long long)f.first, (long long)f.last, f.begins, f.low,
		       f.high);
	mfs_buf_printf(b, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>", LEFT, floor, WIDTH,
		       floor);
	add_line(b, c, &f);
	mfs_buf_printf(b,
		       "<text x=\"0\" y=\"%d\">%.4g</text><text x=\"0\" y=\"%d\">%.4g</text>"
		       "<text x=\"%d\" y=\"%d\">%lld</text>"
		       "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%lld</text></svg>\n",
		       ABOVE + 4, f.high, floor, f.low, LEFT, HEIGHT - 4, (long long)f.first, WIDTH,
		       HEIGHT - 4, (long long)f.last);
}
