#define _GNU_SOURCE
#include "formats/delta/delta_write.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/buf.h"
#include "formats/base/bytes.h"
#include "formats/hf/safetensors.h"
#include "formats/io/beneath.h"
#include "formats/io/commit.h"
#include "formats/io/lock.h"
#include "formats/io/whole.h"

#define NAME_SIZE 64

/* A shard that was written. */
struct shard {
	const struct mfs_delta_tensor *tensors;
	uint32_t count;
	uint32_t changed; /* of these */
	uint64_t bytes;	  /* of its file; 0: none */
};

struct mfs_delta_writer {
	struct mfs_delta_meta meta;
	char name[MFS_DELTA_DIR_SIZE];
	char partial[MFS_DELTA_DIR_SIZE + 16];
	int dirfd;  /* of the chain */
	int partfd; /* of partial; -1: it was not made, or is finished */
	struct shard *shards;
	uint32_t shard_count;
	uint64_t bytes;
};

/* ---- the directory ---- */

/* Removes what a killed process has left. */
static int clear(int dirfd)
{
	const int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *d;
	int rc = 0;

	if (!dir) {
		rc = -errno;
		if (fd >= 0)
			close(fd);
		return rc;
	}
	while (!rc && (d = readdir(dir)))
		if (strcmp(d->d_name, ".") && strcmp(d->d_name, ".."))
			rc = mfs_beneath_remove(dirfd, d->d_name, NULL, NULL);
	closedir(dir);
	return rc;
}

/* Another process may have finished or removed the directory between its opening and its lock: then
 * it is not ours, and must not be emptied. *ret_ours: it is. */
static int lock_partial(const struct mfs_delta_writer *w, bool *ret_ours)
{
	struct stat held, named;
	bool none;
	int rc = mfs_lock_try(w->partfd, &none);

	*ret_ours = false;
	if (rc)
		return rc;
	if (none) {
		unlinkat(w->dirfd, w->partial, AT_REMOVEDIR); /* if it is empty */
		return -ENOLCK;
	}
	if (fstat(w->partfd, &held))
		return -errno;
	if (fstatat(w->dirfd, w->partial, &named, AT_SYMLINK_NOFOLLOW) ||
	    held.st_dev != named.st_dev || held.st_ino != named.st_ino)
		return -EBUSY;
	*ret_ours = true;
	return fstatat(w->dirfd, w->name, &named, AT_SYMLINK_NOFOLLOW) ? 0 : -EEXIST;
}

static int fail_partial(const struct mfs_delta_writer *w, const char *dir, int rc,
			struct mfs_error *err)
{
	switch (rc) {
	case -EEXIST:
		return mfs_fail(err, rc, "'%s' has %s already", dir, w->name);
	case -EBUSY:
		return mfs_fail(err, rc, "another process writes %s in '%s'", w->name, dir);
	case -ENOLCK:
		return mfs_fail(err, rc,
				"'%s' is on a file system without locks of directories (flock), "
				"where two processes could write one version: write on another "
				"one, and copy %s",
				dir, w->name);
	default:
		return mfs_fail(err, rc, "cannot make '%s/%s': %s", dir, w->partial,
				mfs_errno_text(-rc));
	}
}

static int open_partial(struct mfs_delta_writer *w, const char *dir, struct mfs_error *err)
{
	struct stat st;
	bool ours;
	int rc;

	if (!fstatat(w->dirfd, w->name, &st, AT_SYMLINK_NOFOLLOW))
		return fail_partial(w, dir, -EEXIST, err);
	w->partfd = mfs_beneath_make_dirs(w->dirfd, w->partial, 0755);
	if (w->partfd < 0)
		return fail_partial(w, dir, w->partfd, err);
	rc = lock_partial(w, &ours);
	if (!ours) {
		/* It is the other process's, which removes it. */
		close(w->partfd);
		w->partfd = -1;
	}
	if (!rc)
		rc = clear(w->partfd);
	return rc ? fail_partial(w, dir, rc, err) : 0;
}

int mfs_delta_writer_new(const char *dir, const struct mfs_delta_meta *meta, uint32_t shards,
			 struct mfs_delta_writer **ret, struct mfs_error *err)
{
	struct mfs_delta_writer *w = calloc(1, sizeof(*w));
	int rc = 0;

	if (!w)
		return mfs_fail_nomem(err);
	w->meta = *meta;
	w->partfd = -1;
	w->shard_count = shards;
	w->shards = calloc((size_t)shards + 1, sizeof(*w->shards));
	mfs_delta_dir_name(meta->version, w->name);
	snprintf(w->partial, sizeof(w->partial), ".%s.partial", w->name);
	w->dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (!w->shards)
		rc = mfs_fail_nomem(err);
	else if (w->dirfd < 0)
		rc = mfs_fail_errno(err, "'%s'", dir);
	else
		rc = open_partial(w, dir, err);
	if (rc) {
		mfs_delta_writer_free(w);
		return rc;
	}
	*ret = w;
	return 0;
}

void mfs_delta_writer_free(struct mfs_delta_writer *w)
{
	if (!w)
		return;
	if (w->partfd >= 0) {
		mfs_beneath_remove(w->dirfd, w->partial, NULL, NULL);
		close(w->partfd);
	}
	if (w->dirfd >= 0)
		close(w->dirfd);
	free(w->shards);
	free(w);
}

uint64_t mfs_delta_writer_bytes(const struct mfs_delta_writer *w)
{
	return w->bytes;
}

/* ---- headers ---- */

#define NUMBERS "{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[,]},"

/* Room for the header of a shard of which all tensors change: the data lies after it, and is
 * written first. */
static int header_room(const struct mfs_delta_tensor *tensors, uint32_t count, uint64_t *ret,
		       struct mfs_error *err)
{
	struct mfs_buf name = {0};
	uint64_t room = sizeof("{\"__metadata__\":{}}");

	for (uint32_t i = 0; i < count; i++) {
		name.len = 0;
		mfs_buf_add_json(&name, tensors[i].name);
		/* Once with its sum, and once with three numbers. */
		room += 2 * (name.len + 1) + MFS_DELTA_SUM_TEXT + 3 + sizeof(NUMBERS) + 3 * 20;
	}
	if (name.failed)
		return mfs_fail_nomem(err);
	mfs_buf_release(&name);
	*ret = mfs_round_up(room, 8);
	if (*ret > MFS_SAFETENSORS_MAX_HEADER)
		return mfs_fail(err, -EINVAL, "the names of %u tensors do not fit into a header",
				count);
	return 0;
}

static void add_header(const struct mfs_delta_tensor *tensors, uint32_t count, struct mfs_buf *out)
{
	const char *comma = "";
	uint64_t at = 0;

	mfs_buf_adds(out, "{\"__metadata__\":{");
	for (uint32_t i = 0; i < count; i++) {
		if (!tensors[i].stored)
			continue;
		mfs_buf_adds(out, comma);
		mfs_buf_add_json(out, tensors[i].name);
		mfs_buf_printf(out, ":\"%s\"", tensors[i].sums[MFS_DELTA_NEW]);
		comma = ",";
	}
	mfs_buf_adds(out, "}");
	for (uint32_t i = 0; i < count; i++) {
		const unsigned long long stored = tensors[i].stored;

		if (!stored)
			continue;
		mfs_buf_adds(out, ",");
		mfs_buf_add_json(out, tensors[i].name);
		mfs_buf_printf(out,
			       ":{\"dtype\":\"U8\",\"shape\":[%llu],\"data_offsets\":[%llu,%llu]}",
			       stored, (unsigned long long)at, (unsigned long long)(at + stored));
		at += stored;
	}
	mfs_buf_adds(out, "}");
}

/* Spaces fill what is left of the room. */
static int write_header(const struct shard *s, int fd, uint64_t room, struct mfs_error *err)
{
	struct mfs_buf out = {0};
	uint8_t length[8];
	int rc = 0;

	mfs_put_le64(length, room);
	mfs_buf_add(&out, length, sizeof(length));
	add_header(s->tensors, s->count, &out);
	while (out.len < sizeof(length) + room && !out.failed)
		mfs_buf_adds(&out, " ");
	if (out.failed)
		rc = mfs_fail_nomem(err);
	else if (lseek(fd, 0, SEEK_SET))
		rc = mfs_fail_errno(err, "cannot write a delta");
	else if ((rc = mfs_write_whole(fd, out.data, out.len)))
		mfs_fail(err, rc, "cannot write a delta: %s", mfs_errno_text(-rc));
	mfs_buf_release(&out);
	return rc;
}

/* ---- shards ---- */

static const char *work_name(uint32_t shard, char ret[NAME_SIZE])
{
	snprintf(ret, NAME_SIZE, "shard-%u", shard);
	return ret;
}

static int write_tensors(struct mfs_delta_encoder *e, struct shard *s,
			 struct mfs_delta_tensor *tensors, const struct mfs_delta_hooks *hooks,
			 int fd, struct mfs_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < s->count && !rc; i++) {
		rc = mfs_delta_encode(e, &tensors[i], fd, s->bytes, err);
		s->bytes += tensors[i].stored;
		s->changed += tensors[i].stored > 0;
		if (!rc && hooks && (rc = hooks->wrote(hooks->arg, &tensors[i])))
			mfs_fail(err, rc, "writing was ended");
	}
	return rc;
}

/* The file ends after the last tensor that has changed. */
static int end_shard(struct mfs_delta_writer *w, uint32_t i, int fd, uint64_t room,
		     struct mfs_error *err)
{
	struct shard *s = &w->shards[i];
	char name[NAME_SIZE];
	int rc;

	if (!s->changed) {
		s->bytes = 0;
		unlinkat(w->partfd, work_name(i, name), 0);
		return 0;
	}
	rc = write_header(s, fd, room, err);
	if (!rc && (ftruncate(fd, (off_t)s->bytes) || fsync(fd)))
		rc = mfs_fail_errno(err, "cannot make a delta durable");
	return rc;
}

int mfs_delta_write_shard(struct mfs_delta_writer *w, uint32_t shard,
			  struct mfs_delta_tensor *tensors, uint32_t count,
			  const struct mfs_delta_hooks *hooks, struct mfs_error *err)
{
	struct shard *s = &w->shards[shard];
	struct mfs_delta_encoder *e = NULL;
	char name[NAME_SIZE];
	uint64_t room;
	int fd = -1, rc = header_room(tensors, count, &room, err);

	if (!rc)
		rc = mfs_delta_encoder_new(&w->meta, &e, err);
	if (!rc) {
		fd = mfs_beneath_create(w->partfd, work_name(shard, name), O_RDWR, 0644);
		if (fd < 0)
			rc = mfs_fail(err, fd, "cannot write in '%s': %s", w->partial,
				      mfs_errno_text(-fd));
	}
	if (!rc) {
		*s = (struct shard){.tensors = tensors, .count = count, .bytes = 8 + room};
		rc = write_tensors(e, s, tensors, hooks, fd, err);
	}
	if (!rc)
		rc = end_shard(w, shard, fd, room, err);
	if (fd >= 0)
		close(fd);
	mfs_delta_encoder_free(e);
	return rc;
}

/* ---- the end ---- */

static void shard_name(uint32_t number, uint32_t of, char ret[NAME_SIZE])
{
	snprintf(ret, NAME_SIZE, "model-%05u-of-%05u.safetensors", number, of);
}

static int name_shard(struct mfs_delta_writer *w, uint32_t shard, const char *name,
		      struct mfs_error *err)
{
	char from[NAME_SIZE];

	if (renameat(w->partfd, work_name(shard, from), w->partfd, name))
		return mfs_fail_errno(err, "cannot rename a file of '%s'", w->partial);
	w->bytes += w->shards[shard].bytes;
	return 0;
}

static void add_names(const struct shard *s, const char *file, bool *first, struct mfs_buf *out)
{
	for (uint32_t i = 0; i < s->count; i++) {
		if (!s->tensors[i].stored)
			continue;
		mfs_buf_adds(out, *first ? "\n    " : ",\n    ");
		mfs_buf_add_json(out, s->tensors[i].name);
		mfs_buf_printf(out, ": \"%s\"", file);
		*first = false;
	}
}

static void add_metadata(const struct mfs_delta_meta *m, struct mfs_buf *out)
{
	mfs_buf_printf(out,
		       "{\n  \"metadata\": {\n    \"version\": \"%06u\",\n"
		       "    \"base_version\": \"%06u\",\n    \"delta_encoding\": \"%s\",\n"
		       "    \"compression_format\": \"zstd\",\n    \"checksum_format\": \"%s\"\n"
		       "  },\n  \"weight_map\": {",
		       m->version, m->base_version, mfs_delta_encoding_word(m->encoding),
		       mfs_delta_sum_word(m->sum));
}

/* Numbers are without gaps: shards in which nothing has changed have no file. */
static int name_all(struct mfs_delta_writer *w, struct mfs_buf *index, struct mfs_error *err)
{
	uint32_t total = 0, number = 0;
	bool first = true;
	int rc = 0;

	for (uint32_t i = 0; i < w->shard_count; i++)
		total += w->shards[i].changed > 0;
	add_metadata(&w->meta, index);
	for (uint32_t i = 0; i < w->shard_count && !rc; i++) {
		char name[NAME_SIZE];

		if (!w->shards[i].changed)
			continue;
		shard_name(number++, total, name);
		rc = name_shard(w, i, name, err);
		add_names(&w->shards[i], name, &first, index);
	}
	mfs_buf_adds(index, first ? "}\n}\n" : "\n  }\n}\n");
	return rc || !index->failed ? rc : mfs_fail_nomem(err);
}

int mfs_delta_writer_finish(struct mfs_delta_writer *w, struct mfs_error *err)
{
	struct mfs_buf index = {0};
	bool replaced;
	int rc = name_all(w, &index, err);

	if (!rc)
		rc = mfs_commit_file(w->partfd, MFS_DELTA_INDEX, index.data, index.len, err);
	w->bytes += index.len;
	mfs_buf_release(&index);
	if (!rc)
		rc = mfs_commit_dir(w->dirfd, w->partial, w->name, false, &replaced, err);
	if (rc)
		return rc;
	close(w->partfd);
	w->partfd = -1;
	return 0;
}
