/*
 * Proxies in front of a gateway that are believed when they say who their client is, by
 * X-Forwarded-For. What anybody else says there is not looked at.
 */
#ifndef MFS_FS_GATEWAY_ACCESS_PROXIES_H
#define MFS_FS_GATEWAY_ACCESS_PROXIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"

/* Addresses of IPv4 are those that IPv6 has for them. */
struct mfs_network {
	uint8_t address[16];
	unsigned bits;
};

/* Zeros: none. */
struct mfs_proxies {
	struct mfs_network *list;
	uint32_t count;
	bool local; /* those that come by a unix socket */
};

/* Adds "192.0.2.1", "10.0.0.0/8", "fd00::/8", or "unix". -EINVAL: it is none of these, or has bits
 * after its prefix. */
int mfs_proxies_add(struct mfs_proxies *p, const char *text, struct mfs_error *err);
void mfs_proxies_release(struct mfs_proxies *p);

/* Whether a peer is one of them. peer: as struct mfs_request has it. p may be NULL. */
bool mfs_proxies_trust(const struct mfs_proxies *p, const char *peer);
/* What a client is counted by: its address, of IPv6 the first 64 bits of it; zeros for what is
 * none. client: as a peer above, or without a port. */
void mfs_proxies_network(const char *client, uint8_t ret[16]);
/* The address that proxies say a request is from: of those in forwarded, the last one that is no
 * proxy's itself. "": peer is no proxy, or says none; forwarded may be NULL. */
void mfs_proxies_client(const struct mfs_proxies *p, const char *peer, const char *forwarded,
			char *ret, size_t size);

#endif
