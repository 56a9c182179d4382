#define _GNU_SOURCE
#include "formats/delta/delta_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <unistd.h>

#include "formats/base/grow.h"
#include "formats/base/search.h"
#include "formats/delta/delta_make.h"
#include "formats/io/beneath.h"
#include "formats/io/regular.h"

#define NAME_SIZE 32

enum part_state { ABSENT, IN_WORK, PRESENT };

/* A part of one version's file. */
struct kept {
	struct mfs_delta_file *file;
	uint32_t index; /* of the part */
	uint32_t pins;
	enum part_state state;
	TAILQ_ENTRY(kept) used; /* while it is present and nobody has pinned it */
};

TAILQ_HEAD(kept_list, kept);

struct mfs_delta_room {
	int dirfd;
	uint64_t bytes;
	pthread_mutex_t lock; /* of the fields below, and of all parts */
	pthread_cond_t made;
	uint64_t held;		 /* bytes of present parts */
	struct kept_list unused; /* the first was used longest ago */
};

/* Parts that somebody uses. */
struct pin {
	uint32_t first, last;
};

struct mfs_delta_file {
	struct mfs_delta_room *room;
	const struct mfs_delta_base_file *base;
	const struct mfs_delta *const *links;
	uint32_t link_count;
	char name[NAME_SIZE]; /* of the file that keeps bytes */
	atomic_bool whole;    /* all parts are pinned for good */
	struct kept *parts;   /* under the room's lock; NULL: nobody has read yet */
	struct pin *pins;
	uint32_t pin_count;
	uint32_t *free_pins, free_count;
};

int mfs_delta_room_new(int dirfd, uint64_t bytes, struct mfs_delta_room **ret,
		       struct mfs_error *err)
{
	struct mfs_delta_room *room = calloc(1, sizeof(*room));

	if (!room)
		return mfs_fail_nomem(err);
	room->dirfd = dirfd;
	room->bytes = bytes;
	pthread_mutex_init(&room->lock, NULL);
	pthread_cond_init(&room->made, NULL);
	TAILQ_INIT(&room->unused);
	*ret = room;
	return 0;
}

void mfs_delta_room_free(struct mfs_delta_room *room)
{
	if (!room)
		return;
	pthread_mutex_destroy(&room->lock);
	pthread_cond_destroy(&room->made);
	free(room);
}

int mfs_delta_file_new(struct mfs_delta_room *room, const struct mfs_delta_base_file *base,
		       const struct mfs_delta *const *links, uint32_t link_count, uint32_t number,
		       struct mfs_delta_file **ret, struct mfs_error *err)
{
	struct mfs_delta_file *f = calloc(1, sizeof(*f));

	if (!f)
		return mfs_fail_nomem(err);
	f->room = room;
	f->base = base;
	f->links = links;
	f->link_count = link_count;
	snprintf(f->name, sizeof(f->name), "bytes-%u", number);
	*ret = f;
	return 0;
}

static void forget(struct mfs_delta_file *f)
{
	for (uint32_t i = 0; i < f->base->count; i++) {
		struct kept *k = &f->parts[i];

		if (k->state != PRESENT)
			continue;
		f->room->held -= f->base->parts[i].bytes;
		if (!k->pins)
			TAILQ_REMOVE(&f->room->unused, k, used);
	}
}

void mfs_delta_file_free(struct mfs_delta_file *f)
{
	if (!f)
		return;
	pthread_mutex_lock(&f->room->lock);
	if (f->parts) {
		forget(f);
		mfs_beneath_remove(f->room->dirfd, f->name, NULL, NULL);
	}
	pthread_mutex_unlock(&f->room->lock);
	free(f->parts);
	free(f->pins);
	free(f->free_pins);
	free(f);
}

/* ---- the file that keeps bytes ---- */

static int open_bytes(const struct mfs_delta_file *f, int *ret_fd, struct mfs_error *err)
{
	const int fd = mfs_beneath_open(f->room->dirfd, f->name, O_RDWR, 0);

	if (fd < 0)
		return mfs_fail(err, fd, "%s: cannot open its file in the cache: %s", f->base->name,
				mfs_errno_text(-fd));
	*ret_fd = fd;
	return 0;
}

/* Under the lock. */
static int make_bytes(struct mfs_delta_file *f, struct mfs_error *err)
{
	struct kept *parts;
	int rc = 0, fd;

	if (f->parts)
		return 0;
	parts = calloc((size_t)f->base->count + 1, sizeof(*parts));
	if (!parts)
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < f->base->count; i++)
		parts[i] = (struct kept){.file = f, .index = i};
	fd = mfs_beneath_create(f->room->dirfd, f->name, O_RDWR, 0600);
	if (fd < 0)
		rc = fd;
	else if (ftruncate(fd, (off_t)f->base->size))
		rc = -errno;
	if (fd >= 0)
		close(fd);
	if (rc) {
		free(parts);
		return mfs_fail(err, rc, "%s: cannot make its file in the cache: %s", f->base->name,
				mfs_errno_text(-rc));
	}
	f->parts = parts;
	return 0;
}

/* Gives back what was used longest ago. A file system that makes no holes keeps the bytes until the
 * end. Under the lock. */
static void make_room(struct mfs_delta_room *room)
{
	struct kept *k;

	while (room->held > room->bytes && (k = TAILQ_FIRST(&room->unused))) {
		const struct mfs_delta_part *p = &k->file->base->parts[k->index];
		int fd;

		TAILQ_REMOVE(&room->unused, k, used);
		k->state = ABSENT;
		room->held -= p->bytes;
		if (!p->bytes || open_bytes(k->file, &fd, NULL))
			continue;
		fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)p->offset,
			  (off_t)p->bytes);
		close(fd);
	}
}

/* ---- parts ---- */

/* Under the lock, which is not held while the part is made. */
static int make_part(struct kept *k, struct mfs_error *err)
{
	struct mfs_delta_file *f = k->file;
	struct mfs_delta_room *room = f->room;
	const struct mfs_delta_part *p = &f->base->parts[k->index];
	int fd, rc;

	k->state = IN_WORK;
	pthread_mutex_unlock(&room->lock);
	rc = open_bytes(f, &fd, err);
	if (!rc) {
		rc = mfs_delta_make(f->base, p, f->links, f->link_count, fd, err);
		close(fd);
	}
	pthread_mutex_lock(&room->lock);
	k->state = rc ? ABSENT : PRESENT;
	room->held += rc ? 0 : p->bytes;
	pthread_cond_broadcast(&room->made);
	return rc;
}

/* Under the lock. */
static int pin_part(struct kept *k, struct mfs_error *err)
{
	struct mfs_delta_room *room = k->file->room;
	int rc = 0;

	while (k->state == IN_WORK)
		pthread_cond_wait(&room->made, &room->lock);
	if (k->state == PRESENT && !k->pins)
		TAILQ_REMOVE(&room->unused, k, used);
	if (k->state == ABSENT)
		rc = make_part(k, err);
	if (rc)
		return rc;
	k->pins++;
	make_room(room);
	return 0;
}

static void unpin_part(struct kept *k)
{
	struct mfs_delta_room *room = k->file->room;

	if (--k->pins)
		return;
	TAILQ_INSERT_TAIL(&room->unused, k, used);
	make_room(room);
}

/* Index of the part that holds a byte. */
static uint32_t find_part(const struct mfs_delta_base_file *base, uint64_t off)
{
	return (uint32_t)mfs_last_while(i, base->count, base->parts[i].offset <= off);
}

/* ---- pins ---- */

static int new_pin(struct mfs_delta_file *f, uint32_t *ret)
{
	if (f->free_count) {
		*ret = f->free_pins[--f->free_count];
		return 0;
	}
	/* There is room for the number of each pin that is given back. */
	if (mfs_grow(&f->pins, f->pin_count) || mfs_grow(&f->free_pins, f->pin_count))
		return -ENOMEM;
	*ret = f->pin_count++;
	return 0;
}

static void release_parts(struct mfs_delta_file *f, uint32_t first, uint32_t end)
{
	for (uint32_t i = first; i < end; i++)
		unpin_part(&f->parts[i]);
}

static int pin_parts(struct mfs_delta_file *f, uint32_t first, uint32_t last, struct mfs_error *err)
{
	int rc = 0;

	for (uint32_t i = first; i <= last && !rc; i++) {
		rc = pin_part(&f->parts[i], err);
		if (rc)
			release_parts(f, first, i);
	}
	return rc;
}

/* ---- a backing ---- */

static int backing_open(void *object, int *ret_fd, struct mfs_error *err)
{
	struct mfs_delta_file *f = object;
	int fd, rc;

	pthread_mutex_lock(&f->room->lock);
	rc = make_bytes(f, err);
	pthread_mutex_unlock(&f->room->lock);
	if (rc)
		return rc;
	rc = mfs_open_regular_as_is(f->room->dirfd, f->name, O_NOFOLLOW, &fd, NULL);
	if (rc)
		return mfs_fail(err, rc, "%s: cannot open its file in the cache: %s", f->base->name,
				mfs_open_regular_why(rc));
	*ret_fd = fd;
	return 0;
}

static int acquire(void *object, uint64_t off, uint64_t len, uint32_t *ret_pin,
		   struct mfs_error *err)
{
	struct mfs_delta_file *f = object;
	const uint32_t first = find_part(f->base, off);
	const uint32_t last = find_part(f->base, len ? off + len - 1 : off);
	uint32_t pin = 0;
	int rc;

	pthread_mutex_lock(&f->room->lock);
	rc = make_bytes(f, err);
	if (!rc && new_pin(f, &pin))
		rc = mfs_fail_nomem(err);
	if (!rc) {
		rc = pin_parts(f, first, last, err);
		if (rc)
			f->free_pins[f->free_count++] = pin;
	}
	if (!rc) {
		f->pins[pin] = (struct pin){first, last};
		*ret_pin = pin;
	}
	pthread_mutex_unlock(&f->room->lock);
	return rc;
}

static void release(void *object, uint32_t pin)
{
	struct mfs_delta_file *f = object;

	pthread_mutex_lock(&f->room->lock);
	release_parts(f, f->pins[pin].first, f->pins[pin].last + 1);
	f->free_pins[f->free_count++] = pin;
	pthread_mutex_unlock(&f->room->lock);
}

static int keep(void *object, struct mfs_error *err)
{
	struct mfs_delta_file *f = object;
	uint32_t pin;
	int rc;

	if (atomic_load(&f->whole))
		return 0;
	rc = acquire(object, 0, f->base->size, &pin, err);
	/* Of two who come here at once one pin is enough. */
	if (!rc && atomic_exchange(&f->whole, true))
		release(object, pin);
	return rc;
}

/* Tensors are made when they are needed, by those who need them. */
static void willneed(void *object, uint64_t off, uint64_t len)
{
	(void)object, (void)off, (void)len;
}

static const struct mfs_backing_ops ops = {.open = backing_open,
					   .acquire = acquire,
					   .release = release,
					   .keep = keep,
					   .willneed = willneed};

struct mfs_backing mfs_delta_file_as_backing(struct mfs_delta_file *f, uint64_t identity)
{
	return (struct mfs_backing){&ops, f, identity};
}
