/* Turns batches of text into tokens. */
#ifndef MFS_FS_PACK_ENCODE_TEXT_H
#define MFS_FS_PACK_ENCODE_TEXT_H

#include "formats/base/tensor.h"
#include "fs/pack/text/text_kind.h"
#include "fs/pack/text/ring.h"
#include "fs/pack/text/separator.h"

struct mfs_text_encoding {
	const struct mfs_text_tokenizer *tokenizer;
	const char *const *keys; /* of JSON objects; of plain text there is one without a name */
	size_t key_count;
	bool json; /* lines of JSON; else plain text */
	struct mfs_separator separator;
	uint64_t passes; /* pass p takes documents p, p + passes, ... */
	bool append_eod;
	enum mfs_dtype dtype;
	uint64_t high; /* the largest id that it holds */
	struct mfs_text_ring *ring;
};

/* Encodes what the ring has until it has no more. arg: a struct mfs_text_encoding, which threads
 * share. Threads run this. */
void *mfs_text_encode(void *arg);

#endif
