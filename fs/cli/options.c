#define _GNU_SOURCE
#include "fs/cli/options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "formats/base/nearest.h"
#include "fs/cli/option_rows.h"

void mfs_fuse_list_add(struct mfs_buf *list, const char *name, const char *value)
{
	mfs_buf_printf(list, "%s%s", list->len ? "," : "", name);
	if (!value)
		return;
	mfs_buf_adds(list, "=");
	for (const char *p = value; *p; p++) {
		if (*p == ',' || *p == '\\')
			mfs_buf_adds(list, "\\");
		mfs_buf_add(list, p, 1);
	}
}

/* True if name is the rest of a value like "99,1,0" that a comma has cut. rest: the list after
 * name. */
static bool was_split(const struct mfs_options *opt, const char *before, const char *name,
		      const char *rest, struct mfs_error *err)
{
	char numbers[128];
	size_t len;

	if (!before || strcmp(before, "split") || !opt->data.split ||
	    name[strspn(name, "0123456789.")])
		return false;
	len = strspn(rest, "0123456789.,");
	if (rest[len]) /* another option follows: stop at the comma */
		while (len && rest[--len] != ',')
			;
	snprintf(numbers, sizeof(numbers), "%s/%s%s%.*s", opt->data.split, name, len ? "/" : "",
		 (int)len, rest);
	for (char *p = numbers; *p; p++)
		if (*p == ',')
			*p = '/';
	mfs_error_set(err, -EINVAL, "a comma ends an option: use slashes, split=%s", numbers);
	return true;
}

static int unknown_option(const char *name, struct mfs_error *err)
{
	struct mfs_nearest near = {.word = name};
	char hint[MFS_NEAREST_HINT];

	for (size_t i = 0; i < mfs_option_row_count; i++)
		mfs_nearest_try(&near, mfs_option_rows[i].name);
	return mfs_fail(err, -EINVAL, "unknown option '-o %s'%s", name,
			mfs_nearest_hint(&near, "-o ", hint));
}

static int apply_option(struct mfs_options *opt, char *name, struct mfs_error *err)
{
	char *value = strchr(name, '=');
	const struct mfs_option_row *row;

	if (value)
		*value++ = '\0';
	if (!strncasecmp(name, "x-", 2))
		return 0; /* for systemd, gvfs, udisks */
	row = mfs_option_find(name);
	if (!row)
		return opt->sloppy ? 0 : unknown_option(name, err);
	return mfs_option_apply(opt, row, value, err);
}

/* Cuts the next option off *rest, in place. A backslash quotes the next character. */
static char *next_option(char **rest)
{
	char *start = *rest, *to = start, *from = start;

	for (; *from && *from != ','; from++) {
		if (*from == '\\' && from[1])
			from++;
		*to++ = *from;
	}
	*rest = *from ? from + 1 : from;
	*to = '\0';
	return start;
}

int mfs_options_parse_o(const char *list, struct mfs_options *opt, struct mfs_error *err)
{
	char *copy = strdup(list), *rest = copy;
	const char *before = NULL; /* the option before this one */
	int rc = 0;

	if (!copy)
		return mfs_fail_nomem(err);
	/* the end of a line of a file that was written on Windows */
	copy[strcspn(copy, "\r\n")] = '\0';
	opt->view.data = &opt->data;
	while (!rc && *rest) {
		char *name = next_option(&rest);

		if (*name && was_split(opt, before, name, rest, err))
			rc = -EINVAL;
		else if (*name)
			rc = apply_option(opt, name, err); /* it cuts the value off name */
		before = name;
	}
	free(copy);
	if (!rc && opt->rw_given && !opt->data.cache && !opt->remount && !opt->mount8)
		return mfs_fail(err, -EROFS,
				"option 'rw' is refused: a mount of mcorefs is read-only without "
				"'dataset_cache'");
	return rc;
}

void mfs_options_for_mount8(struct mfs_options *opt, bool sloppy)
{
	opt->mount8 = true;
	opt->view.may_be_empty = true;
	opt->sloppy = sloppy;
}

static int unknown_letter(char **argv, struct mfs_error *err)
{
	if (optopt)
		return mfs_fail(err, -EINVAL, "unknown option '-%c'", optopt);
	return mfs_fail(err, -EINVAL, "unknown option '%s'", argv[optind - 1]);
}

static int parse_letter(int letter, struct mfs_options *opt, char **argv, struct mfs_error *err)
{
	switch (letter) {
	case 'o':
		return mfs_options_parse_o(optarg, opt, err);
	case 'd':
		opt->debug = true;
		opt->foreground = true;
		return 0;
	case 'f':
		opt->foreground = true;
		return 0;
	case 's':
		opt->single_thread = true;
		return 0;
	case ':':
		return mfs_fail(err, -EINVAL, "option '-%c' needs a value", optopt);
	default:
		return unknown_letter(argv, err);
	}
}

int mfs_options_parse_mount(int argc, char **argv, struct mfs_options *opt, struct mfs_error *err)
{
	static const struct option no_long[] = {{0}};
	int letter, rc;

	optind = 0; /* glibc: begin again */
	while ((letter = getopt_long(argc, argv, ":o:fds", no_long, NULL)) != -1) {
		rc = parse_letter(letter, opt, argv, err);
		if (rc)
			return rc;
	}
	if (argc - optind > 2)
		return mfs_fail(err, -EINVAL, "one argument too many: '%s'", argv[optind + 2]);
	if (argc - optind < 2)
		return mfs_fail(err, -EINVAL, "%s is missing",
				argc - optind ? "MOUNTPOINT" : "SOURCE");
	opt->view.may_be_empty = true;
	opt->source = argv[optind];
	opt->mountpoint = argv[optind + 1];
	return 0;
}

void mfs_options_release(struct mfs_options *opt)
{
	mfs_option_texts_free(opt);
	mfs_buf_release(&opt->settings);
	mfs_buf_release(&opt->fuse);
	memset(opt, 0, sizeof(*opt));
}
