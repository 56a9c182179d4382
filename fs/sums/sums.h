/*
 * A sums file: what `mcorefs sum` prints and `mcorefs verify --check` reads. It is text, so that it
 * can be read, compared and signed with any tool (docs/formats/sums.md):
 *
 *   mcorefs-sums 1
 *   <64 hex digits> BF16 [1024, 64] embedding.word_embeddings.weight
 *   ...
 *   end 34
 *
 * There is one line for each global tensor, sorted by name as strcmp() does. The sum is SHA-256 of
 * the tensor's elements, little-endian, row-major. The last line counts the tensors.
 */
#ifndef MFS_FS_SUMS_SUMS_H
#define MFS_FS_SUMS_SUMS_H

#include <stdint.h>
#include <stdio.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/base/tensor.h"
#include "formats/ckpt/proof.h"

#define MFS_SUMS_MAX_BYTES (256u << 20) /* of a sums file: more than a million tensors */

struct mfs_sum {
	const char *name;
	enum mfs_dtype dtype;
	uint8_t ndim;
	uint64_t shape[MFS_MAX_DIMS];
	uint8_t sha256[MFS_SHA256_BYTES];
};

struct mfs_sums {
	struct mfs_sum *list; /* sorted by name, each name once */
	uint32_t count;
	struct mfs_arena arena; /* names */
};

/* Parses the text of a sums file. file is for messages. -EINVAL: a line is not as above, names are
 * not sorted or not different, the end is missing; -ENOTSUP: another version. */
int mfs_sums_parse(const char *text, size_t len, const char *file, struct mfs_sums *ret,
		   struct mfs_error *err);
void mfs_sums_release(struct mfs_sums *sums);

/* The tensor of a name. NULL: there is none. */
const struct mfs_sum *mfs_sums_find(const struct mfs_sums *sums, const char *name);

/* True if tensors of an optimizer are among them: "exp_avg of decoder...". */
bool mfs_sums_have_optimizer(const struct mfs_sums *sums);

/* Prints the lines of a sums file. */
void mfs_sums_print_begin(FILE *to);
void mfs_sums_print(FILE *to, const struct mfs_sum *sum);
void mfs_sums_print_end(FILE *to, uint32_t count);

/* True if the name can stand in a sums file: it is not empty, and has no control characters. */
bool mfs_sums_name_ok(const char *name);

#endif
