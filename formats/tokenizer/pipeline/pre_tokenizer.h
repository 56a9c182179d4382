/*
 * Pre-tokenizers of tokenizer.json: a list of steps, each of which cuts a part of a text into
 * parts. They run depth first: a part has passed all steps before the next part is looked for.
 */
#ifndef MFS_TOKENIZER_PIPELINE_PRE_TOKENIZER_H
#define MFS_TOKENIZER_PIPELINE_PRE_TOKENIZER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/buf.h"
#include "formats/base/error.h"
#include "formats/tokenizer/pipeline/text_part.h"
#include "formats/tokenizer/unicode/token_regex.h"

struct mfs_pre_tokenizer_kind;

/* tokenizers: SplitDelimiterBehavior. */
enum mfs_split_behavior {
	MFS_SPLIT_REMOVED,
	MFS_SPLIT_ISOLATED,
	MFS_SPLIT_MERGED_WITH_PREVIOUS,
	MFS_SPLIT_MERGED_WITH_NEXT,
	MFS_SPLIT_CONTIGUOUS,
};

enum mfs_prepend_scheme {
	MFS_PREPEND_NEVER,
	MFS_PREPEND_FIRST,
	MFS_PREPEND_ALWAYS,
};

struct mfs_pre_tokenizer {
	const struct mfs_pre_tokenizer_kind *kind;
	struct mfs_regex *regex;
	bool (*is_match)(uint32_t c); /* a match is one such character */
	uint32_t character;	      /* of Metaspace and CharDelimiterSplit */
	enum mfs_split_behavior behavior;
	enum mfs_prepend_scheme scheme; /* of Metaspace */
	bool invert, splits, prefix_space;
	size_t length; /* of FixedLength */
};

struct mfs_pre_tokenizers {
	struct mfs_pre_tokenizer *at; /* [count] */
	size_t count;
	/* The last step's words become characters for bytes (byte_chars.h), which it leaves to the
	 * caller: he may know the word already. */
	bool bytes_remain;
};

struct mfs_pre_tokenize_hooks {
	/* Takes a word, which has passed all steps. */
	int (*word)(void *arg, const char *word, size_t len, struct mfs_error *err);
};

/* Memory of one thread. */
struct mfs_pre_tokenize_memory {
	struct mfs_regex_memory *regex;
	struct mfs_buf *texts; /* one for each step that rewrites */
};

/* As mfs_normalizers_read(). */
int mfs_pre_tokenizers_read(struct mfs_pre_tokenizers *list, const json_t *json,
			    struct mfs_error *err);
/* Adds a step that isolates what an expression matches, which becomes the list's: for readers of
 * other files. */
int mfs_pre_tokenizers_add_split(struct mfs_pre_tokenizers *list, struct mfs_regex *regex,
				 struct mfs_error *err);
/* Metaspace's members, which its decoder has as well. */
int mfs_metaspace_read(const json_t *json, uint32_t *ret_character,
		       enum mfs_prepend_scheme *ret_scheme, bool *ret_splits,
		       struct mfs_error *err);
void mfs_pre_tokenizers_release(struct mfs_pre_tokenizers *list);

int mfs_pre_tokenize_memory_init(struct mfs_pre_tokenize_memory *memory,
				 const struct mfs_pre_tokenizers *list,
				 struct mfs_regex_memory *regex, struct mfs_error *err);
void mfs_pre_tokenize_memory_release(struct mfs_pre_tokenize_memory *memory,
				     const struct mfs_pre_tokenizers *list);
/* Gives all words of a part to the hook. */
int mfs_pre_tokenize(const struct mfs_pre_tokenizers *list, struct mfs_pre_tokenize_memory *memory,
		     const struct mfs_text_part *part, const struct mfs_pre_tokenize_hooks *hooks,
		     void *arg, struct mfs_error *err);

#endif
