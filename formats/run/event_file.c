#include "formats/run/event_file.h"

#include <stdbool.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/crc32c.h"

#define HEAD 12 /* a record's length, and the sum of it */
#define SUM  4

struct walk {
	const char *name;
	int (*each)(void *arg, const struct mfs_scalar *s);
	void *arg;
	struct mfs_error *err;
};

/* ---- protocol buffers (protobuf.dev/programming-guides/encoding) ---- */

enum wire { VARINT, BITS64, BYTES, BITS32 = 5 };

struct span {
	const uint8_t *at, *end;
};

struct field {
	uint64_t number;
	enum wire type;
	uint64_t value;	   /* of all but BYTES */
	struct span bytes; /* of BYTES */
};

static bool read_varint(struct span *s, uint64_t *ret)
{
	*ret = 0;
	for (unsigned shift = 0; shift < 64 && s->at < s->end; shift += 7) {
		const uint8_t byte = *s->at++;

		*ret |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return true;
	}
	return false;
}

static bool read_fixed(struct span *s, size_t len, uint64_t *ret)
{
	uint8_t bytes[8] = {0};

	if ((size_t)(s->end - s->at) < len)
		return false;
	memcpy(bytes, s->at, len);
	*ret = mfs_le64(bytes);
	s->at += len;
	return true;
}

static bool read_bytes(struct span *s, struct span *ret)
{
	uint64_t len;

	if (!read_varint(s, &len) || len > (size_t)(s->end - s->at))
		return false;
	*ret = (struct span){s->at, s->at + len};
	s->at += len;
	return true;
}

/* The next field of a message that has not ended. False: it has not the form. */
static bool read_field(struct span *s, struct field *f)
{
	uint64_t key;

	if (!read_varint(s, &key))
		return false;
	*f = (struct field){.number = key >> 3, .type = key & 7};
	switch (f->type) {
	case VARINT:
		return read_varint(s, &f->value);
	case BITS64:
		return read_fixed(s, 8, &f->value);
	case BITS32:
		return read_fixed(s, 4, &f->value);
	case BYTES:
		return read_bytes(s, &f->bytes);
	}
	return false; /* groups, which these messages do not have */
}

static double as_float(uint64_t bits)
{
	const uint32_t low = (uint32_t)bits;
	float value;

	memcpy(&value, &low, sizeof(value));
	return (double)value;
}

static double as_double(uint64_t bits)
{
	double value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* ---- tensors of one element, as TensorFlow 2 writes scalars ---- */

struct element {
	bool is_double, has;
	uint64_t bits;
	struct span content;
};

/* A number that stands alone, or packed with others, of which there are none in a scalar. */
static void take_number(struct element *e, const struct field *f, size_t len)
{
	struct span s = f->bytes;

	e->bits = f->value;
	e->has = f->type != BYTES ||
		 ((size_t)(s.end - s.at) == len && read_fixed(&s, len, &e->bits));
}

static void take_content(struct element *e)
{
	struct span s = e->content;
	const size_t len = e->is_double ? 8 : 4;

	if (!e->has && (size_t)(s.end - s.at) == len)
		e->has = read_fixed(&s, len, &e->bits);
}

/* False: it has not the form. *ret_has: it is of one float or double. */
static bool read_tensor(struct span s, bool *ret_has, double *ret)
{
	enum { DTYPE = 1, CONTENT = 4, FLOATS = 5, DOUBLES = 6, DOUBLE = 2 };
	struct element e = {0};
	struct field f;

	while (s.at < s.end) {
		if (!read_field(&s, &f))
			return false;
		if (f.number == DTYPE && f.type == VARINT)
			e.is_double = f.value == DOUBLE;
		else if (f.number == CONTENT && f.type == BYTES)
			e.content = f.bytes;
		else if (f.number == FLOATS || f.number == DOUBLES)
			take_number(&e, &f, f.number == FLOATS ? 4 : 8);
	}
	take_content(&e);
	*ret_has = e.has;
	*ret = e.is_double ? as_double(e.bits) : as_float(e.bits);
	return true;
}

/* ---- events ---- */

/* False: it has not the form. *ret_has: it is a scalar with a tag. */
static bool read_value(struct span s, struct mfs_scalar *ret, bool *ret_has)
{
	enum { TAG = 1, SIMPLE = 2, TENSOR = 8 };
	bool has = false;
	struct field f;

	ret->tag_len = 0;
	while (s.at < s.end) {
		if (!read_field(&s, &f))
			return false;
		if (f.number == TAG && f.type == BYTES) {
			ret->tag = (const char *)f.bytes.at;
			ret->tag_len = (size_t)(f.bytes.end - f.bytes.at);
		} else if (f.number == SIMPLE && f.type == BITS32) {
			ret->value = as_float(f.value);
			has = true;
		} else if (f.number == TENSOR && f.type == BYTES &&
			   !read_tensor(f.bytes, &has, &ret->value)) {
			return false;
		}
	}
	*ret_has = has && ret->tag_len;
	return true;
}

static int wrong(const struct walk *w, const char *what)
{
	return mfs_fail(w->err, -EINVAL, "%s: %s", w->name, what);
}

static int take_summary(const struct walk *w, struct span s, int64_t step)
{
	enum { VALUE = 1 };
	struct mfs_scalar scalar = {.step = step};
	struct field f;
	int rc = 0;

	while (s.at < s.end && !rc) {
		bool has = false;

		if (!read_field(&s, &f) ||
		    (f.number == VALUE && f.type == BYTES && !read_value(f.bytes, &scalar, &has)))
			return wrong(w, "a summary is no message of its kind");
		if (has && step >= 0)
			rc = w->each(w->arg, &scalar);
	}
	return rc;
}

/* The step may stand after the summary. */
static int take_event(const struct walk *w, struct span event)
{
	enum { STEP = 2, SUMMARY = 5 };
	struct span s = event;
	struct field f;
	int64_t step = 0;
	int rc = 0;

	while (s.at < s.end) {
		if (!read_field(&s, &f))
			return wrong(w, "an event is no message of its kind");
		if (f.number == STEP && f.type == VARINT)
			step = (int64_t)f.value;
	}
	for (s = event; s.at < s.end && !rc;)
		if (read_field(&s, &f) && f.number == SUMMARY && f.type == BYTES)
			rc = take_summary(w, f.bytes, step);
	return rc;
}

static bool has_sum(const uint8_t *bytes, size_t len)
{
	return mfs_crc32c_masked(bytes, len) == mfs_le32(bytes + len);
}

int mfs_event_records(const char *name, const uint8_t *bytes, size_t len,
		      int (*each)(void *arg, const struct mfs_scalar *s), void *arg,
		      size_t *ret_used, uint64_t *ret_skip, struct mfs_error *err)
{
	const struct walk w = {name, each, arg, err};
	int rc = 0;

	*ret_used = 0;
	*ret_skip = 0;
	while (!rc && len - *ret_used >= HEAD) {
		const uint8_t *at = bytes + *ret_used;
		const uint64_t size = mfs_le64(at);

		if (!has_sum(at, 8))
			return wrong(&w, "the length of a record has not its sum");
		if (size > MFS_EVENT_BYTES) {
			*ret_skip = size < INT64_MAX ? HEAD + size + SUM : INT64_MAX;
			return 0;
		}
		if (len - *ret_used < HEAD + size + SUM)
			return 0;
		if (!has_sum(at + HEAD, size))
			return wrong(&w, "a record has not its sum");
		rc = take_event(&w, (struct span){at + HEAD, at + HEAD + size});
		if (!rc)
			*ret_used += HEAD + size + SUM;
	}
	return rc;
}
