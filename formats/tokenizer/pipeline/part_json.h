/* Members of the small parts of tokenizer.json. */
#ifndef MFS_TOKENIZER_PIPELINE_PART_JSON_H
#define MFS_TOKENIZER_PIPELINE_PART_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/buf.h"
#include "formats/base/error.h"
#include "formats/tokenizer/unicode/token_regex.h"

/* The "type". NULL: it has none. */
const char *mfs_part_type(const json_t *part);
/* These fail with -EINVAL where the member is absent or of another type. */
int mfs_part_bool(const json_t *part, const char *name, bool *ret, struct mfs_error *err);
int mfs_part_text(const json_t *part, const char *name, struct mfs_buf *ret, struct mfs_error *err);
int mfs_part_count(const json_t *part, const char *name, size_t *ret, struct mfs_error *err);
/* A text of one character. */
int mfs_part_character(const json_t *part, const char *name, uint32_t *ret, struct mfs_error *err);
/* Its "pattern": {"String": text} or {"Regex": expression}. */
int mfs_part_pattern(const json_t *part, struct mfs_regex **ret, struct mfs_error *err);

#endif
