/*
 * Input: a box that somebody asks of a tensor of a view, with a destination of so many bytes. Its
 * numbers are the caller's, and may be anything. Five bytes: axes, size of an element, room (two
 * bytes), what is given; then an axis each: a byte of its size, and 8 bytes each of begin, end and
 * stride.
 */
#include "tests/fuzz/fuzz.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "formats/load/box_load.h"
#include "formats/plan/vfile.h"

#define AXES	  4
#define HEAD	  5
#define AXIS	  25
#define HAS_BOX	  1
#define HAS_STEPS 2

struct asked {
	struct mfs_load_box box;
	uint64_t shape[AXES], begin[AXES], end[AXES];
	int64_t strides[AXES];
	uint64_t bytes; /* of the tensor */
};

static void parse_axis(struct asked *a, unsigned axis, const uint8_t *p)
{
	a->shape[axis] = p[0] % 8;
	memcpy(&a->begin[axis], p + 1, 8);
	memcpy(&a->end[axis], p + 9, 8);
	memcpy(&a->strides[axis], p + 17, 8);
	a->bytes *= a->shape[axis];
}

static bool parse(struct asked *a, const uint8_t *bytes, size_t len)
{
	if (len < HEAD)
		return false;
	a->box.name = "tensor";
	a->box.ndim = bytes[0] % (AXES + 1);
	a->box.item = 1u << bytes[1] % 4;
	a->box.room = bytes[2] | (bytes[3] & 15) << 8;
	a->bytes = a->box.item;
	if (len < HEAD + (size_t)AXIS * a->box.ndim)
		return false;
	for (unsigned i = 0; i < a->box.ndim; i++)
		parse_axis(a, i, bytes + HEAD + (size_t)AXIS * i);
	a->box.shape = a->shape;
	a->box.begin = bytes[4] & HAS_BOX ? a->begin : NULL;
	a->box.end = bytes[4] & HAS_BOX ? a->end : NULL;
	a->box.strides = bytes[4] & HAS_STEPS ? a->strides : NULL;
	return true;
}

/* The tensor, after a header, with bytes that tell where they are. */
static struct mfs_vfile *make_file(const struct asked *a, struct mfs_error *err)
{
	uint8_t *content = malloc(a->bytes + 1);
	struct mfs_vfile *f;

	fuzz_require(content && !mfs_vfile_new(&f, err));
	for (uint64_t i = 0; i < a->bytes; i++)
		content[i] = (uint8_t)(i * 31 + 7);
	fuzz_require(!mfs_vfile_add_zeros(f, 3, err));
	fuzz_require(!mfs_vfile_add_literal(f, content, a->bytes, err));
	return f;
}

static int load(const struct asked *a, struct mfs_error *err)
{
	const struct mfs_load_options options = {.device = -1, .threads = 1, .memory = 1};
	struct mfs_load *l;
	int rc = mfs_load_start(&a->box, 1, &options, &l, err);

	if (rc)
		return rc;
	rc = mfs_load_wait(l, err);
	mfs_load_free(l);
	return rc;
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	struct asked a = {.bytes = 0};
	int rc;

	if (!parse(&a, bytes, len))
		return mfs_fail(err, -EINVAL, "%zu bytes are no box", len);
	a.box.file = make_file(&a, err);
	a.box.at = 3;
	a.box.to = malloc(a.box.room ? a.box.room : 1);
	fuzz_require(a.box.to);
	rc = load(&a, err);
	/* The whole tensor without gaps is its bytes. */
	for (uint64_t i = 0; i < a.bytes && !rc && !a.box.begin && !a.box.strides; i++)
		fuzz_require(a.box.to[i] == (uint8_t)(i * 31 + 7));
	free(a.box.to);
	mfs_vfile_free(a.box.file);
	return rc;
}

FUZZ_TARGET
