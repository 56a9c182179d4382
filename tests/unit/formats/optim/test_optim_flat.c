/* Arithmetic of flat buffers: formats/ckpt/flat_buffer, flat_range, optim_rules. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/optim/buffers/flat_buffers.h"
#include "formats/optim/read/range_boxes.h"

static struct mfs_error err;
static struct mfs_arena arena;

static struct mfs_flat_buffer lay_out(const struct mfs_optim_rules *rules, uint64_t size,
				      uint32_t dp, struct mfs_flat_param *p, uint32_t count)
{
	struct mfs_flat_buffer b;

	unit_ok(mfs_flat_layout(rules, size, dp, p, count, &arena, &b, &err), &err);
	return b;
}

/* Last registered first, each at a multiple of 64; what follows the last one belongs to no
 * parameter. */
START_TEST(one_bucket)
{
	const struct mfs_optim_rules rules = {.aligned = true};
	struct mfs_flat_param p[] = {{.elements = 100}, {.elements = 64}, {.elements = 3}};
	struct mfs_flat_buffer b = lay_out(&rules, 0, 2, p, 3);

	ck_assert_uint_eq(b.bucket_count, 1);
	ck_assert_uint_eq(p[2].start, 0);
	ck_assert_uint_eq(p[1].start, 64);
	ck_assert_uint_eq(p[0].start, 128);
	ck_assert_uint_eq(b.elements, 228);
	ck_assert_uint_eq(b.unpadded[0], 228);
	ck_assert_uint_eq(b.padded[0], 256);
	mfs_arena_release(&arena);
}
END_TEST

START_TEST(slices_without_alignment_touch)
{
	const struct mfs_optim_rules rules = {0};
	struct mfs_flat_param p[] = {{.elements = 100}, {.elements = 64}, {.elements = 3}};
	struct mfs_flat_buffer b = lay_out(&rules, 0, 2, p, 3);

	ck_assert_uint_eq(p[0].start, 67);
	ck_assert_uint_eq(b.elements, 167);
	mfs_arena_release(&arena);
}
END_TEST

/* A bucket ends when it has grown to the size, padded to what 128 and the ranks divide. */
START_TEST(several_buckets)
{
	const struct mfs_optim_rules rules = {.aligned = true};
	struct mfs_flat_param p[] = {{.elements = 50}, {.elements = 10}, {.elements = 200}};
	struct mfs_flat_buffer b = lay_out(&rules, 60, 3, p, 3);

	ck_assert_uint_eq(b.bucket_count, 2);
	ck_assert_uint_eq(b.unpadded[0], 200);
	ck_assert_uint_eq(b.padded[0], 384);
	ck_assert_uint_eq(p[1].bucket, 1);
	ck_assert_uint_eq(p[1].start, 384);
	ck_assert_uint_eq(p[1].in_bucket, 0);
	ck_assert_uint_eq(p[1].in_coalesced, 200);
	ck_assert_uint_eq(p[0].in_bucket, 64);
	ck_assert_uint_eq(p[0].in_coalesced, 264);
	ck_assert_uint_eq(b.elements, 200 + 64 + 50);
	mfs_arena_release(&arena);
}
END_TEST

/* A shared embedding stands alone; the bucket before it ends where it would have begun. */
START_TEST(shared_embedding)
{
	const struct mfs_optim_rules rules = {.aligned = true};
	struct mfs_flat_param p[] = {
		{.elements = 256, .shared = true}, {.elements = 10}, {.elements = 70}};
	struct mfs_flat_buffer b = lay_out(&rules, 0, 1, p, 3);

	ck_assert_uint_eq(b.bucket_count, 2);
	ck_assert_uint_eq(b.unpadded[0], 192);
	ck_assert_uint_eq(p[0].start, 256);
	ck_assert_uint_eq(p[0].in_coalesced, 192);
	ck_assert_uint_eq(b.unpadded[1], 256);
	mfs_arena_release(&arena);
}
END_TEST

START_TEST(buffers_that_overflow_are_refused)
{
	const struct mfs_optim_rules rules = {.aligned = true};
	struct mfs_flat_param p[] = {{.elements = UINT64_MAX - 10}, {.elements = 100}};
	struct mfs_flat_buffer b;

	unit_fails(mfs_flat_layout(&rules, 0, 1, p, 2, &arena, &b, &err), &err, -EINVAL,
		   "overflow");
	mfs_arena_release(&arena);
}
END_TEST

START_TEST(bucket_size)
{
	struct mfs_optim_rules rules = {0};

	ck_assert_uint_eq(mfs_flat_bucket_size(&rules, 0, 0, 1000, 8), 0);
	rules.overlap_grad_reduce = true;
	ck_assert_uint_eq(mfs_flat_bucket_size(&rules, 0, 0, 1000, 8), 40000000);
	ck_assert_uint_eq(mfs_flat_bucket_size(&rules, 0, 0, 1000, 64), 64000000);
	ck_assert_uint_eq(mfs_flat_bucket_size(&rules, 1, 0, 1000, 8), 0);
	ck_assert_uint_eq(mfs_flat_bucket_size(&rules, 0, 1, 1000, 8), 0);
	rules.bucket_size = 5;
	ck_assert_uint_eq(mfs_flat_bucket_size(&rules, 0, 0, 1000, 8), 5);
	rules.num_buckets = 4;
	ck_assert_uint_eq(mfs_flat_bucket_size(&rules, 0, 0, 1000, 8), 250);
}
END_TEST

START_TEST(norms_and_biases_do_not_decay)
{
	struct mfs_optim_rules rules = {0};

	ck_assert(mfs_optim_decays(&rules, "decoder.layers.0.mlp.linear_fc1.weight", 2));
	ck_assert(!mfs_optim_decays(&rules, "decoder.layers.0.mlp.linear_fc1.bias", 1));
	ck_assert(!mfs_optim_decays(&rules, "decoder.final_layernorm.weight", 1));
	ck_assert(
		!mfs_optim_decays(&rules, "decoder.layers.0.self_attention.q_layernorm.weight", 1));
	rules.decay_qk_norms = true;
	ck_assert(
		mfs_optim_decays(&rules, "decoder.layers.0.self_attention.q_layernorm.weight", 1));
	ck_assert(!mfs_optim_decays(&rules, "decoder.layers.0.self_attention.kv_layernorm.weight",
				    1));
	ck_assert(mfs_optim_decays(&rules, "embedding.word_embeddings.weight", 2));
	rules.skip_embedding_decay = true;
	ck_assert(!mfs_optim_decays(&rules, "embedding.word_embeddings.weight", 2));
	ck_assert(!mfs_optim_decoupled(&rules, "output_layer.weight"));
	rules.decoupled_lr = true;
	ck_assert(mfs_optim_decoupled(&rules, "output_layer.weight"));
	ck_assert(!mfs_optim_decoupled(&rules, "embedding.position_embeddings.weight"));
}
END_TEST

/* ---- ranges ---- */

static const uint64_t shape[] = {3, 4, 5};

struct seen {
	uint64_t first, next; /* element that must come next */
	unsigned boxes;
};

/* Boxes come in order and hold the range's elements, each once. */
static int see(const uint64_t *lo, const uint64_t *size, uint64_t at, void *arg)
{
	struct seen *s = arg;

	ck_assert_uint_eq(s->first + at, s->next);
	s->boxes++;
	for (uint64_t a = 0; a < size[0]; a++)
		for (uint64_t b = 0; b < size[1]; b++)
			for (uint64_t c = 0; c < size[2]; c++)
				ck_assert_uint_eq(((lo[0] + a) * 4 + lo[1] + b) * 5 + lo[2] + c,
						  s->next++);
	return 0;
}

START_TEST(boxes_of_a_range_tile_it)
{
	for (uint64_t first = 0; first <= 60; first++)
		for (uint64_t count = 0; first + count <= 60; count++) {
			struct seen s = {.first = first, .next = first};

			ck_assert_int_eq(mfs_range_boxes(shape, 3, first, count, see, &s), 0);
			ck_assert_uint_eq(s.next, first + count);
			ck_assert_uint_le(s.boxes, 5);
		}
}
END_TEST

static int stop(const uint64_t *lo, const uint64_t *size, uint64_t at, void *arg)
{
	(void)lo;
	(void)size;
	(void)at;
	return ++*(int *)arg;
}

START_TEST(ranges_stop)
{
	int calls = 0;

	ck_assert_int_eq(mfs_range_boxes(shape, 3, 1, 58, stop, &calls), 1);
	ck_assert_int_eq(calls, 1);
	ck_assert_int_eq(mfs_range_boxes(shape, 0, 0, 1, stop, &calls), 2);
	ck_assert_int_eq(mfs_range_boxes(shape, 3, 7, 0, stop, &calls), 0);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("optim_flat");
	TCase *c = unit_case(s, "buffers", one_bucket);

	tcase_add_test(c, slices_without_alignment_touch);
	tcase_add_test(c, several_buckets);
	tcase_add_test(c, shared_embedding);
	tcase_add_test(c, buffers_that_overflow_are_refused);
	tcase_add_test(c, bucket_size);
	tcase_add_test(c, norms_and_biases_do_not_decay);
	c = unit_case(s, "ranges", boxes_of_a_range_tile_it);
	tcase_add_test(c, ranges_stop);
	return s;
}
