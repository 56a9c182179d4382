/*
 * What torch.save wrote before torch 1.6, and writes still with
 * _use_new_zipfile_serialization=False (torch/serialization.py: _legacy_save): five pickles one
 * after the other, and then the storages.
 *
 *   0x1950a86a20f9469cfc6c, 1001, {protocol_version, little_endian, type_sizes}, the object,
 *   [key of each storage]; for each key: number of elements (int64), bytes
 *
 * A storage's persistent id in the object is ('storage', class, key, location, elements, view). The
 * stream's records are given as those of an archive: "stream/data.pkl", "stream/data/KEY".
 */
#ifndef MFS_TORCH_TORCH_STREAM_H
#define MFS_TORCH_TORCH_STREAM_H

#include <stdbool.h>

#include "formats/torch/pickle.h"
#include "formats/torch/zip.h"

/* True if a source begins with the magic number. */
bool mfs_torch_is_stream(const struct mfs_source *src);

/* Reads the pickles and finds every storage. *ret_bytes are the object's bytes, which the document
 * points into; the caller frees all three. -EINVAL: malformed, cut short, or a storage that is not
 * as the object says. -ENOTSUP: big-endian, or of an element type that is not supported. */
int mfs_torch_stream_open(const struct mfs_source *src, struct mfs_zip *ret, void **ret_bytes,
			  struct mfs_pickle **ret_doc, struct mfs_error *err);

#endif
