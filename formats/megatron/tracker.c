#include "formats/megatron/tracker.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "formats/io/fileset.h"
#include "formats/io/regular.h"
#include "formats/torch/torch_file.h"

#define MAX_TRAIN_STATE (1u << 20) /* bytes; it has eight numbers */

/* Reads decimal digits; false if there is anything else. */
static bool parse_number(const char *text, int64_t *ret)
{
	int64_t n = 0;

	if (!*text)
		return false;
	for (; *text; text++) {
		if (!isdigit((unsigned char)*text) || __builtin_mul_overflow(n, 10, &n) ||
		    __builtin_add_overflow(n, *text - '0', &n))
			return false;
	}
	*ret = n;
	return true;
}

bool mfs_iteration_number(const char *name, int64_t *ret)
{
	char again[32];
	int64_t n;

	if (!strcmp(name, "release")) {
		*ret = MFS_RELEASE;
		return true;
	}
	if (strncmp(name, "iter_", 5) || !parse_number(name + 5, &n))
		return false;
	snprintf(again, sizeof(again), "iter_%07lld", (long long)n);
	if (strcmp(again, name))
		return false;
	*ret = n;
	return true;
}

#define VERL "global_step_"

bool mfs_iteration_number_of_any(const char *name, int64_t *ret)
{
	const size_t len = strlen(VERL);

	if (mfs_iteration_number(name, ret))
		return true;
	return !strncmp(name, VERL, len) && (name[len] != '0' || !name[len + 1]) &&
	       parse_number(name + len, ret);
}

/* Drops white space around the text, and makes it printable. */
static void tidy(char *text)
{
	size_t start = strspn(text, " \t\r\n"), len = strlen(text + start);

	memmove(text, text + start, len + 1);
	while (len && isspace((unsigned char)text[len - 1]))
		text[--len] = '\0';
	for (size_t i = 0; i < len; i++)
		if (!isprint((unsigned char)text[i]))
			text[i] = '?';
}

bool mfs_tracker_iteration(double number, int64_t *ret)
{
	if (!(number >= 0 && number < 1e15) || number != floor(number))
		return false;
	*ret = (int64_t)number;
	return true;
}

static bool read_step(struct mfs_fileset *set, uint32_t file, int64_t *ret)
{
	struct mfs_source src = mfs_source_file(set, file);
	struct mfs_torch_file f;
	struct mfs_error why;
	double step = -1;

	if (src.size > MAX_TRAIN_STATE || mfs_torch_file_open(&src, &f, &why))
		return false;
	if (mfs_torch_number(&f, mfs_value_get(f.doc, mfs_pickle_root(f.doc), "step"), &step, &why))
		step = -1;
	mfs_torch_file_release(&f);
	return mfs_tracker_iteration(step, ret);
}

/* What cannot be read may be half written: what was there before still counts. */
static void read_train_state(const char *source, struct mfs_tracker *t)
{
	struct mfs_tracker now = {.kind = MFS_TRACKER_NUMBER};
	struct mfs_fileset *set = NULL;
	struct mfs_error why;
	uint32_t file;
	int rc = mfs_fileset_new(source, &set, &why);

	if (!rc)
		rc = mfs_fileset_add(set, MFS_TRAIN_STATE_FILE, &file, &why);
	if (rc == -ENOENT) {
		*t = (struct mfs_tracker){.kind = MFS_TRACKER_NONE};
	} else if (!rc && read_step(set, file, &now.number)) {
		snprintf(now.text, sizeof(now.text), "%lld", (long long)now.number);
		*t = now;
	}
	mfs_fileset_free(set);
}

/* An empty tracker is being written: opening it for writing empties it. So its last text still
 * counts. */
void mfs_tracker_read(const char *source, struct mfs_tracker *t)
{
	struct mfs_tracker now = {.kind = MFS_TRACKER_BAD};
	char path[PATH_MAX];
	ssize_t n;
	int fd = -1, rc;

	snprintf(path, sizeof(path), "%s/%s", source, MFS_TRACKER_FILE);
	rc = mfs_open_regular(AT_FDCWD, path, 0, &fd, NULL);
	if (rc == -ENOENT) {
		read_train_state(source, t);
		return;
	}
	if (rc == -EINVAL) {
		now.no_file = true;
		*t = now;
		return;
	}
	n = rc ? 0 : read(fd, now.text, sizeof(now.text) - 1);
	now.text[n > 0 ? n : 0] = '\0';
	if (!rc)
		close(fd);
	tidy(now.text);
	if (!now.text[0] && t->kind != MFS_TRACKER_NONE)
		return;
	if (!strcmp(now.text, "release")) {
		now.kind = MFS_TRACKER_RELEASE;
		now.number = MFS_RELEASE;
	} else if (parse_number(now.text, &now.number)) {
		now.kind = MFS_TRACKER_NUMBER;
	}
	*t = now;
}

/* Megatron writes the tracker after the save, so a newer iteration may still be incomplete. */
const char *mfs_tracker_holds(const struct mfs_tracker *t, int64_t number, char *text, size_t size)
{
	if (t->kind != MFS_TRACKER_NUMBER || number <= t->number)
		return NULL;
	snprintf(text, size, "newer than the tracker (iteration %lld): its save has not finished",
		 (long long)t->number);
	return text;
}
