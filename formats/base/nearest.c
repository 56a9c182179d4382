#include "formats/base/nearest.h"

#include <stdio.h>
#include <string.h>

#define LONGEST 40 /* longest name, bytes */

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* Optimal string alignment. Row i of the table has the costs of turning the first i letters of a
 * into the first letters of b. */
static unsigned distance(const char *a, const char *b)
{
	unsigned rows[3][LONGEST + 1], *before = rows[0], *above = rows[1], *row = rows[2], *spare;
	const size_t len = strlen(b);

	for (size_t k = 0; k <= len; k++)
		above[k] = (unsigned)k;
	for (size_t i = 1; a[i - 1]; i++) {
		row[0] = (unsigned)i;
		for (size_t k = 1; k <= len; k++) {
			row[k] = least(least(above[k], row[k - 1]) + 1,
				       above[k - 1] + (a[i - 1] != b[k - 1]));
			if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
				row[k] = least(row[k], before[k - 2] + 1);
		}
		spare = before;
		before = above;
		above = row;
		row = spare;
	}
	return above[len];
}

void mfs_nearest_try(struct mfs_nearest *n, const char *name)
{
	const size_t len = strlen(n->word);
	unsigned d;

	if (!len || len > LONGEST || strlen(name) > LONGEST)
		return;
	d = distance(n->word, name);
	if (d > (len < 6 ? 1 : len / 3) || (n->name && d >= n->distance))
		return;
	n->name = name;
	n->distance = d;
}

const char *mfs_nearest_hint(const struct mfs_nearest *n, const char *prefix,
			     char text[MFS_NEAREST_HINT])
{
	*text = '\0';
	if (n->name)
		snprintf(text, MFS_NEAREST_HINT, "; did you mean '%s%s'?", prefix, n->name);
	return text;
}
