/* The files of an indexed dataset that is being written: names, and the journal. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/indexed/indexed_dataset.h"
#include "formats/indexed/indexed_dataset_write_i.h"
#include "formats/io/commit.h"
#include "formats/io/regular.h"

const char *mfs_indexed_suffix(enum mfs_indexed_stream s)
{
	static const char *const suffixes[] = {
		[STREAM_LENGTHS] = ".lengths.part",
		[STREAM_BIN] = ".bin.part",
		[STREAM_DOCUMENTS] = ".documents.part",
		[STREAM_MODES] = ".modes.part",
	};

	return suffixes[s];
}

int mfs_indexed_name(const struct mfs_indexed_writer *w, const char *suffix, char *ret, size_t size,
		     struct mfs_error *err)
{
	if ((size_t)snprintf(ret, size, "%s%s", w->base, suffix) >= size)
		return mfs_fail(err, -ENAMETOOLONG, "the name '%s%s' is too long", w->base, suffix);
	return 0;
}

int mfs_indexed_failed(const struct mfs_indexed_writer *w, int rc, const char *what,
		       const char *suffix, struct mfs_error *err)
{
	return mfs_fail(err, rc, "cannot %s '%s%s': %s", what, w->prefix, suffix, strerror(-rc));
}

int mfs_indexed_exists(const struct mfs_indexed_writer *w, const char *suffix, bool *ret,
		       struct mfs_error *err)
{
	char name[NAME_MAX + 1];
	struct stat st;
	int rc = mfs_indexed_name(w, suffix, name, sizeof(name), err);

	if (rc)
		return rc;
	*ret = !fstatat(w->dirfd, name, &st, AT_SYMLINK_NOFOLLOW);
	if (!*ret && errno != ENOENT)
		return mfs_indexed_failed(w, -errno, "look at", suffix, err);
	return 0;
}

int mfs_indexed_sync_dir(const struct mfs_indexed_writer *w, struct mfs_error *err)
{
	if (!fsync(w->dirfd))
		return 0;
	return mfs_indexed_failed(w, -errno, "make durable the directory of", "", err);
}

int mfs_indexed_rename(const struct mfs_indexed_writer *w, const char *from, const char *to,
		       struct mfs_error *err)
{
	char old[NAME_MAX + 1], new[NAME_MAX + 1];
	int rc = mfs_indexed_name(w, from, old, sizeof(old), err);

	if (!rc)
		rc = mfs_indexed_name(w, to, new, sizeof(new), err);
	if (!rc && renameat(w->dirfd, old, w->dirfd, new))
		rc = mfs_indexed_failed(w, -errno, "give its name to", to, err);
	return rc ? rc : mfs_indexed_sync_dir(w, err);
}

int mfs_indexed_remove(const struct mfs_indexed_writer *w, const char *suffix,
		       struct mfs_error *err)
{
	char name[NAME_MAX + 1];
	int rc = mfs_indexed_name(w, suffix, name, sizeof(name), err);

	if (!rc && unlinkat(w->dirfd, name, 0))
		rc = errno == ENOENT ? 0 : mfs_indexed_failed(w, -errno, "remove", suffix, err);
	return rc;
}

int mfs_indexed_remove_parts(const struct mfs_indexed_writer *w, struct mfs_error *err)
{
	int rc = mfs_indexed_remove(w, ".idx.part", err);

	for (enum mfs_indexed_stream s = STREAMS; s-- > 0 && !rc;)
		rc = mfs_indexed_remove(w, mfs_indexed_suffix(s), err);
	/* The journal is removed last: as long as it is there, a later run knows that it has to
	 * tidy up. */
	if (!rc)
		rc = mfs_indexed_remove(w, ".journal", err);
	return rc ? rc : mfs_indexed_sync_dir(w, err);
}

/* ---- journal ---- */

/* Two lines of text: what is durable, in decimal numbers, and the note. */
#define JOURNAL "mcorefs-pack 2 %u %u %llu %llu %llu\n"

struct journal {
	unsigned code, multimodal;
	unsigned long long bytes, sequences, documents;
};

static int parse_journal(struct mfs_indexed_writer *w, const char *text, struct mfs_error *err)
{
	const char *note = strchr(text, '\n'), *end = note ? strchr(note + 1, '\n') : NULL;
	struct journal j;

	if (!end || end[1] || (size_t)(end - note) > MFS_INDEXED_NOTE ||
	    sscanf(text, JOURNAL, &j.code, &j.multimodal, &j.bytes, &j.sequences, &j.documents) !=
		    5 ||
	    j.bytes > INT64_MAX || j.sequences > MFS_MAX_SEQUENCES || j.documents > INT64_MAX / 8)
		return mfs_fail(err, -EINVAL, "'%s.journal' is not a journal of mcorefs",
				w->prefix);
	if (j.code != w->code || j.multimodal != w->config.multimodal)
		return mfs_fail(
			err, -EINVAL, "'%s' was begun as %s%s: it cannot be resumed as %s%s",
			w->prefix, mfs_dtype_torch(mfs_idx_dtype((uint8_t)j.code)),
			j.multimodal ? ", multimodal" : "", mfs_dtype_torch(w->config.dtype),
			w->config.multimodal ? ", multimodal" : "");
	w->ended = (struct mfs_indexed_counts){j.bytes, j.sequences, j.documents};
	memcpy(w->note, note + 1, (size_t)(end - note - 1));
	return 0;
}

int mfs_indexed_journal_load(struct mfs_indexed_writer *w, bool *ret_found, struct mfs_error *err)
{
	char name[NAME_MAX + 1], text[MFS_INDEXED_NOTE + 256];
	int fd, rc = mfs_indexed_name(w, ".journal", name, sizeof(name), err);
	ssize_t n;

	if (rc)
		return rc;
	rc = mfs_open_regular(w->dirfd, name, O_NOFOLLOW, &fd, NULL);
	*ret_found = !rc;
	if (rc)
		return rc == -ENOENT ? 0 : mfs_indexed_failed(w, rc, "open", ".journal", err);
	n = read(fd, text, sizeof(text) - 1);
	rc = n < 0 ? mfs_indexed_failed(w, -errno, "read", ".journal", err) : 0;
	close(fd);
	if (rc)
		return rc;
	text[n] = '\0';
	return parse_journal(w, text, err);
}

int mfs_indexed_journal_save(struct mfs_indexed_writer *w, const char *note, struct mfs_error *err)
{
	char name[NAME_MAX + 1], text[MFS_INDEXED_NOTE + 256];
	int len, rc = mfs_indexed_name(w, ".journal", name, sizeof(name), err);

	if (rc)
		return rc;
	if (strlen(note) >= MFS_INDEXED_NOTE || strchr(note, '\n'))
		return mfs_fail(err, -EINVAL, "'%s': the note is not one line of at most %d bytes",
				w->prefix, MFS_INDEXED_NOTE - 1);
	len = snprintf(text, sizeof(text), JOURNAL "%s\n", w->code, w->config.multimodal ? 1u : 0u,
		       (unsigned long long)w->ended.bytes, (unsigned long long)w->ended.sequences,
		       (unsigned long long)w->ended.documents, note);
	return mfs_commit_file(w->dirfd, name, text, (size_t)len, err);
}
