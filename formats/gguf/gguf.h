/*
 * The header of a GGUF file, version 3, written (ggml: docs/gguf.md, gguf-py/gguf/gguf_writer.py):
 *
 *   "GGUF", version, number of tensors, number of keys
 *   keys      name, type, value
 *   tensors   name, axes, type, offset from the first tensor byte
 *   zeros up to a multiple of MFS_GGUF_ALIGNMENT, and then the tensors, each followed by such zeros
 *
 * Numbers are little-endian, a text is its length in 8 bytes and its bytes. Axes stand in reverse:
 * the first is that whose elements are neighbours.
 */
#ifndef MFS_GGUF_GGUF_H
#define MFS_GGUF_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/buf.h"
#include "formats/base/error.h"
#include "formats/base/tensor.h"

#define MFS_GGUF_ALIGNMENT 32 /* the default of "general.alignment" */
#define MFS_GGUF_DIMS	   4  /* GGML_MAX_DIMS */
#define MFS_GGUF_NAME_MAX  63 /* bytes of a tensor's name: GGML_MAX_NAME less the NUL */

/* Types of values (gguf/constants.py: GGUFValueType). */
enum mfs_gguf_type {
	MFS_GGUF_U32 = 4,
	MFS_GGUF_I32 = 5,
	MFS_GGUF_F32 = 6,
	MFS_GGUF_BOOL = 7,
	MFS_GGUF_TEXT = 8,
	MFS_GGUF_ARRAY = 9,
};

/* Zero-fill it first. Keys and tensors may be added in any order. */
struct mfs_gguf {
	struct mfs_buf keys, infos;
	uint64_t key_count, tensor_count;
	uint64_t data; /* bytes of the tensors so far, zeros included */
};

void mfs_gguf_u32(struct mfs_gguf *g, const char *key, uint32_t value);
void mfs_gguf_f32(struct mfs_gguf *g, const char *key, double value);
void mfs_gguf_bool(struct mfs_gguf *g, const char *key, bool value);
void mfs_gguf_text(struct mfs_gguf *g, const char *key, const char *value);

/* An array; count calls for its elements follow. */
void mfs_gguf_array(struct mfs_gguf *g, const char *key, enum mfs_gguf_type type, uint64_t count);
void mfs_gguf_element_i32(struct mfs_gguf *g, int32_t value);
void mfs_gguf_element_text(struct mfs_gguf *g, const char *text, size_t len);

/* ggml's number for an element type. -1: it has none, or none that weights are of. */
int mfs_gguf_dtype(enum mfs_dtype dtype);

/* Appends a tensor to those that were added. *ret_padding: zeros that follow its bytes. -ENOTSUP:
 * ggml has no such type, more axes than MFS_GGUF_DIMS or a name that is too long; -EINVAL: all
 * tensors are more than 2^64 bytes. */
int mfs_gguf_tensor(struct mfs_gguf *g, const char *name, enum mfs_dtype dtype,
		    const uint64_t *shape, unsigned ndim, uint64_t *ret_padding,
		    struct mfs_error *err);

/* The header up to the first tensor byte. out->failed: out of memory, also before. */
void mfs_gguf_header(const struct mfs_gguf *g, struct mfs_buf *out);
void mfs_gguf_release(struct mfs_gguf *g);

#endif
