/*
 * Where a run's arguments come from: a pickled Namespace of a checkpoint, the YAML of
 * Megatron-Bridge and NeMo (model_config.h), or the values of a command line. One reader reads them
 * all (megatron_args.h), so that an argument means the same wherever it stands.
 */
#ifndef MFS_ARGS_ARGS_SOURCE_H
#define MFS_ARGS_ARGS_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/torch/pickle.h"

enum mfs_arg_type {
	MFS_ARG_NONE, /* also of an argument that is not there */
	MFS_ARG_BOOL,
	MFS_ARG_INT,
	MFS_ARG_REAL,
	MFS_ARG_TEXT,
	MFS_ARG_LIST,
	MFS_ARG_CLASS, /* torch.bfloat16 */
	MFS_ARG_OTHER, /* a tuple, a member of an enum, an object */
};

/* A value, as Python has it. */
struct mfs_arg {
	enum mfs_arg_type type;
	union {
		bool truth;
		int64_t number;
		double real;
		struct {
			/* A TEXT; of CLASS and OTHER the name of the class, which may be "". Not
			 * NUL-terminated. */
			const char *text;
			size_t len;
		};
	};
	uint32_t count;	 /* items of a LIST, or of an OTHER that has some */
	uintptr_t items; /* the source's own: where they are */
};

struct mfs_args_source;

/* Values point into what the source is made of. */
struct mfs_args_source_ops {
	/* False: there is no such argument, and *ret is NONE. */
	bool (*get)(const struct mfs_args_source *s, const char *name, struct mfs_arg *ret);
	/* Item i of a value, below its count. */
	void (*item)(const struct mfs_args_source *s, const struct mfs_arg *of, uint32_t i,
		     struct mfs_arg *ret);
};

struct mfs_args_source {
	const struct mfs_args_source_ops *ops;
	const void *from; /* the source's own, borrowed, as is what follows */
	mfs_value args;
};

/* The attributes of a pickled Namespace. doc outlives the source. */
struct mfs_args_source mfs_args_of_pickle(const struct mfs_pickle *doc, mfs_value args);

/* The value of an argument. */
struct mfs_arg mfs_args_get(const struct mfs_args_source *s, const char *name);
/* True if the argument exists, also if its value is None. */
bool mfs_args_has(const struct mfs_args_source *s, const char *name);
/* Item i of a list. Kind NONE: there is no such item. */
struct mfs_arg mfs_args_item(const struct mfs_args_source *s, struct mfs_arg of, uint32_t i);

/* Each returns false and leaves *ret alone unless v is of that type. An int can be read as a real,
 * too. */
bool mfs_arg_int(struct mfs_arg v, int64_t *ret);
bool mfs_arg_bool(struct mfs_arg v, bool *ret);
bool mfs_arg_real(struct mfs_arg v, double *ret);
bool mfs_arg_text(struct mfs_arg v, const char **ret, size_t *ret_len);
/* True if it is that text. */
bool mfs_arg_is(struct mfs_arg v, const char *text);

static inline bool mfs_arg_is_none(struct mfs_arg v)
{
	return v.type == MFS_ARG_NONE;
}

#endif
