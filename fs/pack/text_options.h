/* The command line of mcorefs pack where it has a tokenizer. */
#ifndef MFS_FS_PACK_TEXT_OPTIONS_H
#define MFS_FS_PACK_TEXT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/buf.h"
#include "fs/cli/cmdline.h"
#include "fs/pack/text/text_kind.h"

struct mfs_pack_text_options {
	/* PREFIX, or --output-prefix, whose datasets have names as preprocess_data.py's. */
	const char *prefix;
	bool named_by_key; /* PREFIX_KEY_document */
	struct mfs_text_tokenizer_config tokenizer;
	struct mfs_word_list keys, inputs; /* inputs: patterns; none: standard input */
	const char *separator;		   /* as given; NULL: JSON lines */
	struct mfs_buf separator_bytes;
	uint64_t workers, partitions;
	bool append_eod, in_order, resume, force;
};

/* Whether a command line is of this kind. */
bool mfs_pack_has_tokenizer(int argc, char **argv);
/* True: the command goes on. False: *ret_exit is its exit code, and the reason has been printed.
 * Either way *ret is to be released. */
bool mfs_pack_parse_text_options(int argc, char **argv, struct mfs_pack_text_options *ret,
				 int *ret_exit);
void mfs_pack_text_options_release(struct mfs_pack_text_options *o);

/* Takes the flags of preprocess_data.py that have no effect here out of argv. -ENOTSUP: there is
 * one that asks for what is not done here. */
int mfs_pack_drop_flags(int *argc, char **argv, struct mfs_error *err);

#endif
