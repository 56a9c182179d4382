#include "fs/pack/text_options.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/absent.h"
#include "fs/cli/commands.h"
#include "fs/pack/text/batch.h"

#define MOST_PARTITIONS 4096

static bool wrong(int *ret_exit, int exit_code)
{
	*ret_exit = exit_code;
	return false;
}

bool mfs_pack_has_tokenizer(int argc, char **argv)
{
	static const char *const names[] = {"--tokenizer", "--tokenizer-type"};

	for (int i = 1; i < argc; i++)
		for (int n = 0; n < 2; n++) {
			const size_t len = strlen(names[n]);

			if (!strncmp(argv[i], names[n], len) &&
			    (!argv[i][len] || argv[i][len] == '='))
				return true;
		}
	return false;
}

static bool is_number(const char *word)
{
	return *word && !word[strspn(word, "0123456789")];
}

/* With ids --append-eod takes one; here a file may follow. */
static bool check_eod(int argc, char **argv, int *ret_exit)
{
	for (int i = 1; i < argc; i++)
		if (!strncmp(argv[i], "--append-eod=", 13) ||
		    (!strcmp(argv[i], "--append-eod") && i + 1 < argc && is_number(argv[i + 1])))
			return wrong(ret_exit,
				     mfs_usage_error("pack: with a tokenizer --append-eod takes no "
						     "id: the tokenizer names it"));
	return true;
}

/* "\n", "\t", "\r", "\0" and "\\" are what they are in C. */
static bool take_separator(struct mfs_pack_text_options *o, int *ret_exit)
{
	static const char letters[] = "ntr0\\";
	const char means[] = {'\n', '\t', '\r', '\0', '\\'};

	if (!o->separator)
		return true;
	for (const char *at = o->separator; *at; at++) {
		const char *letter = *at == '\\' && at[1] ? strchr(letters, at[1]) : NULL;

		mfs_buf_add(&o->separator_bytes, letter ? &means[letter - letters] : at, 1);
		at += letter != NULL;
	}
	return o->separator_bytes.len ||
	       wrong(ret_exit, mfs_usage_error("pack: --separator is empty"));
}

static bool take_keys(struct mfs_pack_text_options *o, int *ret_exit)
{
	if (o->separator && o->keys.count)
		return wrong(ret_exit, mfs_usage_error("pack: --json-keys are of JSON lines, and "
						       "--separator is of plain text"));
	if (o->keys.count > MFS_PACK_KEYS)
		return wrong(ret_exit,
			     mfs_usage_error("pack: at most %d --json-keys", MFS_PACK_KEYS));
	for (size_t i = 0; i < o->keys.count; i++)
		for (size_t k = 0; k < i; k++)
			if (!strcmp(o->keys.at[i], o->keys.at[k]))
				return wrong(ret_exit,
					     mfs_usage_error("pack: --json-keys has '%s' twice",
							     o->keys.at[i]));
	return true;
}

/* PREFIX is the first argument, or there is --output-prefix, and then all are inputs. */
static bool take_prefix(struct mfs_pack_text_options *o, const char *output,
			struct mfs_word_list *arguments, int *ret_exit)
{
	size_t first = 0;

	o->prefix = output;
	if (!output && arguments->count)
		o->prefix = arguments->at[first++];
	if (!o->prefix)
		return wrong(ret_exit,
			     mfs_usage_error("pack: PREFIX is missing: where the dataset goes%s",
					     o->keys.count ? " (--json-keys takes all words up to "
							     "the next option)"
							   : ""));
	o->named_by_key = output || o->keys.count > 1;
	for (; first < arguments->count; first++)
		mfs_words_add(&o->inputs, arguments->at[first]);
	return true;
}

static bool check(struct mfs_pack_text_options *o, const char *any, int *ret_exit)
{
	if (any && o->tokenizer.type)
		return wrong(ret_exit,
			     mfs_usage_error("pack: --tokenizer finds the kind by itself: "
					     "--tokenizer-type goes with "
					     "--tokenizer-model"));
	if (any)
		o->tokenizer.model = any;
	if (!o->partitions || o->partitions > MOST_PARTITIONS)
		return wrong(ret_exit,
			     mfs_usage_error("pack: --partitions is 1 to %d", MOST_PARTITIONS));
	return true;
}

static const char help[] =
	"Writes text into PREFIX.bin and PREFIX.idx, with the bytes that Megatron's\n"
	"tools/preprocess_data.py writes. A document is an object of JSON on a line,\n"
	"or plain text up to a separator, or a row of Parquet or Arrow. FILEs may\n"
	"be compressed with gzip or zstd; without one standard input is read.\n"
	"\n"
	"  --tokenizer PATH    tokenizer.json, a SentencePiece model, ranks, or the\n"
	"                      directory of one\n"
	"  --append-eod        the tokenizer's end after each document that has\n"
	"                      tokens\n"
	"  --json-keys KEY...  which texts (default: text); of several each becomes\n"
	"                      PREFIX_KEY_document\n"
	"  --separator TEXT    plain text; \\n, \\t, \\r, \\0 and \\\\ as in C\n"
	"  --workers N         threads; default: all processors\n"
	"  --input FILE        one more FILE, or a pattern of several\n"
	"  --resume, --force   as of token ids\n"
	"\n"
	"As preprocess_data.py has them: --output-prefix (PREFIX_KEY_document),\n"
	"--tokenizer-type, --tokenizer-model, --vocab-file, --merge-file,\n"
	"--vocab-size, --tiktoken-pattern, --tiktoken-num-special-tokens,\n"
	"--null-tokenizer-eod-id, --legacy-tokenizer,\n"
	"--tokenizer-hf-no-include-special-tokens, --partitions and\n"
	"--keep-sequential-samples. Its other flags have no effect, or are refused.\n";

bool mfs_pack_parse_text_options(int argc, char **argv, struct mfs_pack_text_options *ret,
				 int *ret_exit)
{
	struct mfs_pack_text_options *o = ret;
	const char *any = NULL, *output = NULL;
	struct mfs_word_list arguments = {NULL, 0};
	struct mfs_cmdline c = {
		.usage = "pack --tokenizer PATH PREFIX [OPTIONS] [FILE...]",
		.help = help,
		.rest = &arguments,
		.switches = {{"append-eod", &o->append_eod},
			     {"keep-sequential-samples", &o->in_order},
			     {"legacy-tokenizer", &o->tokenizer.legacy},
			     {"tokenizer-hf-no-include-special-tokens",
			      &o->tokenizer.without_special},
			     {"resume", &o->resume},
			     {"force", &o->force}},
		.valued = {{"tokenizer", MFS_VALUE_TEXT, &any},
			   {"json-keys", MFS_VALUE_LIST, &o->keys},
			   {"separator", MFS_VALUE_TEXT, &o->separator},
			   {"workers", MFS_VALUE_NUMBER, &o->workers},
			   {"input", MFS_VALUE_EACH, &o->inputs},
			   {"output-prefix", MFS_VALUE_TEXT, &output},
			   {"tokenizer-type", MFS_VALUE_TEXT, &o->tokenizer.type},
			   {"tokenizer-model", MFS_VALUE_TEXT, &o->tokenizer.model},
			   {"vocab-file", MFS_VALUE_TEXT, &o->tokenizer.vocab_file},
			   {"merge-file", MFS_VALUE_TEXT, &o->tokenizer.merge_file},
			   {"vocab-size", MFS_VALUE_NUMBER, &o->tokenizer.vocab_size},
			   {"tiktoken-pattern", MFS_VALUE_TEXT, &o->tokenizer.tiktoken_pattern},
			   {"tiktoken-num-special-tokens", MFS_VALUE_NUMBER,
			    &o->tokenizer.tiktoken_specials},
			   {"null-tokenizer-eod-id", MFS_VALUE_NUMBER, &o->tokenizer.null_eod},
			   {"partitions", MFS_VALUE_NUMBER, &o->partitions}},
	};
	struct mfs_error err;
	bool go_on;

	*o = (struct mfs_pack_text_options){.partitions = 1,
					    .tokenizer = {.vocab_size = MFS_ABSENT_U64,
							  .null_eod = MFS_ABSENT_U64,
							  .tiktoken_specials = 1000}};
	if (mfs_pack_drop_flags(&argc, argv, &err))
		return wrong(ret_exit, mfs_usage_error("pack: %s", err.msg));
	go_on = check_eod(argc, argv, ret_exit) && mfs_cmdline_parse(&c, argc, argv, ret_exit) &&
		take_keys(o, ret_exit) && take_separator(o, ret_exit) &&
		take_prefix(o, output, &arguments, ret_exit) && check(o, any, ret_exit);
	free(arguments.at);
	*ret_exit = mfs_cmdline_end(&c, go_on ? MFS_EXIT_OK : *ret_exit);
	return go_on;
}

void mfs_pack_text_options_release(struct mfs_pack_text_options *o)
{
	free(o->keys.at);
	free(o->inputs.at);
	mfs_buf_release(&o->separator_bytes);
}
