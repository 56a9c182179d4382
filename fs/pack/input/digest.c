#include "fs/pack/input/digest.h"

#include <stdlib.h>
#include <xxhash.h>

#include "formats/base/bytes.h"

struct mfs_pack_digest {
	uint64_t position;
	uint64_t block_hash;  /* of the blocks before the one at hand: its seed */
	uint64_t before_hash; /* the same, one block earlier */
	XXH3_state_t *state;  /* of the block at hand */
};

int mfs_pack_digest_new(const struct mfs_pack_mark *mark, struct mfs_pack_digest **ret,
			struct mfs_error *err)
{
	struct mfs_pack_digest *d = calloc(1, sizeof(*d));

	if (d)
		d->state = XXH3_createState();
	if (!d || !d->state) {
		free(d);
		return mfs_fail_nomem(err);
	}
	d->position = mark->anchor;
	d->block_hash = d->before_hash = mark->anchor_hash;
	XXH3_64bits_reset_withSeed(d->state, d->block_hash);
	*ret = d;
	return 0;
}

void mfs_pack_digest_free(struct mfs_pack_digest *d)
{
	if (!d)
		return;
	XXH3_freeState(d->state);
	free(d);
}

static void end_block(struct mfs_pack_digest *d)
{
	d->before_hash = d->block_hash;
	d->block_hash = XXH3_64bits_digest(d->state);
	XXH3_64bits_reset_withSeed(d->state, d->block_hash);
}

void mfs_pack_digest_add(struct mfs_pack_digest *d, const void *bytes, size_t len)
{
	const uint8_t *from = bytes;

	while (len) {
		const size_t room = MFS_PACK_BLOCK - d->position % MFS_PACK_BLOCK;
		const size_t n = mfs_min_u64(len, room);

		XXH3_64bits_update(d->state, from, n);
		d->position += n;
		from += n;
		len -= n;
		if (n == room)
			end_block(d);
	}
}

struct mfs_pack_mark mfs_pack_digest_mark(const struct mfs_pack_digest *d)
{
	const uint64_t block = d->position - d->position % MFS_PACK_BLOCK;

	return (struct mfs_pack_mark){
		.position = d->position,
		.hash = XXH3_64bits_digest(d->state),
		.anchor = block ? block - MFS_PACK_BLOCK : 0,
		.anchor_hash = block ? d->before_hash : 0,
	};
}
