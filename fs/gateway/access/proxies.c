#include "fs/gateway/access/proxies.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/grow.h"

/* "192.0.2.1", "2001:db8::1" */
static bool parse_bare(const char *text, uint8_t ret[16])
{
	static const uint8_t of_v4[12] = {[10] = 0xff, [11] = 0xff};

	if (inet_pton(AF_INET6, text, ret) == 1)
		return true;
	memcpy(ret, of_v4, sizeof(of_v4));
	return inet_pton(AF_INET, text, ret + sizeof(of_v4)) == 1;
}

/* The same, or with a port: "192.0.2.1:80", "[2001:db8::1]:80", "[2001:db8::1]". */
static bool parse_address(const char *text, size_t len, uint8_t ret[16])
{
	char copy[INET6_ADDRSTRLEN + 16], *end, *colon;

	if (len >= sizeof(copy))
		return false;
	memcpy(copy, text, len);
	copy[len] = '\0';
	if (*copy == '[') {
		end = strchr(copy, ']');
		if (!end || (end[1] && end[1] != ':'))
			return false;
		*end = '\0';
		return parse_bare(copy + 1, ret);
	}
	colon = strchr(copy, ':');
	if (colon && !strchr(colon + 1, ':'))
		*colon = '\0';
	return parse_bare(copy, ret);
}

static bool is_v4(const uint8_t address[16])
{
	static const uint8_t before[12] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(address, before, sizeof(before));
}

/* Whether the first bits of two addresses are the same. */
static bool begin_alike(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	const unsigned bytes = bits / 8, rest = bits % 8;

	if (memcmp(a, b, bytes))
		return false;
	return !rest || !((a[bytes] ^ b[bytes]) >> (8 - rest));
}

static bool has_bits_after(const struct mfs_network *n)
{
	for (unsigned i = n->bits; i < 128; i++)
		if (n->address[i / 8] & (0x80u >> i % 8))
			return true;
	return false;
}

/* Reads the "/8" after an address; without it a network has one address. */
static bool parse_bits(const char *text, const uint8_t address[16], unsigned *ret)
{
	const unsigned before = is_v4(address) ? 96 : 0;

	*ret = 128;
	if (!*text)
		return true;
	if (strlen(text) > 4 || strspn(text + 1, "0123456789") != strlen(text + 1) || !text[1])
		return false;
	*ret = before + (unsigned)strtoul(text + 1, NULL, 10);
	return *ret <= 128;
}

int mfs_proxies_add(struct mfs_proxies *p, const char *text, struct mfs_error *err)
{
	const size_t len = strcspn(text, "/");
	struct mfs_network n;

	if (!strcmp(text, "unix")) {
		p->local = true;
		return 0;
	}
	if (strchr(text, '[') || !parse_address(text, len, n.address) ||
	    !parse_bits(text + len, n.address, &n.bits) || has_bits_after(&n))
		return mfs_fail(err, -EINVAL,
				"'%.100s' is no address of a proxy: 192.0.2.1, 10.0.0.0/8, "
				"fd00::/8 and unix are",
				text);
	if (mfs_grow(&p->list, p->count))
		return mfs_fail_nomem(err);
	p->list[p->count++] = n;
	return 0;
}

void mfs_proxies_release(struct mfs_proxies *p)
{
	free(p->list);
	*p = (struct mfs_proxies){0};
}

static bool has(const struct mfs_proxies *p, const uint8_t address[16])
{
	for (uint32_t i = 0; i < p->count; i++)
		if (begin_alike(p->list[i].address, address, p->list[i].bits))
			return true;
	return false;
}

bool mfs_proxies_trust(const struct mfs_proxies *p, const char *peer)
{
	uint8_t address[16];

	if (!p)
		return false;
	if (!strcmp(peer, "unix"))
		return p->local;
	return parse_address(peer, strlen(peer), address) && has(p, address);
}

void mfs_proxies_network(const char *client, uint8_t ret[16])
{
	if (!parse_address(client, strlen(client), ret))
		memset(ret, 0, 16);
	else if (!is_v4(ret))
		memset(ret + 8, 0, 8);
}

/* Takes the last element off a list. False: there is none. */
static bool take_last(const char *list, size_t *len, const char **ret, size_t *ret_len)
{
	size_t from = *len;

	if (!*len)
		return false;
	while (from && list[from - 1] != ',')
		from--;
	*ret = list + from;
	*ret_len = *len - from;
	*len = from ? from - 1 : 0;
	while (*ret_len && strchr(" \t", **ret))
		(*ret)++, (*ret_len)--;
	while (*ret_len && strchr(" \t", (*ret)[*ret_len - 1]))
		(*ret_len)--;
	return true;
}

void mfs_proxies_client(const struct mfs_proxies *p, const char *peer, const char *forwarded,
			char *ret, size_t size)
{
	size_t left = forwarded ? strlen(forwarded) : 0, len;
	uint8_t address[16];
	const char *text;

	*ret = '\0';
	if (!left || !mfs_proxies_trust(p, peer))
		return;
	while (take_last(forwarded, &left, &text, &len) && parse_address(text, len, address)) {
		if (is_v4(address))
			inet_ntop(AF_INET, address + 12, ret, (socklen_t)size);
		else
			inet_ntop(AF_INET6, address, ret, (socklen_t)size);
		if (!has(p, address))
			return;
	}
}
