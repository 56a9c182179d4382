#include "formats/delta/delta_make.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/delta/delta_apply.h"
#include "formats/delta/delta_sum.h"
#include "formats/io/fileset.h"
#include "formats/io/whole.h"

#define WINDOW (1u << 20)
/* Changes that are applied in one pass, and bytes of their windows in all: level 1 takes half a
 * megabyte for each, and a frame of somebody else's may ask for 16 (delta_apply.c). */
#define MOST	  16
#define MOST_ROOM (64u << 20)

/* A change on its way. */
struct link {
	const struct mfs_delta *of;
	const struct mfs_delta_change *change;
	struct mfs_delta_apply *apply;
	struct mfs_delta_sum sum; /* after it */
};

struct making {
	const struct mfs_delta_base_file *base;
	const struct mfs_delta_part *part;
	int fd;
	struct link links[MOST];
	unsigned count;
	uint64_t room;	 /* that their changes take */
	bool first;	 /* pass: the bytes come from the base */
	bool checks_all; /* the sum after each change, and not after the last one alone */
	struct mfs_delta_sum base_sum;
	uint8_t *window;
	struct mfs_error *err;
};

static const char *dir_of(const struct link *l)
{
	return mfs_fileset_dir(l->of->files);
}

/* ---- a pass ---- */

static bool sums_link(const struct making *m, unsigned i)
{
	return m->checks_all || i + 1 == m->count;
}

static int begin_pass(struct making *m)
{
	int rc = 0;

	for (unsigned i = 0; i < m->count && !rc; i++) {
		struct link *l = &m->links[i];

		rc = mfs_delta_apply_new(l->change, l->of->meta.encoding, m->part->bytes, &l->apply,
					 m->err);
		if (rc)
			mfs_fail_in(m->err, "%s", dir_of(l));
		else if (sums_link(m, i))
			rc = mfs_delta_sum_init(&l->sum, l->of->meta.sum, m->err);
	}
	return rc;
}

static void end_pass(struct making *m)
{
	for (unsigned i = 0; i < m->count; i++) {
		mfs_delta_apply_free(m->links[i].apply);
		mfs_delta_sum_release(&m->links[i].sum);
	}
	m->count = 0;
	m->room = 0;
}

static int read_window(struct making *m, uint64_t off, size_t len)
{
	const uint64_t at = m->part->offset + off;
	int rc;

	if (m->first) {
		rc = m->base->read(m->base->arg, at, m->window, len, m->err);
		if (!rc && m->part->sum)
			mfs_delta_sum_add(&m->base_sum, m->window, len);
		return rc;
	}
	rc = mfs_pread_whole(m->fd, at, m->window, len);
	return rc ? mfs_fail(m->err, rc, "cannot read the cache: %s", mfs_errno_text(-rc)) : 0;
}

static int write_window(struct making *m, uint64_t off, size_t len)
{
	const uint8_t *p = m->window;

	off += m->part->offset;
	while (len) {
		const ssize_t n = pwrite(m->fd, p, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return mfs_fail(m->err, n ? -errno : -EIO, "cannot write to the cache: %s",
					n ? mfs_errno_text(errno) : "nothing is taken");
		p += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

static int change_window(struct making *m, uint64_t off, size_t len)
{
	int rc = read_window(m, off, len);

	for (unsigned i = 0; i < m->count && !rc; i++) {
		struct link *l = &m->links[i];

		rc = mfs_delta_apply_next(l->apply, m->window, len, m->err);
		if (rc)
			mfs_fail_in(m->err, "%s", dir_of(l));
		else if (sums_link(m, i))
			mfs_delta_sum_add(&l->sum, m->window, len);
	}
	return rc ? rc : write_window(m, off, len);
}

/* ---- checks ---- */

static int check_base(const struct making *m)
{
	char found[MFS_DELTA_SUM_TEXT];

	if (!m->first || !m->part->sum ||
	    !strcmp(mfs_delta_sum_text(&m->base_sum, found), m->part->sum))
		return 0;
	return mfs_fail(m->err, -EIO,
			"%s: tensor '%s' of the base has the checksum %s, and the chain was made "
			"from one with %s: another model is its base",
			m->base->name, m->part->name, found, m->part->sum);
}

static int check_link(const struct making *m, unsigned i)
{
	const struct link *l = &m->links[i];
	char found[MFS_DELTA_SUM_TEXT];

	if (!strcmp(mfs_delta_sum_text(&l->sum, found), l->change->sum))
		return 0;
	return mfs_fail(m->err, -EIO,
			"%s/%s: tensor '%s' has the checksum %s after the change, expected %s: the "
			"delta is damaged, or changes another model",
			dir_of(l), l->change->bytes.name, l->change->name, found, l->change->sum);
}

static int check_pass(struct making *m)
{
	int rc = check_base(m);

	for (unsigned i = 0; i < m->count && !rc; i++) {
		rc = mfs_delta_apply_end(m->links[i].apply, m->err);
		if (rc)
			mfs_fail_in(m->err, "%s", dir_of(&m->links[i]));
		else if (sums_link(m, i))
			rc = check_link(m, i);
	}
	return rc;
}

static int pass(struct making *m)
{
	int rc = begin_pass(m);

	for (uint64_t off = 0; off < m->part->bytes && !rc; off += WINDOW)
		rc = change_window(m, off, mfs_min_u64(WINDOW, m->part->bytes - off));
	if (!rc)
		rc = check_pass(m);
	end_pass(m);
	m->first = false;
	return rc;
}

/* ---- the whole ---- */

/* Applies those that are there first if there is no room for another one. */
static int add_link(struct making *m, const struct mfs_delta *of,
		    const struct mfs_delta_change *change)
{
	uint64_t room;
	int rc = mfs_delta_apply_room(change, of->meta.encoding, &room, m->err);

	if (!rc && m->count && (m->count == MOST || m->room + room > MOST_ROOM))
		rc = pass(m);
	if (rc)
		return rc;
	m->room += room;
	m->links[m->count++] = (struct link){.of = of, .change = change};
	return 0;
}

static int make(struct making *m, const struct mfs_delta *const *links, uint32_t link_count)
{
	int rc = 0;

	m->first = true;
	mfs_delta_sum_begin(&m->base_sum);
	for (uint32_t i = 0; i < link_count && m->part->name && !rc; i++) {
		const struct mfs_delta_change *c = mfs_delta_find(links[i], m->part->name);

		if (c)
			rc = add_link(m, links[i], c);
	}
	if (!rc && (m->count || m->first))
		rc = pass(m);
	return rc;
}

int mfs_delta_make(const struct mfs_delta_base_file *base, const struct mfs_delta_part *part,
		   const struct mfs_delta *const *links, uint32_t link_count, int fd,
		   struct mfs_error *err)
{
	struct mfs_error why;
	struct making m = {
		.base = base, .part = part, .fd = fd, .window = malloc(WINDOW), .err = &why};
	int rc = m.window ? mfs_delta_sum_init(&m.base_sum, base->sum, &why) : mfs_fail_nomem(&why);

	if (!rc)
		rc = make(&m, links, link_count);
	/* Which change is the wrong one? */
	if (rc == -EIO && link_count > 1 && !m.checks_all) {
		struct mfs_error again;

		m.checks_all = true;
		m.err = &again;
		if (make(&m, links, link_count))
			why = again;
	}
	mfs_delta_sum_release(&m.base_sum);
	free(m.window);
	return rc ? mfs_fail(err, rc, "%s", why.msg) : 0;
}
