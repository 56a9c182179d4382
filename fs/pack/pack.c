#define _GNU_SOURCE
#include "fs/pack/pack.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "formats/indexed/plain_text.h"
#include "fs/cli/commands.h"
#include "fs/pack/command.h"
#include "fs/pack/input/input.h"
#include "fs/pack/pack_sft.h"
#include "fs/pack/pack_text.h"
#include "fs/cli/progress.h"
#include "fs/cli/stop.h"
#include "fs/cli/text.h"

struct pack {
	struct mfs_pack_options options;
	struct mfs_pack_input input;
	struct mfs_token_text *text;
	struct mfs_indexed_writer *writer;
	/* Of the sequence at hand: tokens have been written; its end has come, but is not written
	 * yet, as an end-of-document token may belong to it. */
	bool begun, ended;
	bool broken;	       /* the writer has failed */
	uint64_t saved, start; /* documents: durable, and there from earlier runs */
	uint64_t start_position;
	time_t saved_at; /* 0: never; the first save is made as soon as there is a document */
	struct mfs_progress progress;
};

/* ---- what the text holds ---- */

static int end_sequence(struct pack *x, struct mfs_error *err)
{
	x->begun = x->ended = false;
	return mfs_indexed_writer_end_sequence(x->writer, 0, err);
}

static int take_tokens(void *arg, const int64_t *ids, size_t count, struct mfs_error *err)
{
	struct pack *x = arg;
	int rc = x->ended ? end_sequence(x, err) : 0;

	if (!rc)
		rc = mfs_indexed_writer_add_tokens(x->writer, ids, count, err);
	x->begun = true;
	x->broken = rc != 0;
	return rc;
}

/* An empty sequence is left out, as preprocess_data.py leaves out sentences without tokens. */
static int take_sequence(void *arg, struct mfs_error *err)
{
	struct pack *x = arg;

	(void)err;
	x->ended = x->begun;
	return 0;
}

/* The end-of-document token goes to the last sequence, if there is one, as in
 * preprocess_data.py. */
static int take_document(void *arg, struct mfs_error *err)
{
	struct pack *x = arg;
	int rc = 0;

	if (x->begun && x->options.has_eod)
		rc = mfs_indexed_writer_add_tokens(x->writer, &x->options.eod, 1, err);
	if (!rc && x->begun)
		rc = end_sequence(x, err);
	if (!rc)
		rc = mfs_indexed_writer_end_document(x->writer, err);
	x->broken = rc != 0;
	return rc;
}

/* ---- beginning ---- */

static int open_text(struct pack *x, const struct mfs_token_position *start, struct mfs_error *err)
{
	const struct mfs_token_hooks hooks = {x, take_tokens, take_sequence, take_document};
	const struct mfs_token_text_config c = {
		.name = "standard input",
		.key = x->options.key,
		.low = x->options.low,
		.high = x->options.high,
		.limits = x->options.limits,
		.start = *start,
	};

	return mfs_token_text_new(&c, &hooks, &x->text, err);
}

/* Where an earlier run has stopped, or at the start. */
static int open_input(struct pack *x, struct mfs_error *err)
{
	const char *text = mfs_indexed_writer_note(x->writer);
	struct mfs_pack_note note = {.place = {.format = x->options.format}};
	int rc = mfs_pack_input_open(&x->input, STDIN_FILENO, "standard input", err);

	if (!rc && *text)
		rc = mfs_pack_note_parse(text, &x->options, &note, err);
	if (!rc && *text)
		rc = mfs_pack_input_skip(&x->input, &note.mark, err);
	/* "[2]" or "1 2", which may be the beginning of "1 23". */
	if (!rc && note.place.last)
		rc = mfs_pack_input_at_end(&x->input, err);
	return rc ? rc : open_text(x, &note.place, err);
}

static int open_writer(struct pack *x, struct mfs_error *err)
{
	const struct mfs_indexed_writer_config c = {
		.dtype = x->options.dtype,
		.resume = x->options.resume,
		.replace = x->options.force,
	};
	int rc = mfs_indexed_writer_open(x->options.prefix, &c, &x->writer, err);

	if (!rc)
		x->saved = x->start = mfs_indexed_writer_documents(x->writer);
	return rc;
}

/* ---- packing ---- */

static int save(struct pack *x, struct mfs_error *err)
{
	const struct mfs_pack_note note = {*mfs_token_text_ended(x->text), x->input.ended};
	char text[MFS_INDEXED_NOTE];
	int rc = mfs_pack_note_print(&note, &x->options, text, err);

	if (!rc)
		rc = mfs_indexed_writer_save(x->writer, text, err);
	x->broken = rc != 0;
	if (rc)
		return rc;
	x->saved = mfs_indexed_writer_documents(x->writer);
	x->saved_at = time(NULL);
	return 0;
}

/* Empty documents alone are not worth it: they make no dataset. */
static bool worth_saving(const struct pack *x)
{
	return !x->broken && mfs_indexed_writer_tokens(x->writer) &&
	       mfs_indexed_writer_documents(x->writer) > x->saved;
}

static int save_now_and_then(struct pack *x, struct mfs_error *err)
{
	return worth_saving(x) && time(NULL) - x->saved_at >= MFS_PACK_SAVE_SECONDS ? save(x, err)
										    : 0;
}

static void show_progress(struct pack *x)
{
	char label[64], count[MFS_HUMAN];

	snprintf(label, sizeof(label), "%s documents",
		 mfs_grouped(mfs_indexed_writer_documents(x->writer), count));
	mfs_progress_update(&x->progress, label, x->input.raw);
}

static int feed(struct pack *x, const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	int rc = len ? mfs_token_text_feed(x->text, bytes, len, err)
		     : mfs_token_text_end(x->text, err);

	mfs_pack_input_done(&x->input, bytes, len, mfs_token_text_ended(x->text)->offset);
	show_progress(x);
	return rc;
}

/* The input is text in the place of ids: reports what to do together with what was found. */
static void say_if_text(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	const enum mfs_plain_text_kind kind = mfs_plain_text_of(bytes, len);
	const struct mfs_error found = *err;

	if (kind)
		mfs_error_set(err, -EINVAL, "%.200s; if this is %s, name its tokenizer: %s",
			      found.msg, mfs_plain_text_name(kind), mfs_plain_text_remedy(kind));
}

static int pack_all(struct pack *x, struct mfs_error *err)
{
	const uint64_t start = x->input.position;
	const uint8_t *bytes;
	size_t len = 0;
	bool at_end = false;
	int rc = 0;

	while (!rc && !at_end) {
		rc = mfs_pack_input_read(&x->input, &bytes, &len, err);
		if (!rc) {
			rc = feed(x, bytes, len, err);
			if (rc == -EINVAL && x->input.position == start + len)
				say_if_text(bytes, len, err);
			at_end = !len;
		}
		if (!rc || rc == -EAGAIN)
			rc = save_now_and_then(x, err);
	}
	return rc;
}

/* ---- ending ---- */

static void say_done(const struct pack *x, uint64_t documents, uint64_t sequences, uint64_t tokens)
{
	const double seconds = mfs_progress_seconds(&x->progress);
	const uint64_t bytes = x->input.position - x->start_position;
	char text[4][MFS_HUMAN];

	printf("packed %s documents, ", mfs_grouped(documents, text[0]));
	if (sequences != documents)
		printf("%s sequences, ", mfs_grouped(sequences, text[1]));
	printf("%s tokens as %s into %s.bin and .idx in %.1f s (%s/s of text)",
	       mfs_grouped(tokens, text[2]), mfs_dtype_torch(x->options.dtype), x->options.prefix,
	       seconds,
	       mfs_human_bytes((uint64_t)((double)bytes / (seconds > 0 ? seconds : 1)), text[3]));
	if (x->start)
		printf(", %s documents were there from an earlier run",
		       mfs_grouped(x->start, text[0]));
	putchar('\n');
}

/* Keeps the documents that have ended, whatever the failure was. */
static int keep(struct pack *x, const struct mfs_error *why)
{
	char kept[MFS_HUMAN];

	if (worth_saving(x))
		save(x, NULL);
	if (!x->saved) {
		mfs_indexed_writer_discard(x->writer);
		x->writer = NULL;
		mfs_command_failed("%s", why->msg);
		return mfs_stop_code(MFS_EXIT_FAILED);
	}
	mfs_command_failed(
		"%s; %s documents are kept: the same command with --resume goes on after them",
		why->msg, mfs_grouped(x->saved, kept));
	return mfs_stop_code(MFS_EXIT_FAILED);
}

/* Everything is written and durable: what is left is the .idx. */
static int finish(struct pack *x)
{
	struct mfs_indexed_writer *w = x->writer;
	const uint64_t documents = mfs_indexed_writer_documents(w);
	const uint64_t sequences = mfs_indexed_writer_sequences(w);
	const uint64_t tokens = mfs_indexed_writer_tokens(w);
	struct mfs_error err;

	x->writer = NULL;
	if (mfs_indexed_writer_finish(w, &err))
		return mfs_command_failed("%s; everything is kept: the same command with --resume "
					  "finishes it",
					  err.msg);
	say_done(x, documents, sequences, tokens);
	return MFS_EXIT_OK;
}

static int run(struct pack *x)
{
	struct mfs_error err;
	int rc;

	x->start_position = x->input.position;
	mfs_progress_init(&x->progress, stderr, x->input.raw, x->input.size);
	rc = pack_all(x, &err);
	mfs_progress_clear(&x->progress);
	if (!rc && !mfs_indexed_writer_tokens(x->writer))
		rc = mfs_fail(&err, -ENODATA, "standard input holds no token: nothing was written");
	if (!rc)
		rc = save(x, &err);
	return rc ? keep(x, &err) : finish(x);
}

int mfs_pack_not_begun(int rc, const struct mfs_error *err)
{
	switch (rc) {
	case -EEXIST:
		return mfs_command_failed("%s (--force replaces it)", err->msg);
	case -EINPROGRESS:
		return mfs_command_failed("%s (--resume goes on with it, --force begins anew)",
					  err->msg);
	default:
		mfs_command_failed("%s", err->msg);
		return mfs_stop_code(MFS_EXIT_FAILED);
	}
}

static int pack(const struct mfs_pack_options *options)
{
	struct pack x = {.options = *options};
	struct mfs_error err;
	int exit_code, rc;

	mfs_stop_on_signals();
	rc = open_writer(&x, &err);
	if (!rc)
		rc = open_input(&x, &err);
	if (rc == -EALREADY) {
		printf("%s.bin and .idx are complete: nothing was read\n", options->prefix);
		exit_code = MFS_EXIT_OK;
	} else {
		exit_code = rc ? mfs_pack_not_begun(rc, &err) : run(&x);
	}
	if (rc && !x.saved)
		mfs_indexed_writer_discard(x.writer);
	else
		mfs_indexed_writer_free(x.writer);
	mfs_token_text_free(x.text);
	mfs_pack_input_release(&x.input);
	return exit_code;
}

int mfs_cmd_pack(int argc, char **argv)
{
	struct mfs_pack_options options;
	int exit_code;

	if (mfs_pack_is_sft(argc, argv))
		return mfs_pack_sft(argc, argv);
	if (mfs_pack_has_tokenizer(argc, argv))
		return mfs_pack_text(argc, argv);
	if (!mfs_pack_parse_options(argc, argv, &options, &exit_code))
		return exit_code;
	if (isatty(STDIN_FILENO))
		return mfs_usage_error("pack: token ids are read from standard input: mcorefs pack "
				       "PREFIX < FILE");
	return mfs_print_end(pack(&options), MFS_EXIT_FAILED);
}
