/* Opens the files of a tokenizer, of each kind that there is. */
#ifndef MFS_TOKENIZER_READ_TOKENIZER_OPEN_H
#define MFS_TOKENIZER_READ_TOKENIZER_OPEN_H

#include <stdint.h>

#include "formats/base/error.h"
#include "formats/tokenizer/tokenizer.h"

struct mfs_tokenizer_kind;

/* path: a file, or a directory that has tokenizer.json, tokenizer.model, tekken.json or one
 * *.tiktoken (the first of these; tokenizer_config.json and its neighbours are read with it).
 * -ENOENT: nothing of it is there; -EINVAL: a file breaks its format; -ENOTSUP: a part that is not
 * known, named in the sentence. */
int mfs_tokenizer_open(const char *path, struct mfs_tokenizer **ret, struct mfs_error *err);
/* GPT-2's two files: as transformers reads them, with <|endoftext|> as a special token, if the
 * vocabulary has it, and as its begin and end. */
int mfs_tokenizer_open_gpt2(const char *vocab_file, const char *merge_file,
			    struct mfs_tokenizer **ret, struct mfs_error *err);
/* Megatron's TikTokenizer: a JSON list of ranks, and what its arguments say of it. */
struct mfs_tiktoken_arguments {
	const char *pattern;		    /* "v1" or "v2"; NULL: "v2" */
	uint64_t vocab_size, special_count; /* special_count of these come first */
};
int mfs_tokenizer_open_tiktoken(const char *path, const struct mfs_tiktoken_arguments *a,
				struct mfs_tokenizer **ret, struct mfs_error *err);

/* The kind of a file by its name. NULL: it is none of them. */
const struct mfs_tokenizer_kind *mfs_tokenizer_kind_of(const char *path);

#endif
