/*
 * From a command line to struct mft_train_config.
 *
 * It takes three steps, since a checkpoint may have a word in it:
 *
 *   mft_train_config_parse()    command line and YAML; where to load from is known then
 *   mft_train_config_adopt()    with --use-checkpoint-args: the checkpoint's arguments (adopt.h)
 *   mft_train_config_settle()   what follows from others, checks, and the fields (settle.h)
 */
#ifndef MFT_TRAINER_CONFIG_PARSE_PARSE_H
#define MFT_TRAINER_CONFIG_PARSE_PARSE_H

#include "formats/base/error.h"
#include "trainer/config/config.h"

/*
 * Reads argv[1..] as Megatron's parser does (argparse without abbreviations), and the file of
 * --yaml-cfg or --config, if one is named; the command line wins over it. Of the fields those that
 * say where to load from and what the program is to do are filled. -EINVAL: a flag is unknown or
 * has a wrong value, in one sentence. *ret is released by the caller if this succeeds.
 */
int mft_train_config_parse(int argc, char **argv, struct mft_train_config *ret,
			   struct mfs_error *err);

/* Like mft_train_config_parse(), for a list of words. The fuzz targets and tests begin here. */
int mft_train_config_parse_words(const char *const *words, size_t count,
				 struct mft_train_config *ret, struct mfs_error *err);

void mft_train_config_release(struct mft_train_config *c);

#endif
