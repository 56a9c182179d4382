#include "formats/net/special.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"

struct range {
	uint8_t bytes[16];
	unsigned bits;
};

static const struct range ipv4[] = {
	{{0}, 8},	   /* this network */
	{{10}, 8},	   /* private */
	{{100, 64}, 10},   /* shared by a provider's customers */
	{{127}, 8},	   /* loopback */
	{{169, 254}, 16},  /* link; the metadata of clouds */
	{{172, 16}, 12},   /* private */
	{{192, 0, 0}, 24}, /* protocols */
	{{192, 168}, 16},  /* private */
	{{198, 18}, 15},   /* benchmarks */
	{{224}, 3},	   /* multicast, and reserved */
};

static const struct range ipv6[] = {
	{{0}, 127},	    /* none, and loopback */
	{{0x01, 0x00}, 64}, /* discarded */
	{{0xfc}, 7},	    /* unique local */
	{{0xfe, 0x80}, 10}, /* link */
	{{0xfe, 0xc0}, 10}, /* site, before unique local */
	{{0xff}, 8},	    /* multicast */
};

/* Prefixes before an IPv4 address: mapped, compatible, NAT64 (RFC 6052, 8215), 6to4. */
static const struct range within[] = {
	{{[10] = 0xff, 0xff}, 96},
	{{0}, 96},
	{{0x00, 0x64, 0xff, 0x9b}, 96},
	{{0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}, 96},
	{{0x20, 0x02}, 16},
};

static bool is_in(const uint8_t *address, const struct range *r)
{
	const unsigned whole = r->bits / 8, rest = r->bits % 8;

	return !memcmp(address, r->bytes, whole) &&
	       (!rest || !((address[whole] ^ r->bytes[whole]) >> (8 - rest)));
}

static bool is_in_any(const uint8_t *address, const struct range *ranges, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (is_in(address, &ranges[i]))
			return true;
	return false;
}

#define IN(address, ranges) is_in_any(address, ranges, MFS_ARRAY_SIZE(ranges))

/* The IPv4 address that an IPv6 one stands for; NULL: it is its own. */
static const uint8_t *ipv4_in(const uint8_t *address)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(within); i++)
		if (is_in(address, &within[i]))
			return address + within[i].bits / 8;
	return NULL;
}

/* 4 or 16 bytes; 0: of another family. */
static size_t bytes_of(const struct sockaddr *address, const uint8_t **ret)
{
	if (address->sa_family == AF_INET) {
		*ret = (const uint8_t *)&((const struct sockaddr_in *)(const void *)address)
			       ->sin_addr;
		return 4;
	}
	if (address->sa_family != AF_INET6)
		return 0;
	*ret = (const uint8_t *)&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
	return 16;
}

bool mfs_address_is_special(const struct sockaddr *address)
{
	const uint8_t *bytes, *old;
	const size_t len = bytes_of(address, &bytes);

	if (len == 4)
		return IN(bytes, ipv4);
	if (!len || IN(bytes, ipv6))
		return true;
	old = ipv4_in(bytes);
	return old && IN(old, ipv4);
}

bool mfs_address_is_same(const struct sockaddr *a, const struct sockaddr *b)
{
	const uint8_t *x, *y;
	const size_t len = bytes_of(a, &x);

	return len && len == bytes_of(b, &y) && !memcmp(x, y, len);
}

void mfs_address_host(const struct sockaddr *address, char ret[MFS_ADDRESS_TEXT])
{
	const uint8_t *bytes;

	if (!bytes_of(address, &bytes) ||
	    !inet_ntop(address->sa_family, bytes, ret, MFS_ADDRESS_TEXT))
		snprintf(ret, MFS_ADDRESS_TEXT, "an address of another kind");
}
