/* How long passes stand still for each group (trainer/parallel/exposure.h), by a clock that
 * communication moves on. */
#include "trainer/parallel/exposure.h"

#include <string.h>

#include "kernels/ref/cpu.h"
#include "tests/unit/unit.h"

static struct mfs_error err;

/* ---- a device whose clock is ours ---- */

static struct mfk_device_ops device_ops;
static struct mfk_backend backend;
static struct mfk_device *device;
static struct mfk_ctx *passes, *side;
static struct mfk_event *event;
static int64_t now;
static unsigned stamps;

static void stamp(struct mfk_ctx *c, int64_t *ns)
{
	ck_assert_ptr_eq(c, passes);
	stamps++;
	*ns = now;
}

/* Communication takes a millisecond for each element or byte; to wait takes 100. */
static void all_reduce(struct mfk_ctx *c, struct mfk_comm *g, enum mfk_reduce op,
		       enum mfk_dtype dtype, void *data, int64_t count)
{
	(void)c;
	(void)g;
	(void)op;
	(void)dtype;
	(void)data;
	now += count * 1000000;
}

static void all_gather(struct mfk_ctx *c, struct mfk_comm *g, enum mfk_dtype dtype, void *to,
		       const void *from, int64_t count)
{
	(void)from;
	all_reduce(c, g, MFK_SUM, dtype, to, count);
}

static void reduce_scatter(struct mfk_ctx *c, struct mfk_comm *g, enum mfk_dtype dtype, void *to,
			   void *from, int64_t count)
{
	all_gather(c, g, dtype, to, from, count);
}

static void exchange(struct mfk_ctx *c, struct mfk_comm *g, const struct mfk_message *list,
		     unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		all_reduce(c, g, MFK_SUM, MFK_F32, NULL, (int64_t)list[i].bytes);
}

static void event_wait(struct mfk_ctx *c, struct mfk_event *e)
{
	ck_assert_ptr_eq(e, event);
	(void)c;
	now += 100 * 1000000;
}

static const struct mfk_comm_ops comm_ops = {.name = "test",
					     .all_reduce = all_reduce,
					     .all_gather = all_gather,
					     .reduce_scatter = reduce_scatter,
					     .exchange = exchange};

static void begin(void)
{
	char why[MFK_WHY];

	device_ops = *mfk_cpu.device;
	device_ops.at_once = false;
	device_ops.stamp = stamp;
	device_ops.event_wait = event_wait;
	backend = mfk_cpu;
	backend.device = &device_ops;
	ck_assert_int_eq(device_ops.open(0, 1, &device, why), 0);
	ck_assert_int_eq(device_ops.ctx_new(device, false, &passes, why), 0);
	ck_assert_int_eq(device_ops.ctx_new(device, false, &side, why), 0);
	ck_assert_int_eq(device_ops.event_new(device, &event), 0);
}

static void end(struct mft_exposure *e)
{
	mft_exposure_free(e);
	device_ops.event_free(event);
	device_ops.ctx_free(side);
	device_ops.ctx_free(passes);
	device_ops.close(device);
}

static struct mft_exposure *exposure(void)
{
	struct mft_exposure *e;

	begin();
	unit_ok(mft_exposure_new(&backend, device, passes, &e, &err), &err);
	return e;
}

/* ---- what is summed ---- */

static void pair(struct mft_exposure *e, enum mft_group g, int64_t ms)
{
	mft_exposure_stops(e, passes, g);
	now += ms * 1000000;
	mft_exposure_goes_on(e, passes);
}

/* The sum of a group is so many milliseconds, and that of all of them. */
static void sums(struct mft_exposure *e, enum mft_group g, double ms, double all)
{
	struct mft_exposed exposed;
	double sum = 0;

	unit_ok(mft_exposure_sum(e, &exposed, &err), &err);
	for (int i = 0; i < MFT_GROUP_COUNT; i++)
		sum += exposed.seconds[i];
	ck_assert_double_eq_tol(exposed.seconds[g], ms / 1e3, 1e-9);
	ck_assert_double_eq_tol(sum, all / 1e3, 1e-9);
}

START_TEST(waits_are_added_up_by_group)
{
	struct mft_exposure *e = exposure();

	mft_exposure_begin(e);
	pair(e, MFT_GROUP_TENSOR, 3);
	now += 1000000000;
	pair(e, MFT_GROUP_GRADS, 5);
	pair(e, MFT_GROUP_TENSOR, 4);
	mft_exposure_keep(e);
	sums(e, MFT_GROUP_TENSOR, 7, 12);
	sums(e, MFT_GROUP_GRADS, 5, 12);
	ck_assert_uint_eq(stamps, 6);
	end(e);
}
END_TEST

/* The last step that was kept counts alone, and nothing outside of steps. */
START_TEST(only_the_kept_step_counts)
{
	struct mft_exposure *e = exposure();

	sums(e, MFT_GROUP_TENSOR, 0, 0);
	pair(e, MFT_GROUP_TENSOR, 1);
	for (int i = 0; i < 3; i++) {
		mft_exposure_begin(e);
		pair(e, MFT_GROUP_TENSOR, 10 + i);
		mft_exposure_keep(e);
		pair(e, MFT_GROUP_TENSOR, 2);
		sums(e, MFT_GROUP_TENSOR, 10 + i, 10 + i);
	}
	ck_assert_uint_eq(stamps, 6);
	for (int i = 0; i < 2; i++) {
		mft_exposure_begin(e);
		pair(e, MFT_GROUP_DATA, 20);
		sums(e, MFT_GROUP_TENSOR, 12, 12);
	}
	end(e);
}
END_TEST

START_TEST(a_wait_within_another_counts_for_the_outer)
{
	struct mft_exposure *e = exposure();

	mft_exposure_begin(e);
	mft_exposure_stops(e, passes, MFT_GROUP_TENSOR);
	pair(e, MFT_GROUP_DATA, 6);
	mft_exposure_stops(e, side, MFT_GROUP_DATA);
	now += 1000000;
	mft_exposure_goes_on(e, side);
	pair(e, MFT_GROUP_TENSOR, 2);
	mft_exposure_goes_on(e, passes);
	pair(e, MFT_GROUP_DATA, 4);
	mft_exposure_keep(e);
	sums(e, MFT_GROUP_TENSOR, 9, 13);
	sums(e, MFT_GROUP_DATA, 4, 13);
	ck_assert_uint_eq(stamps, 4);
	end(e);
}
END_TEST

/* A step that ends in a pair leaves nothing open. */
START_TEST(step_that_fails)
{
	struct mft_exposure *e = exposure();

	mft_exposure_begin(e);
	mft_exposure_stops(e, passes, MFT_GROUP_TENSOR);
	mft_exposure_begin(e);
	pair(e, MFT_GROUP_DATA, 3);
	mft_exposure_keep(e);
	sums(e, MFT_GROUP_DATA, 3, 3);
	end(e);
}
END_TEST

START_TEST(no_room)
{
	struct mft_exposure *e = exposure();
	struct mft_exposed exposed;

	for (int more = 3; more >= 0; more -= 3) {
		mft_exposure_begin(e);
		for (int i = 0; i < MFT_EXPOSURE_PAIRS + more; i++)
			pair(e, i < MFT_EXPOSURE_PAIRS ? MFT_GROUP_TENSOR : MFT_GROUP_DATA, 1);
		mft_exposure_keep(e);
		unit_ok(mft_exposure_sum(e, &exposed, &err), &err);
		ck_assert_uint_eq(exposed.left_out, more);
		sums(e, MFT_GROUP_TENSOR, MFT_EXPOSURE_PAIRS, MFT_EXPOSURE_PAIRS);
	}
	ck_assert_uint_eq(stamps, 4 * MFT_EXPOSURE_PAIRS);
	end(e);
}
END_TEST

/* ---- what is measured ---- */

/* A process of two, whose other groups than the named ones are of one. */
static struct mft_parallel two(struct mft_exposure *e)
{
	struct mft_parallel p;

	mft_parallel_one(&p);
	p.ops = &comm_ops;
	p.exposure = e;
	for (int g = 0; g < MFT_GROUP_COUNT; g++)
		p.group[g].comm = (struct mfk_comm *)&p; /* nobody looks into it */
	p.group[MFT_GROUP_TENSOR].size = p.group[MFT_GROUP_DATA].size =
		p.group[MFT_GROUP_CONTEXT].size = p.group[MFT_GROUP_PIPELINE].size =
			p.group[MFT_GROUP_EXPERT].size = 2;
	return p;
}

static void say_all(const struct mft_parallel *p, struct mfk_ctx *c)
{
	const struct mfk_message list[] = {{.peer = 1, .bytes = 7}, {.peer = 1, .bytes = 1}};
	float x[8];

	mft_parallel_all_reduce(p, MFT_GROUP_TENSOR, c, MFK_SUM, MFK_F32, x, 1);
	mft_parallel_all_gather(p, MFT_GROUP_DATA, c, MFK_F32, x, x, 2);
	mft_parallel_reduce_scatter(p, MFT_GROUP_CONTEXT, c, MFK_F32, x, x, 4);
	mft_parallel_exchange(p, MFT_GROUP_PIPELINE, c, list, 2);
	mft_parallel_wait(p, MFT_GROUP_EXPERT, &device_ops, c, event);
	/* groups of one */
	mft_parallel_all_reduce(p, MFT_GROUP_GRADS, c, MFK_SUM, MFK_F32, x, 1);
	mft_parallel_wait(p, MFT_GROUP_GRADS, &device_ops, c, event);
}

START_TEST(operations_of_the_passes_context_alone_are_measured)
{
	struct mft_exposure *e = exposure();
	const struct mft_parallel p = two(e);

	mft_exposure_begin(e);
	say_all(&p, side);
	ck_assert_uint_eq(stamps, 0);
	say_all(&p, passes);
	mft_exposure_keep(e);
	sums(e, MFT_GROUP_TENSOR, 1, 115);
	sums(e, MFT_GROUP_DATA, 2, 115);
	sums(e, MFT_GROUP_CONTEXT, 4, 115);
	sums(e, MFT_GROUP_PIPELINE, 8, 115);
	sums(e, MFT_GROUP_EXPERT, 100, 115);
	end(e);
}
END_TEST

/* Communication in parallel with the passes stops them, too. */
START_TEST(communication_in_parallel_is_measured_too)
{
	struct mft_exposure *e = exposure();
	const struct mft_parallel p = two(e);

	device_ops.at_once = true;
	mft_exposure_begin(e);
	say_all(&p, side);
	mft_exposure_keep(e);
	sums(e, MFT_GROUP_TENSOR, 1, 115);
	end(e);
}
END_TEST

START_TEST(nobody_measures)
{
	struct mft_parallel p;

	begin();
	p = two(NULL);
	mft_exposure_begin(NULL);
	say_all(&p, passes);
	mft_exposure_keep(NULL);
	ck_assert_uint_eq(stamps, 0);
	ck_assert_int_eq(now, (1 + 2 + 4 + 8 + 200) * INT64_C(1000000));
	end(NULL);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("exposure");
	TCase *c = unit_case(s, "sums", waits_are_added_up_by_group);

	tcase_add_test(c, only_the_kept_step_counts);
	tcase_add_test(c, a_wait_within_another_counts_for_the_outer);
	tcase_add_test(c, step_that_fails);
	tcase_add_test(c, no_room);
	c = unit_case(s, "operations", operations_of_the_passes_context_alone_are_measured);
	tcase_add_test(c, communication_in_parallel_is_measured_too);
	tcase_add_test(c, nobody_measures);
	return s;
}
