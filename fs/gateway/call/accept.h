/* What kind of reply a client wants (Accept; RFC 9110, 12.5.1). */
#ifndef MFS_FS_GATEWAY_CALL_ACCEPT_H
#define MFS_FS_GATEWAY_CALL_ACCEPT_H

#include <stdbool.h>

/* Whether a list names a type itself, with a weight that is not zero. Browsers name "text/html",
 * programs take all types with one star. accept may be NULL. */
bool mfs_accept_names(const char *accept, const char *type);

#endif
