#include "fs/cli/cmdline.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/grow.h"
#include "formats/base/nearest.h"
#include "fs/cli/commands.h"
#include "fs/data/data_kinds.h"
#include "fs/view/kind.h"

/* Values of long options are larger than any character: first switches, then options with a
 * value. */
#define LONG_BASE   256
#define VALUED_BASE (LONG_BASE + MFS_CMDLINE_SWITCHES)

static bool stop(int *ret_exit, int code)
{
	*ret_exit = code;
	return false;
}

/* The number of the switch with this letter; -1: none. */
static int letter_switch(const struct mfs_cmdline *c, int letter)
{
	const char *at = c->letters && letter > 0 ? strchr(c->letters, letter) : NULL;

	return at ? (int)(at - c->letters) : -1;
}

/* option: its spelling on the command line, "-n" or "--step". */
static bool take_number(const char *command, const char *option, uint64_t *ret, int *ret_exit)
{
	unsigned long long n;
	char *end;

	errno = 0;
	n = strtoull(optarg, &end, 10);
	if (*optarg < '0' || *optarg > '9' || *end || errno || n > INT64_MAX)
		return stop(ret_exit, mfs_usage_error("%s: option '%s' takes a number, not '%s'",
						      command, option, optarg));
	*ret = n;
	return true;
}

static bool take_letter_number(struct mfs_cmdline *c, char **argv, int *ret_exit)
{
	const char option[] = {'-', c->number_letter, '\0'};

	return take_number(argv[0], option, c->number, ret_exit);
}

int mfs_words_add(struct mfs_word_list *list, const char *word)
{
	if (mfs_grow(&list->at, list->count))
		return -ENOMEM;
	list->at[list->count++] = word;
	return 0;
}

static bool add_word(struct mfs_word_list *list, const char *word, int *ret_exit)
{
	return !mfs_words_add(list, word) || stop(ret_exit, mfs_command_failed("out of memory"));
}

/* getopt_long() goes on after the words that are taken here. */
static bool take_list(struct mfs_word_list *list, char **argv, int *ret_exit)
{
	bool taken = add_word(list, optarg, ret_exit);

	while (taken && argv[optind] && *argv[optind] != '-')
		taken = add_word(list, argv[optind++], ret_exit);
	return taken;
}

static bool take_valued(const struct mfs_valued *v, char **argv, int *ret_exit)
{
	char option[64];

	if (v->kind == MFS_VALUE_EACH)
		return add_word(v->value, optarg, ret_exit);
	if (v->kind == MFS_VALUE_LIST)
		return take_list(v->value, argv, ret_exit);

	if (v->kind == MFS_VALUE_TEXT) {
		*(const char **)v->value = optarg;
		return true;
	}
	if (v->kind == MFS_VALUE_WORDS) {
		struct mfs_buf *words = v->value;

		mfs_buf_printf(words, "%s%s", words->len ? " " : "", optarg);
		return true;
	}
	snprintf(option, sizeof(option), "--%s", v->name);
	return take_number(argv[0], option, v->value, ret_exit);
}

static void complain_unknown(const struct mfs_cmdline *c, char **argv)
{
	const char *word = argv[optind - 1];
	struct mfs_nearest near = {.word = word + strspn(word, "-")};
	char hint[MFS_NEAREST_HINT];

	if (optopt && optopt < LONG_BASE) {
		mfs_usage_error("%s: unknown option '-%c'", argv[0], optopt);
		return;
	}
	for (int i = 0; i < MFS_CMDLINE_SWITCHES && c->switches[i].name; i++)
		mfs_nearest_try(&near, c->switches[i].name);
	for (int i = 0; i < MFS_CMDLINE_VALUED && c->valued[i].name; i++)
		mfs_nearest_try(&near, c->valued[i].name);
	mfs_usage_error("%s: unknown option '%s'%s", argv[0], word,
			mfs_nearest_hint(&near, "--", hint));
}

#define NAME_WIDTH 29 /* columns of the longest name of a view */

static void print_view_help(const struct mfs_view_kind *kind)
{
	char name[NAME_WIDTH + 1];
	const char *line = kind->help;

	snprintf(name, sizeof(name), "%s%s%s%s", kind->of & MFS_VIEW_OF_DATA ? "data/NAME/" : "",
		 kind->name, kind->spec ? "/" : "", kind->spec ? kind->spec : "");
	printf("  %-*s", NAME_WIDTH, name);
	for (size_t len; len = strcspn(line, "\n"), line[len]; line += len + 1)
		printf(" %.*s\n  %*s", (int)len, line, NAME_WIDTH, "");
	printf(" %s\n", line);
}

static void print_views_help(const struct mfs_view_table *table)
{
	for (unsigned i = 0; i < table->count; i++)
		print_view_help(table->kinds[i]);
}

static void print_help(const struct mfs_cmdline *c)
{
	printf("usage: mcorefs %s\n\n%s", c->usage, c->help);
	if (c->help_views) {
		printf("\nVIEW is of the latest iteration, or of another with its name in front "
		       "(iter_0000040/hf):\n");
		print_views_help(&mfs_ckpt_views);
		print_views_help(&mfs_data_views);
	}
	if (c->help_end)
		printf("\n%s", c->help_end);
}

/* True if parsing goes on. */
static bool take_option(struct mfs_cmdline *c, int opt, char **argv, int *ret_exit)
{
	struct mfs_error err;

	switch (opt) {
	case 'o':
		if (c->o_list)
			mfs_buf_printf(c->o_list, "%s%s", c->o_list->len ? "," : "", optarg);
		if (!mfs_options_parse_o(optarg, &c->options, &err))
			return true;
		return stop(ret_exit, mfs_usage_error("%s", err.msg));
	case 'h':
		print_help(c);
		return stop(ret_exit, MFS_EXIT_OK);
	case ':':
		return stop(ret_exit,
			    mfs_usage_error("option '%s' needs a value", argv[optind - 1]));
	case '?':
		complain_unknown(c, argv);
		return stop(ret_exit, MFS_EXIT_USAGE);
	default:
		if (c->number && opt == c->number_letter)
			return take_letter_number(c, argv, ret_exit);
		if (opt >= VALUED_BASE)
			return take_valued(&c->valued[opt - VALUED_BASE], argv, ret_exit);
		if (opt < LONG_BASE)
			opt = LONG_BASE + letter_switch(c, opt);
		*c->switches[opt - LONG_BASE].value = true;
		return true;
	}
}

static bool take_arguments(struct mfs_cmdline *c, int argc, char **argv, int *ret_exit)
{
	int count = argc - optind;

	if (count < c->min)
		return stop(ret_exit,
			    mfs_usage_error("%s: expected mcorefs %s", argv[0], c->usage));
	for (int i = c->max; i < count && c->rest; i++)
		if (!add_word(c->rest, argv[optind + i], ret_exit))
			return false;
	if (count > c->max && !c->rest)
		return stop(ret_exit, mfs_usage_error("%s: unexpected argument '%s'", argv[0],
						      argv[optind + c->max]));
	for (int i = 0; i < count && i < c->max; i++)
		c->arguments[i] = argv[optind + i];
	return true;
}

/* Entries for getopt_long(), with an empty one at the end. */
#define LONGS (MFS_CMDLINE_SWITCHES + MFS_CMDLINE_VALUED + 2)

static void list_longs(const struct mfs_cmdline *c, struct option longs[LONGS])
{
	unsigned n = 0;

	longs[n++] = (struct option){"help", no_argument, NULL, 'h'};
	for (int i = 0; i < MFS_CMDLINE_SWITCHES && c->switches[i].name; i++)
		longs[n++] = (struct option){c->switches[i].name, no_argument, NULL, LONG_BASE + i};
	for (int i = 0; i < MFS_CMDLINE_VALUED && c->valued[i].name; i++)
		longs[n++] = (struct option){c->valued[i].name, required_argument, NULL,
					     VALUED_BASE + i};
	longs[n] = (struct option){0};
}

bool mfs_cmdline_parse(struct mfs_cmdline *c, int argc, char **argv, int *ret_exit)
{
	struct option longs[LONGS];
	char shorts[32];
	int opt;

	snprintf(shorts, sizeof(shorts), ":o:h%s", c->letters ? c->letters : "");
	if (c->number)
		snprintf(shorts + strlen(shorts), sizeof(shorts) - strlen(shorts),
			 "%c:", c->number_letter);
	list_longs(c, longs);
	optind = 0; /* glibc: begin again, with a new argv */
	opterr = 0;
	while ((opt = getopt_long(argc, argv, shorts, longs, NULL)) != -1)
		if (!take_option(c, opt, argv, ret_exit))
			return false;
	return take_arguments(c, argc, argv, ret_exit);
}

int mfs_cmdline_end(struct mfs_cmdline *c, int exit_code)
{
	mfs_options_release(&c->options);
	return mfs_print_end(exit_code, MFS_EXIT_FAILED);
}
