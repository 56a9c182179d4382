/* What the journals of packed text keep of the input, and of what must not change between runs. */
#ifndef MFS_FS_PACK_TEXT_NOTE_H
#define MFS_FS_PACK_TEXT_NOTE_H

#include "formats/indexed/indexed_dataset_write.h"
#include "fs/pack/text/batch.h"

struct mfs_pack_text_note {
	struct mfs_text_place place;
	uint64_t tokenizer, options, inputs; /* their hashes */
};

/* One line. */
void mfs_pack_text_note_print(const struct mfs_pack_text_note *note, char text[MFS_INDEXED_NOTE]);
/* Reads such a line. now: the hashes of this run. -EINVAL: it is no note, or one of a run with
 * another tokenizer, other options or other inputs. */
int mfs_pack_text_note_parse(const char *text, const char *prefix,
			     const struct mfs_pack_text_note *now, struct mfs_pack_text_note *ret,
			     struct mfs_error *err);

#endif
