/* A part of a text on its way through normalizers and pre-tokenizers. */
#ifndef MFS_TOKENIZER_PIPELINE_TEXT_PART_H
#define MFS_TOKENIZER_PIPELINE_TEXT_PART_H

#include <stddef.h>

struct mfs_text_part {
	const char *text;
	size_t len;
	/* Bytes at its begin that come from the first character of the whole text; 0: it begins
	 * later. Metaspace's prepend_scheme "first" asks. */
	size_t first;
};

/* The bytes from start to end of a part. */
static inline struct mfs_text_part mfs_text_part_slice(const struct mfs_text_part *part,
						       size_t start, size_t end)
{
	size_t first = part->first > start ? part->first - start : 0;

	if (first > end - start)
		first = end - start;
	return (struct mfs_text_part){part->text + start, end - start, first};
}

#endif
