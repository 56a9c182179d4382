/* JSON values for --json. */
#ifndef MFS_FS_CLI_JSON_H
#define MFS_FS_CLI_JSON_H

#include <jansson.h>
#include <stdint.h>

/* A JSON null for NULL. Bytes that are not UTF-8 become '?', so that no key is missing. */
json_t *mfs_json_string(const char *s);
json_t *mfs_json_number(uint64_t n);
json_t *mfs_json_texts(const char *const *list, uint32_t count);
json_t *mfs_json_numbers(const uint64_t *list, uint32_t count);

/* Prints an object on stdout, and drops the reference to o. -ENOMEM. mfs_print_end() reports a
 * failure of stdout. */
int mfs_json_print(json_t *o);

#endif
