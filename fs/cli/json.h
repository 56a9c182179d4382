/* JSON values for --json. */
#ifndef MFS_FS_CLI_JSON_H
#define MFS_FS_CLI_JSON_H

#include <jansson.h>
#include <stdint.h>

/* null for NULL; bytes that are no UTF-8 become '?', so that a key is never missing. */
json_t *mfs_json_string(const char *s);
json_t *mfs_json_number(uint64_t n);
json_t *mfs_json_texts(const char *const *list, uint32_t count);
json_t *mfs_json_numbers(const uint64_t *list, uint32_t count);

/* One object on stdout; o is taken over. -ENOMEM. What stdout does not take, mfs_print_end()
 * says. */
int mfs_json_print(json_t *o);

#endif
