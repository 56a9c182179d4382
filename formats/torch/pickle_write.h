/*
 * Writes pickles without frames: protocol 2 (the data.pkl of torch.save) and 4 (.metadata).
 *
 * The stream goes into a caller's buffer. After the first failed allocation or refused value, calls
 * do nothing, and mfs_pickle_end() says why, so a writer checks once at the end. Which opcode
 * Python chooses for a value: CPython's Lib/pickle.py.
 *
 * Unless it says otherwise, a function here leaves one value more on the reader's stack.
 */
#ifndef MFS_TORCH_PICKLE_WRITE_H
#define MFS_TORCH_PICKLE_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/buf.h"
#include "formats/base/error.h"
#include "formats/torch/pickle.h"
#include "formats/torch/pickle_op.h"
#include "formats/base/tensor.h"

#define MFS_PICKLE_BATCH 1000 /* Lib/pickle.py:_BATCHSIZE */

struct mfs_pickle_memo;

struct mfs_pickle_writer {
	struct mfs_buf *out; /* the caller's; the stream is appended */
	uint8_t protocol;    /* 2 or 4 */
	struct mfs_pickle_memo *memo;
	uint32_t memo_count;
	struct mfs_arena arena; /* the memo's */
	struct mfs_error failure;
};

/* Writes PROTO. protocol: 2 or 4. */
void mfs_pickle_begin(struct mfs_pickle_writer *w, struct mfs_buf *out, int protocol);
/* Writes STOP and releases the writer. The reader's stack must hold one value. -ENOMEM, or the
 * reason why a value was refused; what is in the buffer is then useless. */
int mfs_pickle_end(struct mfs_pickle_writer *w, struct mfs_error *err);
/* Releases a writer that is given up before its end. */
void mfs_pickle_abandon(struct mfs_pickle_writer *w);

/* ---- values ---- */

void mfs_pickle_none(struct mfs_pickle_writer *w);
void mfs_pickle_bool(struct mfs_pickle_writer *w, bool value);
void mfs_pickle_int(struct mfs_pickle_writer *w, int64_t value);
/* A natural number; those beyond INT64_MAX too. */
void mfs_pickle_uint(struct mfs_pickle_writer *w, uint64_t value);
/* An integer of any size: two's complement, little-endian. */
void mfs_pickle_long(struct mfs_pickle_writer *w, const uint8_t *bytes, size_t len);
void mfs_pickle_float(struct mfs_pickle_writer *w, double value);
/* UTF-8; at most 4 GiB, as all texts and bytes here. */
void mfs_pickle_strn(struct mfs_pickle_writer *w, const char *text, size_t len);
void mfs_pickle_str(struct mfs_pickle_writer *w, const char *text);
/* A text that repeats (a dict's key, a file's name): written once, then fetched from the memo. */
void mfs_pickle_namen(struct mfs_pickle_writer *w, const char *text, size_t len);
void mfs_pickle_name(struct mfs_pickle_writer *w, const char *text);
/* Protocol 2 has no bytes: _codecs.encode(text, 'latin1'), as Python writes them. */
void mfs_pickle_bytes(struct mfs_pickle_writer *w, const void *bytes, size_t len);
void mfs_pickle_bytearray(struct mfs_pickle_writer *w, const void *bytes, size_t len);
/* A class or function, memoised. Modules have their names of Python 3. Protocol 2 writes
 * __builtin__ for builtins and copy_reg for copyreg (Lib/_compat_pickle.py). Refused are names
 * with a line break and, in protocol 2, nested names (Outer.Inner), which its reader would not
 * resolve. */
void mfs_pickle_global(struct mfs_pickle_writer *w, const char *module, const char *name);

/* An opcode that has no argument. APPENDS, SETITEMS and TUPLE take what stands above the topmost
 * MARK, which may be nothing. */
void mfs_pickle_op(struct mfs_pickle_writer *w, enum mfs_pickle_op op);

/* ---- what state dicts are made of ---- */

/* OrderedDict: pairs go between begin and end, which may enclose any values. */
void mfs_pickle_ordered_dict_begin(struct mfs_pickle_writer *w);
void mfs_pickle_ordered_dict_end(struct mfs_pickle_writer *w);
/* A plain dict, likewise. */
void mfs_pickle_dict_begin(struct mfs_pickle_writer *w);
void mfs_pickle_dict_end(struct mfs_pickle_writer *w);
void mfs_pickle_list_begin(struct mfs_pickle_writer *w);
void mfs_pickle_list_end(struct mfs_pickle_writer *w);
/* An object whose state is a dict, made as cls.__new__(cls): argparse Namespace, dataclasses. Pairs
 * of attribute and value go between. */
void mfs_pickle_object_begin(struct mfs_pickle_writer *w, const char *module, const char *name);
void mfs_pickle_object_end(struct mfs_pickle_writer *w);

/* Called before item or pair i (from 0) of a list or dict that may be long. It hands the last batch
 * over, so that the reader's stack stays short. op: MFS_OP_APPENDS or MFS_OP_SETITEMS. A reader in
 * Python does not need it; ours has a limit (MFS_PICKLE_MAX_DEPTH). */
void mfs_pickle_batch(struct mfs_pickle_writer *w, enum mfs_pickle_op op, uint64_t i);

/* (a, b, ...) of ints. */
void mfs_pickle_ints(struct mfs_pickle_writer *w, const uint64_t *values, unsigned count);
/* torch.Size((a, b, ...)) */
void mfs_pickle_size(struct mfs_pickle_writer *w, const uint64_t *shape, unsigned ndim);
/* torch.bfloat16 */
void mfs_pickle_dtype(struct mfs_pickle_writer *w, enum mfs_dtype dtype);

/* A tensor's shape and strides over a storage, in elements
 * (torch/_tensor.py:_reduce_ex_internal). */
struct mfs_pickle_alias {
	uint32_t storage; /* the archive's record data/N */
	uint64_t numel;	  /* of the storage */
	enum mfs_dtype dtype;
	uint64_t offset;
	unsigned ndim;
	const uint64_t *shape;
	const uint64_t *stride; /* NULL: contiguous, row-major */
};

/* A tensor on the CPU: torch._utils._rebuild_tensor_v2 over a typed storage, or v3 over an untyped
 * one and the dtype where the type has no storage class (float8, uint16 and wider). */
void mfs_pickle_alias(struct mfs_pickle_writer *w, const struct mfs_pickle_alias *alias);
/* The common case: a contiguous tensor that has a storage of its own. */
void mfs_pickle_tensor(struct mfs_pickle_writer *w, uint32_t storage, enum mfs_dtype dtype,
		       const uint64_t *shape, unsigned ndim);

/* ---- copying values of a parsed document ---- */

#define MFS_PICKLE_COPY_DEPTH 256		   /* containers within containers */
#define MFS_PICKLE_COPY_LIMIT (UINT64_C(64) << 20) /* bytes written, unless hooks say otherwise */

/*
 * What changes while values are copied. Every member may be 0. A hook that writes uses the writer
 * of the copy. A negative return stops the copy and is its result (fill err).
 */
struct mfs_pickle_hooks {
	void *arg;
	/*
	 * Called for each pair whose key is text. dict: the dict, or the object of a dict subclass;
	 * the pairs of a Namespace are those of its state (mfs_value_state()). 0: copy the pair. 1:
	 * the hook dealt with it. It wrote nothing, which drops the pair, or keys and values in
	 * turn.
	 */
	int (*pair)(void *arg, struct mfs_pickle_writer *w, mfs_value dict, const char *key,
		    size_t key_len, mfs_value value, struct mfs_error *err);
	/* Called after the last pair of each dict (also an empty one); may write further pairs. */
	int (*pairs_end)(void *arg, struct mfs_pickle_writer *w, mfs_value dict,
			 struct mfs_error *err);
	/* Called for each value except numbers, texts, bytes, None and classes (a tensor is an
	 * object here). 0: copy it. 1: the hook wrote one value in its place. */
	int (*value)(void *arg, struct mfs_pickle_writer *w, mfs_value value,
		     struct mfs_error *err);
	/* Gives each storage its number in the new archive; the copy says that it is on the CPU. It
	 * is called for each reference, so one key needs one answer. persid: the tuple ('storage',
	 * class, key, location, numel). Without this hook persistent ids stay as they are. With it,
	 * one that is not a storage is -ENOTSUP. */
	int (*storage)(void *arg, mfs_value persid, const char *key, size_t key_len, uint32_t *ret,
		       struct mfs_error *err);
	uint64_t limit; /* bytes, and pairs asked about; 0: MFS_PICKLE_COPY_LIMIT */
};

/*
 * Writes v of doc as one value. What Python makes of it equals what it makes of the source, but
 * values that were one object there may be several here. So there is a limit, as a few bytes can
 * refer to the same list many times, and a depth, as a list may contain itself.
 *
 * hooks may be NULL. -ENOTSUP: too deep, too large, or a class that the writer's protocol cannot
 * name. -EINVAL: a value that was not kept when the document was parsed. A failed writer stays
 * failed.
 */
int mfs_pickle_copy(struct mfs_pickle_writer *w, const struct mfs_pickle *doc, mfs_value v,
		    const struct mfs_pickle_hooks *hooks, struct mfs_error *err);

#endif
