/* Normalizers of tokenizer.json: a list of steps, each of which rewrites a text. */
#ifndef MFS_TOKENIZER_PIPELINE_NORMALIZER_H
#define MFS_TOKENIZER_PIPELINE_NORMALIZER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "formats/base/buf.h"
#include "formats/base/error.h"
#include "formats/tokenizer/unicode/charsmap.h"
#include "formats/tokenizer/pipeline/text_part.h"
#include "formats/tokenizer/unicode/token_regex.h"

struct mfs_normalizer_kind;

struct mfs_normalizer {
	const struct mfs_normalizer_kind *kind;
	struct mfs_regex *regex;		       /* of Replace */
	struct mfs_buf content;			       /* of Replace and Prepend */
	struct mfs_charsmap charsmap;		       /* of Precompiled */
	bool left, right;			       /* of Strip */
	bool clean, chinese, strip_accents, lowercase; /* of BertNormalizer */
};

struct mfs_normalizers {
	struct mfs_normalizer *at; /* [count] */
	size_t count;
};

/* Memory of one thread. */
struct mfs_normalize_memory {
	struct mfs_regex_memory *regex;
	struct mfs_buf even, odd;
};

/* json: as tokenizer.json has it; NULL or null: none. -ENOTSUP: a kind that is not known. The
 * caller releases what was read, after a failure too. */
int mfs_normalizers_read(struct mfs_normalizers *list, const json_t *json, struct mfs_error *err);
void mfs_normalizers_release(struct mfs_normalizers *list);
/* Runs all steps. What *part points to then is its own text or lies in memory. */
int mfs_normalize(const struct mfs_normalizers *list, struct mfs_normalize_memory *memory,
		  struct mfs_text_part *part, struct mfs_error *err);

#endif
