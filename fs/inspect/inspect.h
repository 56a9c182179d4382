/* What `mcorefs inspect` has found, and how it is printed. Private to fs/inspect. */
#ifndef MFS_FS_INSPECT_INSPECT_H
#define MFS_FS_INSPECT_INSPECT_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/base/tensor.h"
#include "fs/source/root.h"

#define MFS_INSPECT_HINTS  4
#define MFS_INSPECT_DTYPES (MFS_C128 + 1)

struct mfs_inspection {
	struct mfs_root *root;
	const struct mfs_root_snapshot *snapshot;
	bool tensors;		  /* list every tensor */
	struct mfs_iteration *it; /* the latest, else the newest complete one; NULL: none */
	struct mfs_ckpt *ckpt;	  /* NULL: no iteration, or ckpt_error says why */
	struct mfs_view *view;	  /* NULL: no checkpoint, or view_error says why */
	struct mfs_error ckpt_error, view_error;
	uint64_t source_bytes; /* of the checkpoint's files */
	uint64_t elements
		[MFS_INSPECT_DTYPES]; /* of the model, or of the checkpoint without a model */
	uint64_t element_count;	      /* sum of these */
	const char *tokenizer;	      /* a tokenizer file of the view, or NULL */
	const char *
		hints[MFS_INSPECT_HINTS]; /* options that a person could add; NULL after the last */
	bool good;			  /* the latest iteration is complete and has its view */
};

/* "args", "option", "ref", "tokenizer" or "padded". */
const char *mfs_inspect_vocab_source(const struct mfs_inspection *in);

uint32_t mfs_inspect_hints(const struct mfs_inspection *in); /* how many */

void mfs_inspect_table(const struct mfs_inspection *in);
/* Prints one JSON object on stdout. It always has all keys. -ENOMEM. */
int mfs_inspect_json(const struct mfs_inspection *in);
/* Like mfs_inspect_json(), for a SOURCE that cannot be opened: the object has only "source", "ok"
 * and "error". */
int mfs_inspect_json_failed(const char *source, const char *why);

#endif
