/* What mcorefs-train says of its flags. */
#ifndef MFT_TRAINER_CONFIG_HELP_HELP_H
#define MFT_TRAINER_CONFIG_HELP_HELP_H

#include "formats/base/buf.h"
#include "formats/base/error.h"
#include "trainer/config/config.h"

/* --help: all flags by Megatron's groups, with what they take, the default, and what becomes of
 * them here. */
void mft_help_flags(struct mfs_buf *out);
/* --help TOPIC (topics.h): the flags that have to do with it, by their groups; NULL: all. -EINVAL:
 * none has. "topics" lists the sections. */
int mft_help_topic(const char *topic, struct mfs_buf *out, struct mfs_error *err);

/* --completions bash, zsh: a script that completes all spellings and choices. -EINVAL: another
 * shell. */
int mft_help_completions(const char *shell, struct mfs_buf *out, struct mfs_error *err);

/* What a person should know of the arguments before a run, a line each: flags without effect here.
 * Nothing, if there is nothing. */
void mft_help_notes(const struct mft_train_config *config, struct mfs_buf *out);

/* --log-args: all arguments with their values, as Megatron prints them
 * (arguments.py: _print_args). */
void mft_help_arguments(const struct mft_train_config *config, struct mfs_buf *out);

#endif
