#include "formats/text/parquet/snappy.h"

#include <string.h>

struct stream {
	const uint8_t *in, *end;
	uint8_t *out, *begin, *limit;
};

/* A number of count bytes, little-endian. */
static bool number(struct stream *s, unsigned count, size_t *ret)
{
	if ((size_t)(s->end - s->in) < count)
		return false;
	*ret = 0;
	for (unsigned i = 0; i < count; i++)
		*ret |= (size_t)*s->in++ << 8 * i;
	return true;
}

static bool literal(struct stream *s, uint8_t tag)
{
	size_t len = tag >> 2;

	if (len >= 60 && !number(s, (unsigned)len - 59, &len))
		return false;
	len++;
	if (len > (size_t)(s->end - s->in) || len > (size_t)(s->limit - s->out))
		return false;
	memcpy(s->out, s->in, len);
	s->in += len;
	s->out += len;
	return true;
}

/* What comes out may be what comes in: bytes are copied one by one. */
static bool copy(struct stream *s, uint8_t tag)
{
	size_t len = (tag >> 2) + 1u, offset;

	if (!number(s, (tag & 3) == 1 ? 1 : (tag & 3) == 2 ? 2 : 4, &offset))
		return false;
	if ((tag & 3) == 1) {
		len = (tag >> 2 & 7) + 4u;
		offset |= (size_t)(tag >> 5) << 8;
	}
	if (!offset || offset > (size_t)(s->out - s->begin) || len > (size_t)(s->limit - s->out))
		return false;
	for (; len; len--, s->out++)
		*s->out = s->out[-(ptrdiff_t)offset];
	return true;
}

static bool preamble(struct stream *s, uint64_t *ret)
{
	*ret = 0;
	for (unsigned shift = 0; shift < 35 && s->in < s->end; shift += 7) {
		*ret |= (uint64_t)(*s->in & 0x7f) << shift;
		if (!(*s->in++ & 0x80))
			return true;
	}
	return false;
}

bool mfs_snappy_unpack(const uint8_t *in, size_t len, uint8_t *out, size_t out_len)
{
	struct stream s = {in, in + len, out, out, out + out_len};
	uint64_t want;
	bool good = preamble(&s, &want) && want == out_len;

	while (good && s.in < s.end) {
		const uint8_t tag = *s.in++;

		good = tag & 3 ? copy(&s, tag) : literal(&s, tag);
	}
	return good && s.out == s.limit;
}
