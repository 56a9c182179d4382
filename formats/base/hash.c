#define _GNU_SOURCE
#include "formats/base/hash.h"

#include <pthread.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>

#include "formats/base/bytes.h"

static uint8_t secret[16];

/* The kernel gives every process 16 random bytes, for where there are no others (getauxval(3),
 * AT_RANDOM). */
static void draw_secret(void)
{
	const void *given = (const void *)getauxval(AT_RANDOM);

	if (getrandom(secret, sizeof(secret), GRND_NONBLOCK) != (ssize_t)sizeof(secret) && given)
		memcpy(secret, given, sizeof(secret));
}

static uint64_t rotate(uint64_t x, unsigned bits)
{
	return x << bits | x >> (64 - bits);
}

static void rounds(uint64_t v[4], unsigned count)
{
	while (count--) {
		v[0] += v[1];
		v[2] += v[3];
		v[1] = rotate(v[1], 13) ^ v[0];
		v[3] = rotate(v[3], 16) ^ v[2];
		v[0] = rotate(v[0], 32);
		v[2] += v[1];
		v[0] += v[3];
		v[1] = rotate(v[1], 17) ^ v[2];
		v[3] = rotate(v[3], 21) ^ v[0];
		v[2] = rotate(v[2], 32);
	}
}

static void mix(uint64_t v[4], uint64_t word)
{
	v[3] ^= word;
	rounds(v, 2);
	v[0] ^= word;
}

uint64_t mfs_siphash(const void *bytes, size_t len, const uint8_t *key)
{
	const uint64_t k0 = mfs_le64(key), k1 = mfs_le64(key + 8);
	uint64_t v[4] = {k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261,
			 k1 ^ 0x7465646279746573};
	const uint8_t *p = bytes;
	uint8_t last[8] = {0};

	for (size_t left = len; left >= 8; left -= 8, p += 8)
		mix(v, mfs_le64(p));
	if (len % 8)
		memcpy(last, p, len % 8);
	last[7] = (uint8_t)len;
	mix(v, mfs_le64(last));
	v[2] ^= 0xff;
	rounds(v, 4);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t mfs_hash(const void *bytes, size_t len)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, draw_secret);
	return mfs_siphash(bytes, len, secret);
}
