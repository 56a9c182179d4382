/*
 * What is known of each argument of a run: the rows of fields.h as one table, for all who go
 * through the arguments.
 */
#ifndef MFS_ARGS_FIELD_H
#define MFS_ARGS_FIELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/args/megatron_args.h"

enum mfs_args_type {
	MFS_ARGS_INT,	 /* int64_t; MFS_ABSENT is None */
	MFS_ARGS_REAL,	 /* double */
	MFS_ARGS_FLAG,	 /* bool */
	MFS_ARGS_TEXT,	 /* const char *; NULL is None */
	MFS_ARGS_LAYERS, /* const uint8_t *, [num_layers] */
	MFS_ARGS_TEXTS,	 /* const char *const *, ended by NULL */
	MFS_ARGS_PAIR,	 /* int64_t[2] */
	MFS_ARGS_MUP,	 /* struct mfs_mup */
};

/* How the reader of arguments reads one. */
enum mfs_args_read {
	MFS_ARGS_BY_CODE, /* not by its row */
	MFS_ARGS_REQUIRED,
	MFS_ARGS_POSITIVE,
	MFS_ARGS_ANY, /* any value of the type; a number that is not negative */
};

/* Parts of a Namespace, in their order. */
enum mfs_args_section {
	MFS_ARGS_IN_NONE,
	MFS_ARGS_IN_RUN,    /* of each run */
	MFS_ARGS_IN_LINEAR, /* of models with linear attention */
	MFS_ARGS_IN_HYBRID, /* of models with a pattern of layers */
	/* What Megatron has no argument for, where it is set: as Megatron-Bridge's fields are
	 * called, where there is one. Others never see them. */
	MFS_ARGS_IN_CLASS,
	MFS_ARGS_IN_MODULES,
	MFS_ARGS_IN_SCALES,
};

/* What a difference between two runs concerns. */
enum mfs_args_scope {
	MFS_ARGS_APART,	   /* compared in another way, or no difference: why */
	MFS_ARGS_MODEL,	   /* what the model computes */
	MFS_ARGS_TRAINING, /* how it is trained on */
};

/* Whether --use-checkpoint-args takes it. */
enum mfs_args_taken {
	MFS_ARGS_LEFT,
	MFS_ARGS_TAKEN,	 /* where nothing was given */
	MFS_ARGS_FORCED, /* whatever was given, as Megatron does */
};

union mfs_args_value {
	int64_t number;
	double real;
	bool truth;
	const char *text;
};

/* A row. fields.h says what each of its words means. */
struct mfs_args_field {
	const char *member;
	size_t offset; /* in struct mfs_megatron_args */
	enum mfs_args_type type;
	const char *name, *also; /* NULL: name is the member's name, and there is no second name */
	bool also_written, inverted;
	enum mfs_args_read read;
	union mfs_args_value absent;	   /* the member where a run does not say it */
	const union mfs_args_value *plain; /* in a model without any feature; NULL: absent */
	enum mfs_args_section section;
	bool zero_is_none, whole;
	enum mfs_args_scope scope;
	const char *shown; /* NULL: the member's name */
	const char *why;   /* APART */
	bool word;
	enum mfs_args_taken taken;
	bool fits;
	const char *fits_as; /* NULL: the member's name */
};

/* All of them, in their order; a row without a member ends them. */
extern const struct mfs_args_field mfs_args_fields[];

/* Megatron's name. */
static inline const char *mfs_args_name(const struct mfs_args_field *f)
{
	return f->name ? f->name : f->member;
}

static inline const void *mfs_args_at(const struct mfs_megatron_args *a,
				      const struct mfs_args_field *f)
{
	return (const char *)a + f->offset;
}

/* Stores a value in the member of the row. A list, a pair and mup are stored by code of their own:
 * nothing is changed then. */
void mfs_args_set(struct mfs_megatron_args *a, const struct mfs_args_field *f,
		  union mfs_args_value value);

/* The argument that families' files name so, a number or a real. NULL: there is none. */
const struct mfs_args_field *mfs_args_word(const char *word);

/* The arguments of a run of one rank, of a model without any feature. */
struct mfs_megatron_args mfs_args_plain(void);

#endif
