/* The command line of mcorefs pack --sft. */
#include <inttypes.h>
#include <string.h>

#include "formats/sft/packs_write.h"
#include "fs/cli/cmdline.h"
#include "fs/cli/commands.h"
#include "fs/pack/pack_sft.h"

static bool wrong(int *ret_exit, int exit_code)
{
	*ret_exit = exit_code;
	return false;
}

bool mfs_pack_is_sft(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (!strcmp(argv[i], "--sft"))
			return true;
	return false;
}

static bool check(const struct mfs_pack_sft_options *o, int *ret_exit)
{
	if (!o->length || o->length > MFS_PACKS_LENGTH)
		return wrong(ret_exit, mfs_usage_error("pack: --sft needs --seq-length, 1 to %u",
						       MFS_PACKS_LENGTH));
	if (!o->multiple || o->length % o->multiple)
		return wrong(ret_exit, mfs_usage_error("pack: --pad-seq-to-mult divides "
						       "--seq-length, and %" PRIu64
						       " does not divide %" PRIu64,
						       o->multiple, o->length));
	if (o->pad > INT32_MAX)
		return wrong(ret_exit, mfs_usage_error("pack: --pad-id is 0 to 2^31 - 1"));
	if (o->answers_only && strcmp(o->format, "default") != 0)
		return wrong(ret_exit, mfs_usage_error("pack: --sft-answer-only-loss is of "
						       "--sft-tokenizer-prompt-format default"));
	return true;
}

static const char help[] =
	"Packs conversations for mcorefs-train --sft, or for Megatron-Bridge, into\n"
	"samples of N tokens, first fit by decreasing length, as the trainer does by\n"
	"itself with --sft-packing first_fit_decreasing. FILE has the rows that\n"
	"--sft takes: JSON lines, Parquet, Arrow, or a dataset's directory. PACKED\n"
	"becomes Parquet if it ends with .parquet or .pq, else JSON lines.\n"
	"\n"
	"  --seq-length N          tokens that a sample is trained on\n"
	"  --tokenizer DIR         of an HF tokenizer, with its chat template;\n"
	"                          without it rows have input_ids. --tokenizer-model\n"
	"                          is the same\n"
	"  --sft-tokenizer-prompt-format FORMAT\n"
	"                          default (the default), nemotron-h-aligned,\n"
	"                          nemotron-nano-v2 or identity\n"
	"  --sft-answer-only-loss  what assistants say counts alone\n"
	"  --pad-seq-to-mult M     each conversation is padded to a multiple: twice\n"
	"                          --context-parallel-size; default: 1\n"
	"  --pad-id ID             with what; default: 0, as the trainer\n"
	"  --force                 replace PACKED\n"
	"\n"
	"Templates that ask for the day have SOURCE_DATE_EPOCH's, or today.\n";

bool mfs_pack_parse_sft_options(int argc, char **argv, struct mfs_pack_sft_options *ret,
				int *ret_exit)
{
	struct mfs_pack_sft_options o = {.format = "default", .multiple = 1};
	const char *type = "SFTTokenizer";
	bool sft;
	struct mfs_cmdline c = {
		.usage = "pack --sft --seq-length N [OPTIONS] FILE PACKED",
		.help = help,
		.min = 2,
		.max = 2,
		.switches = {{"sft", &sft},
			     {"sft-answer-only-loss", &o.answers_only},
			     {"force", &o.force}},
		.valued = {{"seq-length", MFS_VALUE_NUMBER, &o.length},
			   {"tokenizer", MFS_VALUE_TEXT, &o.tokenizer},
			   {"tokenizer-model", MFS_VALUE_TEXT, &o.tokenizer},
			   {"tokenizer-type", MFS_VALUE_TEXT, &type},
			   {"sft-tokenizer-prompt-format", MFS_VALUE_TEXT, &o.format},
			   {"pad-seq-to-mult", MFS_VALUE_NUMBER, &o.multiple},
			   {"pad-id", MFS_VALUE_NUMBER, &o.pad}},
	};
	bool go_on = mfs_cmdline_parse(&c, argc, argv, ret_exit);

	if (go_on && strcmp(type, "SFTTokenizer") != 0)
		go_on = wrong(ret_exit,
			      mfs_usage_error("pack: with --sft, --tokenizer-type is SFTTokenizer, "
					      "not '%s'",
					      type));
	go_on = go_on && check(&o, ret_exit);
	o.from = c.arguments[0];
	o.to = c.arguments[1];
	*ret_exit = mfs_cmdline_end(&c, go_on ? MFS_EXIT_OK : *ret_exit);
	*ret = o;
	return go_on;
}
