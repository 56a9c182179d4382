/* Why S3 refuses a request: the code in the body of its answer. It comes from outside. */
#ifndef MFS_REMOTE_REFUSAL_H
#define MFS_REMOTE_REFUSAL_H

#include <stddef.h>

#define MFS_REFUSAL 64 /* bytes of a code with its NUL */

/* "SignatureDoesNotMatch" of "<Error><Code>SignatureDoesNotMatch</Code>...": letters and digits
 * alone. "": the body says none. */
void mfs_refusal_read(const char *body, size_t len, char ret[MFS_REFUSAL]);

#endif
