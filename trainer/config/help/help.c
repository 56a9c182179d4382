#include "trainer/config/help/help.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "formats/base/array.h"
#include "formats/base/str.h"
#include "trainer/config/help/foreign.h"
#include "trainer/config/precision.h"
#include "trainer/config/recipe_words.h"
#include "trainer/config/refuse.h"
#include "trainer/config/help/topics.h"
#include "trainer/config/value.h"

#define COLUMN 44 /* where the description of a flag begins */

/* ---- --help ---- */

static const char *what_it_takes(const struct mft_flag *f)
{
	switch (f->kind) {
	case MFT_FLAG_INT:
		return " N";
	case MFT_FLAG_REAL:
		return " X";
	case MFT_FLAG_INTS:
		return " N...";
	case MFT_FLAG_REALS:
		return " X...";
	case MFT_FLAG_TEXTS:
		return " TEXT...";
	case MFT_FLAG_PATTERN:
		return " N|LIST";
	case MFT_FLAG_TUPLE:
		return " N,N";
	case MFT_FLAG_TEXT:
	case MFT_FLAG_DTYPE:
	case MFT_FLAG_TRUTH:
		return " TEXT";
	case MFT_FLAG_ENUM:
		return f->words ? " NAME..." : " NAME";
	default:
		return "";
	}
}

static void add_commas(const char *choices, struct mfs_buf *out)
{
	for (; *choices; choices++)
		mfs_buf_add(out, *choices == '|' ? "," : choices, 1);
}

/* With those of other programs that are taken, too. name: the flag's. */
static void add_choices(const char *choices, const char *name, struct mfs_buf *out)
{
	mfs_buf_adds(out, "{");
	add_commas(choices, out);
	for (size_t i = 0; name && i < mft_foreign_count; i++) {
		const struct mft_foreign *f = &mft_foreign_table[i];

		if (f->use == MFT_FOREIGN_REFUSED || !mfs_str_is(f->name, name))
			continue;
		mfs_buf_adds(out, ",");
		add_commas(f->values, out);
	}
	mfs_buf_adds(out, "}");
}

static void add_spellings(const struct mft_flag *f, struct mfs_buf *out)
{
	char spelling[MFT_FLAG_SPELLING];
	bool on;

	mfs_buf_adds(out, "  ");
	for (unsigned i = 0; mft_flag_spelling(f, i, spelling, &on); i++)
		mfs_buf_printf(out, "%s%s", i ? ", " : "", spelling);
	if (f->choices) {
		mfs_buf_adds(out, " ");
		mft_flag_spelling(f, 0, spelling, &on);
		add_choices(f->choices, spelling, out);
	} else {
		mfs_buf_adds(out, what_it_takes(f));
	}
}

/* A default that says nothing (None, False of a switch) is left out. */
static bool has_default(const struct mft_flag *f)
{
	return f->kind != MFT_FLAG_ON && f->kind != MFT_FLAG_OFF && f->kind != MFT_FLAG_SWITCH &&
	       !mfs_str_is(f->initial, "None") && !mfs_str_is(f->initial, "[]");
}

static void add_default(const struct mft_flag *f, struct mfs_buf *out)
{
	const size_t len = strlen(f->initial);

	if (*f->initial == '\'')
		mfs_buf_printf(out, "default %.*s", (int)len - 2, f->initial + 1);
	else if (*f->initial == '[')
		mfs_buf_printf(out, "default %.*s", (int)len - 4, f->initial + 2);
	else
		mfs_buf_printf(out, "default %s", f->initial);
}

static void add_flag(const struct mft_flag *f, struct mfs_buf *out)
{
	const size_t began = out->len;
	const char *between = "";
	size_t width;

	add_spellings(f, out);
	width = out->len - began;
	mfs_buf_printf(out, "%s%*s", width + 2 > COLUMN ? "\n" : "",
		       (int)(width + 2 > COLUMN ? COLUMN : COLUMN - width), "");
	if (f->help) {
		mfs_buf_adds(out, f->help);
		between = "; ";
	}
	if (has_default(f)) {
		mfs_buf_adds(out, between);
		add_default(f, out);
		between = "; ";
	}
	if (f->use == MFT_FLAG_UNUSED)
		mfs_buf_printf(out, "%saccepted, without effect here", between);
	else if (f->use == MFT_FLAG_REFUSED)
		mfs_buf_printf(out, "%s%srefused: %s", has_default(f) ? between : "",
			       has_default(f) ? "anything else is " : "", f->instead);
	else if (f->have)
		mfs_buf_printf(out, "%s%s supported", between, f->have);
	while (out->len && out->data[out->len - 1] == ' ')
		out->len--;
	mfs_buf_adds(out, "\n");
}

static void add_foreign(const struct mft_foreign *f, struct mfs_buf *out)
{
	const size_t began = out->len;
	size_t width;

	mfs_buf_printf(out, "  %s", f->name);
	if (f->values) {
		mfs_buf_adds(out, " ");
		add_choices(f->values, NULL, out);
	} else if (f->words != '0') {
		mfs_buf_adds(out, f->words == '*' ? " TEXT..." : " TEXT");
	}
	width = out->len - began;
	mfs_buf_printf(out, "%s%*s%s: ", width + 2 > COLUMN ? "\n" : "",
		       (int)(width + 2 > COLUMN ? COLUMN : COLUMN - width), "", f->whose);
	switch (f->use) {
	case MFT_FOREIGN_UNUSED:
		mfs_buf_adds(out, "accepted, without effect here\n");
		break;
	case MFT_FOREIGN_BECOMES:
		mfs_buf_printf(out, "taken as %s\n", f->becomes);
		break;
	case MFT_FOREIGN_REFUSED:
		mfs_buf_printf(out, "refused: %s\n", f->say);
		break;
	}
}

static const char others[] = "of other programs, and of Megatron before";

static void add_group(const char *topic, const struct mft_flag_group *group, struct mfs_buf *out)
{
	bool any = false;

	for (size_t i = 0; i < group->count; i++) {
		const struct mft_flag *f = &group->flags[i];

		if (f->kind == MFT_FLAG_DERIVED || !mft_topic_has_flag(topic, group, f))
			continue;
		if (!any)
			mfs_buf_printf(out, "\n%s:\n", group->title);
		any = true;
		add_flag(f, out);
	}
}

static void list_topics(struct mfs_buf *out)
{
	mfs_buf_adds(out, "used\n");
	for (size_t g = 0; g < mft_flag_group_count; g++)
		if (mft_flag_groups[g]->flags[0].kind != MFT_FLAG_DERIVED)
			mfs_buf_printf(out, "%s\n", mft_flag_groups[g]->title);
	mfs_buf_printf(out, "%s\n", others);
}

int mft_help_topic(const char *topic, struct mfs_buf *out, struct mfs_error *err)
{
	if (mfs_str_is(topic, "topics"))
		list_topics(out);
	for (size_t g = 0; g < mft_flag_group_count; g++)
		add_group(topic, mft_flag_groups[g], out);
	if (mft_topic_has_title(topic, others)) {
		mfs_buf_printf(out, "\n%s (@: the value):\n", others);
		for (size_t i = 0; i < mft_foreign_count; i++)
			add_foreign(&mft_foreign_table[i], out);
	}
	if (out->len || out->failed)
		return 0;
	return mfs_fail(err, -EINVAL,
			"--help: no flag has to do with '%.80s'; expected used, a section (--help "
			"topics lists them) or a word of flags",
			topic);
}

void mft_help_flags(struct mfs_buf *out)
{
	mfs_buf_adds(
		out,
		"usage: mcorefs-train [FLAG [VALUE]]...\n"
		"\n"
		"Trains a GPT model on a GPU or on CPUs, with the arguments of Megatron-LM's\n"
		"pretrain_gpt.py. A YAML file can say them, too (--yaml-cfg FILE); the command\n"
		"line wins. Exit codes: 0 done, 1 failed, 2 wrong arguments, 17 a step was\n"
		"rejected.\n"
		"\n"
		"--help used: the flags that have an effect. --help TOPIC: those of a section\n"
		"(moe, checkpointing), or with a word (recompute).\n");
	mft_help_topic(NULL, out, NULL);
}

/* ---- --completions ---- */

static bool is_a_file(const struct mft_flag *f)
{
	static const char *const ends[] = {"_path", "_dir", "_file",  "_cfg",
					   "load",  "save", "_model", "pretrained_checkpoint"};

	if (f->use != MFT_FLAG_USED || (f->kind != MFT_FLAG_TEXT && f->kind != MFT_FLAG_TEXTS))
		return false;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(ends); i++)
		if (mfs_str_ends(f->dest, ends[i]))
			return true;
	return false;
}

/* Flags that have no effect are not offered. */
static bool is_offered(const struct mft_flag *f)
{
	return f->use == MFT_FLAG_USED && f->kind != MFT_FLAG_DERIVED;
}

static const char *choices_of(const struct mft_flag *f)
{
	return f->have ? f->have : f->choices;
}

static void each_spelling(const struct mft_flag *f, const char *between, struct mfs_buf *out)
{
	char spelling[MFT_FLAG_SPELLING];
	bool on;

	for (unsigned i = 0; mft_flag_spelling(f, i, spelling, &on); i++)
		mfs_buf_printf(out, "%s%s", i ? between : "", spelling);
}

static void add_words(const char *choices, struct mfs_buf *out)
{
	for (; *choices; choices++)
		mfs_buf_add(out, *choices == '|' ? " " : choices, 1);
}

static void complete_bash(struct mfs_buf *out)
{
	mfs_buf_adds(out,
		     "# bash completion for mcorefs-train, made by --completions bash\n\n"
		     "_mcorefs_train() {\n"
		     "\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}\n\n"
		     "\tcase $prev in\n");
	for (size_t i = 0; i < mft_flag_count(); i++) {
		const struct mft_flag *f = mft_flag_at(i);

		if (!is_offered(f) || (!choices_of(f) && !is_a_file(f)))
			continue;
		mfs_buf_adds(out, "\t");
		each_spelling(f, " | ", out);
		if (choices_of(f)) {
			mfs_buf_adds(out, ") mapfile -t COMPREPLY < <(compgen -W '");
			add_words(choices_of(f), out);
			mfs_buf_adds(out, "' -- \"$cur\") && return ;;\n");
		} else {
			mfs_buf_adds(out, ")\n\t\tcompopt -o filenames\n\t\tmapfile -t COMPREPLY < "
					  "<(compgen -f -- \"$cur\")\n\t\treturn\n\t\t;;\n");
		}
	}
	mfs_buf_adds(out, "\tesac\n\tmapfile -t COMPREPLY < <(compgen -W '");
	for (size_t i = 0; i < mft_flag_count(); i++) {
		if (!is_offered(mft_flag_at(i)))
			continue;
		mfs_buf_adds(out, "\n\t\t");
		each_spelling(mft_flag_at(i), " ", out);
	}
	mfs_buf_adds(out, "' -- \"$cur\")\n}\n\ncomplete -F _mcorefs_train mcorefs-train\n");
}

static void zsh_argument(const struct mft_flag *f, const char *spelling, struct mfs_buf *out)
{
	const bool takes = *what_it_takes(f) || f->choices;

	mfs_buf_printf(out, " \\\n\t'%s%s", f->words ? "*" : "", spelling);
	if (f->help) {
		mfs_buf_adds(out, "[");
		for (const char *c = f->help; *c; c++)
			mfs_buf_printf(out, *c == '\'' ? "'\\''" : *c == ':' ? "\\:" : "%c", *c);
		mfs_buf_adds(out, "]");
	}
	if (takes && choices_of(f)) {
		mfs_buf_printf(out, ":%s:(", f->dest);
		add_words(choices_of(f), out);
		mfs_buf_adds(out, ")");
	} else if (takes) {
		mfs_buf_printf(out, ":%s:%s", f->dest, is_a_file(f) ? "_files" : " ");
	}
	mfs_buf_adds(out, "'");
}

static void complete_zsh(struct mfs_buf *out)
{
	char spelling[MFT_FLAG_SPELLING];
	bool on;

	mfs_buf_adds(out, "#compdef mcorefs-train\n# Made by mcorefs-train --completions zsh\n\n"
			  "_arguments");
	for (size_t i = 0; i < mft_flag_count(); i++)
		for (unsigned k = 0; is_offered(mft_flag_at(i)) &&
				     mft_flag_spelling(mft_flag_at(i), k, spelling, &on);
		     k++)
			zsh_argument(mft_flag_at(i), spelling, out);
	mfs_buf_adds(out, "\n");
}

int mft_help_completions(const char *shell, struct mfs_buf *out, struct mfs_error *err)
{
	if (mfs_str_is(shell, "bash"))
		complete_bash(out);
	else if (mfs_str_is(shell, "zsh"))
		complete_zsh(out);
	else
		return mfs_fail(err, -EINVAL, "--completions: expected bash or zsh, found '%.80s'",
				shell ? shell : "");
	return 0;
}

/* ---- at the start of a run ---- */

/* A token that is padding or ends documents changes what is trained, so nobody has to guess which
 * one is. */
static void note_tokens(const struct mft_train_config *config, struct mfs_buf *out)
{
	if (config->pad_unknown && config->eod == MFS_ABSENT && config->tokenizer_model)
		mfs_buf_printf(out,
			       "no files of a tokenizer are at '%.200s' here: no token is known to "
			       "end documents (--eod-id ID)\n",
			       config->tokenizer_model);
	if (config->pad != MFS_ABSENT)
		mfs_buf_printf(out, "labels that are the pad token %lld do not count\n",
			       (long long)config->pad);
	else if (config->pad_ambiguous)
		mfs_buf_adds(out, "the tokenizer's pad token ends documents, too: no label is "
				  "padding (--allow-ambiguous-pad-tokens)\n");
	else if (config->pad_unknown)
		mfs_buf_printf(out,
			       "no label is padding: the files of %s that say its pad token are "
			       "not here (--pad-id ID, or -1 where it has none)\n",
			       config->tokenizer_type ? config->tokenizer_type : "the tokenizer");
}

static void note_format(const struct mft_train_config *config, struct mfs_buf *out)
{
	if (config->save && !config->saves_torch && !mfs_str_is(config->ckpt_format, "torch_dist"))
		mfs_buf_printf(out,
			       "--ckpt-format %s: saves are torch_dist; --load finds out the "
			       "format of what it reads\n",
			       config->ckpt_format);
}

static void note_eight_bits(const struct mft_train_config *config, struct mfs_buf *out)
{
	if (!config->fp8)
		return;
	if (!mft_has_eight_bits(config))
		mfs_buf_printf(out,
			       "--fp8-format %s: products are computed in %s here, not in 8 bits: "
			       "with --bf16 and --fp8-recipe tensorwise or delayed they are\n",
			       config->fp8, mft_precision_word(config->params_dtype));
	else if (!config->fp8_wgrad)
		mfs_buf_adds(out, "--no-fp8-wgrad: gradients of weights are computed in bf16; "
				  "Megatron with TransformerEngine 2 ignores it\n");
}

void mft_help_notes(const struct mft_train_config *config, struct mfs_buf *out)
{
	const double factor = config->model.rope_scaling_factor;
	struct mfs_buf unused = {0};

	mft_flags_unused(config->values, &unused);
	if (unused.len)
		mfs_buf_printf(out, "without effect here: %s\n", unused.data);
	out->failed |= unused.failed;
	mfs_buf_release(&unused);
	note_tokens(config, out);
	for (const struct mft_flag_other *o = config->values->overruled; o; o = o->next)
		mfs_buf_printf(out, "%s\n", o->name);
	for (const struct mft_flag_other *o = config->values->others; o; o = o->next)
		if (o->becomes)
			mfs_buf_printf(out, "%s is taken as %s\n", o->name, o->becomes);
	note_eight_bits(config, out);
	note_format(config, out);
	if (config->model.use_rope_scaling && factor != MFS_ROPE_SCALING_FACTOR)
		mfs_buf_printf(out,
			       "RoPE is scaled by %g; Megatron up to core 0.19 takes %g whatever "
			       "--rope-scaling-factor says\n",
			       factor, MFS_ROPE_SCALING_FACTOR);
}

static int by_name(const void *a, const void *b)
{
	return strcasecmp(*(const char *const *)a, *(const char *const *)b);
}

void mft_help_arguments(const struct mft_train_config *config, struct mfs_buf *out)
{
	static const char dots[] = "................................................";
	const size_t count = mft_flag_count();
	const char **dests = calloc(count, sizeof(*dests));
	size_t shown = 0;

	if (!dests) {
		out->failed = true;
		return;
	}
	for (size_t i = 0; i < count; i++)
		if (!mft_flag_at(i)->gone)
			dests[shown++] = mft_flag_at(i)->dest;
	qsort(dests, shown, sizeof(*dests), by_name);
	mfs_buf_adds(out, "------------------------ arguments ------------------------\n");
	for (size_t i = 0; i < shown; i++) {
		const struct mft_flag_value *v = mft_flag_get(config->values, dests[i]);
		const size_t len = strlen(dests[i]);

		mfs_buf_printf(out, "  %s %s ", dests[i], dots + (len < 48 ? len : 48));
		if (v->type == MFT_IS_TEXT)
			mfs_buf_adds(out, v->text);
		else
			mft_flag_value_show(v, out);
		mfs_buf_adds(out, "\n");
	}
	mfs_buf_adds(out, "-------------------- end of arguments ---------------------\n");
	free(dests);
}
