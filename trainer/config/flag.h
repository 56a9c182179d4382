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
#ifndef MFT_TRAINER_CONFIG_FLAG_H
#define MFT_TRAINER_CONFIG_FLAG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/config/config.h"

enum mft_flag_kind {
	MFT_FLAG_ON,	  /* --x: True (store_true) */
	MFT_FLAG_OFF,	  /* --no-x, --disable-x: False (store_false) */
	MFT_FLAG_SWITCH,  /* --x: True, --no-x: False (BooleanOptionalAction) */
	MFT_FLAG_TRUTH,	  /* one word; like Python's bool(), True unless it is empty */
	MFT_FLAG_INT,	  /* one number */
	MFT_FLAG_REAL,	  /* one number, maybe with a fraction */
	MFT_FLAG_TEXT,	  /* one word */
	MFT_FLAG_INTS,	  /* a list; how many words: mft_flag.words */
	MFT_FLAG_REALS,	  /* " */
	MFT_FLAG_TEXTS,	  /* " */
	MFT_FLAG_PATTERN, /* N, or a list as "([0]*1+[1]*3)*2" */
	MFT_FLAG_TUPLE,	  /* "a,b" or "(a,b)": integers */
	MFT_FLAG_DTYPE,	  /* fp32, bf16, fp16, fp8; a torch.dtype in the Namespace */
	MFT_FLAG_ENUM,	  /* the name of a member of mft_flag.of */
	MFT_FLAG_DERIVED, /* not a flag: Megatron puts it into the Namespace */
};

enum mft_flag_use {
	MFT_FLAG_USED,	  /* it has an effect here */
	MFT_FLAG_UNUSED,  /* it chooses only how Megatron does it, or belongs to another program */
	MFT_FLAG_REFUSED, /* what is not the default (or in mft_flag.have) is refused */
};

/* How a field of struct mft_train_config takes the value. */
enum mft_flag_member_type {
	MFT_AS_NONE,
	MFT_AS_BOOL,
	MFT_AS_NOT, /* bool, the other way round */
	MFT_AS_INT,
	MFT_AS_REAL,
	MFT_AS_TEXT,
	MFT_AS_WORDS,
	MFT_AS_CHOICE, /* an enum whose values are in the order of mft_flag.choices */
	MFT_AS_DTYPE,
};

/* A Python enum, pickled as class(value). */
struct mft_flag_enum {
	const char *module, *class_name;
	const char *const *names; /* of values 1, 2, ...; NULL ends them */
	/* Words that lists may contain in addition to members, and that are left out of them; NULL:
	 * none. */
	const char *const *dropped;
};

struct mft_flag {
	enum mft_flag_kind kind;
	const char *dest;
	const char *initial; /* the default, as Python writes it */
	const char *names;   /* spellings with spaces between; NULL: by kind and dest */
	const char *choices; /* with '|' between; NULL: any */
	const struct mft_flag_enum *of;
	char words; /* of lists: '+', '*', or a digit */
	bool gone;  /* not in a checkpoint's Namespace */
	bool ours;  /* not a flag of Megatron's */
	enum mft_flag_use use;
	const char *have;    /* the choices that are supported; NULL: all of them */
	const char *instead; /* of what is refused: what is nearest, as "use --bf16" */
	const char *help;    /* one line; NULL: the name says it */
	enum mft_flag_member_type as;
	size_t at;   /* the field, from the config's beginning */
	double none; /* what None is in a field of numbers */
};

struct mft_flag_group {
	const char *title; /* Megatron's */
	const struct mft_flag *flags;
	size_t count;
};

/* All groups; flags are numbered through them. */
extern const struct mft_flag_group *const mft_flag_groups[];
extern const size_t mft_flag_group_count;

size_t mft_flag_count(void);
const struct mft_flag *mft_flag_at(size_t number);
/* The number of the flag with this dest; SIZE_MAX: there is none. */
size_t mft_flag_of_dest(const char *dest);

/* Spelling i of a flag into text: "--no-x". False: there are fewer. *ret_on: what a switch is set
 * to by it. */
#define MFT_FLAG_SPELLING 128
bool mft_flag_spelling(const struct mft_flag *f, unsigned i, char text[MFT_FLAG_SPELLING],
		       bool *ret_on);
/* The flag that is spelt like the first len bytes of text; SIZE_MAX: none is. */
size_t mft_flag_of_spelling(const char *text, size_t len, bool *ret_on);
/* True if value is one of choices, which are separated by '|'. */
bool mft_flag_is_choice(const char *choices, const char *value, size_t len);

#endif
