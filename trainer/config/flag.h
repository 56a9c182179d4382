/*
 * The flags of pretrain_gpt.py as one table: what they are called, what they take, and what becomes
 * of them here.
 *
 * A row is a dest of Megatron's argument parser: an attribute of the Namespace that checkpoints
 * keep. Rows stand in Megatron's groups (megatron/training/arguments.py: add_megatron_arguments;
 * most are made of the fields of dataclasses by training/argument_utils.py: ArgumentGroupFactory).
 * The parser takes no abbreviations (allow_abbrev=False), and so do we.
 *
 * Nothing that changes results is taken silently: a row is used, or it chooses only how Megatron
 * computes the same thing, or values other than the default are refused with what is nearest.
 */
#ifndef MFS_TRAINER_CONFIG_FLAG_H
#define MFS_TRAINER_CONFIG_FLAG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/config/config.h"

enum mfs_flag_kind {
	MFS_FLAG_ON,	  /* --x: True (store_true) */
	MFS_FLAG_OFF,	  /* --no-x, --disable-x: False (store_false) */
	MFS_FLAG_SWITCH,  /* --x: True, --no-x: False (BooleanOptionalAction) */
	MFS_FLAG_TRUTH,	  /* one word; like Python's bool(), True unless it is empty */
	MFS_FLAG_INT,	  /* one number */
	MFS_FLAG_REAL,	  /* one number, maybe with a fraction */
	MFS_FLAG_TEXT,	  /* one word */
	MFS_FLAG_INTS,	  /* a list; how many words: mfs_flag.words */
	MFS_FLAG_REALS,	  /* " */
	MFS_FLAG_TEXTS,	  /* " */
	MFS_FLAG_PATTERN, /* N, or a list as "([0]*1+[1]*3)*2" */
	MFS_FLAG_TUPLE,	  /* "a,b" or "(a,b)": integers */
	MFS_FLAG_DTYPE,	  /* fp32, bf16, fp16, fp8; a torch.dtype in the Namespace */
	MFS_FLAG_ENUM,	  /* the name of a member of mfs_flag.of */
	MFS_FLAG_DERIVED, /* not a flag: Megatron puts it into the Namespace */
};

enum mfs_flag_use {
	MFS_FLAG_USED,	  /* it has an effect here */
	MFS_FLAG_UNUSED,  /* it chooses only how Megatron does it, or belongs to another program */
	MFS_FLAG_REFUSED, /* what is not the default (or in mfs_flag.have) is refused */
};

/* How a field of struct mfs_train_config takes the value. */
enum mfs_flag_as {
	MFS_AS_NOTHING,
	MFS_AS_BOOL,
	MFS_AS_NOT, /* bool, the other way round */
	MFS_AS_INT,
	MFS_AS_REAL,
	MFS_AS_TEXT,
	MFS_AS_WORDS,
	MFS_AS_CHOICE, /* an enum whose values are in the order of mfs_flag.choices */
	MFS_AS_DTYPE,
};

/* A Python enum, pickled as class(value). */
struct mfs_flag_enum {
	const char *module, *class_name;
	const char *const *names; /* of values 1, 2, ...; NULL ends them */
	/* Words that lists may contain in addition to members, and that are left out of them; NULL:
	 * none. */
	const char *const *dropped;
};

struct mfs_flag {
	enum mfs_flag_kind kind;
	const char *dest;
	const char *initial; /* the default, as Python writes it */
	const char *names;   /* spellings with spaces between; NULL: by kind and dest */
	const char *choices; /* with '|' between; NULL: any */
	const struct mfs_flag_enum *of;
	char words; /* of lists: '+', '*', or a digit */
	bool gone;  /* not in a checkpoint's Namespace */
	bool ours;  /* not a flag of Megatron's */
	enum mfs_flag_use use;
	const char *have;    /* the choices that are supported; NULL: all of them */
	const char *instead; /* of what is refused: what is nearest, as "use --bf16" */
	const char *help;    /* one line; NULL: the name says it */
	enum mfs_flag_as as;
	size_t at;   /* the field, from the config's beginning */
	double none; /* what None is in a field of numbers */
};

struct mfs_flag_group {
	const char *title; /* Megatron's */
	const struct mfs_flag *flags;
	size_t count;
};

/* All groups; flags are numbered through them. */
extern const struct mfs_flag_group *const mfs_flag_groups[];
extern const size_t mfs_flag_group_count;

size_t mfs_flag_count(void);
const struct mfs_flag *mfs_flag_at(size_t number);
/* The number of the flag with this dest; SIZE_MAX: there is none. */
size_t mfs_flag_of_dest(const char *dest);

/* Spelling i of a flag into text: "--no-x". False: there are fewer. *ret_on: what a switch is set
 * to by it. */
#define MFS_FLAG_SPELLING 128
bool mfs_flag_spelling(const struct mfs_flag *f, unsigned i, char text[MFS_FLAG_SPELLING],
		       bool *ret_on);
/* The flag that is spelt like the first len bytes of text; SIZE_MAX: none is. */
size_t mfs_flag_of_spelling(const char *text, size_t len, bool *ret_on);
/* True if value is one of choices, which are separated by '|'. */
bool mfs_flag_is_choice(const char *choices, const char *value, size_t len);

#endif
