/*
 * The gateway's own address, as the client has it: "https://gw.example:8443". Host names it, or a
 * trusted proxy's X-Forwarded-Host and X-Forwarded-Proto.
 */
#ifndef MFS_FS_GATEWAY_CALL_GATEWAY_ADDRESS_H
#define MFS_FS_GATEWAY_CALL_GATEWAY_ADDRESS_H

#include <stdbool.h>

#include "formats/base/buf.h"
#include "fs/gateway/call/call.h"

/* Whether clients reach it by TLS: its own, or a trusted proxy's. */
bool mfs_call_is_tls(const struct mfs_call *c);
/* HOST[:PORT] of letters, digits and ".-_:[]". NULL: the client has not sent one. */
const char *mfs_call_host(const struct mfs_call *c);
/* Appends the address, without '/' at its end; nothing if there is no host. */
void mfs_call_add_address(const struct mfs_call *c, struct mfs_buf *b);

#endif
