/*
 * Event files, which TensorBoard reads: scalars by tags and steps. Any program of the person who
 * trains may have written them, so nothing in them is trusted.
 *
 * Sources: tensorboard/summary/writer/record_writer.py (framing, masked CRC-32C);
 * tensorboard/compat/proto/event.proto, summary.proto, tensor.proto (fields and numbers).
 */
#ifndef MFS_RUN_EVENT_FILE_H
#define MFS_RUN_EVENT_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"

/* Of a record that is read; larger ones (histograms, pictures) are passed over. */
#define MFS_EVENT_BYTES (256u << 10)

struct mfs_scalar {
	const char *tag; /* tag_len bytes of any value */
	size_t tag_len;
	int64_t step; /* not negative */
	double value;
};

/*
 * Reads whole records from the beginning of bytes, and calls each for their scalars until it
 * returns non-zero; returns that. *ret_used: bytes of these records, also after a failure. The
 * record after them is not whole, as at the end of a file that is being written, or it is too
 * large: then *ret_skip is its number of bytes. name: for messages. -EINVAL: a sum does not fit, or
 * a message is no event as TensorBoard writes it.
 */
int mfs_event_records(const char *name, const uint8_t *bytes, size_t len,
		      int (*each)(void *arg, const struct mfs_scalar *s), void *arg,
		      size_t *ret_used, uint64_t *ret_skip, struct mfs_error *err);

#endif
