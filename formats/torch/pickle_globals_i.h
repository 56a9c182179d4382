/* Private to pickle_globals: the opcodes of protocols 0 to 5 (CPython's Lib/pickletools.py). */
#ifndef MFS_TORCH_PICKLE_GLOBALS_I_H
#define MFS_TORCH_PICKLE_GLOBALS_I_H

#include <stdbool.h>
#include <stdint.h>

/* What an opcode is followed by. */
enum argument {
	ARG_BYTES, /* width bytes */
	ARG_SIZED, /* width bytes that count what follows */
	ARG_LINE,  /* a line */
	ARG_LINES, /* two lines */
};

/* What it does with the stack. */
enum effect {
	BAD,	/* no opcode */
	PUSH,	/* takes `takes` entries, and leaves one */
	TEXT,	/* leaves a text: its argument */
	QUOTED, /* the same in quotes */
	DROP,	/* takes `takes` entries, and leaves none */
	LIST,	/* takes all down to the mark, and leaves one */
	ADD,	/* takes all down to the mark */
	MARK,
	POP,
	DUP,
	NOTHING,
	GET,
	PUT,
	MEMOIZE,
	GLOBAL,
	INST,
	STACK_GLOBAL,
	UNKNOWN, /* an entry of copyreg's registry */
	STOP,
};

struct mfs_pickle_opcode {
	uint8_t effect, argument, width, takes;
	bool no_text; /* what it leaves is never a str */
};

extern const struct mfs_pickle_opcode mfs_pickle_opcodes[256];

#endif
