/* torch_dist: where the states of Transformer Engine's modules lie, one byte item each
 * ("MODULE._extra_state/shard_OFFSETS_SHAPE"). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/ckpt/extra_states.h"
#include "formats/ckpt/language_part.h"
#include "formats/ckpt/read/dist_i.h"

#define SHARD "._extra_state/shard_"

/* Numbers up to INT32_MAX, joined by dots. Returns how many there are; 0: something else, or more
 * than two. */
static unsigned parse_offsets(const char *text, int32_t ret[2])
{
	unsigned count = 0;
	char *end;

	for (;; text = end + 1) {
		const long v = strtol(text, &end, 10);

		if (end == text || v < 0 || v > INT32_MAX || count == 2)
			return 0;
		ret[count++] = (int32_t)v;
		if (*end != '.')
			return *end == '_' ? count : 0;
	}
}

/* The weight that the module owns: layers and experts that have no number in the key have one among
 * the offsets. False: no module of the model. */
static bool find_owner(const struct mfs_dist_reader *r, const char *key, const char *shard,
		       struct mfs_name *ret)
{
	char text[MFS_NAME_MAX], part[MFS_NAME_MAX];
	int32_t offsets[2];
	const unsigned count = parse_offsets(shard + strlen(SHARD), offsets);
	const char *name;
	unsigned used = 0;

	snprintf(text, sizeof(text), "%.*s.weight", (int)(shard - key), key);
	name = mfs_ckpt_part_name(r->ckpt, text, part, sizeof(part));
	if (!name || !count)
		return false;
	mfs_name_parse(name, ret);
	if (ret->layered && ret->layer < 0)
		ret->layer = offsets[used++];
	if (ret->experts && ret->expert < 0 && used < count)
		ret->expert = offsets[used++];
	return ret->known && (!ret->experts || ret->expert >= 0);
}

static int note(struct mfs_dist_reader *r, const struct mfs_dcp_bytes *b)
{
	const char *key = mfs_dist_model_key(r, b->key);
	const char *shard = key ? strstr(key, SHARD) : NULL;
	struct mfs_ckpt_extra e = {.experts = 1, .item = true};
	struct mfs_name name;
	int rc;

	if (!shard || b->item.file == MFS_DCP_FILE_NONE || !find_owner(r, key, shard, &name))
		return 0;
	e.name = mfs_ckpt_intern(r->ckpt, name.canonical);
	if (!e.name)
		return mfs_fail_nomem(r->err);
	e.layer = name.layer;
	rc = mfs_ckpt_block(r->ckpt, &name, r->index, b->key, &e.layer, r->err);
	if (rc)
		return rc;
	e.expert = name.experts ? name.expert : -1;
	e.file = r->files[b->item.file];
	e.at = b->item.offset;
	e.length = b->item.length;
	return mfs_ckpt_note_extra(r->ckpt, &e, r->err);
}

int mfs_dist_note_extras(struct mfs_dist_reader *r)
{
	int rc = 0;

	if (!(r->ckpt->what & MFS_CKPT_COMMON) || r->ckpt->format->is_plain)
		return 0;
	for (uint32_t i = 0; i < r->dcp.bytes_count && !rc; i++)
		rc = note(r, &r->dcp.bytes[i]);
	mfs_ckpt_sort_extras(r->ckpt);
	return rc;
}
