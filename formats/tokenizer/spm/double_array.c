#include "formats/tokenizer/spm/double_array.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/absent.h"
#include "formats/base/grow.h"

#define BLOCK 256
#define OPEN  16 /* so many of the last blocks are searched for room */
#define TRIES 16 /* after so many searches in vain a block is full */

/* Keys that share what leads to a node. */
struct range {
	uint32_t node;
	size_t begin, end;
	uint32_t depth;
};

struct builder {
	const struct mfs_trie_key *keys;
	struct mfs_double_array *t;
	uint8_t *bases;	      /* [count]: 1: a node has this base */
	struct range *ranges; /* a stack */
	size_t range_count;
	size_t range_most; /* the most that there have been, for mfs_grow() */
	uint16_t *room;	   /* [count / BLOCK]: free units of a block; 0: it is full */
	uint16_t *tries;   /* [count / BLOCK] */
};

static int order(const void *a, const void *b)
{
	const struct mfs_trie_key *x = a, *y = b;
	const int by_bytes = memcmp(x->text, y->text, x->len < y->len ? x->len : y->len);

	return by_bytes ? by_bytes : (x->len > y->len) - (x->len < y->len);
}

static int add_block(struct builder *b)
{
	struct mfs_double_array *t = b->t;
	const uint32_t old = t->count, count = old + BLOCK;

	/* the room doubles, as mfs_grow()'s does */
	if (!(old & (old - 1))) {
		const uint32_t room = old ? old * 2 : BLOCK;
		struct mfs_trie_unit *units = realloc(t->units, room * sizeof(*units));
		uint8_t *bases = units ? realloc(b->bases, room) : NULL;
		uint16_t *free_units =
			bases ? realloc(b->room, room / BLOCK * sizeof(*free_units)) : NULL;

		uint16_t *tries =
			free_units ? realloc(b->tries, room / BLOCK * sizeof(*tries)) : NULL;

		t->units = units ? units : t->units;
		b->bases = bases ? bases : b->bases;
		b->room = free_units ? free_units : b->room;
		b->tries = tries ? tries : b->tries;
		if (!tries)
			return -ENOMEM;
	}
	if (count > MFS_TRIE_UNITS_MAX)
		return -ENOTSUP;
	for (uint32_t i = old; i < count; i++)
		t->units[i] = (struct mfs_trie_unit){0, MFS_ABSENT};
	memset(b->bases + old, 0, BLOCK);
	b->room[old / BLOCK] = BLOCK;
	b->tries[old / BLOCK] = 0;
	t->count = count;
	return 0;
}

static bool is_free(const struct builder *b, uint32_t unit)
{
	return unit && !(b->t->units[unit].link & MFS_TRIE_USED);
}

/* Base 0 belongs to nodes without children. */
static bool fits(const struct builder *b, uint32_t base, const uint8_t *bytes, unsigned count)
{
	if (!base || b->bases[base])
		return false;
	for (unsigned i = 0; i < count; i++)
		if (!is_free(b, base ^ bytes[i]))
			return false;
	return true;
}

static uint32_t find_base(struct builder *b, const uint8_t *bytes, unsigned count)
{
	const uint32_t blocks = b->t->count / BLOCK;

	for (uint32_t k = blocks > OPEN ? blocks - OPEN : 0; k < blocks; k++) {
		if (b->room[k] < count)
			continue;
		for (uint32_t unit = k * BLOCK; unit < (k + 1) * BLOCK; unit++)
			if (is_free(b, unit) && fits(b, unit ^ bytes[0], bytes, count))
				return unit ^ bytes[0];
		if (++b->tries[k] == TRIES)
			b->room[k] = 0;
	}
	return 0;
}

static int push(struct builder *b, struct range range)
{
	if (b->range_count == b->range_most) {
		if (mfs_grow(&b->ranges, b->range_most))
			return -ENOMEM;
		b->range_most++;
	}
	b->ranges[b->range_count++] = range;
	return 0;
}

/* The bytes that go on from a range's keys, which are sorted. */
static unsigned next_bytes(const struct builder *b, const struct range *r, uint8_t bytes[256])
{
	unsigned count = 0;

	for (size_t i = r->begin; i < r->end; i++) {
		const uint8_t byte = (uint8_t)b->keys[i].text[r->depth];

		if (!count || bytes[count - 1] != byte)
			bytes[count++] = byte;
	}
	return count;
}

static int push_children(struct builder *b, const struct range *r, uint32_t base)
{
	size_t begin = r->begin;
	int rc = 0;

	while (begin < r->end && !rc) {
		const uint8_t byte = (uint8_t)b->keys[begin].text[r->depth];
		size_t end = begin + 1;

		while (end < r->end && (uint8_t)b->keys[end].text[r->depth] == byte)
			end++;
		b->t->units[base ^ byte].link = MFS_TRIE_USED | byte;
		rc = push(b, (struct range){base ^ byte, begin, end, r->depth + 1});
		begin = end;
	}
	return rc;
}

static int place(struct builder *b, struct range r)
{
	uint8_t bytes[256];
	unsigned count;
	uint32_t base;
	int rc = 0;

	if (b->keys[r.begin].len == r.depth)
		b->t->units[r.node].value = b->keys[r.begin++].value;
	if (r.begin == r.end)
		return 0;
	count = next_bytes(b, &r, bytes);
	base = find_base(b, bytes, count);
	if (!base) {
		/* A new block has room at each base, but 0. */
		base = b->t->count + bytes[0];
		rc = add_block(b);
	}
	if (rc)
		return rc;
	b->bases[base] = 1;
	if (b->room[base / BLOCK])
		b->room[base / BLOCK] -= (uint16_t)count;
	b->t->units[r.node].link |= base << 9;
	return push_children(b, &r, base);
}

int mfs_double_array_build(struct mfs_trie_key *keys, size_t count, struct mfs_double_array *ret,
			   int32_t *ret_twice)
{
	struct builder b = {.keys = keys, .t = ret};
	int rc;

	qsort(keys, count, sizeof(*keys), order);
	for (size_t i = 1; i < count; i++)
		if (!order(&keys[i - 1], &keys[i])) {
			*ret_twice = keys[i].value;
			return -EEXIST;
		}
	rc = add_block(&b);
	if (!rc && count)
		rc = push(&b, (struct range){0, 0, count, 0});
	while (b.range_count && !rc)
		rc = place(&b, b.ranges[--b.range_count]);
	free(b.bases);
	free(b.ranges);
	free(b.room);
	free(b.tries);
	return rc;
}

void mfs_double_array_release(struct mfs_double_array *t)
{
	free(t->units);
	*t = (struct mfs_double_array){0};
}
