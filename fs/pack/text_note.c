#include "fs/pack/text_note.h"

#include <inttypes.h>
#include <stdio.h>

void mfs_pack_text_note_print(const struct mfs_pack_text_note *note, char text[MFS_INDEXED_NOTE])
{
	const struct mfs_text_place *p = &note->place;

	snprintf(text, MFS_INDEXED_NOTE,
		 "text %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %u %016" PRIx64 " %" PRIu64
		 " %016" PRIx64 " %016" PRIx64 " %016" PRIx64 " %016" PRIx64,
		 p->file, p->line, p->document, p->mark.position, p->last ? 1u : 0u, p->mark.hash,
		 p->mark.anchor, p->mark.anchor_hash, note->tokenizer, note->options, note->inputs);
}

static bool scan(const char *text, struct mfs_pack_text_note *ret)
{
	struct mfs_text_place *p = &ret->place;
	unsigned last;
	int end = 0;

	if (sscanf(text,
		   "text %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %u %" SCNx64 " %" SCNu64
		   " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 "%n",
		   &p->file, &p->line, &p->document, &p->mark.position, &last, &p->mark.hash,
		   &p->mark.anchor, &p->mark.anchor_hash, &ret->tokenizer, &ret->options,
		   &ret->inputs, &end) != 11 ||
	    text[end] || last > 1)
		return false;
	p->last = last;
	return p->mark.anchor <= p->mark.position && p->mark.anchor % MFS_PACK_BLOCK == 0;
}

int mfs_pack_text_note_parse(const char *text, const char *prefix,
			     const struct mfs_pack_text_note *now, struct mfs_pack_text_note *ret,
			     struct mfs_error *err)
{
	const char *other = NULL;

	*ret = (struct mfs_pack_text_note){.place = {.file = 0}};
	if (!scan(text, ret))
		return mfs_fail(err, -EINVAL, "'%s.journal' is not a journal of packed text",
				prefix);
	if (ret->tokenizer != now->tokenizer)
		other = "another tokenizer";
	else if (ret->options != now->options)
		other = "other options";
	else if (ret->inputs != now->inputs)
		other = "other inputs";
	return other ? mfs_fail(err, -EINVAL, "'%s' was begun with %s", prefix, other) : 0;
}
