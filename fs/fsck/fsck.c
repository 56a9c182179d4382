#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/cli/cmdline.h"
#include "fs/cli/commands.h"
#include "fs/cli/text.h"
#include "fs/fsck/command.h"
#include "fs/fsck/scan.h"
#include "fs/fsck/verdict.h"

#define MAX_DEPTH    32
#define MAX_REPORTED 64 /* different imports of a file; more are only counted */

/* picklescan's exit codes. */
enum { FSCK_CLEAN = 0, FSCK_DANGEROUS = 1, FSCK_FAILED = 2 };

struct fsck {
	bool strict, all;
	uint32_t files, pickles, dangerous, unknown, failed;
};

/* What one file imports. */
struct file {
	struct fsck *all;
	const char *path;
	uint64_t seen[MAX_REPORTED]; /* hashes of names that were reported */
	uint32_t count;
	bool dangerous, unknown;
};

/* ---- one file ---- */

static bool is_new(struct file *f, const char *text)
{
	uint64_t hash = 0xcbf29ce484222325ull;

	while (*text)
		hash = (hash ^ (uint8_t)*text++) * 0x100000001b3ull;
	for (uint32_t i = 0; i < f->count; i++)
		if (f->seen[i] == hash)
			return false;
	if (f->count == MAX_REPORTED)
		return false;
	f->seen[f->count++] = hash;
	return true;
}

/* A name of len bytes. */
static const char *shown(const char *s, size_t len, char text[MFS_SHOWN])
{
	char name[200];

	snprintf(name, sizeof(name), "%.*s", (int)(len < sizeof(name) ? len : sizeof(name) - 1), s);
	return mfs_shown(name, text);
}

static void found(void *arg, const char *module, size_t module_len, const char *name,
		  size_t name_len)
{
	static const char *const words[] = {[MFS_HARMLESS] = "harmless",
					    [MFS_UNKNOWN] = "unknown",
					    [MFS_DANGEROUS] = "DANGEROUS"};
	const enum mfs_verdict verdict = mfs_verdict(module, module_len, name, name_len);
	char text[2][MFS_SHOWN], line[2 * MFS_SHOWN];
	struct file *f = arg;

	f->dangerous |= verdict == MFS_DANGEROUS;
	f->unknown |= verdict == MFS_UNKNOWN;
	if (verdict == MFS_HARMLESS && !f->all->all)
		return;
	if (module)
		snprintf(line, sizeof(line), "%-9s imports %s %s", words[verdict],
			 shown(module, module_len, text[0]), shown(name, name_len, text[1]));
	else
		snprintf(line, sizeof(line), "%-9s imports something that it puts together",
			 words[verdict]);
	if (is_new(f, line))
		printf("%s: %s\n", mfs_shown(f->path, text[0]), line);
}

static void check_file(struct fsck *k, int dirfd, const char *name, const char *path)
{
	struct file f = {.all = k, .path = path};
	struct mfs_error err;
	uint32_t pickles = 0;
	int rc = mfs_scan_file(dirfd, name, found, &f, &pickles, &err);

	k->files++;
	k->pickles += pickles;
	k->dangerous += f.dangerous || (k->strict && f.unknown);
	k->unknown += f.unknown;
	if (!rc)
		return;
	k->failed++;
	mfs_command_failed("%s: %s", path, err.msg);
}

/* ---- directories ---- */

static void failed(struct fsck *k, const char *path, int number)
{
	k->failed++;
	mfs_command_failed("%s: %s", path, strerror(number));
}

static void check_dir(struct fsck *k, int fd, const char *path, unsigned depth);

static void check_entry(struct fsck *k, int dirfd, const char *name, const char *path,
			unsigned depth)
{
	struct stat st;
	int fd;

	/* What a link leads to is somebody else's, unless it is a file: HuggingFace's cache has
	 * links to files. */
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) ||
	    (S_ISLNK(st.st_mode) && fstatat(dirfd, name, &st, 0)))
		return failed(k, path, errno);
	if (S_ISREG(st.st_mode))
		return check_file(k, dirfd, name, path);
	if (!S_ISDIR(st.st_mode))
		return;
	if (depth == MAX_DEPTH)
		return failed(k, path, ELOOP);
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0)
		check_dir(k, fd, path, depth + 1);
	else if (errno != ELOOP && errno != ENOTDIR)
		failed(k, path, errno);
}

/* Takes fd over. */
static void check_dir(struct fsck *k, int fd, const char *path, unsigned depth)
{
	DIR *dir = fdopendir(fd);
	const struct dirent *entry;

	if (!dir)
		return failed(k, path, errno);
	while ((errno = 0, entry = readdir(dir))) {
		char *inner;

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (asprintf(&inner, "%s/%s", path, entry->d_name) < 0) {
			failed(k, path, ENOMEM);
			break;
		}
		check_entry(k, dirfd(dir), entry->d_name, inner, depth);
		free(inner);
	}
	if (!entry && errno)
		failed(k, path, errno);
	closedir(dir);
}

/* What a person names may be a link, and must be there to be scanned. */
static void check_named(struct fsck *k, const char *path)
{
	struct stat st;
	int fd;

	if (stat(path, &st))
		return failed(k, path, errno);
	if (S_ISREG(st.st_mode))
		return check_file(k, AT_FDCWD, path, path);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return failed(k, path, errno);
	check_dir(k, fd, path, 1);
}

/* ---- the command ---- */

static int conclude(const struct fsck *k)
{
	printf("%u files, %u pickles: %u dangerous, %u with unknown imports, %u that could not be "
	       "scanned\n",
	       k->files, k->pickles, k->dangerous, k->unknown, k->failed);
	return k->failed ? FSCK_FAILED : k->dangerous ? FSCK_DANGEROUS : FSCK_CLEAN;
}

int mfs_cmd_fsck(int argc, char **argv)
{
	struct fsck k = {0};
	struct mfs_cmdline line = {
		.usage = "fsck PATH [--strict] [--globals]",
		.help = "Looks for pickles in a file or in all files of a directory (torch.save,\n"
			"torch_dist, .metadata, ZIP and tar archives, gzip, streams of\n"
			"pickles), and says what torch.load(), pickle.load() or numpy.load()\n"
			"would import. Nothing is executed.\n"
			"\n"
			"  --strict   what is unknown counts as dangerous\n"
			"  --globals  lists what is harmless, too\n"
			"\n"
			"Exit status, as picklescan's: 0 clean, 1 something dangerous,\n"
			"2 a file could not be scanned.\n",
		.min = 1,
		.max = 1,
		.switches = {{"strict", &k.strict}, {"globals", &k.all}},
	};
	int exit_code;

	if (mfs_cmdline_parse(&line, argc, argv, &exit_code)) {
		check_named(&k, line.arguments[0]);
		exit_code = conclude(&k);
	}
	return mfs_cmdline_end(&line, exit_code);
}
