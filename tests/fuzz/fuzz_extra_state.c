#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "formats/torch/extra_state.h"

/* Not the same bytes, but the same state: NaN is no number that equals itself. */
static void require_same(const struct mfs_extra_state *a, const struct mfs_extra_state *b)
{
	fuzz_require(a->products == b->products && a->length == b->length);
	fuzz_require(a->margin == b->margin && a->most_recent == b->most_recent);
	for (enum mfs_fp8_direction d = 0; d < MFS_FP8_DIRECTIONS; d++) {
		const size_t columns = mfs_extra_state_columns(a, d) * sizeof(float);

		fuzz_require(a->most[d] == b->most[d]);
		fuzz_require(!memcmp(a->scale[d], b->scale[d], columns));
		fuzz_require(!memcmp(a->history[d], b->history[d], columns * a->length));
	}
}

/* What was read is written, and read again. */
static void check(const struct mfs_extra_state *s, struct mfs_arena *arena)
{
	struct mfs_extra_state again, parts[2], joined;
	const struct mfs_extra_state *two[] = {&parts[0], &parts[1]};
	struct mfs_error err = {0};
	struct mfs_buf out = {0};

	if (!s->products)
		return;
	fuzz_require(!mfs_extra_state_write(s, &out, &err));
	fuzz_require(!mfs_extra_state_read(out.data, out.len, "written", arena, &again, &err));
	require_same(s, &again);
	mfs_buf_release(&out);
	for (uint32_t i = 0; i < 2; i++)
		fuzz_require(!mfs_extra_state_split(s, i % s->products, arena, &parts[i], &err));
	fuzz_require(!mfs_extra_state_join(two, 2, arena, &joined, &err));
	if (s->products == 2)
		require_same(s, &joined);
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	struct mfs_arena arena = {0};
	struct mfs_extra_state s;
	int rc = mfs_extra_state_read(bytes, len, "input", &arena, &s, err);

	if (!rc)
		check(&s, &arena);
	mfs_arena_release(&arena);
	return rc;
}

FUZZ_TARGET
