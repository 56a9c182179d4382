/* mcorefs pack with a tokenizer: a thread reads, threads encode, this one writes in the order of
 * the input. Each key has a dataset of its own. */
#define _GNU_SOURCE
#include "fs/pack/pack_text.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "formats/base/absent.h"
#include "formats/base/bytes.h"
#include "formats/base/threads.h"
#include "formats/indexed/indexed_dataset_write.h"
#include "fs/cli/commands.h"
#include "fs/cli/progress.h"
#include "fs/cli/stop.h"
#include "fs/cli/text.h"
#include "fs/pack/pack.h"
#include "fs/pack/text/encode_text.h"
#include "fs/pack/text/read_text.h"
#include "fs/pack/text_note.h"

#define BATCHES_PER_WORKER 3

/* The dataset of one key. */
struct dataset {
	char *prefix;
	const char *key;
	struct mfs_indexed_writer *writer; /* NULL: it is complete */
	uint64_t start, saved; /* documents: there from earlier runs, durable; UINT64_MAX: all */
};

struct text_pack {
	const struct mfs_pack_text_options *o;
	struct mfs_text_tokenizer tokenizer;
	struct mfs_word_list files;    /* NULL: standard input */
	struct mfs_word_list names;    /* of these, for messages; allocated */
	struct mfs_text_state *states; /* [files.count] */
	glob_t found;
	struct dataset sets[MFS_PACK_KEYS];
	size_t set_count;
	struct mfs_text_ring ring;
	struct mfs_text_reader reader;
	struct mfs_text_encoding encoding;
	struct mfs_pack_text_note note; /* where the documents end that are written */
	uint64_t documents;		/* of the input up to there */
	time_t saved_at;
	bool broken; /* a writer has failed */
	struct mfs_progress progress;
};

/* ---- inputs ---- */

static int add_file(struct text_pack *x, const char *file, struct mfs_error *err)
{
	const char *quote = file ? "'" : "";
	char *name = NULL;

	if (asprintf(&name, "%s%s%s", quote, file ? file : "standard input", quote) < 0 ||
	    mfs_words_add(&x->names, name)) {
		free(name);
		return mfs_fail_nomem(err);
	}
	return mfs_words_add(&x->files, file) ? mfs_fail_nomem(err) : 0;
}

/* A name that exists is no pattern. */
static int add_input(struct text_pack *x, const char *input, struct mfs_error *err)
{
	const size_t first = x->found.gl_pathc;
	int rc = 0;

	if (!strcmp(input, "-"))
		return add_file(x, NULL, err);
	if (!strpbrk(input, "*?[") || !access(input, F_OK))
		return add_file(x, input, err);
	switch (glob(input, x->found.gl_pathv ? GLOB_APPEND : 0, NULL, &x->found)) {
	case 0:
		break;
	case GLOB_NOMATCH:
		return mfs_fail(err, -ENOENT, "'%s': there is no such file", input);
	default:
		return mfs_fail(err, -EIO, "'%s': its directory cannot be read", input);
	}
	for (size_t i = first; i < x->found.gl_pathc && !rc; i++)
		rc = add_file(x, x->found.gl_pathv[i], err);
	return rc;
}

static int list_inputs(struct text_pack *x, struct mfs_error *err)
{
	int rc = x->o->inputs.count ? 0 : add_file(x, NULL, err);

	for (size_t i = 0; i < x->o->inputs.count && !rc; i++)
		rc = add_input(x, x->o->inputs.at[i], err);
	return rc;
}

/* Bytes on disk; 0: not known. */
static uint64_t inputs_size(const struct text_pack *x)
{
	uint64_t size = 0;
	struct stat st;

	for (size_t i = 0; i < x->files.count; i++) {
		const char *file = x->files.at[i];

		if ((file ? stat(file, &st) : fstat(STDIN_FILENO, &st)) || !S_ISREG(st.st_mode))
			return 0;
		size += (uint64_t)st.st_size;
	}
	return size * x->reader.passes;
}

/* ---- what must not change between runs ---- */

static uint64_t add_hash(uint64_t hash, const char *text)
{
	return XXH3_64bits_withSeed(text, strlen(text) + 1, hash);
}

/* That a file cannot be read is found when it is opened. */
static int take_states(struct text_pack *x, struct mfs_error *err)
{
	struct stat st;

	x->reader.states = x->states = calloc(x->files.count, sizeof(*x->states));
	if (!x->states)
		return mfs_fail_nomem(err);
	for (size_t i = 0; i < x->files.count; i++)
		if (x->files.at[i] && !stat(x->files.at[i], &st))
			x->states[i] = mfs_text_state(&st);
	return 0;
}

static void set_hashes(struct text_pack *x)
{
	const struct mfs_pack_text_options *o = x->o;

	x->note.tokenizer = mfs_text_tokenizer_hash(&x->tokenizer);
	x->note.options = x->reader.passes;
	if (o->append_eod)
		x->note.options |= (uint64_t)(x->tokenizer.eod + 1) << 32;
	x->note.options = add_hash(x->note.options, o->separator ? o->separator : "");
	for (size_t i = 0; i < x->encoding.key_count; i++)
		x->note.options = add_hash(x->note.options, x->encoding.keys[i]);
	for (size_t i = 0; i < x->names.count; i++)
		x->note.inputs = add_hash(x->note.inputs, x->names.at[i]);
	x->note.inputs = XXH3_64bits_withSeed(x->states, x->files.count * sizeof(*x->states),
					      x->note.inputs);
}

/* ---- beginning ---- */

static int open_tokenizer(struct text_pack *x, struct mfs_error *err)
{
	const struct mfs_text_tokenizer *t = &x->tokenizer;
	int64_t low, high;
	int rc = mfs_text_tokenizer_open(&x->o->tokenizer, &x->tokenizer, err);

	if (rc)
		return rc;
	x->encoding.dtype = mfs_indexed_dtype_for(t->vocab_size);
	mfs_indexed_limits(x->encoding.dtype, &low, &high);
	x->encoding.high = (uint64_t)high;
	if (!x->o->append_eod)
		return 0;
	if (t->eod == MFS_ABSENT)
		return mfs_fail(
			err, -ENODATA,
			"--append-eod: the tokenizer's files name no end-of-sequence token");
	return t->eod <= high ? 0
			      : mfs_fail(err, -ERANGE, "--append-eod: token %lld is outside of %s",
					 (long long)t->eod, mfs_dtype_torch(x->encoding.dtype));
}

static void set_up(struct text_pack *x)
{
	static const char *const text = "text";
	const struct mfs_pack_text_options *o = x->o;
	const struct mfs_separator lines = {"\n", 1};
	const struct mfs_separator given = {o->separator_bytes.data, o->separator_bytes.len};
	struct mfs_text_encoding *e = &x->encoding;

	x->reader.files = x->files.at;
	x->reader.names = x->names.at;
	x->reader.count = x->files.count;
	x->reader.passes = o->in_order ? 1 : o->partitions;
	x->reader.separator = e->separator = o->separator ? given : lines;
	x->reader.ring = e->ring = &x->ring;
	e->tokenizer = &x->tokenizer;
	e->keys = o->keys.count ? o->keys.at : &text;
	e->key_count = o->keys.count ? o->keys.count : 1;
	e->json = !o->separator;
	x->reader.columns = e->keys;
	x->reader.column_count = e->json ? e->key_count : 0;
	e->passes = x->reader.passes;
	e->append_eod = o->append_eod;
}

/* Standard input can be read once. */
static int check_passes(const struct text_pack *x, struct mfs_error *err)
{
	for (size_t i = 0; i < x->files.count && x->reader.passes > 1; i++)
		if (!x->files.at[i])
			return mfs_fail(
				err, -EINVAL,
				"--partitions %llu goes over the input as often, and standard "
				"input can be read once: name files, or give "
				"--keep-sequential-samples",
				(unsigned long long)x->reader.passes);
	return 0;
}

static int open_set(struct text_pack *x, const char *key, struct mfs_error *err)
{
	const struct mfs_indexed_writer_config c = {
		.dtype = x->encoding.dtype, .resume = x->o->resume, .replace = x->o->force};
	struct dataset *d = &x->sets[x->set_count++];
	int rc;

	d->key = key;
	if (asprintf(&d->prefix, "%s%s%s%s", x->o->prefix, x->o->named_by_key ? "_" : "",
		     x->o->named_by_key ? key : "", x->o->named_by_key ? "_document" : "") < 0) {
		d->prefix = NULL;
		return mfs_fail_nomem(err);
	}
	rc = mfs_indexed_writer_open(d->prefix, &c, &d->writer, err);
	if (rc == -EALREADY) {
		d->start = UINT64_MAX;
		return 0;
	}
	if (!rc)
		d->start = d->saved = mfs_indexed_writer_documents(d->writer);
	return rc;
}

/* Datasets of several keys may have been saved at different documents: the run goes on at the first
 * of these places, and the others leave out what they have. */
static int find_start(struct text_pack *x, struct mfs_error *err)
{
	int rc = 0;

	x->documents = UINT64_MAX;
	for (size_t i = 0; i < x->set_count && !rc; i++) {
		const struct dataset *d = &x->sets[i];
		const char *text = d->writer ? mfs_indexed_writer_note(d->writer) : "";
		struct mfs_pack_text_note note = {.place = {.file = 0}};

		if (*text)
			rc = mfs_pack_text_note_parse(text, d->prefix, &x->note, &note, err);
		if (rc || !d->writer || d->start >= x->documents)
			continue;
		x->documents = d->start;
		x->reader.start = note.place;
	}
	return rc;
}

static int open_sets(struct text_pack *x, struct mfs_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < x->encoding.key_count && !rc; i++)
		rc = open_set(x, x->encoding.keys[i], err);
	return rc ? rc : find_start(x, err);
}

static int prepare(struct text_pack *x, struct mfs_error *err)
{
	int rc = list_inputs(x, err);

	if (!rc) {
		set_up(x);
		rc = check_passes(x, err);
	}
	if (!rc)
		rc = take_states(x, err);
	if (!rc)
		rc = open_tokenizer(x, err);
	if (!rc)
		set_hashes(x);
	return rc ? rc : open_sets(x, err);
}

/* ---- writing ---- */

static uint32_t take_number(const char **at)
{
	uint32_t n;

	memcpy(&n, *at, sizeof(n));
	*at += sizeof(n);
	return n;
}

static int write_document(struct mfs_indexed_writer *w, uint32_t sequences, const char **lengths,
			  const char **tokens, size_t token_size, struct mfs_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < sequences && !rc; i++) {
		const uint32_t length = take_number(lengths);

		rc = mfs_indexed_writer_add(w, *tokens, length, err);
		if (!rc)
			rc = mfs_indexed_writer_end_sequence(w, 0, err);
		*tokens += (size_t)length * token_size;
	}
	return rc ? rc : mfs_indexed_writer_end_document(w, err);
}

static void skip_document(uint32_t sequences, const char **lengths, const char **tokens,
			  size_t token_size)
{
	for (uint32_t i = 0; i < sequences; i++)
		*tokens += (size_t)take_number(lengths) * token_size;
}

static int write_set(struct text_pack *x, const struct dataset *d, const struct mfs_packed_text *p,
		     uint64_t documents, struct mfs_error *err)
{
	const size_t size = mfs_dtype_size(x->encoding.dtype);
	const char *sequences = p->sequences.data, *lengths = p->lengths.data;
	const char *tokens = p->tokens.data;
	int rc = 0;

	for (uint64_t i = 0; i < documents && d->writer && !rc; i++) {
		const uint32_t count = take_number(&sequences);

		if (x->documents + i < d->start)
			skip_document(count, &lengths, &tokens, size);
		else
			rc = write_document(d->writer, count, &lengths, &tokens, size, err);
	}
	return rc;
}

static int write_batch(struct text_pack *x, const struct mfs_text_batch *b, struct mfs_error *err)
{
	int rc = b->rc;

	if (rc)
		*err = b->err;
	for (size_t i = 0; i < x->set_count && !rc; i++) {
		rc = write_set(x, &x->sets[i], &b->keys[i], b->documents, err);
		x->broken = rc != 0;
	}
	if (rc)
		return rc;
	x->documents += b->documents;
	x->note.place = b->end;
	return 0;
}

/* ---- saving ---- */

/* Empty documents alone are not worth it: they make no dataset. */
static bool worth_saving(const struct text_pack *x, const struct dataset *d)
{
	return !x->broken && d->writer && mfs_indexed_writer_tokens(d->writer) &&
	       mfs_indexed_writer_documents(d->writer) > d->saved;
}

static int save(struct text_pack *x, struct mfs_error *err)
{
	char text[MFS_INDEXED_NOTE];
	int rc = 0;

	mfs_pack_text_note_print(&x->note, text);
	for (size_t i = 0; i < x->set_count && !rc; i++) {
		struct dataset *d = &x->sets[i];

		if (!worth_saving(x, d))
			continue;
		rc = mfs_indexed_writer_save(d->writer, text, err);
		x->broken = rc != 0;
		if (!rc)
			d->saved = mfs_indexed_writer_documents(d->writer);
	}
	x->saved_at = time(NULL);
	return rc;
}

static int save_now_and_then(struct text_pack *x, struct mfs_error *err)
{
	return time(NULL) - x->saved_at >= MFS_PACK_SAVE_SECONDS ? save(x, err) : 0;
}

/* ---- packing ---- */

static void show_progress(struct text_pack *x, const struct mfs_text_batch *b)
{
	char label[64], count[MFS_HUMAN];

	snprintf(label, sizeof(label), "%s documents", mfs_grouped(x->documents, count));
	mfs_progress_update(&x->progress, label, b->read);
}

static int write_all(struct text_pack *x, struct mfs_error *err)
{
	bool end = false;
	int rc = 0;

	while (!rc && !end) {
		const struct mfs_text_batch *b = mfs_text_ring_to_write(&x->ring, &end);

		if (b)
			rc = write_batch(x, b, err);
		if (b && !rc) {
			show_progress(x, b);
			mfs_text_ring_written(&x->ring);
		}
		if (!rc)
			rc = save_now_and_then(x, err);
	}
	return rc;
}

struct threads {
	pthread_t reader, encoders[MFS_THREADS_MAX];
	unsigned encoder_count;
	bool reading;
};

static int start_threads(struct text_pack *x, struct threads *t, unsigned workers,
			 struct mfs_error *err)
{
	int rc = 0;

	while (!rc && t->encoder_count < workers) {
		rc = mfs_thread_start(&t->encoders[t->encoder_count], "pack encodes",
				      mfs_text_encode, &x->encoding);
		t->encoder_count += !rc;
	}
	/* Fewer only take longer. */
	if (t->encoder_count)
		rc = mfs_thread_start(&t->reader, "pack reads", mfs_text_read, &x->reader);
	t->reading = !rc;
	return rc ? mfs_fail(err, rc, "cannot start a thread: %s", mfs_errno_text(-rc)) : 0;
}

static void end_threads(struct text_pack *x, struct threads *t)
{
	mfs_text_ring_stop(&x->ring);
	if (t->reading)
		pthread_join(t->reader, NULL);
	while (t->encoder_count)
		pthread_join(t->encoders[--t->encoder_count], NULL);
}

static int pack_all(struct text_pack *x, struct mfs_error *err)
{
	const unsigned workers = mfs_threads_count((unsigned)mfs_min_u64(x->o->workers, 1u << 20),
						   MFS_THREADS_MAX - 1);
	struct threads t = {.encoder_count = 0};
	int rc = mfs_text_ring_init(&x->ring, workers * BATCHES_PER_WORKER, err);

	if (rc)
		return rc;
	x->note.place = x->reader.start;
	rc = start_threads(x, &t, workers, err);
	if (!rc)
		rc = write_all(x, err);
	end_threads(x, &t);
	return rc;
}

/* ---- ending ---- */

static bool has_tokens(const struct text_pack *x)
{
	for (size_t i = 0; i < x->set_count; i++)
		if (!x->sets[i].writer || mfs_indexed_writer_tokens(x->sets[i].writer))
			return true;
	return false;
}

/* Keeps the documents of whole batches, whatever the failure was. */
static int keep(struct text_pack *x, const struct mfs_error *why)
{
	uint64_t kept = UINT64_MAX;
	char text[MFS_HUMAN];

	save(x, NULL);
	for (size_t i = 0; i < x->set_count; i++)
		if (x->sets[i].writer)
			kept = mfs_min_u64(kept, x->sets[i].saved);
	if (!kept)
		mfs_command_failed("%s", why->msg);
	else
		mfs_command_failed("%s; %s documents are kept: the same command with --resume goes "
				   "on after them",
				   why->msg, mfs_grouped(kept, text));
	return mfs_stop_code(MFS_EXIT_FAILED);
}

static void say_done(const struct text_pack *x, const struct dataset *d, uint64_t tokens,
		     uint64_t documents)
{
	const double seconds = mfs_progress_seconds(&x->progress);
	char text[3][MFS_HUMAN];

	printf("packed %s documents, %s tokens as %s into %s.bin and .idx in %.1f s "
	       "(%s documents/s)",
	       mfs_grouped(documents, text[0]), mfs_grouped(tokens, text[1]),
	       mfs_dtype_torch(x->encoding.dtype), d->prefix, seconds,
	       mfs_grouped((uint64_t)((double)(documents - d->start) / (seconds > 0 ? seconds : 1)),
			   text[2]));
	if (d->start)
		printf(", %s documents were there from an earlier run",
		       mfs_grouped(d->start, text[0]));
	putchar('\n');
}

static int finish_set(struct text_pack *x, struct dataset *d)
{
	const uint64_t documents = mfs_indexed_writer_documents(d->writer);
	const uint64_t tokens = mfs_indexed_writer_tokens(d->writer);
	struct mfs_indexed_writer *w = d->writer;
	struct mfs_error err;

	d->writer = NULL;
	if (mfs_indexed_writer_finish(w, &err))
		return mfs_command_failed("%s; everything is kept: the same command with --resume "
					  "finishes it",
					  err.msg);
	say_done(x, d, tokens, documents);
	return MFS_EXIT_OK;
}

static int run(struct text_pack *x)
{
	struct mfs_error err;
	int exit_code = MFS_EXIT_OK, rc;

	mfs_progress_init(&x->progress, stderr, 0, inputs_size(x));
	rc = pack_all(x, &err);
	mfs_progress_clear(&x->progress);
	if (!rc && !has_tokens(x))
		rc = mfs_fail(&err, -ENODATA, "%s: no token: nothing was written",
			      x->names.count == 1 ? x->names.at[0] : "the inputs");
	if (!rc)
		rc = save(x, &err);
	if (rc)
		return keep(x, &err);
	for (size_t i = 0; i < x->set_count && !exit_code; i++)
		if (x->sets[i].writer)
			exit_code = finish_set(x, &x->sets[i]);
	return exit_code;
}

static bool all_complete(const struct text_pack *x)
{
	for (size_t i = 0; i < x->set_count; i++)
		if (x->sets[i].writer)
			return false;
	return true;
}

static void release(struct text_pack *x)
{
	for (size_t i = 0; i < x->set_count; i++) {
		struct dataset *d = &x->sets[i];

		if (d->writer && !d->saved)
			mfs_indexed_writer_discard(d->writer);
		else if (d->writer)
			mfs_indexed_writer_free(d->writer);
		free(d->prefix);
	}
	for (size_t i = 0; i < x->names.count; i++)
		free((char *)x->names.at[i]);
	free(x->names.at);
	free(x->files.at);
	free(x->states);
	globfree(&x->found);
	mfs_text_ring_release(&x->ring);
	mfs_text_tokenizer_release(&x->tokenizer);
}

static int pack_text(const struct mfs_pack_text_options *o)
{
	struct text_pack x = {.o = o};
	struct mfs_error err;
	int exit_code, rc;

	mfs_stop_on_signals();
	rc = prepare(&x, &err);
	if (rc) {
		exit_code = mfs_pack_not_begun(rc, &err);
	} else if (all_complete(&x)) {
		for (size_t i = 0; i < x.set_count; i++)
			printf("%s.bin and .idx are complete: nothing was read\n",
			       x.sets[i].prefix);
		exit_code = MFS_EXIT_OK;
	} else {
		exit_code = run(&x);
	}
	release(&x);
	return exit_code;
}

int mfs_pack_text(int argc, char **argv)
{
	struct mfs_pack_text_options o;
	int exit_code;

	if (mfs_pack_parse_text_options(argc, argv, &o, &exit_code)) {
		if (!o.inputs.count && isatty(STDIN_FILENO))
			exit_code = mfs_usage_error("pack: text is read from standard input, or "
						    "from files: mcorefs pack --tokenizer PATH "
						    "PREFIX < FILE");
		else
			exit_code = mfs_print_end(pack_text(&o), MFS_EXIT_FAILED);
	}
	mfs_pack_text_options_release(&o);
	return exit_code;
}
