/*
 * SentencePiece's tokenizers. A text is normalised, cut into words where no piece can cross, and
 * each word is cut into pieces by the model. The results are those of sentencepiece 0.2.3, its
 * float arithmetic included.
 */
#ifndef MFS_TOKENIZER_SPM_SPM_I_H
#define MFS_TOKENIZER_SPM_SPM_I_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/hf/sentencepiece.h"
#include "formats/tokenizer/unicode/charsmap.h"
#include "formats/tokenizer/spm/double_array.h"
#include "formats/tokenizer/tokenizer_kind.h"
#include "formats/tokenizer/word_cache.h"

#define MFS_SPM_SPACE	   "\xe2\x96\x81" /* U+2581 */
#define MFS_SPM_SPACE_SIZE 3

/* An unknown piece, before it becomes the unknown id or bytes. */
#define MFS_SPM_UNKNOWN UINT32_MAX

/* Places between two characters, by whether each is U+2581. */
enum { MFS_CUT_TEXT_TEXT, MFS_CUT_TEXT_SPACE, MFS_CUT_SPACE_TEXT, MFS_CUT_SPACE_SPACE };

struct mfs_spm {
	struct mfs_piece_file file;
	struct mfs_charsmap charsmap;
	struct mfs_double_array pieces; /* normal, user-defined and unused ones; values are ids */
	struct mfs_double_array users;	/* user-defined ones */
	bool user_first[256];		/* bytes that user-defined pieces begin with */
	bool plain[128]; /* ASCII that stands for itself, whatever ASCII comes after it */
	float *scores;	 /* [count]: of unigrams; those of user-defined pieces are made up */
	float unk_score;
	bool any_unused;
	bool only_penalties; /* no score of a normal piece is positive */
	bool cuts[4]; /* by the places above: no piece crosses one, so that a word may end there */
	bool any_cut;
	int64_t unk;	     /* MFS_ABSENT: none, but bytes */
	uint32_t bytes[256]; /* ids of "<0x00>" to "<0xFF>", if file.byte_fallback */
};

struct mfs_spm_node {
	float score;
	float second;	/* of the next best way here; -INFINITY: none */
	uint32_t start; /* UINT32_MAX: no way leads here */
	uint32_t id;
};

struct mfs_spm_symbol {
	uint32_t from, len;  /* len 0: it was merged into the one before */
	uint32_t node;	     /* of the pieces after its bytes; UINT32_MAX: no piece begins so */
	uint32_t prev, next; /* UINT32_MAX: none */
	bool frozen;	     /* user-defined: never merged */
};

struct mfs_spm_pair {
	uint64_t order; /* the least comes first */
	uint32_t right, len;
};

/* How the merged piece of an unused piece was put together. */
struct mfs_spm_split {
	uint32_t id, left_from, left_len, right_len;
};

/* Memory of one encoder. */
struct mfs_spm_scratch {
	char *text; /* normalised */
	size_t len, room;
	struct mfs_spm_node *nodes;
	size_t node_room;
	struct mfs_spm_symbol *symbols;
	size_t symbol_room;
	struct mfs_spm_pair *heap; /* from 1 */
	size_t heap_room, heap_count;
	struct mfs_spm_split *splits;
	size_t split_count;
	uint32_t *split_at; /* [pieces]: 1 more than the place of an id in splits; 0: none */
	struct mfs_word_cache cache; /* of words that no piece crosses */
	float base;		     /* unigrams: the score of the best way to the word's begin */
	bool after_unknown;	     /* the last piece was unknown */
};

/* Reads file, which becomes spm's. -EINVAL, -ENOTSUP, -ENOMEM. */
int mfs_spm_read(struct mfs_spm *spm, const char *name, struct mfs_error *err);
void mfs_spm_release(struct mfs_spm *spm);

/* The bytes of the longest user-defined piece that text begins with; 0: none. */
size_t mfs_spm_user(const struct mfs_spm *spm, const char *text, size_t len);

/* Fills s->text and s->len. -ENOMEM. */
int mfs_spm_normalize(const struct mfs_spm *spm, struct mfs_spm_scratch *s, const char *text,
		      size_t len);

/* Appends a piece's id. MFS_SPM_UNKNOWN: bytes of text, or one unknown id for a run of them. */
int mfs_spm_emit(const struct mfs_spm *spm, struct mfs_spm_scratch *s, uint32_t id,
		 const char *text, size_t len, struct mfs_token_ids *ids);

/* Appends the ids of a word, which no piece crosses. -ENOMEM. */
int mfs_spm_unigram(const struct mfs_spm *spm, struct mfs_spm_scratch *s, const char *word,
		    size_t len, struct mfs_token_ids *ids);
int mfs_spm_bpe(const struct mfs_spm *spm, struct mfs_spm_scratch *s, const char *word, size_t len,
		struct mfs_token_ids *ids);
int mfs_spm_words(const struct mfs_spm *spm, struct mfs_spm_scratch *s, const char *text,
		  size_t len, struct mfs_token_ids *ids);
int mfs_spm_characters(const struct mfs_spm *spm, struct mfs_spm_scratch *s, const char *text,
		       size_t len, struct mfs_token_ids *ids);

/* Room for count elements at *at. False: no memory. */
bool mfs_spm_room(void *at, size_t *room, size_t count, size_t size);

/* The bytes of a character by its first byte, as util.h's OneCharLen() has it. */
static inline size_t mfs_spm_char(const char *text, size_t len)
{
	static const uint8_t sizes[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4};
	const size_t size = sizes[(uint8_t)*text >> 4];

	return size < len ? size : len;
}

static inline bool mfs_spm_is_space(const char *text, size_t len)
{
	return len >= MFS_SPM_SPACE_SIZE && !memcmp(text, MFS_SPM_SPACE, MFS_SPM_SPACE_SIZE);
}

#endif
