#include "formats/run/loss_table.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"

/* Megatron and Bridge; our own logs; NeMo; Lightning; the Trainer of transformers; torchtitan. */
static const char *const losses[] = {
	"lm loss",    "lm_loss",    "reduced_train_loss",
	"train_loss", "train/loss", "loss_metrics/global_avg_loss",
	"loss",	      "Loss/train",
};
static const char *const steps[] = {"iteration", "step", "global_step", "iter"};

_Static_assert(MFS_ARRAY_SIZE(losses) == MFS_LOSS_NAMES, "names of losses");

static int find(const char *const *names, size_t count, const char *name, size_t len)
{
	for (size_t i = 0; i < count; i++)
		if (strlen(names[i]) == len && !memcmp(names[i], name, len))
			return (int)i;
	return -1;
}

int mfs_loss_rank(const char *name, size_t len)
{
	return find(losses, MFS_LOSS_NAMES, name, len);
}

/* A cell without blanks and quotes around it. */
struct cell {
	const char *at;
	size_t len;
};

/* The next cell of a line that ends at `end`. *at moves past its comma; NULL: it was the last. */
static struct cell next_cell(const char **at, const char *end)
{
	const char *from = *at, *comma = memchr(from, ',', (size_t)(end - from));
	const char *to = comma ? comma : end;

	*at = comma ? comma + 1 : NULL;
	while (from < to && strchr(" \t\r\"", *from))
		from++;
	while (to > from && strchr(" \t\r\"", to[-1]))
		to--;
	return (struct cell){from, (size_t)(to - from)};
}

/* Columns by their numbers; -1: there is none. */
struct columns {
	int step, loss;
};

static struct columns read_names(const char *at, const char *end)
{
	struct columns c = {-1, -1};
	int best = MFS_LOSS_NAMES;

	for (int i = 0; at; i++) {
		const struct cell name = next_cell(&at, end);
		const int rank = mfs_loss_rank(name.at, name.len);

		if (c.step < 0 && find(steps, MFS_ARRAY_SIZE(steps), name.at, name.len) >= 0)
			c.step = i;
		if (rank >= 0 && rank < best) {
			best = rank;
			c.loss = i;
		}
	}
	return c;
}

/* strtod() takes more than a table has (hexadecimal numbers), but ends within the copy. */
static bool read_number(const struct cell *c, double *ret)
{
	char text[64], *end;

	if (!c->len || c->len >= sizeof(text))
		return false;
	memcpy(text, c->at, c->len);
	text[c->len] = '\0';
	*ret = strtod(text, &end);
	return !*end;
}

static int take_row(const struct columns *c, const char *at, const char *end, struct mfs_curve *ret)
{
	bool has_step = false, has_loss = false;
	double step = 0, loss = 0;

	for (int i = 0; at && i <= (c->step > c->loss ? c->step : c->loss); i++) {
		const struct cell cell = next_cell(&at, end);

		if (i == c->step)
			has_step = read_number(&cell, &step);
		if (i == c->loss)
			has_loss = read_number(&cell, &loss);
	}
	if (!has_step || !has_loss || !(step >= 0 && step < 1e15))
		return 0;
	return mfs_curve_add(ret, (int64_t)step, loss);
}

int mfs_loss_table_read(const char *name, const char *text, size_t len, struct mfs_curve *ret,
			struct mfs_error *err)
{
	const char *at = text, *end = text + len;
	struct columns c = {-1, -1};
	int rc = 0;

	if (memchr(text, 0, len))
		return mfs_fail(err, -EINVAL, "%s: it has a NUL, and is no text", name);
	for (bool first = true; at < end && !rc; first = false) {
		const char *line = memchr(at, '\n', (size_t)(end - at));
		const char *stop = line ? line : end;

		if (first)
			c = read_names(at, stop);
		else
			rc = take_row(&c, at, stop, ret);
		if (first && (c.step < 0 || c.loss < 0))
			break;
		at = line ? line + 1 : end;
	}
	if (rc)
		return mfs_fail_nomem(err);
	if (c.step < 0 || c.loss < 0)
		return mfs_fail(
			err, -EINVAL,
			"%s: its first line names no column of iterations, or none of a loss",
			name);
	return 0;
}
