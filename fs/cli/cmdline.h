/* The command line of every command except mounting: positional arguments, -o, switches, and
 * options with a value. */
#ifndef MFS_FS_CLI_CMDLINE_H
#define MFS_FS_CLI_CMDLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/cli/options.h"

#define MFS_CMDLINE_ARGUMENTS 64
#define MFS_CMDLINE_SWITCHES  8
#define MFS_CMDLINE_VALUED    24

/* Words that were given to an option, or as arguments; borrowed from argv. free(at) at the end. */
struct mfs_word_list {
	const char **at;
	size_t count;
};
/* -ENOMEM. */
int mfs_words_add(struct mfs_word_list *list, const char *word);

struct mfs_switch {
	const char *name; /* "json", of "--json" */
	bool *value;
};

enum mfs_value_kind {
	MFS_VALUE_TEXT,	  /* const char *, borrowed from argv */
	MFS_VALUE_NUMBER, /* uint64_t, decimal, below 2^63 */
	MFS_VALUE_WORDS,  /* struct mfs_buf: all values that were given, with spaces between them */
	MFS_VALUE_EACH,	  /* struct mfs_word_list: all values that were given */
	MFS_VALUE_LIST,	  /* struct mfs_word_list: all words up to the next option */
};

/* An option with a value: --name VALUE or --name=VALUE. If it is not given, *value stays as it
 * is. */
struct mfs_valued {
	const char *name;
	enum mfs_value_kind kind;
	void *value; /* its type: see kind */
};

struct mfs_cmdline {
	const char *usage;    /* "inspect SOURCE [--json] [-o OPTIONS]", printed by --help */
	const char *help;     /* what it does, a few lines */
	bool help_views;      /* --help lists the views after that */
	const char *help_end; /* its options, printed last; NULL: nothing more */
	int min, max;	      /* positional arguments */
	/* Those after the first `max`; NULL: there may be none. */
	struct mfs_word_list *rest;
	struct mfs_switch switches[MFS_CMDLINE_SWITCHES];
	struct mfs_valued valued[MFS_CMDLINE_VALUED];
	const char *letters; /* "qj": -q is the first switch, -j the second; NULL: no letters */
	char number_letter;  /* 'n': -n N sets *number; 0: there is none */
	uint64_t *number;
	/* All lists of -o, with commas between them, for a command that has several SOURCEs; NULL:
	 * nobody wants them. */
	struct mfs_buf *o_list;

	struct mfs_options options; /* this and arguments are filled in by mfs_cmdline_parse() */
	const char *arguments[MFS_CMDLINE_ARGUMENTS];
};

/* Options may stand anywhere; "--" ends them. argv[0] is the command's name. False: help or an
 * error was printed, and the command ends with the exit code *ret_exit. */
bool mfs_cmdline_parse(struct mfs_cmdline *c, int argc, char **argv, int *ret_exit);
/* Releases c and returns the exit code. It is not 0 if stdout did not take all output. */
int mfs_cmdline_end(struct mfs_cmdline *c, int exit_code);

#endif
