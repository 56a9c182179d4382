/* Appends to a struct mfs_token_ids. */
#ifndef MFS_TOKENIZER_TOKEN_IDS_H
#define MFS_TOKENIZER_TOKEN_IDS_H

#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/tokenizer.h"

/* Makes room for count ids more. -ENOMEM. */
static inline int mfs_token_ids_room(struct mfs_token_ids *ids, size_t count, struct mfs_error *err)
{
	const size_t room = (ids->capacity + count) * 2;
	uint32_t *at;

	if (ids->capacity - ids->count >= count)
		return 0;
	at = realloc(ids->at, room * sizeof(*at));
	if (!at)
		return mfs_fail_nomem(err);
	ids->at = at;
	ids->capacity = room;
	return 0;
}

static inline int mfs_token_ids_append(struct mfs_token_ids *ids, const uint32_t *at, size_t count,
				       struct mfs_error *err)
{
	if (mfs_token_ids_room(ids, count, err))
		return -ENOMEM;
	if (count)
		memcpy(ids->at + ids->count, at, count * sizeof(*at));
	ids->count += count;
	return 0;
}

#endif
