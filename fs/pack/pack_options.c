/* The command line of mcorefs pack. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fs/cli/cmdline.h"
#include "fs/cli/commands.h"
#include "fs/pack/pack.h"

static bool wrong(int *ret_exit, int exit_code)
{
	*ret_exit = exit_code;
	return false;
}

/* preprocess_data.py's choice for a vocabulary, unless a dtype is given; int32 if neither is. */
static bool choose_dtype(struct mfs_pack_options *o, const char *name, int *ret_exit)
{
	const char *torch;

	o->dtype = o->vocab_size ? mfs_indexed_dtype_for(o->vocab_size) : MFS_I32;
	if (name)
		o->dtype = mfs_dtype_from_torch(name);
	if (!mfs_indexed_limits(o->dtype, &o->low, &o->high))
		return wrong(
			ret_exit,
			mfs_usage_error(
				"pack: --dtype is uint8, int8, uint16, int16, int32 or int64, not "
				"'%s'",
				name));
	torch = mfs_dtype_torch(o->dtype);
	snprintf(o->limits, sizeof(o->limits), "%s (%" PRId64 " to %" PRId64 ")", torch, o->low,
		 o->high);
	if (!o->vocab_size)
		return true;
	if (o->vocab_size - 1 > (uint64_t)o->high)
		return wrong(ret_exit,
			     mfs_usage_error("pack: %s cannot hold a vocabulary of %" PRIu64, torch,
					     o->vocab_size));
	o->low = 0;
	o->high = (int64_t)(o->vocab_size - 1);
	snprintf(o->limits, sizeof(o->limits), "the vocabulary (0 to %" PRId64 ")", o->high);
	return true;
}

static bool take_vocab_size(struct mfs_pack_options *o, uint64_t size, int *ret_exit)
{
	if (!size)
		return wrong(ret_exit, mfs_usage_error("pack: --vocab-size 0: no id is below 0"));
	o->vocab_size = size == UINT64_MAX ? 0 : size;
	return true;
}

static bool check_eod(struct mfs_pack_options *o, uint64_t eod, int *ret_exit)
{
	o->has_eod = eod != UINT64_MAX;
	o->eod = (int64_t)eod;
	if (!o->has_eod || eod <= (uint64_t)o->high)
		return true;
	return wrong(ret_exit, mfs_usage_error("pack: --append-eod %" PRIu64 " is outside of %s",
					       eod, o->limits));
}

static bool check(struct mfs_pack_options *o, const char *dtype, const char *format, uint64_t eod,
		  int *ret_exit)
{
	if (mfs_token_format_parse(format, &o->format))
		return wrong(
			ret_exit,
			mfs_usage_error("pack: --format is auto, jsonl, ids or lines, not '%s'",
					format));
	return choose_dtype(o, dtype, ret_exit) && check_eod(o, eod, ret_exit);
}

/* preprocess_data.py's flag: a person who gives it has text. */
static bool check_no_input(int argc, char **argv, int *ret_exit)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--input") || !strncmp(argv[i], "--input=", 8))
			return wrong(ret_exit,
				     mfs_usage_error("pack: --input is of text, and needs its "
						     "tokenizer: --tokenizer PATH, or "
						     "--tokenizer-type with --tokenizer-model"));
	return true;
}

bool mfs_pack_parse_options(int argc, char **argv, struct mfs_pack_options *ret, int *ret_exit)
{
	struct mfs_pack_options o = {.key = "input_ids"};
	const char *dtype = NULL, *format = "auto";
	uint64_t vocab_size = UINT64_MAX, eod = UINT64_MAX; /* not given */
	struct mfs_cmdline c = {
		.usage = "pack PREFIX [OPTIONS] < IDS",
		.help = "With --sft it packs conversations, with --tokenizer PATH text: see the\n"
			"--help of each. Without, it writes token ids, as any tokenizer prints\n"
			"them, into PREFIX.bin and PREFIX.idx. A document is a line of JSON:\n"
			"[1, 2, 3], or {\"input_ids\": [1, 2, 3], ...}, or a list of several\n"
			"sequences, [[1, 2], [3]]. Or it is ids between blanks, commas and\n"
			"newlines, with a NUL after each document. A document without ids has no\n"
			"sequence.\n"
			"\n"
			"  --vocab-size N      ids are below N; uint16 if N is below 65500,\n"
			"                      else int32\n"
			"  --dtype NAME        uint16, int32 (default), uint8, int8, int16, int64\n"
			"  --append-eod ID     one more token after each document that has any\n"
			"  --key NAME          key of the ids in JSON objects; default: input_ids\n"
			"  --format FORMAT     jsonl, ids (NUL after each document), or lines\n"
			"                      (newline); default: jsonl or ids, by the first\n"
			"                      character\n"
			"  --resume            go on where an interrupted run of the same command\n"
			"                      stopped; what is complete is left alone\n"
			"  --force             replace what is there\n",
		.min = 1,
		.max = 1,
		.switches = {{"resume", &o.resume}, {"force", &o.force}},
		.valued = {{"vocab-size", MFS_VALUE_NUMBER, &vocab_size},
			   {"dtype", MFS_VALUE_TEXT, &dtype},
			   {"append-eod", MFS_VALUE_NUMBER, &eod},
			   {"key", MFS_VALUE_TEXT, &o.key},
			   {"format", MFS_VALUE_TEXT, &format}},
	};
	const bool go_on = check_no_input(argc, argv, ret_exit) &&
			   mfs_cmdline_parse(&c, argc, argv, ret_exit) &&
			   take_vocab_size(&o, vocab_size, ret_exit) &&
			   check(&o, dtype, format, eod, ret_exit);

	o.prefix = c.arguments[0];
	*ret_exit = mfs_cmdline_end(&c, go_on ? MFS_EXIT_OK : *ret_exit);
	*ret = o;
	return go_on;
}
