/* Sources of a load: how a chunk's bytes come into a slot. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/io/file_system.h"
#include "formats/io/fileset.h"
#include "formats/io/guard.h"
#include "formats/io/regular.h"
#include "formats/load/box_load_i.h"

/* Where less than one in so many bytes of a stretch is wanted, pieces are copied out of a
 * mapping. */
#define WORTH_WHOLE 2
/* Where more than one in so many bytes of a stretch is left out, another process of the host may
 * want it: a rank of a tensor whose columns are cut. */
#define SHARED_GAP 4
/* Of the machine's memory, that a model may take in the page cache. */
#define CACHE_SHARE 4

/* ---- opening ---- */

/* The same file once more, since a descriptor is direct or it is not. */
static int open_direct(int fd)
{
	char path[64];
	int direct;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return mfs_open_regular(AT_FDCWD, path, O_DIRECT, &direct, NULL) ? -1 : direct;
}

/* A model that the page cache can hold is left there for the next load; to read a larger one
 * through the cache would only cost time, and what others have there. */
static bool is_large(const struct mfs_load *load)
{
	const uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

	return load->job.bytes > memory / CACHE_SHARE;
}

static int open_file(struct mfs_load *load, struct mfs_load_source *s, struct mfs_error *err)
{
	const enum mfs_load_direct direct = load->options.direct;
	enum mfs_file_system_kind kind;
	int rc = mfs_fileset_open(s->files, s->file, &s->fd, err);

	if (rc)
		return rc;
	kind = mfs_file_system_of(s->fd);
	s->in_memory = kind == MFS_FILE_SYSTEM_MEMORY;
	if (direct == MFS_LOAD_DIRECT_ALWAYS ||
	    (direct == MFS_LOAD_DIRECT_AUTO && kind == MFS_FILE_SYSTEM_DISK && is_large(load)))
		s->direct_fd = open_direct(s->fd);
	/* Reads are large, and come in the file's order: the kernel's own guess is smaller. Nothing
	 * is read ahead of reads past the page cache. */
	posix_fadvise(s->fd, 0, 0, s->direct_fd < 0 ? POSIX_FADV_SEQUENTIAL : POSIX_FADV_RANDOM);
	return 0;
}

int mfs_load_source_open(struct mfs_load *load, struct mfs_load_source *s, struct mfs_error *err)
{
	int rc = 0;

	pthread_mutex_lock(&load->lock);
	if (!s->is_open && !s->vfile)
		rc = open_file(load, s, err);
	if (!rc)
		s->is_open = true;
	pthread_mutex_unlock(&load->lock);
	return rc;
}

void mfs_load_source_close(struct mfs_load_source *s)
{
	if (s->gds)
		mfs_gds_close(s->gds);
	s->gds = NULL;
	if (s->fd >= 0)
		close(s->fd);
	if (s->direct_fd >= 0)
		close(s->direct_fd);
	s->fd = s->direct_fd = -1;
}

void mfs_load_source_done(struct mfs_load_source *s)
{
	if (atomic_fetch_sub(&s->left, 1) == 1)
		mfs_load_source_close(s);
}

static bool has_direct(const struct mfs_load_source *s)
{
	return s->direct_fd >= 0 && !atomic_load(&s->no_direct);
}

/* Whether what the page cache does not have of a chunk is read past it. A stretch with gaps is read
 * through it, so that the ranks of a host read it from the disk once together. */
static bool is_direct(const struct mfs_load_source *s, const struct mfs_load_chunk *c)
{
	return has_direct(s) && c->bytes * SHARED_GAP >= c->len * (SHARED_GAP - 1);
}

/* ---- failures ---- */

static int failed(const struct mfs_load_source *s, int rc, struct mfs_error *err)
{
	return mfs_fail(err, rc == -EINTR ? -EIO : rc, "%s/%s: cannot be read: %s",
			mfs_fileset_dir(s->files), mfs_fileset_name(s->files, s->file),
			rc ? mfs_errno_text(-rc) : "it ends too soon");
}

static int ends(const struct mfs_load_source *s, struct mfs_error *err)
{
	int rc = mfs_fileset_check(s->files, s->file, err);

	return rc ? rc
		  : mfs_fail(err, -EIO, "%s/%s: cannot be read (cut short while in use?)",
			     mfs_fileset_dir(s->files), mfs_fileset_name(s->files, s->file));
}

/* ---- whole stretches ---- */

static struct mfs_load_source *source_of(const struct mfs_load *load,
					 const struct mfs_load_slot *slot)
{
	return &load->job.sources[slot->chunk->source];
}

/* A chunk that is one run of bytes on both sides needs no buffer. */
static bool goes_in_place(const struct mfs_load *load, const struct mfs_load_chunk *c)
{
	const struct mfs_load_piece *p = &load->job.pieces[c->first];

	return !load->cuda && c->count == 1 && p->rows == 1 && p->to_item == p->item;
}

static void place(const struct mfs_load *load, struct mfs_load_slot *slot)
{
	slot->in_place = goes_in_place(load, slot->chunk);
	slot->data = slot->in_place ? load->job.pieces[slot->chunk->first].to : slot->memory;
}

/* All of a range by plain reads. */
static int read_range(const struct mfs_load_source *s, uint8_t *to, uint64_t off, uint64_t len,
		      struct mfs_error *err)
{
	while (len) {
		const ssize_t n = pread(s->fd, to, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return failed(s, -errno, err);
		if (!n)
			return ends(s, err);
		to += n;
		off += (uint64_t)n;
		len -= (uint64_t)n;
	}
	return 0;
}

/* struct cachestat_range (linux/mman.h) */
struct cache_range {
	uint64_t off, len;
};

/* Of struct cachestat: pages that are cached, dirty, under write-back, evicted, lately evicted. */
enum { CACHED, CACHE_COUNTS = 5 };

#define SYS_CACHESTAT 451 /* Linux 6.5, of all architectures */

static bool has_cached(const struct mfs_load_source *s, uint64_t off)
{
	uint8_t byte;
	const struct iovec iov = {&byte, 1};

	return preadv2(s->fd, &iov, 1, (off_t)off, RWF_NOWAIT) == 1;
}

/*
 * Whether it is worth asking the page cache for a chunk that would be read past it otherwise. A
 * read that may not wait has the kernel read ahead what is missing, so that the disk would read it
 * twice. Where the kernel does not tell (it is older, or the file is another user's), two pages are
 * asked for. They are not the first: planning has read headers, which lie where tensors begin.
 */
static bool seems_cached(const struct mfs_load_source *s, const struct mfs_load_chunk *c)
{
	const struct cache_range range = {c->from, c->len};
	uint64_t counts[CACHE_COUNTS];

	if (!syscall(SYS_CACHESTAT, s->fd, &range, counts, 0))
		return counts[CACHED] >= c->len / (uint64_t)sysconf(_SC_PAGESIZE);
	return has_cached(s, c->from + c->len / 3) && has_cached(s, c->from + c->len / 3 * 2);
}

int mfs_load_fetch_cached(struct mfs_load *load, struct mfs_load_slot *slot, struct mfs_error *err)
{
	struct mfs_load_source *s = source_of(load, slot);
	const struct mfs_load_chunk *c = slot->chunk;
	uint64_t have = 0;
	int rc;

	if (is_direct(s, c) && !seems_cached(s, c))
		return 0;
	place(load, slot);
	while (have < c->len && !s->in_memory && !s->no_nowait) {
		const struct iovec iov = {slot->data + have, c->len - have};
		const ssize_t n = preadv2(s->fd, &iov, 1, (off_t)(c->from + have), RWF_NOWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN)
			s->no_nowait = true; /* the next read tells what is wrong, if anything is */
		if (n <= 0)
			break;
		have += (uint64_t)n;
	}
	if (have < c->len && s->in_memory) {
		rc = read_range(s, slot->data, c->from, c->len, err);
		if (rc)
			return rc;
		have = c->len;
	}
	if (have < c->len)
		return 0;
	atomic_fetch_add(&load->read, c->len);
	atomic_fetch_add(&load->cached, c->len);
	return 1;
}

int mfs_load_fetch_now(struct mfs_load *load, struct mfs_load_slot *slot, struct mfs_error *err)
{
	const struct mfs_load_source *s = source_of(load, slot);
	const struct mfs_load_chunk *c = slot->chunk;
	int rc;

	place(load, slot);
	rc = mfs_fileset_read(s->files, s->file, c->from, slot->data, c->len, err);
	if (!rc)
		atomic_fetch_add(&load->read, c->len);
	return rc;
}

/* ---- past the host ---- */

/* A copy of rows, or of elements that are apart, is a thing of the host. */
static bool is_plain(const struct mfs_load *load, const struct mfs_load_chunk *c)
{
	for (uint32_t i = 0; i < c->count; i++) {
		const struct mfs_load_piece *p = &load->job.pieces[c->first + i];

		if (p->rows != 1 || p->to_item != p->item)
			return false;
	}
	return true;
}

/* The first file that is opened starts the driver, which takes seconds: who asks how a load goes
 * waits for the other lock. */
static bool has_gds(struct mfs_load *load, struct mfs_load_source *s)
{
	const char *why = NULL;

	pthread_mutex_lock(&load->gds_lock);
	if (!s->gds && !atomic_load(&s->no_gds)) {
		why = mfs_gds_open(s->direct_fd, &s->gds);
		if (why) {
			s->gds = NULL;
			atomic_store(&s->no_gds, true);
			atomic_store(&load->gds_why, why);
		}
	}
	pthread_mutex_unlock(&load->gds_lock);
	return !atomic_load(&s->no_gds);
}

const char *mfs_load_gds_words(struct mfs_load *load)
{
	const bool is_used = atomic_load(&load->gds) > 0;

	if (atomic_load(&load->gds_failed))
		return is_used ? "a read has failed, used until then"
			       : "a read has failed, not used";
	return is_used ? "used" : atomic_load(&load->gds_why);
}

bool mfs_load_fetch_gds(struct mfs_load *load, const struct mfs_load_slot *slot)
{
	struct mfs_load_source *s = source_of(load, slot);
	const struct mfs_load_chunk *c = slot->chunk;
	int rc = 0;

	if (!load->cuda || !has_direct(s) || !has_gds(load, s))
		return false;
	if (!is_plain(load, c)) {
		atomic_store(&load->gds_why, "bytes do not lie together, not used");
		return false;
	}
	for (uint32_t i = 0; i < c->count && !rc; i++) {
		const struct mfs_load_piece *p = &load->job.pieces[c->first + i];

		rc = mfs_gds_read(s->gds, p->to, p->off, p->width);
	}
	if (rc) { /* the host reads it, and tells what is wrong, if anything is */
		atomic_store(&s->no_gds, true);
		atomic_store(&load->gds_failed, true);
		return false;
	}
	atomic_fetch_add(&load->read, c->bytes);
	atomic_fetch_add(&load->direct, c->bytes);
	atomic_fetch_add(&load->gds, c->bytes);
	return true;
}

/* ---- with several on their way ---- */

static void begin_direct(struct mfs_load_slot *slot, const struct mfs_load_source *s)
{
	const struct mfs_load_chunk *c = slot->chunk;
	const uint64_t from = c->from / MFS_LOAD_PAGE * MFS_LOAD_PAGE;
	const uint64_t end =
		mfs_min_u64((c->from + c->len + MFS_LOAD_PAGE - 1) / MFS_LOAD_PAGE * MFS_LOAD_PAGE,
			    s->size / MFS_LOAD_PAGE * MFS_LOAD_PAGE);

	slot->in_place = false;
	slot->data = slot->memory + (c->from - from);
	slot->tail = c->from + c->len > end ? c->from + c->len - mfs_max_u64(end, c->from) : 0;
	slot->iov = (struct iovec){slot->memory, end > from ? end - from : 0};
	slot->io = (struct mfs_io){.kind = MFS_IO_READ, .fd = s->direct_fd, .off = from};
}

void mfs_load_fetch_begin(struct mfs_load *load, struct mfs_load_slot *slot)
{
	const struct mfs_load_source *s = source_of(load, slot);
	const struct mfs_load_chunk *c = slot->chunk;

	slot->tail = 0;
	slot->is_direct = is_direct(s, c);
	if (slot->is_direct) {
		begin_direct(slot, s);
	} else {
		place(load, slot);
		slot->iov = (struct iovec){slot->data, c->len};
		slot->io = (struct mfs_io){.kind = MFS_IO_READ, .fd = s->fd, .off = c->from};
	}
	slot->io.iov = &slot->iov;
	slot->io.iov_count = slot->iov.iov_len ? 1 : 0;
}

/* A disk with larger blocks than a page refuses what it is asked for, and would do so again. */
static int read_refused(struct mfs_load_source *s, struct mfs_load_slot *slot,
			struct mfs_error *err)
{
	slot->is_direct = false;
	if (!atomic_exchange(&s->no_direct, true))
		posix_fadvise(s->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	return read_range(s, slot->data, slot->chunk->from, slot->chunk->len, err);
}

int mfs_load_fetch_end(struct mfs_load *load, struct mfs_load_slot *slot, struct mfs_error *err)
{
	struct mfs_load_source *s = source_of(load, slot);
	const struct mfs_load_chunk *c = slot->chunk;
	int rc = slot->io.result;

	if (rc == -EINVAL && slot->is_direct)
		rc = read_refused(s, slot, err);
	else if (rc == -EIO)
		rc = ends(s, err);
	else if (rc)
		rc = failed(s, rc, err);
	else if (slot->tail)
		rc = read_range(s, slot->data + c->len - slot->tail, c->from + c->len - slot->tail,
				slot->tail, err);
	if (rc)
		return rc;
	atomic_fetch_add(&load->read, c->len);
	if (slot->is_direct)
		atomic_fetch_add(&load->direct, c->len - slot->tail);
	return 0;
}

/* ---- pieces ---- */

bool mfs_load_is_gathered(const struct mfs_load *load, const struct mfs_load_chunk *c)
{
	return load->job.sources[c->source].vfile || c->bytes * WORTH_WHOLE < c->len;
}

static int gather_row(struct mfs_load_source *s, struct mfs_gather *g, uint64_t off, uint8_t *to,
		      uint64_t len, struct mfs_error *err)
{
	size_t done = 0;
	int rc = mfs_vfile_pread_by(s->vfile, g, off, to, len, &done, err);

	if (!rc && done < len)
		rc = mfs_fail(err, -EIO, "a file of the view ends too soon");
	return rc;
}

struct rows {
	uint8_t *to;
	const uint8_t *from;
	uint64_t rows, width, step;
};

static void copy_rows(void *arg)
{
	const struct rows *r = arg;

	for (uint64_t i = 0; i < r->rows; i++)
		memcpy(r->to + i * r->width, r->from + i * r->step, r->width);
}

static int copy_mapped(struct mfs_load_source *s, const struct mfs_load_piece *p, uint8_t *to,
		       struct mfs_error *err)
{
	struct rows r = {.to = to, .rows = p->rows, .width = p->width, .step = p->row_step};
	const uint8_t *map;
	int rc = mfs_fileset_map(s->files, s->file, &map, err);

	if (rc)
		return rc;
	r.from = map + p->off;
	if (mfs_guard_run(copy_rows, &r))
		return ends(s, err);
	mfs_fileset_served(s->files, p->rows * p->width);
	return 0;
}

static int gather_piece(struct mfs_load_source *s, const struct mfs_load_piece *p,
			struct mfs_gather *g, uint8_t *to, struct mfs_error *err)
{
	int rc = 0;

	if (!s->vfile)
		return copy_mapped(s, p, to, err);
	if (p->row_step == p->width)
		return gather_row(s, g, p->off, to, p->rows * p->width, err);
	for (uint64_t i = 0; i < p->rows && !rc; i++)
		rc = gather_row(s, g, p->off + i * p->row_step, to + i * p->width, p->width, err);
	return rc;
}

int mfs_load_gather(struct mfs_load *load, struct mfs_load_slot *slot, struct mfs_gather *g,
		    struct mfs_error *err)
{
	struct mfs_load_source *s = source_of(load, slot);
	const struct mfs_load_chunk *c = slot->chunk;
	uint8_t *to;
	int rc = 0;

	slot->in_place = false;
	slot->data = slot->memory;
	if (s->vfile)
		place(load, slot);
	else
		mfs_fileset_willneed(s->files, s->file, c->from, c->len);
	to = slot->data;
	for (uint32_t i = 0; i < c->count && !rc; i++) {
		const struct mfs_load_piece *p = &load->job.pieces[c->first + i];

		rc = gather_piece(s, p, g, to, err);
		to += p->rows * p->width;
	}
	if (rc)
		return rc;
	atomic_fetch_add(&load->read, c->bytes);
	if (s->vfile)
		atomic_fetch_add(&load->gathered, c->bytes);
	return 0;
}
