#include "formats/tokenizer/token_table.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "formats/base/hash.h"

/* The seed is drawn by mfs_hash(), whose key is the process's. */
uint64_t mfs_token_seed(void)
{
	static _Atomic uint64_t seed;

	if (!seed)
		seed = mfs_hash("tokens", 6) | 1;
	return seed;
}

uint64_t mfs_token_hash(const char *text, size_t len)
{
	return XXH3_64bits_withSeed(text, len, mfs_token_seed());
}

static int make_room(struct mfs_token_table *t, uint64_t id)
{
	uint64_t room = t->count ? t->count : 1;
	struct mfs_token *at;

	/* the room is the power of two that holds count */
	while (room & (room - 1))
		room += room & -room;
	if (t->at && id < room)
		return 0;
	while (room <= id)
		room *= 2;
	at = realloc(t->at, room * sizeof(*at));
	if (!at)
		return -ENOMEM;
	t->at = at;
	return 0;
}

int mfs_token_table_set(struct mfs_token_table *t, uint64_t id, const char *text, size_t len,
			struct mfs_error *err)
{
	if (id >= MFS_TOKEN_ID_MAX)
		return mfs_fail(err, -EINVAL, "token id %llu; expected less than %u",
				(unsigned long long)id, MFS_TOKEN_ID_MAX);
	if (len > INT32_MAX)
		return mfs_fail(err, -EINVAL, "token %llu is too long", (unsigned long long)id);
	if (id < t->count && t->at[id].text)
		return mfs_fail(err, -EINVAL, "two tokens have the id %llu",
				(unsigned long long)id);
	if (make_room(t, id))
		return mfs_fail_nomem(err);
	for (; t->count <= id; t->count++)
		t->at[t->count] = (struct mfs_token){0};
	t->at[id] = (struct mfs_token){text, (uint32_t)len};
	t->used++;
	return 0;
}

static bool is_text(const struct mfs_token *token, const char *text, size_t len)
{
	return token->len == len && !memcmp(token->text, text, len);
}

static void insert(struct mfs_token_table *t, uint32_t id)
{
	const struct mfs_token *token = &t->at[id];
	const uint64_t hash = mfs_token_hash(token->text, token->len);
	uint32_t i = (uint32_t)hash & t->mask;

	while (t->slots[i].id != MFS_NO_ID &&
	       !is_text(&t->at[t->slots[i].id], token->text, token->len))
		i = (i + 1) & t->mask;
	t->slots[i] = (struct mfs_token_slot){(uint32_t)(hash >> 32), id};
}

int mfs_token_table_index(struct mfs_token_table *t, struct mfs_error *err)
{
	uint32_t room = 16;

	while (room < 2 * t->used)
		room *= 2;
	t->slots = malloc(room * sizeof(*t->slots));
	if (!t->slots)
		return mfs_fail_nomem(err);
	t->mask = room - 1;
	for (uint32_t i = 0; i < room; i++)
		t->slots[i] = (struct mfs_token_slot){0, MFS_NO_ID};
	for (uint32_t id = 0; id < t->count; id++)
		if (t->at[id].text)
			insert(t, id);
	return 0;
}

uint32_t mfs_token_table_find(const struct mfs_token_table *t, const char *text, size_t len)
{
	const uint64_t hash = mfs_token_hash(text, len);
	uint32_t i = (uint32_t)hash & t->mask;

	for (; t->slots[i].id != MFS_NO_ID; i = (i + 1) & t->mask)
		if (t->slots[i].tag == (uint32_t)(hash >> 32) &&
		    is_text(&t->at[t->slots[i].id], text, len))
			return t->slots[i].id;
	return MFS_NO_ID;
}

void mfs_token_find_bytes(const struct mfs_token_table *t, uint32_t ret[256])
{
	char text[8];

	for (unsigned i = 0; i < 256; i++) {
		snprintf(text, sizeof(text), "<0x%02X>", i);
		ret[i] = mfs_token_table_find(t, text, 6);
	}
}

void mfs_token_table_release(struct mfs_token_table *t)
{
	free(t->at);
	free(t->slots);
	*t = (struct mfs_token_table){0};
}
