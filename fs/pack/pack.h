/* mcorefs pack: what was asked for, and what its journal remembers. */
#ifndef MFS_FS_PACK_PACK_H
#define MFS_FS_PACK_PACK_H

#include <stdbool.h>

#include "formats/indexed/indexed_dataset_write.h"
#include "formats/indexed/token_text.h"
#include "fs/pack/input/digest.h"

#define MFS_PACK_SAVE_SECONDS 2 /* between two saves: each makes the disk write all there is */

struct mfs_pack_options {
	const char *prefix;
	enum mfs_dtype dtype;
	enum mfs_token_format format;
	const char *key;
	int64_t low, high;   /* ids that are taken */
	char limits[64];     /* the same in words */
	uint64_t vocab_size; /* 0: not given */
	bool has_eod, resume, force;
	int64_t eod;
};

/* True: the command goes on. False: *ret_exit is its exit code, and the reason has been printed. */
bool mfs_pack_parse_options(int argc, char **argv, struct mfs_pack_options *ret, int *ret_exit);

/* Reports why a dataset was not begun, by what mfs_indexed_writer_open() returned, and what may be
 * done. Returns the exit code. */
int mfs_pack_not_begun(int rc, const struct mfs_error *err);

/* What the writer's journal keeps of the input. */
struct mfs_pack_note {
	struct mfs_token_position place;
	struct mfs_pack_mark mark;
};

/* Writes a note and the options it was made with as one line. -ENAMETOOLONG: they do not fit. */
int mfs_pack_note_print(const struct mfs_pack_note *note, const struct mfs_pack_options *opt,
			char text[MFS_INDEXED_NOTE], struct mfs_error *err);
/* Reads such a line. -EINVAL: the text is no note, or a note of a run with other options. */
int mfs_pack_note_parse(const char *text, const struct mfs_pack_options *opt,
			struct mfs_pack_note *ret, struct mfs_error *err);

#endif
