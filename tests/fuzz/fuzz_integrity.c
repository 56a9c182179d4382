/* Input: the integrity.json of an iteration that has .metadata and common.pt. */
#define _GNU_SOURCE
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "formats/ckpt/read/integrity.h"

static char dir[256];

static const char *in_dir(const char *name)
{
	static char path[sizeof(dir) + 32];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static void write_file(const char *name, const void *bytes, size_t len)
{
	FILE *f = fopen(in_dir(name), "w");

	fuzz_require(f && fwrite(bytes, 1, len, f) == len && !fclose(f));
}

static void remove_dir(void)
{
	unlink(in_dir("integrity.json"));
	unlink(in_dir("common.pt"));
	unlink(in_dir(".metadata"));
	rmdir(dir);
}

static void make_dir(void)
{
	const char *base = getenv("TMPDIR");

	if (dir[0])
		return;
	snprintf(dir, sizeof(dir), "%s/mcorefs-fuzz-XXXXXX", base ? base : "/tmp");
	fuzz_require(mkdtemp(dir) != NULL);
	atexit(remove_dir);
	write_file("common.pt", "c", 1);
	write_file(".metadata", "m", 1);
}

/* The first of the files that are not what the manifest says. */
static void bad(void *arg, const struct mfs_error *problem)
{
	struct mfs_error *first = arg;

	fuzz_require(problem->code < 0 && problem->msg[0]);
	if (!first->code)
		*first = *problem;
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	struct mfs_error first = {0};
	uint32_t checked = 0;
	int rc;

	make_dir();
	write_file("integrity.json", bytes, len);
	rc = mfs_integrity_check(dir, bad, &first, &checked, err);
	fuzz_require(rc != -ENOENT);
	if (rc)
		return rc;
	/* Both must be named, and anything else is missing. */
	fuzz_require(first.code || checked == 2);
	if (first.code)
		*err = first;
	return first.code;
}

FUZZ_TARGET
