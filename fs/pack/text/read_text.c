#include "fs/pack/text/read_text.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "formats/io/regular.h"
#include "fs/pack/input/input.h"

/* A document of more is none: most likely the separator is another one. */
#define LONGEST (1u << 30)

/* One input as it is read. */
struct stream {
	struct mfs_text_reader *reader;
	struct mfs_pack_input in;
	struct mfs_text_place place; /* of the end of the batch before */
	struct mfs_buf rest;	     /* the begin of a document whose end has not been read */
	size_t scanned;		     /* bytes of the batch at hand that hold no separator */
};

/* Counts the documents that end in a batch. *ret_cut: where the last of them ends. */
static uint64_t count_documents(struct stream *s, const struct mfs_text_batch *b, size_t *ret_cut)
{
	const struct mfs_separator *sep = &s->reader->separator;
	const char *end = b->text.data + b->text.len, *from = b->text.data + s->scanned, *at;
	uint64_t count = 0;

	*ret_cut = 0;
	while (from < end && (at = mfs_separator_find(sep, from, end))) {
		from = at + sep->len;
		*ret_cut = (size_t)(from - b->text.data);
		count++;
	}
	/* The begin of a separator may stand at the end. */
	s->scanned = b->text.len - *ret_cut < sep->len ? *ret_cut : b->text.len - sep->len + 1;
	return count;
}

/* Takes the documents that have ended, and keeps what follows them. */
static void end_batch(struct stream *s, struct mfs_text_batch *b, uint64_t documents, size_t cut)
{
	b->name = s->in.name;
	b->line = s->place.line + 1;
	b->document = s->place.document;
	b->pass = s->place.file / s->reader->count;
	b->read = s->reader->read + s->in.raw;
	s->rest.len = 0;
	mfs_buf_add(&s->rest, b->text.data + cut, b->text.len - cut);
	b->text.len = cut;
	s->scanned = 0;
	s->place.line += documents;
	s->place.document += documents;
	s->place.mark = s->in.ended;
	b->end = s->place;
}

/* Reads once. *ret_end: the input has ended. */
static int read_more(struct stream *s, struct mfs_text_batch *b, bool *ret_end,
		     struct mfs_error *err)
{
	uint64_t documents;
	const uint8_t *bytes;
	size_t len, cut;
	int rc;

	do
		rc = mfs_pack_input_read(&s->in, &bytes, &len, err);
	while (rc == -EAGAIN && !mfs_text_ring_stopped(s->reader->ring));
	if (rc)
		return rc;
	mfs_buf_add(&b->text, bytes, len);
	if (b->text.failed)
		return mfs_fail_nomem(err);
	documents = count_documents(s, b, &cut);
	*ret_end = !len;
	if (!len && b->text.len > cut) {
		documents++;
		cut = b->text.len;
		s->place.last = true;
	}
	mfs_pack_input_done(&s->in, bytes, len, s->in.position - (b->text.len - cut));
	if (documents)
		end_batch(s, b, documents, cut);
	else if (b->text.len > LONGEST)
		return mfs_fail(err, -EFBIG, "%s, line %llu: a document of more than 1 GiB",
				s->in.name, (unsigned long long)s->place.line + 1);
	return s->rest.failed ? mfs_fail_nomem(err) : 0;
}

/* The next batch, which may be empty at the end. */
static int fill(struct stream *s, struct mfs_text_batch *b, bool *ret_end, struct mfs_error *err)
{
	int rc = 0;

	b->rc = 0;
	b->name = NULL;
	b->text.len = 0;
	mfs_buf_add(&b->text, s->rest.data, s->rest.len);
	s->rest.len = 0;
	while (!rc && !b->name && !*ret_end)
		rc = read_more(s, b, ret_end, err);
	return rc;
}

static int fill_all(struct stream *s, struct mfs_error *err)
{
	bool end = false;
	int rc = 0;

	while (!rc && !end) {
		struct mfs_text_batch *b = mfs_text_ring_to_fill(s->reader->ring);

		rc = b ? fill(s, b, &end, err) : mfs_fail(err, -EINTR, "interrupted");
		if (!rc && b->name)
			mfs_text_ring_filled(s->reader->ring);
	}
	return rc;
}

/* An earlier run has ended in the middle of this input. */
static int go_on(struct stream *s, const struct mfs_text_place *start, struct mfs_error *err)
{
	int rc = mfs_pack_input_skip(&s->in, &start->mark, err);

	s->place = *start;
	return !rc && start->last ? mfs_pack_input_at_end(&s->in, err) : rc;
}

struct mfs_text_state mfs_text_state(const struct stat *st)
{
	return (struct mfs_text_state){(uint64_t)st->st_size, mfs_ns(st->st_mtim)};
}

/* Passes over the inputs take documents by their numbers, which must not change in between. */
static int open_file(const char *file, const struct mfs_text_state *begin, int *ret,
		     struct mfs_error *err)
{
	struct mfs_text_state now;
	struct stat st;
	int rc;

	*ret = STDIN_FILENO;
	if (!file)
		return 0;
	rc = mfs_open_regular(AT_FDCWD, file, 0, ret, &st);
	if (rc)
		return mfs_fail(err, rc, "'%s': %s", file, mfs_open_regular_why(rc));
	now = mfs_text_state(&st);
	if (now.size == begin->size && now.changed_ns == begin->changed_ns)
		return 0;
	close(*ret);
	return mfs_fail(err, -ESTALE, "'%s' has changed while it was packed", file);
}

/* Reads input `number` of all passes. *document: of the pass; moves on. */
static int read_input(struct mfs_text_reader *r, uint64_t number, uint64_t *document,
		      struct mfs_error *err)
{
	const char *file = r->files ? r->files[number % r->count] : NULL;
	struct stream s = {.reader = r, .place = {.file = number, .document = *document}};
	int fd, rc = open_file(file, &r->states[number % r->count], &fd, err);

	if (rc)
		return rc;
	rc = mfs_pack_input_open(&s.in, fd, r->names[number % r->count], err);
	s.in.columns = r->columns;
	s.in.column_count = r->column_count;
	if (!rc && number == r->start.file && r->start.mark.position)
		rc = go_on(&s, &r->start, err);
	if (!rc)
		rc = fill_all(&s, err);
	*document = s.place.document;
	r->read += s.in.raw;
	mfs_pack_input_release(&s.in);
	mfs_buf_release(&s.rest);
	if (file)
		close(fd);
	return rc;
}

static void fail(struct mfs_text_reader *r, int rc, const struct mfs_error *err)
{
	struct mfs_text_batch *b = mfs_text_ring_to_fill(r->ring);

	if (!b)
		return;
	b->rc = rc;
	b->err = *err;
	b->text.len = 0;
	mfs_text_ring_filled(r->ring);
}

void *mfs_text_read(void *arg)
{
	struct mfs_text_reader *r = arg;
	uint64_t document = 0;
	struct mfs_error err;
	int rc = 0;

	for (uint64_t i = r->start.file; i < r->passes * r->count && !rc; i++) {
		if (i % r->count == 0)
			document = 0;
		if (i == r->start.file)
			document = r->start.document;
		rc = read_input(r, i, &document, &err);
	}
	if (rc)
		fail(r, rc, &err);
	mfs_text_ring_close(r->ring);
	return NULL;
}
