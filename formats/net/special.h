/* Addresses that are not the Internet's. */
#ifndef MFS_NET_SPECIAL_H
#define MFS_NET_SPECIAL_H

#include <stdbool.h>
#include <sys/socket.h>

/* Whether an address is of this machine, of a private or local network, or of none: what a machine
 * outside has no business to lead anybody to (RFC 6890 and its registries; multicast). An IPv6
 * address that stands for an IPv4 one counts as that. Of other families: true. */
bool mfs_address_is_special(const struct sockaddr *address);
/* Whether two are one host's, whatever the ports. */
bool mfs_address_is_same(const struct sockaddr *a, const struct sockaddr *b);
#define MFS_ADDRESS_TEXT 64
/* "192.0.2.1", "2001:db8::1" */
void mfs_address_host(const struct sockaddr *address, char ret[MFS_ADDRESS_TEXT]);

#endif
