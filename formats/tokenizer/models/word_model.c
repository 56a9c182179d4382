#include "formats/tokenizer/models/word_model.h"

#include <stdlib.h>

void *mfs_word_scratch_room(void **at, size_t *at_size, size_t size)
{
	void *more;

	if (size <= *at_size)
		return *at;
	size += size / 2;
	more = realloc(*at, size);
	if (!more)
		return NULL;
	*at = more;
	*at_size = size;
	return more;
}

void mfs_word_scratch_release(struct mfs_word_scratch *scratch)
{
	mfs_buf_release(&scratch->bytes);
	free(scratch->items);
	free(scratch->heap);
	*scratch = (struct mfs_word_scratch){0};
}
