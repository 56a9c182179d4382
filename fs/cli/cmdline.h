/* The command line of all commands but mounting: positional arguments, -o, switches, and options
 * with a value. */
#ifndef MFS_FS_CLI_CMDLINE_H
#define MFS_FS_CLI_CMDLINE_H

#include <stdbool.h>
#include <stdint.h>

#include "fs/cli/options.h"

#define MFS_CMDLINE_ARGUMENTS 3
#define MFS_CMDLINE_SWITCHES  8
#define MFS_CMDLINE_VALUED    24

struct mfs_switch {
	const char *name; /* "json", of "--json" */
	bool *value;
};

enum mfs_value_kind {
	MFS_VALUE_TEXT,	  /* const char *, borrowed from argv */
	MFS_VALUE_NUMBER, /* uint64_t, decimal, below 2^63 */
	/* struct mfs_buf: a text; what is given again comes behind it and a space */
	MFS_VALUE_WORDS,
};

/* An option with a value: --name VALUE or --name=VALUE. What is not given is left alone. */
struct mfs_valued {
	const char *name;
	enum mfs_value_kind kind;
	void *value; /* as kind says */
};

struct mfs_cmdline {
	const char *usage;    /* "inspect SOURCE [--json] [-o OPTIONS]", printed by --help */
	const char *help;     /* what it does, a few lines */
	bool help_views;      /* then, what VIEW may be */
	const char *help_end; /* then, its options; NULL: help has told all */
	int min, max;	      /* positional arguments */
	struct mfs_switch switches[MFS_CMDLINE_SWITCHES];
	struct mfs_valued valued[MFS_CMDLINE_VALUED];
	const char *letters; /* "qj": -q is the first switch, -j the second; NULL: none has one */
	char number_letter;  /* 'n': -n N sets *number; 0: there is none */
	uint64_t *number;

	struct mfs_options options; /* what follows is filled by parse */
	const char *arguments[MFS_CMDLINE_ARGUMENTS];
};

/* Options may stand anywhere; "--" ends them. argv[0] is the command's name. True if the command is
 * to go on; otherwise *ret_exit is its exit code, and what there was to say has been printed. */
bool mfs_cmdline_parse(struct mfs_cmdline *c, int argc, char **argv, int *ret_exit);
/* Releases c and returns the exit code: not 0 if what was printed did not reach stdout. */
int mfs_cmdline_end(struct mfs_cmdline *c, int exit_code);

#endif
