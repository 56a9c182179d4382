/*
 * The two forms of a model of blocks, in arguments. A GPTModel numbers its blocks and has arguments
 * for which of them have experts; a HybridModel numbers sublayers, and has one pattern for all of
 * that (formats/args/hybrid_layers.h).
 *
 * Megatron tells them apart by the pattern alone (megatron/training/checkpointing.py:
 * _maybe_setup_gpt_to_hybrid_load).
 */
#ifndef MFS_MEGATRON_WRITE_FORM_H
#define MFS_MEGATRON_WRITE_FORM_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/buf.h"
#include "formats/megatron/layout.h"
#include "formats/torch/pickle_write.h"

/* Appends the pattern. "|" ends each model chunk of the layout; NULL: there are no "|". */
void mfs_form_pattern(const struct mfs_megatron_args *a, const struct mfs_layout *layout,
		      struct mfs_buf *out);

/* Arguments on their way into another form, or into a pattern of another layout. */
struct mfs_form {
	const struct mfs_megatron_args *args;
	const struct mfs_layout *layout; /* NULL: the source's own */
	bool hybrid;			 /* what is written: a HybridModel's */
	uint32_t written;		 /* rows of the list, as bits */
};

/* Writes an argument as it is in the form. 0: it is the same in both, and nothing was written; 1:
 * it was dealt with. */
int mfs_form_replace(struct mfs_form *f, struct mfs_pickle_writer *w, const char *key,
		     size_t key_len);
/* Writes what the form needs and mfs_form_replace() was not asked for. */
void mfs_form_complete(struct mfs_form *f, struct mfs_pickle_writer *w);

#endif
