/* mcorefs pack --sft: conversations into packed samples. */
#ifndef MFS_FS_PACK_PACK_SFT_H
#define MFS_FS_PACK_PACK_SFT_H

#include <stdbool.h>
#include <stdint.h>

struct mfs_pack_sft_options {
	const char *from, *to; /* files */
	const char *tokenizer; /* a directory; NULL: rows have ids */
	const char *format;    /* --sft-tokenizer-prompt-format */
	bool answers_only, force;
	uint64_t length, multiple, pad;
};

/* Whether a command line is of this kind. */
bool mfs_pack_is_sft(int argc, char **argv);
/* True: the command goes on. False: *ret_exit is its exit code, and the reason has been printed. */
bool mfs_pack_parse_sft_options(int argc, char **argv, struct mfs_pack_sft_options *ret,
				int *ret_exit);
/* The command. Returns its exit code. */
int mfs_pack_sft(int argc, char **argv);

#endif
