/*
 * Private to the files of HF views. hf.c finds a model's family, reference, tokenizer and
 * configuration, and what its directory holds besides weights; a flavour says what becomes of the
 * weights. A flavour is a file with rows of the table (kind.h), and hf.c knows none.
 */
#ifndef MFS_FS_VIEW_HF_H
#define MFS_FS_VIEW_HF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/base/tensor.h"
#include "fs/view/kind.h"
#include "fs/view/view.h"

struct mfs_family;
struct mfs_fileset;
struct mfs_hf_builder;
struct mfs_hf_container;
struct mfs_hf_ref;
struct mfs_hf_weights;
struct mfs_model;

/* What tells HF views apart. */
struct mfs_hf_flavour {
	enum mfs_dtype dtype; /* elements are cast to it; MFS_DTYPE_NONE: they are not */
	const struct mfs_hf_container *container;
	const void *form; /* for the functions below */
	bool stacks;	  /* -o stack_experts is heard */

	/* Whether it can show models of a family. -ENOTSUP: it cannot. NULL: it can. */
	int (*possible)(const struct mfs_ckpt *ckpt, const struct mfs_family *family,
			struct mfs_error *err);
	/* Adds all files. NULL: config.json, the tokenizer's files, and those of weights(). */
	int (*emit)(struct mfs_hf_builder *b);
	/* Adds the files of weights. What they point into is view->made. */
	int (*weights)(struct mfs_hf_builder *b);
	/* Changes the text of config.json, which stays the caller's. NULL: it is the model's. */
	int (*config)(const struct mfs_hf_builder *b, char **config, size_t *len);
	void (*release)(void *made); /* NULL: nothing is made */
};

/* The view and what its files are made of. */
struct mfs_hf_view {
	struct mfs_view public;
	struct mfs_fileset *passed; /* files shown unchanged: of tokenizer/ or the reference */
	struct mfs_fileset *apart;  /* the reference's, where another directory is the tokenizer */
	const struct mfs_hf_flavour *flavour;
	void *made; /* the flavour's; NULL: nothing */
};

struct mfs_hf_builder {
	const struct mfs_hf_flavour *flavour;
	const char *spec;
	struct mfs_ckpt *ckpt;
	const struct mfs_view_options *opt;
	struct mfs_hf_view *view; /* when a flavour is asked, it has its model */
	const char *ref_dir;	  /* the reference's directory, or NULL */
	struct mfs_hf_ref *ref;	  /* or NULL */
	/* directory of the tokenizer: the reference, or tokenizer/ of the checkpoint */
	char *tokenizer;
	const char *const *names; /* files passed through from there */
	uint32_t name_count;
	const char *const *ref_names; /* and from the reference, if that is another directory */
	uint32_t ref_count;
	struct mfs_arena arena;
	struct mfs_error *err;
};

/* What rows call as possible() and open(). */
int mfs_hf_possible(const struct mfs_view_origin *s, const struct mfs_hf_flavour *flavour,
		    struct mfs_error *err);
int mfs_hf_open(const struct mfs_view_origin *s, const struct mfs_hf_flavour *flavour,
		const char *spec, struct mfs_view **ret, struct mfs_error *err);

/* ---- for flavours ---- */

/* The text of config.json, before the flavour changes it. The caller frees *ret. */
int mfs_hf_config_text(struct mfs_hf_builder *b, char **ret, size_t *ret_len);
/* Adds the files of all of these weights. */
int mfs_hf_add_weights(struct mfs_hf_builder *b, const struct mfs_hf_weights *w);
/* Where elements are cast to float16, says that this type ends. */
int mfs_hf_warn_of_infinity(struct mfs_hf_builder *b);

/* A row of a view without specs. EXTRA: few models have it. What follows HELP is its flavour. */
#define MFS_HF_VIEW(NAME, PATH, EXTRA, HELP, ...)                                                  \
	static const struct mfs_hf_flavour flavour_##NAME = {__VA_ARGS__};                         \
                                                                                                   \
	static int possible_##NAME(const struct mfs_view_origin *s, struct mfs_error *err)         \
	{                                                                                          \
		return mfs_hf_possible(s, &flavour_##NAME, err);                                   \
	}                                                                                          \
                                                                                                   \
	static int open_##NAME(const struct mfs_view_origin *s, const char *spec,                  \
			       struct mfs_view **ret, struct mfs_error *err)                       \
	{                                                                                          \
		return mfs_hf_open(s, &flavour_##NAME, spec, ret, err);                            \
	}                                                                                          \
                                                                                                   \
	const struct mfs_view_kind mfs_view_kind_##NAME = {                                        \
		.name = PATH,                                                                      \
		.help = HELP,                                                                      \
		.of = MFS_VIEW_OF_MODEL,                                                           \
		.is_extra = EXTRA,                                                                 \
		.possible = possible_##NAME,                                                       \
		.open = open_##NAME,                                                               \
	};

#endif
