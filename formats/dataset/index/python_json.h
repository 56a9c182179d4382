/*
 * json.dumps(value, indent=4) as Python writes it, byte for byte (CPython: Lib/json/encoder.py,
 * Modules/_json.c, Python/pystrtod.c): keys in the order in which they were set, all characters
 * outside of printable ASCII escaped, floats by repr().
 */
#ifndef MFS_DATASET_INDEX_PYTHON_JSON_H
#define MFS_DATASET_INDEX_PYTHON_JSON_H

#include <jansson.h>
#include <stddef.h>

#include "formats/base/error.h"

#define MFS_PYTHON_JSON_MAX (64u << 20) /* bytes */

/*
 * *ret is freed by the caller and ends with a NUL that *ret_len does not count. A string that is no
 * UTF-8 (json_string_nocheck()) is written as Python does a file name: each byte that cannot be
 * decoded is the lone surrogate U+DC00 + byte. -ENOTSUP: longer than MFS_PYTHON_JSON_MAX.
 */
int mfs_python_json(json_t *value, char **ret, size_t *ret_len, struct mfs_error *err);

#endif
