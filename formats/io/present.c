#include "formats/io/present.h"

#include <stdbool.h>
#include <stdlib.h>

#include "formats/base/bytes.h"
#include "formats/io/backing.h"
#include "formats/io/fileset.h"

/* Ranges of one file that lie no further apart are one: rows of a tensor, of which each is a range,
 * would be thousands. */
#define NEAR (1ull << 20)
/* The last ones are compared with a new one. */
#define LOOK_BACK 64

/* Finds a range that a new one lies in or near. */
static struct mfs_present_range *find_near(struct mfs_present *p, const struct mfs_backing *b,
					   uint64_t from, uint64_t to)
{
	for (uint32_t i = p->count; i-- > 0 && i + LOOK_BACK >= p->count;) {
		struct mfs_present_range *r = &p->ranges[i];

		if (r->backing == b && from <= r->to + NEAR && r->from <= to + NEAR)
			return r;
	}
	return NULL;
}

static bool make_room(struct mfs_present *p)
{
	const uint32_t room = p->room ? 2 * p->room : 16;
	struct mfs_present_range *more;

	if (p->count < p->room)
		return true;
	more = realloc(p->ranges, room * sizeof(*more));
	if (!more)
		return false;
	p->ranges = more;
	p->room = room;
	return true;
}

int mfs_present_add(struct mfs_present *p, struct mfs_fileset *set, uint32_t file, uint64_t off,
		    uint64_t len, struct mfs_error *err)
{
	const struct mfs_backing *b = mfs_fileset_backing(set, file);
	const uint64_t size = mfs_fileset_size(set, file);
	struct mfs_present_range *near, wide;
	int rc;

	if (!b || off >= size)
		return 0;
	wide = (struct mfs_present_range){b, off, off + mfs_min_u64(len, size - off), 0};
	near = find_near(p, b, wide.from, wide.to);
	if (near && near->from <= wide.from && wide.to <= near->to)
		return 0;
	if (near) {
		wide.from = mfs_min_u64(wide.from, near->from);
		wide.to = mfs_max_u64(wide.to, near->to);
	} else if (!make_room(p)) {
		return mfs_fail_nomem(err);
	}
	rc = b->ops->acquire(b->object, wide.from, wide.to - wide.from, &wide.pin, err);
	if (rc)
		return rc;
	if (near)
		b->ops->release(b->object, near->pin);
	else
		near = &p->ranges[p->count++];
	*near = wide;
	return 0;
}

void mfs_present_drop(struct mfs_present *p)
{
	for (uint32_t i = 0; i < p->count; i++)
		p->ranges[i].backing->ops->release(p->ranges[i].backing->object, p->ranges[i].pin);
	p->count = 0;
}

void mfs_present_release(struct mfs_present *p)
{
	mfs_present_drop(p);
	free(p->ranges);
	*p = (struct mfs_present){0};
}
