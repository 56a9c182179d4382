#include "formats/arrow/flatbuffer.h"

#include "formats/base/bytes.h"

/* Is [at, at+len) inside of the buffer? Marks it if not. */
static bool inside(struct mfs_flat *f, uint64_t at, uint64_t len)
{
	if (f->size <= INT32_MAX && mfs_range_ok(at, len, f->size))
		return true;
	f->bad = true;
	return false;
}

/* Where the offset that lies at `at` leads; 0 if it leads nowhere. Offsets lead forward from where
 * they lie. */
static uint32_t follow(struct mfs_flat *f, uint32_t at)
{
	uint64_t to;

	if (!inside(f, at, 4))
		return 0;
	to = (uint64_t)at + mfs_le32(f->bytes + at);
	if (to == at || !inside(f, to, 4)) {
		f->bad = true;
		return 0;
	}
	return (uint32_t)to;
}

/* A table begins with the distance back to its vtable: its own size, the table's, and where fields
 * lie. */
static struct mfs_flat_table table_at(struct mfs_flat *f, uint32_t at)
{
	struct mfs_flat_table t = {.flat = f, .at = at};
	int64_t vtable;

	if (!at)
		return t;
	vtable = (int64_t)at - (int32_t)mfs_le32(f->bytes + at);
	if (vtable < 0 || !inside(f, (uint64_t)vtable, 4))
		goto bad;
	t.vtable = (uint32_t)vtable;
	t.vtable_size = mfs_le16(f->bytes + vtable);
	t.size = mfs_le16(f->bytes + vtable + 2);
	if (t.vtable_size >= 4 && t.size >= 4 && inside(f, t.vtable, t.vtable_size) &&
	    inside(f, at, t.size))
		return t;
bad:
	f->bad = true;
	t.at = 0;
	return t;
}

struct mfs_flat_table mfs_flat_root(struct mfs_flat *f)
{
	return table_at(f, follow(f, 0));
}

/* Where a field of len bytes lies; 0 if it is absent. */
static uint32_t place(const struct mfs_flat_table *t, unsigned field, unsigned len)
{
	const uint32_t slot = 4 + 2 * field;
	uint16_t within;

	if (!t->at || slot + 2 > t->vtable_size)
		return 0;
	within = mfs_le16(t->flat->bytes + t->vtable + slot);
	if (!within)
		return 0;
	if (within < 4 || within + len > t->size) {
		t->flat->bad = true;
		return 0;
	}
	return t->at + within;
}

uint8_t mfs_flat_u8(const struct mfs_flat_table *t, unsigned field, uint8_t absent)
{
	const uint32_t at = place(t, field, 1);

	return at ? t->flat->bytes[at] : absent;
}

int16_t mfs_flat_i16(const struct mfs_flat_table *t, unsigned field, int16_t absent)
{
	const uint32_t at = place(t, field, 2);

	return at ? (int16_t)mfs_le16(t->flat->bytes + at) : absent;
}

int32_t mfs_flat_i32(const struct mfs_flat_table *t, unsigned field, int32_t absent)
{
	const uint32_t at = place(t, field, 4);

	return at ? (int32_t)mfs_le32(t->flat->bytes + at) : absent;
}

int64_t mfs_flat_i64(const struct mfs_flat_table *t, unsigned field, int64_t absent)
{
	const uint32_t at = place(t, field, 8);

	return at ? (int64_t)mfs_le64(t->flat->bytes + at) : absent;
}

struct mfs_flat_table mfs_flat_table(const struct mfs_flat_table *t, unsigned field)
{
	const uint32_t at = place(t, field, 4);

	return table_at(t->flat, at ? follow(t->flat, at) : 0);
}

struct mfs_flat_vector mfs_flat_vector(const struct mfs_flat_table *t, unsigned field,
				       uint32_t element)
{
	struct mfs_flat_vector v = {.flat = t->flat, .element = element};
	const uint32_t at = place(t, field, 4), to = at ? follow(t->flat, at) : 0;

	if (!to)
		return v;
	v.at = to + 4;
	v.count = mfs_le32(t->flat->bytes + to);
	if (!inside(t->flat, v.at, (uint64_t)v.count * element))
		v.count = 0;
	return v;
}

const char *mfs_flat_string(const struct mfs_flat_table *t, unsigned field)
{
	const struct mfs_flat_vector v = mfs_flat_vector(t, field, 1);

	if (!v.at || t->flat->bad)
		return NULL;
	if (!inside(t->flat, (uint64_t)v.at + v.count, 1))
		return NULL;
	/* It ends where it says, and not before. */
	if (memchr(t->flat->bytes + v.at, 0, (size_t)v.count + 1) !=
	    t->flat->bytes + v.at + v.count) {
		t->flat->bad = true;
		return NULL;
	}
	return (const char *)t->flat->bytes + v.at;
}

const uint8_t *mfs_flat_element(const struct mfs_flat_vector *v, uint32_t i)
{
	return v->flat->bytes + v->at + (size_t)i * v->element;
}

struct mfs_flat_table mfs_flat_element_table(const struct mfs_flat_vector *v, uint32_t i)
{
	return table_at(v->flat, follow(v->flat, v->at + 4 * i));
}
