/* Flags of tools/preprocess_data.py, of all releases, but for those that have their effect here. */
#include <string.h>

#include "formats/base/array.h"
#include "fs/pack/text_options.h"

enum takes { NOTHING, ONE, WORDS };

static const struct flag {
	const char *name;
	enum takes takes;
	const char *why_not; /* NULL: it has no effect on what is written */
} flags[] = {
	{"log-interval", ONE, NULL},	      /* progress is drawn by time */
	{"lang", ONE, NULL},		      /* of --split-sentences */
	{"keep-newlines", NOTHING, NULL},     /* of --split-sentences */
	{"workers-to-check", WORDS, NULL},    /* of --find-optimal-num-workers */
	{"max-documents", ONE, NULL},	      /* of --find-optimal-num-workers */
	{"padded-vocab-size", ONE, NULL},     /* the model's */
	{"pad-vocab-size", NOTHING, NULL},    /* the model's */
	{"no-pad-vocab-size", NOTHING, NULL}, /* the model's */
	{"make-vocab-size-divisible-by", ONE, NULL},
	{"vocab-extra-ids", ONE, NULL},	      /* preprocess_data.py sets it to 0 */
	{"null-tokenizer-pad-id", ONE, NULL}, /* nothing is padded */
	{"chat-template", ONE, NULL},	      /* of conversations */
	{"trust-remote-code", NOTHING, NULL}, /* no code is run */
	{"use-gigatoken", NOTHING, NULL},     /* the same ids, faster */
	{"use-fast-tokenizer", NOTHING, NULL},
	{"tokenizer-hf-use-fast", NOTHING, NULL},
	{"tokenizer-hf-include-special-tokens", NOTHING, NULL},
	{"tokenizer-sentencepiece-ignore-extra-whitespaces", NOTHING, NULL},
	{"split-sentences", NOTHING,
	 "sentences are not split here, as nltk's models do it; lists of strings under the key are "
	 "taken as sentences"},
	{"find-optimal-num-workers", NOTHING, "it measures, and makes no dataset"},
	{"tokenizer-metadata", ONE, "a tokenizer class of one's own cannot be run here"},
	{"tokenizer-hf-no-use-fast", NOTHING,
	 "the tokenizers in Python that it asks for are not made here"},
	{"tokenizer-sentencepiece-legacy", NOTHING,
	 "special tokens that the model has not are not made here"},
	{"no-tokenizer-sentencepiece-ignore-extra-whitespaces", NOTHING,
	 "spaces that the model removes cannot be kept here"},
	{"tokenizer-special-tokens", WORDS,
	 "special tokens that the files have not are not made here"},
	{"tiktoken-special-tokens", WORDS,
	 "special tokens that the files have not are not made here"},
};

/* --dataset-impl mmap is what there is. */
static const char impl[] = "dataset-impl";

static const struct flag *find(const char *word, bool *ret_has_value)
{
	const size_t len = strcspn(word, "=");

	*ret_has_value = word[len] == '=';
	for (size_t i = 0; i < MFS_ARRAY_SIZE(flags); i++)
		if (strlen(flags[i].name) == len && !strncmp(flags[i].name, word, len))
			return &flags[i];
	return NULL;
}

static bool is_value(const char *word)
{
	return word && (*word != '-' || (word[1] >= '0' && word[1] <= '9'));
}

/* The number of words that a flag and its values are. */
static int words_of(const struct flag *f, bool has_value, char **at)
{
	int n = 1;

	if (f->takes == NOTHING || (f->takes == ONE && has_value))
		return n;
	while (is_value(at[n]) && (f->takes == WORDS || n == 1))
		n++;
	return n;
}

/* Whether the word is --dataset-impl. *ret_value: after '=', or the next word; NULL: none. */
static bool is_impl(char **at, const char **ret_value)
{
	const size_t len = strlen(impl);
	const char *word = at[0] + 2;

	if (strncmp(word, impl, len) != 0 || (word[len] && word[len] != '='))
		return false;
	*ret_value = word[len] ? word + len + 1 : at[1];
	return true;
}

static int check_impl(const char *value, struct mfs_error *err)
{
	return value && !strcmp(value, "mmap")
		       ? 0
		       : mfs_fail(err, -ENOTSUP, "--%s %s: only mmap is written", impl,
				  value ? value : "");
}

int mfs_pack_drop_flags(int *argc, char **argv, struct mfs_error *err)
{
	int kept = 1, rc = 0;

	for (int i = 1; i < *argc && !rc;) {
		const bool is_long = argv[i][0] == '-' && argv[i][1] == '-';
		const struct flag *f;
		const char *value;
		bool has_value;

		if (is_long && is_impl(argv + i, &value)) {
			rc = check_impl(value, err);
			i += 1 + (value && value == argv[i + 1]);
			continue;
		}
		f = is_long ? find(argv[i] + 2, &has_value) : NULL;
		if (!f)
			argv[kept++] = argv[i++];
		else if (f->why_not)
			rc = mfs_fail(err, -ENOTSUP, "--%s: %s", f->name, f->why_not);
		else
			i += words_of(f, has_value, argv + i);
	}
	if (!rc)
		argv[ *argc = kept] = NULL;
	return rc;
}
