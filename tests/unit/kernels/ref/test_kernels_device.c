/* The CPU backend as a device: threads, contexts, events, failures. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ref/cpu.h"
#include "tests/kernels/check_kernels.h"

START_TEST(a_device_has_the_threads_it_was_opened_with)
{
	const struct mfk_device_ops *d = mfk_cpu.device;
	struct mfk_device_info info;
	struct mfk_device *device;
	char why[MFK_WHY];

	ck_assert_int_eq(d->open(1, 0, &device, why), -ENODEV);
	unit_sentence(why, "CPU 1");
	ck_assert_int_eq(d->open(0, 3, &device, why), 0);
	d->info(device, &info);
	ck_assert_uint_eq(info.units, 3);
	ck_assert_uint_eq(info.capability, 0);
	ck_assert_uint_gt(info.memory, info.free);
	ck_assert_str_ne(info.name, "");
	d->close(device);
}
END_TEST

/* An id that is no row of the table fails the context, which says so until its end; another context
 * goes on. */
START_TEST(failure_stays)
{
	const struct mfk_device_ops *d = mfk_cpu.device;
	int32_t ids[3] = {0, 7, 9};
	float table[7] = {0}, y[3];
	struct mfk_embedding a = {
		.tokens = 3, .cols = 1, .vocab = 7, .ids = ids, .wte = table, .y = y};
	struct mfk_ctx *c, *other;
	struct mfk_device *device;
	struct mfk_event *e;
	char why[MFK_WHY];

	ck_assert_int_eq(d->open(0, 2, &device, why), 0);
	ck_assert_int_eq(d->ctx_new(device, false, &c, why), 0);
	ck_assert_int_eq(d->ctx_new(device, true, &other, why), 0);
	ck_assert_int_eq(d->event_new(device, &e), 0);
	ck_assert_int_eq(d->event_sync(e, why), 0);
	mfk_cpu.ops->embedding(c, &a);
	d->event_record(c, e);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(d->sync(c, why), -EIO);
		unit_sentence(why, "id 7 of token 1");
	}
	ck_assert_int_eq(d->event_sync(e, why), -EIO);
	unit_sentence(why, "id 7 of token 1");
	ck_assert_int_eq(d->sync(other, why), 0);
	d->event_wait(other, e);
	ck_assert_int_eq(d->sync(other, why), -EIO);
	d->event_free(e);
	d->ctx_free(other);
	d->ctx_free(c);
	d->close(device);
}
END_TEST

/* ---- a second context copies while the first computes ---- */

#define COUNT (1 << 18)

struct copier {
	struct mfk_ctx *c;
	float *from, *to;
	bool wrong;
};

static void *copy_out(void *arg)
{
	struct copier *x = arg;
	char why[MFK_WHY];

	for (int i = 0; i < 20; i++) {
		memset(x->to, 0, COUNT * sizeof(float));
		mfk_cpu.device->copy_out(x->c, x->to, x->from, COUNT * sizeof(float));
		x->wrong |= mfk_cpu.device->sync(x->c, why) ||
			    memcmp(x->to, x->from, COUNT * sizeof(float)) != 0;
	}
	return NULL;
}

START_TEST(two_contexts)
{
	const struct mfk_device_ops *d = mfk_cpu.device;
	float *sum, other = 60;
	struct mfk_ctx *c[2], *main_ctx;
	struct mfk_device *device;
	struct copier copiers[2];
	pthread_t threads[2];
	char why[MFK_WHY];

	ck_assert_int_eq(d->open(0, 3, &device, why), 0);
	ck_assert_int_eq(d->ctx_new(device, false, &main_ctx, why), 0);
	sum = d->alloc(device, COUNT * sizeof(float));
	d->zero(main_ctx, sum, COUNT * sizeof(float));
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(d->ctx_new(device, i == 0, &c[i], why), 0);
		copiers[i] = (struct copier){c[i], d->alloc(device, COUNT * sizeof(float)),
					     malloc(COUNT * sizeof(float)), false};
		mfk_cpu.ops->fill(c[i], MFK_F32, copiers[i].from, COUNT, 1 + (float)i);
		ck_assert_int_eq(pthread_create(&threads[i], NULL, copy_out, &copiers[i]), 0);
	}
	for (int i = 0; i < 20; i++)
		for (int j = 0; j < 2; j++)
			mfk_cpu.ops->add(main_ctx, MFK_F32, sum, sum, copiers[j].from, COUNT);
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		ck_assert(!copiers[i].wrong);
	}
	for (int i = 0; i < COUNT; i++)
		other = sum[i] == 60 ? other : sum[i];
	ck_assert_float_eq(other, 60);
	for (int i = 0; i < 2; i++) {
		d->free(device, copiers[i].from);
		free(copiers[i].to);
		d->ctx_free(c[i]);
	}
	d->free(device, sum);
	d->ctx_free(main_ctx);
	d->close(device);
}
END_TEST

/* Operations of all ways of sharing work: single elements, rows, sums over blocks, tiles. Under
 * TSan these are the ones that run. */
START_TEST(shared_work)
{
	ck_assert_int_eq(check_kernels(&mfk_cpu, "sums"), 0);
	ck_assert_int_eq(check_kernels(&mfk_cpu, "bias_backward"), 0);
	ck_assert_int_eq(check_kernels(&mfk_cpu, "gemm_grouped"), 0);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("kernels_device");
	TCase *c = unit_case(s, "device", a_device_has_the_threads_it_was_opened_with);

	tcase_add_test(c, failure_stays);
	tcase_add_test(c, two_contexts);
	tcase_add_test(c, shared_work);
	return s;
}
