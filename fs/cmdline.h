/* The command line of all commands but mounting: positional arguments, -o, and a few switches. */
#ifndef MFS_FS_CMDLINE_H
#define MFS_FS_CMDLINE_H

#include <stdbool.h>
#include <stdint.h>

#include "fs/options.h"

#define MFS_CMDLINE_ARGUMENTS 3
#define MFS_CMDLINE_SWITCHES  8

struct mfs_switch {
	const char *name; /* "json", of "--json" */
	bool *value;
};

struct mfs_cmdline {
	const char *usage; /* "inspect SOURCE [--json] [-o OPTIONS]", printed by --help */
	const char *help;  /* what it does, a few lines */
	int min, max;	   /* positional arguments */
	struct mfs_switch switches[MFS_CMDLINE_SWITCHES];
	const char *letters; /* "qj": -q is the first switch, -j the second; NULL: none has one */
	char number_letter;  /* 'n': -n N sets *number; 0: there is none */
	uint64_t *number;

	struct mfs_options options; /* what follows is filled by parse */
	const char *arguments[MFS_CMDLINE_ARGUMENTS];
};

/* Options may stand anywhere; "--" ends them. argv[0] is the command's name. True if the command is to
 * go on; otherwise *ret_exit is its exit code, and what there was to say has been printed. */
bool mfs_cmdline_parse(struct mfs_cmdline *c, int argc, char **argv, int *ret_exit);
/* Releases c and returns the exit code: not 0 if what was printed did not reach stdout. */
int mfs_cmdline_end(struct mfs_cmdline *c, int exit_code);

#endif
