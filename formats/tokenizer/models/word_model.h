/* Models: what makes ids of a word (tokenizers: Model). */
#ifndef MFS_TOKENIZER_MODELS_WORD_MODEL_H
#define MFS_TOKENIZER_MODELS_WORD_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/buf.h"
#include "formats/base/error.h"
#include "formats/tokenizer/token_table.h"
#include "formats/tokenizer/tokenizer.h"

struct mfs_word_model;

/* Memory of one thread that models use as they like; zero-filled at first. */
struct mfs_word_scratch {
	struct mfs_buf bytes;
	void *items, *heap; /* each model's own arrays */
	size_t items_size, heap_size;
};

/* At least size bytes at *at. NULL: no memory. */
void *mfs_word_scratch_room(void **at, size_t *at_size, size_t size);
void mfs_word_scratch_release(struct mfs_word_scratch *scratch);

struct mfs_word_model_ops {
	/* Appends the ids of a word, which is valid UTF-8 and not empty. -ENODATA: the model has
	 * no token for a part of it, and none for what is unknown. */
	int (*encode)(const struct mfs_word_model *model, struct mfs_word_scratch *scratch,
		      const char *word, size_t len, struct mfs_token_ids *ids,
		      struct mfs_error *err);
	void (*free)(struct mfs_word_model *model);
};

/* Each model's struct begins with it. */
struct mfs_word_model {
	const struct mfs_word_model_ops *ops;
	const struct mfs_token_table *tokens; /* outlives the model */
};

#endif
