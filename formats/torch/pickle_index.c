#include "formats/torch/pickle_index.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/uthash.h"

/* The longest key that a table has, in bytes. One long key may be in every pair by reference, and
 * would be hashed for each. */
#define LONGEST 512

/* Of one dict: open addressing, at most half full. */
struct index {
	UT_hash_handle hh;
	mfs_value dict;
	uint32_t mask;
	uint32_t slots[]; /* number of a pair + 1; 0: empty */
};

struct mfs_pickle_indices {
	pthread_mutex_t lock;
	struct index *first; /* by dict */
};

struct mfs_pickle_indices *mfs_pickle_indices_new(void)
{
	struct mfs_pickle_indices *x = calloc(1, sizeof(*x));

	if (x)
		pthread_mutex_init(&x->lock, NULL);
	return x;
}

void mfs_pickle_indices_free(struct mfs_pickle_indices *x)
{
	struct index *i, *next;

	if (!x)
		return;
	HASH_ITER(hh, x->first, i, next)
	{
		HASH_DEL(x->first, i);
		free(i);
	}
	pthread_mutex_destroy(&x->lock);
	free(x);
}

/* The slot of a key, or the empty one where it would be. */
static uint32_t *slot_of(struct index *i, const struct mfs_pickle *doc, const char *key, size_t len)
{
	const char *text;
	size_t text_len;

	for (uint32_t at = (uint32_t)mfs_hash(key, len);; at++) {
		uint32_t *slot = &i->slots[at & i->mask];

		if (!*slot ||
		    (mfs_value_str(doc, mfs_value_key(doc, i->dict, *slot - 1), &text, &text_len) &&
		     text_len == len && !memcmp(text, key, len)))
			return slot;
	}
}

/* In order, so that a key set twice keeps its last pair. */
static void fill(struct index *i, const struct mfs_pickle *doc, uint32_t pairs)
{
	const char *key;
	size_t len;

	for (uint32_t p = 0; p < pairs; p++)
		if (mfs_value_str(doc, mfs_value_key(doc, i->dict, p), &key, &len) &&
		    len <= LONGEST)
			*slot_of(i, doc, key, len) = p + 1;
}

static struct index *make(struct mfs_pickle_indices *x, const struct mfs_pickle *doc, mfs_value v)
{
	const uint32_t pairs = mfs_value_pairs(doc, v);
	uint32_t slots = 2 * MFS_PICKLE_LONG;
	struct index *i;

	while (slots / 2 < pairs)
		slots *= 2; /* a stream has fewer than 2^30 pairs: extend() */
	i = calloc(1, sizeof(*i) + slots * sizeof(*i->slots));
	if (!i)
		return NULL;
	i->dict = v;
	i->mask = slots - 1;
	fill(i, doc, pairs);
	HASH_ADD(hh, x->first, dict, sizeof(i->dict), i);
	if (i->hh.tbl)
		return i;
	free(i);
	return NULL;
}

int mfs_pickle_index_find(struct mfs_pickle_indices *x, const struct mfs_pickle *doc, mfs_value v,
			  const char *key, uint32_t *ret_pair)
{
	const size_t len = strlen(key);
	const uint32_t *slot = NULL;
	struct index *i;

	if (len > LONGEST)
		return -ENOMEM;
	pthread_mutex_lock(&x->lock);
	HASH_FIND(hh, x->first, &v, sizeof(v), i);
	if (!i)
		i = make(x, doc, v);
	if (i)
		slot = slot_of(i, doc, key, len);
	pthread_mutex_unlock(&x->lock);
	if (!slot)
		return -ENOMEM;
	if (!*slot)
		return -ENOENT;
	*ret_pair = *slot - 1;
	return 0;
}
