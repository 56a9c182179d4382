#define _GNU_SOURCE
#include "fs/mount/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/base/error.h"
#include "formats/io/regular.h"
#include "fs/cli/commands.h"
#include "fs/cli/options.h"
#include "fs/mount/command.h"

struct request {
	const char *lists[32]; /* of -o, in the order given */
	unsigned list_count;
	const char *namespace; /* -N: a file of a mount namespace; NULL: this one */
	const char *words[2];  /* SOURCE, MOUNTPOINT */
	int word_count;
	bool fake, sloppy, verbose;
};

static int take_word(struct request *r, const char *word)
{
	if (r->word_count == 2)
		return mfs_usage_error("one argument too many: '%s'", word);
	r->words[r->word_count++] = word;
	return 0;
}

static int take_list(struct request *r, const char *list)
{
	if (r->list_count == MFS_ARRAY_SIZE(r->lists))
		return mfs_usage_error("option '-o' was given more than %u times", r->list_count);
	r->lists[r->list_count++] = list;
	return 0;
}

static int take_letter(struct request *r, int letter)
{
	switch (letter) {
	case 'f':
		r->fake = true;
		return 0;
	case 's':
		r->sloppy = true;
		return 0;
	case 'o':
		return take_list(r, optarg);
	case 'N':
		r->namespace = optarg;
		return 0;
	case 'v':
		r->verbose = true;
		return 0;
	case 'n': /* there is no mtab to write */
	case 't': /* we are one type */
		return 0;
	case 1:
		return take_word(r, optarg);
	case ':':
		return mfs_usage_error("option '-%c' needs a value", optopt);
	default:
		return mfs_usage_error("unknown option '-%c'", optopt);
	}
}

static int read_request(int argc, char **argv, struct request *r)
{
	int letter, rc = 0;

	optind = 0; /* glibc: begin again */
	opterr = 0;
	while (!rc && (letter = getopt(argc, argv, "-:sfnvo:t:N:")) != -1)
		rc = take_letter(r, letter);
	for (; !rc && optind < argc; optind++) /* after "--" */
		rc = take_word(r, argv[optind]);
	if (!rc && r->word_count < 2)
		rc = mfs_usage_error("%s is missing", r->word_count ? "MOUNTPOINT" : "SOURCE");
	return rc;
}

/* mount(8) starts helpers in its own namespace, and -N says in which one the mount is to be.
 * Everything is looked up there from then on: SOURCE, MOUNTPOINT, /dev/fuse. */
static int enter(const char *namespace, struct mfs_error *err)
{
	int fd, rc = mfs_open_regular(AT_FDCWD, namespace, 0, &fd, NULL);

	if (!rc) {
		rc = setns(fd, CLONE_NEWNS) ? -errno : 0;
		close(fd);
	}
	return rc ? mfs_fail(err, rc, "cannot enter the namespace %s: %s", namespace, strerror(-rc))
		  : 0;
}

static int read_options(const struct request *r, struct mfs_options *opt, struct mfs_error *err)
{
	int rc = 0;

	mfs_options_for_mount8(opt, r->sloppy);
	for (unsigned i = 0; i < r->list_count && !rc; i++)
		rc = mfs_options_parse_o(r->lists[i], opt, err);
	opt->source = r->words[0];
	opt->mountpoint = r->words[1];
	return rc;
}

static int mount_it(const struct request *r, struct mfs_options *opt)
{
	struct mfs_error err;

	/* Relative paths of options are those of the directory in which mount(8) was started. */
	if (read_options(r, opt, &err))
		return mfs_usage_error("%s", err.msg);
	if (r->fake && r->verbose)
		printf("mcorefs: %s on %s: the options are right; nothing was mounted (--fake)\n",
		       r->words[0], r->words[1]);
	if (r->fake)
		return MFS_EXIT_OK;
	if (r->namespace && enter(r->namespace, &err))
		return mfs_command_failed("%s", err.msg);
	return mfs_mount(opt);
}

int mfs_helper_exit_of(int code)
{
	if (code == MFS_EXIT_OK)
		return MFS_HELPER_OK;
	return code == MFS_EXIT_USAGE ? MFS_HELPER_USAGE : MFS_HELPER_FAILED;
}

int mfs_helper_main(int argc, char **argv)
{
	struct mfs_options opt = {0};
	struct request r = {0};
	int code;

	mfs_usage_of(NULL);
	code = read_request(argc, argv, &r);
	if (!code)
		code = mount_it(&r, &opt);
	mfs_options_release(&opt);
	return mfs_helper_exit_of(code);
}
