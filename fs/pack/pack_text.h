/* mcorefs pack where it has a tokenizer. */
#ifndef MFS_FS_PACK_PACK_TEXT_H
#define MFS_FS_PACK_PACK_TEXT_H

#include "fs/pack/text_options.h"

/* The command: its exit code. */
int mfs_pack_text(int argc, char **argv);

#endif
