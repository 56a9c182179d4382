#define _GNU_SOURCE
#include "formats/indexed_dataset_write.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/indexed_dataset.h"
#include "formats/io/commit.h"

/* What grows on disk. The .idx is made of the last three when all is known. */
enum stream { BIN, LENGTHS, DOCUMENTS, MODES, STREAMS };
static const char *const suffixes[] = {".bin.part", ".lengths.part", ".documents.part",
				       ".modes.part"};

#define BUFFER (1u << 20)

struct out {
	int fd;	       /* -1: closed */
	uint64_t size; /* bytes, those in the buffer too */
	uint8_t *buffer;
	size_t buffered;
};

struct mfs_indexed_writer {
	char *prefix, *base; /* base: its last part, within prefix */
	int dirfd;
	uint8_t code;
	enum mfs_dtype dtype;
	unsigned token_size;
	bool multimodal;
	struct out out[STREAMS];
	uint64_t sequences, documents; /* ended */
	uint64_t length;	       /* tokens of the sequence at hand */
	uint64_t saved_sequences;      /* at the last end of a document */
};

enum mfs_dtype mfs_indexed_dtype_for(uint64_t vocab_size)
{
	return vocab_size < 65500 ? MFS_U16 : MFS_I32;
}

/* base + suffix, in a static-sized buffer of the caller's. */
static int name_of(const struct mfs_indexed_writer *w, const char *suffix, char ret[NAME_MAX + 1],
		   struct mfs_error *err)
{
	if ((size_t)snprintf(ret, NAME_MAX + 1, "%s%s", w->base, suffix) > NAME_MAX)
		return mfs_fail(err, -ENAMETOOLONG, "'%s%s' is too long a name", w->base, suffix);
	return 0;
}

static int failed(const struct mfs_indexed_writer *w, int rc, const char *what, const char *suffix,
		  struct mfs_error *err)
{
	return mfs_fail(err, rc, "cannot %s '%s%s': %s", what, w->prefix, suffix, strerror(-rc));
}

/* ---- streams ---- */

static int write_all(int fd, const uint8_t *bytes, size_t len)
{
	while (len) {
		ssize_t n = write(fd, bytes, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		bytes += n;
		len -= (size_t)n;
	}
	return 0;
}

static int flush(struct mfs_indexed_writer *w, enum stream s, struct mfs_error *err)
{
	struct out *o = &w->out[s];
	int rc = write_all(o->fd, o->buffer, o->buffered);

	if (rc)
		return failed(w, rc, "write", suffixes[s], err);
	o->buffered = 0;
	return 0;
}

static int put(struct mfs_indexed_writer *w, enum stream s, const void *bytes, size_t len,
	       struct mfs_error *err)
{
	struct out *o = &w->out[s];
	const uint8_t *from = bytes;

	while (len) {
		const size_t n = mfs_min_u64(len, BUFFER - o->buffered);

		memcpy(o->buffer + o->buffered, from, n);
		o->buffered += n;
		o->size += n;
		from += n;
		len -= n;
		if (o->buffered == BUFFER) {
			int rc = flush(w, s, err);

			if (rc)
				return rc;
		}
	}
	return 0;
}

static int put64(struct mfs_indexed_writer *w, enum stream s, uint64_t v, struct mfs_error *err)
{
	uint8_t bytes[8];

	mfs_put_le64(bytes, v);
	return put(w, s, bytes, sizeof(bytes), err);
}

static bool in_use(const struct mfs_indexed_writer *w, enum stream s)
{
	return s != MODES || w->multimodal;
}

/* Opens a stream with size bytes to keep; what an interrupted run wrote behind them goes. */
static int open_stream(struct mfs_indexed_writer *w, enum stream s, uint64_t size,
		       struct mfs_error *err)
{
	struct out *o = &w->out[s];
	char name[NAME_MAX + 1];
	struct stat st;
	int rc = name_of(w, suffixes[s], name, err);

	if (rc)
		return rc;
	o->buffer = malloc(BUFFER);
	if (!o->buffer)
		return mfs_fail_nomem(err);
	o->fd = openat(w->dirfd, name,
		       O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_CREAT | (size ? 0 : O_TRUNC), 0644);
	if (o->fd < 0 || fstat(o->fd, &st))
		return failed(w, -errno, "open", suffixes[s], err);
	if ((uint64_t)st.st_size < size)
		return mfs_fail(
			err, -EINVAL,
			"'%s%s' has %lld bytes, its journal speaks of %llu: it cannot be resumed",
			w->prefix, suffixes[s], (long long)st.st_size, (unsigned long long)size);
	if (ftruncate(o->fd, (off_t)size) || lseek(o->fd, (off_t)size, SEEK_SET) < 0)
		return failed(w, -errno, "cut", suffixes[s], err);
	o->size = size;
	return 0;
}

/* ---- journal ---- */

/* One line of text: what is durable. All numbers are decimal. */
struct journal {
	unsigned code, multimodal;
	unsigned long long bytes, sequences, documents, position;
};

#define JOURNAL "mcorefs-pack 1 %u %u %llu %llu %llu %llu\n"

/* -ENOENT without a sentence if there is none. */
static int read_journal(const struct mfs_indexed_writer *w, struct journal *ret,
			struct mfs_error *err)
{
	char name[NAME_MAX + 1], text[256] = {0};
	int fd, rc = name_of(w, ".journal", name, err);
	ssize_t n;

	if (rc)
		return rc;
	fd = openat(w->dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT ? -ENOENT : failed(w, -errno, "open", ".journal", err);
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n < 0 || sscanf(text, JOURNAL, &ret->code, &ret->multimodal, &ret->bytes,
			    &ret->sequences, &ret->documents, &ret->position) != 6)
		return mfs_fail(err, -EINVAL, "'%s.journal' is no journal of mcorefs", w->prefix);
	return 0;
}

static int write_journal(struct mfs_indexed_writer *w, uint64_t position, struct mfs_error *err)
{
	char name[NAME_MAX + 1], text[256];
	int len, rc = name_of(w, ".journal", name, err);

	if (rc)
		return rc;
	len = snprintf(text, sizeof(text), JOURNAL, w->code, w->multimodal ? 1u : 0u,
		       (unsigned long long)w->out[BIN].size, (unsigned long long)w->sequences,
		       (unsigned long long)w->documents, (unsigned long long)position);
	return mfs_commit_file(w->dirfd, name, text, (size_t)len, err);
}

/* ---- names ---- */

static int rename_to(struct mfs_indexed_writer *w, const char *from, const char *to,
		     struct mfs_error *err)
{
	char old[NAME_MAX + 1], new[NAME_MAX + 1];
	int rc = name_of(w, from, old, err);

	if (!rc)
		rc = name_of(w, to, new, err);
	if (!rc && renameat(w->dirfd, old, w->dirfd, new))
		rc = failed(w, -errno, "give its name to", to, err);
	if (!rc && fsync(w->dirfd))
		rc = failed(w, -errno, "make durable the directory of", to, err);
	return rc;
}

static int remove_named(const struct mfs_indexed_writer *w, const char *suffix,
			struct mfs_error *err)
{
	char name[NAME_MAX + 1];
	int rc = name_of(w, suffix, name, err);

	if (!rc && unlinkat(w->dirfd, name, 0) && errno != ENOENT)
		rc = failed(w, -errno, "remove", suffix, err);
	return rc;
}

/* -EEXIST without a sentence, or 0. */
static int exists(const struct mfs_indexed_writer *w, const char *suffix, struct mfs_error *err)
{
	char name[NAME_MAX + 1];
	struct stat st;
	int rc = name_of(w, suffix, name, err);

	if (rc)
		return rc;
	if (!fstatat(w->dirfd, name, &st, AT_SYMLINK_NOFOLLOW))
		return -EEXIST;
	return errno == ENOENT ? 0 : failed(w, -errno, "look at", suffix, err);
}

static int check_absent(const struct mfs_indexed_writer *w, const char *suffix,
			struct mfs_error *err)
{
	int rc = exists(w, suffix, err);

	return rc == -EEXIST ? failed(w, rc, "write", suffix, err) : rc;
}

/* ---- opening ---- */

/* A run that was stopped between the two last renames has left a .bin without an .idx: it is the part
 * again. */
static int take_bin_back(struct mfs_indexed_writer *w, struct mfs_error *err)
{
	int rc = exists(w, ".bin.part", err);

	if (rc)
		return rc == -EEXIST ? 0 : rc;
	rc = exists(w, ".bin", err);
	return rc == -EEXIST ? rename_to(w, ".bin", ".bin.part", err) : rc;
}

static int open_streams(struct mfs_indexed_writer *w, bool resume, uint64_t *ret_position,
			struct mfs_error *err)
{
	struct journal j = {0};
	uint64_t kept[STREAMS];
	int rc = resume ? read_journal(w, &j, err) : -ENOENT;

	if (rc && rc != -ENOENT)
		return rc;
	/* Without a journal nothing is resumed, nor may an older one be believed later. */
	if (rc)
		rc = resume ? 0 : remove_named(w, ".journal", err);
	else
		rc = take_bin_back(w, err);
	if (!rc)
		rc = check_absent(w, ".bin", err);
	if (rc)
		return rc;
	if (j.code && (j.code != w->code || j.multimodal != w->multimodal))
		return mfs_fail(
			err, -EINVAL,
			"'%s' was begun with dtype code %u%s: it cannot be resumed with %u%s",
			w->prefix, j.code, j.multimodal ? ", multimodal" : "", w->code,
			w->multimodal ? ", multimodal" : "");
	kept[BIN] = j.bytes;
	kept[LENGTHS] = 4 * j.sequences;
	kept[DOCUMENTS] = 8 * j.documents;
	kept[MODES] = j.sequences;
	for (enum stream s = BIN; s < STREAMS; s++) {
		rc = in_use(w, s) ? open_stream(w, s, kept[s], err) : 0;
		if (rc)
			return rc;
	}
	w->sequences = w->saved_sequences = j.sequences;
	w->documents = j.documents;
	*ret_position = j.position;
	return 0;
}

static int open_directory(struct mfs_indexed_writer *w, const char *prefix, struct mfs_error *err)
{
	char *slash;

	w->prefix = strdup(prefix);
	if (!w->prefix)
		return mfs_fail_nomem(err);
	slash = strrchr(w->prefix, '/');
	w->base = slash ? slash + 1 : w->prefix;
	if (slash)
		*slash = '\0';
	w->dirfd = open(!slash		     ? "."
			: slash == w->prefix ? "/"
					     : w->prefix,
			O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (slash)
		*slash = '/';
	if (w->dirfd < 0)
		return mfs_fail(err, -errno, "cannot open the directory of '%s': %s", prefix,
				strerror(errno));
	return *w->base ? 0 : mfs_fail(err, -EINVAL, "'%s' names no dataset", prefix);
}

static int new_writer(const char *prefix, struct mfs_indexed_writer **ret, struct mfs_error *err)
{
	struct mfs_indexed_writer *w = calloc(1, sizeof(*w));
	int rc;

	if (!w)
		return mfs_fail_nomem(err);
	for (enum stream s = BIN; s < STREAMS; s++)
		w->out[s].fd = -1;
	w->dirfd = -1;
	rc = open_directory(w, prefix, err);
	if (rc) {
		mfs_indexed_writer_free(w);
		return rc;
	}
	*ret = w;
	return 0;
}

int mfs_indexed_writer_open(const char *prefix, enum mfs_dtype dtype, bool multimodal, bool resume,
			    struct mfs_indexed_writer **ret, uint64_t *ret_position,
			    struct mfs_error *err)
{
	struct mfs_indexed_writer *w;
	int rc;

	if (!mfs_idx_code(dtype))
		return mfs_fail(err, -EINVAL, "an indexed dataset cannot hold %s",
				mfs_dtype_torch(dtype));
	rc = new_writer(prefix, &w, err);
	if (rc)
		return rc;
	w->dtype = dtype;
	w->code = mfs_idx_code(dtype);
	w->token_size = mfs_dtype_size(dtype);
	w->multimodal = multimodal;
	rc = check_absent(w, ".idx", err);
	if (!rc)
		rc = open_streams(w, resume, ret_position, err);
	if (rc) {
		mfs_indexed_writer_free(w);
		return rc;
	}
	*ret = w;
	return 0;
}

void mfs_indexed_writer_free(struct mfs_indexed_writer *w)
{
	if (!w)
		return;
	for (enum stream s = BIN; s < STREAMS; s++) {
		if (w->out[s].fd >= 0)
			close(w->out[s].fd);
		free(w->out[s].buffer);
	}
	if (w->dirfd >= 0)
		close(w->dirfd);
	free(w->prefix);
	free(w);
}

/* ---- appending ---- */

int mfs_indexed_writer_add(struct mfs_indexed_writer *w, const void *tokens, uint64_t count,
			   struct mfs_error *err)
{
	if (count > INT32_MAX || w->length + count > INT32_MAX)
		return mfs_fail(err, -ERANGE, "'%s': sequence %llu has 2^31 tokens or more",
				w->prefix, (unsigned long long)w->sequences);
	w->length += count;
	return put(w, BIN, tokens, count * w->token_size, err);
}

/* The integers that a dtype holds; false for floats. */
static bool limits(enum mfs_dtype dtype, int64_t *ret_low, int64_t *ret_high)
{
	switch (dtype) {
	case MFS_U8:
		*ret_low = 0, *ret_high = UINT8_MAX;
		return true;
	case MFS_I8:
		*ret_low = INT8_MIN, *ret_high = INT8_MAX;
		return true;
	case MFS_I16:
		*ret_low = INT16_MIN, *ret_high = INT16_MAX;
		return true;
	case MFS_U16:
		*ret_low = 0, *ret_high = UINT16_MAX;
		return true;
	case MFS_I32:
		*ret_low = INT32_MIN, *ret_high = INT32_MAX;
		return true;
	case MFS_I64:
		*ret_low = INT64_MIN, *ret_high = INT64_MAX;
		return true;
	default:
		return false;
	}
}

int mfs_indexed_writer_add_tokens(struct mfs_indexed_writer *w, const int64_t *tokens,
				  uint64_t count, struct mfs_error *err)
{
	int64_t low, high;
	uint8_t narrow[4096];
	const uint64_t room = sizeof(narrow) / w->token_size;

	if (!limits(w->dtype, &low, &high))
		return mfs_fail(err, -ENOTSUP, "'%s': integers cannot be written as %s", w->prefix,
				mfs_dtype_torch(w->dtype));
	for (uint64_t n; count; tokens += n, count -= n) {
		int rc;

		n = mfs_min_u64(count, room);
		for (uint64_t i = 0; i < n; i++) {
			if (tokens[i] < low || tokens[i] > high)
				return mfs_fail(err, -ERANGE, "'%s': token %lld does not fit %s",
						w->prefix, (long long)tokens[i],
						mfs_dtype_torch(w->dtype));
			/* Little-endian: the low bytes come first. */
			memcpy(narrow + i * w->token_size, &tokens[i], w->token_size);
		}
		rc = mfs_indexed_writer_add(w, narrow, n, err);
		if (rc)
			return rc;
	}
	return 0;
}

int mfs_indexed_writer_end_sequence(struct mfs_indexed_writer *w, int8_t mode,
				    struct mfs_error *err)
{
	const int32_t length = (int32_t)w->length;
	int rc = put(w, LENGTHS, &length, sizeof(length), err);

	if (!rc && w->multimodal)
		rc = put(w, MODES, &mode, 1, err);
	if (rc)
		return rc;
	w->sequences++;
	w->length = 0;
	return 0;
}

int mfs_indexed_writer_end_document(struct mfs_indexed_writer *w, struct mfs_error *err)
{
	int rc;

	if (w->length)
		return mfs_fail(err, -EBUSY, "'%s': a document ends inside of sequence %llu",
				w->prefix, (unsigned long long)w->sequences);
	rc = put64(w, DOCUMENTS, w->sequences, err);
	if (rc)
		return rc;
	w->documents++;
	w->saved_sequences = w->sequences;
	return 0;
}

uint64_t mfs_indexed_writer_sequences(const struct mfs_indexed_writer *w)
{
	return w->sequences;
}

uint64_t mfs_indexed_writer_tokens(const struct mfs_indexed_writer *w)
{
	return w->out[BIN].size / w->token_size;
}

static int sync_stream(struct mfs_indexed_writer *w, enum stream s, struct mfs_error *err)
{
	int rc = flush(w, s, err);

	if (!rc && fsync(w->out[s].fd))
		rc = failed(w, -errno, "make durable", suffixes[s], err);
	return rc;
}

int mfs_indexed_writer_save(struct mfs_indexed_writer *w, uint64_t position, struct mfs_error *err)
{
	int rc = 0;

	if (w->length || w->saved_sequences != w->sequences)
		return mfs_fail(err, -EBUSY, "'%s': inside of a document nothing can be saved",
				w->prefix);
	for (enum stream s = BIN; s < STREAMS && !rc; s++)
		rc = in_use(w, s) ? sync_stream(w, s, err) : 0;
	return rc ? rc : write_journal(w, position, err);
}

/* ---- the .idx ---- */

/* Written through the buffer of the .bin, which is empty by then. */
struct idx_out {
	struct mfs_indexed_writer *w;
	int fd;
	size_t buffered;
};

static int idx_put(struct idx_out *o, const void *bytes, size_t len)
{
	uint8_t *buffer = o->w->out[BIN].buffer;
	int rc = 0;

	if (o->buffered + len > BUFFER) {
		rc = write_all(o->fd, buffer, o->buffered);
		o->buffered = 0;
	}
	if (!rc && len > BUFFER)
		return write_all(o->fd, bytes, len);
	if (!rc) {
		memcpy(buffer + o->buffered, bytes, len);
		o->buffered += len;
	}
	return rc;
}

/* Copies a stream, or what each of its lengths makes of a pointer. */
static int idx_copy(struct idx_out *o, enum stream s, bool pointers)
{
	const struct mfs_indexed_writer *w = o->w;
	uint64_t pointer = 0;
	int32_t chunk[16384];
	int rc = 0;

	for (uint64_t at = 0, n; at < w->out[s].size && !rc; at += n) {
		ssize_t got;

		n = mfs_min_u64(sizeof(chunk), w->out[s].size - at);
		got = pread(w->out[s].fd, chunk, n, (off_t)at);
		if (got <= 0)
			return got ? -errno : -EIO;
		n = pointers ? (uint64_t)got / 4 * 4 : (uint64_t)got;
		if (!pointers)
			rc = idx_put(o, chunk, n);
		for (uint64_t i = 0; pointers && i < n / 4 && !rc; i++) {
			rc = idx_put(o, &pointer, sizeof(pointer));
			pointer += (uint64_t)chunk[i] * w->token_size;
		}
	}
	return rc;
}

static int write_idx(struct mfs_indexed_writer *w, int fd)
{
	struct idx_out o = {w, fd, 0};
	uint8_t head[MFS_IDX_HEADER] = "MMIDIDX\0", zero[8] = {0};
	int rc;

	mfs_put_le64(head + 9, 1);
	head[17] = w->code;
	mfs_put_le64(head + 18, w->sequences);
	mfs_put_le64(head + 26, w->documents + 1);
	rc = idx_put(&o, head, sizeof(head));
	if (!rc)
		rc = idx_copy(&o, LENGTHS, false);
	if (!rc)
		rc = idx_copy(&o, LENGTHS, true);
	if (!rc)
		rc = idx_put(&o, zero, sizeof(zero));
	if (!rc)
		rc = idx_copy(&o, DOCUMENTS, false);
	if (!rc && w->multimodal)
		rc = idx_copy(&o, MODES, false);
	if (!rc)
		rc = write_all(fd, w->out[BIN].buffer, o.buffered);
	if (!rc && fsync(fd))
		rc = -errno;
	return rc;
}

static int make_idx(struct mfs_indexed_writer *w, struct mfs_error *err)
{
	char name[NAME_MAX + 1];
	int fd, rc = name_of(w, ".idx.part", name, err);

	if (rc)
		return rc;
	fd = openat(w->dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0)
		return failed(w, -errno, "open", ".idx.part", err);
	rc = write_idx(w, fd);
	if (close(fd) && !rc)
		rc = -errno;
	return rc ? failed(w, rc, "write", ".idx.part", err) : 0;
}

/* ---- finishing ---- */

static int remove_parts(const struct mfs_indexed_writer *w, struct mfs_error *err)
{
	/* The journal first: parts without one are not resumed. */
	int rc = remove_named(w, ".journal", err);

	for (enum stream s = BIN; s < STREAMS && !rc; s++)
		rc = remove_named(w, suffixes[s], err);
	return rc ? rc : remove_named(w, ".idx.part", err);
}

int mfs_indexed_writer_finish(struct mfs_indexed_writer *w, struct mfs_error *err)
{
	int rc;

	if (w->length || w->saved_sequences != w->sequences)
		rc = mfs_fail(err, -EBUSY, "'%s': its last document has no end", w->prefix);
	else
		rc = check_absent(w, ".idx", err);
	for (enum stream s = BIN; s < STREAMS && !rc; s++)
		rc = in_use(w, s) ? sync_stream(w, s, err) : 0;
	if (!rc)
		rc = make_idx(w, err);
	if (!rc)
		rc = rename_to(w, ".bin.part", ".bin", err);
	if (!rc)
		rc = rename_to(w, ".idx.part", ".idx", err);
	if (!rc)
		rc = remove_parts(w, err);
	mfs_indexed_writer_free(w);
	return rc;
}

int mfs_indexed_writer_discard(const char *prefix, struct mfs_error *err)
{
	struct mfs_indexed_writer *w;
	int rc = new_writer(prefix, &w, err);

	if (rc)
		return rc;
	rc = remove_parts(w, err);
	mfs_indexed_writer_free(w);
	return rc;
}
