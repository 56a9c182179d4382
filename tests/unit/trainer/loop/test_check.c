/* Checks of losses and gradients before an update: trainer/loop/step_check.h. */
#include "tests/unit/unit.h"

#include <math.h>

#include "trainer/loop/step_check.h"

static struct mft_check begin(bool finite, bool spiky, bool large)
{
	const struct mft_train_config config = {
		.check_for_nan_in_loss_and_grad = finite,
		.check_for_spiky_loss = spiky,
		.check_for_large_grads = large,
	};
	struct mft_check c;

	mft_check_init(&c, &config, 0);
	mft_check_begin(&c);
	return c;
}

START_TEST(what_is_not_finite_is_rejected)
{
	struct mft_check c = begin(true, false, false);

	mft_check_loss(&c, 7, 1, 1e30);
	mft_check_grads(&c, 7, 0);
	ck_assert_int_eq(c.verdict, MFT_TAKEN);
	mft_check_loss(&c, 7, 2, -(double)NAN);
	mft_check_loss(&c, 7, 3, (double)INFINITY);
	ck_assert_int_eq(c.verdict, MFT_REJECTED);
	ck_assert_str_eq(c.why, "Unexpected result nan on rank 0 at iteration #7 invocation #2 "
				"(message='found NaN in local forward loss calculation')");
	mft_check_begin(&c);
	ck_assert_int_eq(c.verdict, MFT_TAKEN);
	mft_check_loss(&c, 8, 1, (double)INFINITY);
	unit_sentence(c.why, "Unexpected result inf on rank 0 at iteration #8 invocation #1 "
			     "(message='found Inf in local forward loss calculation')");
	mft_check_begin(&c);
	mft_check_grads(&c, 9, (double)INFINITY);
	ck_assert_int_eq(c.verdict, MFT_REJECTED);
	unit_sentence(c.why, "message='found Inf in local grad norm for bucket #0 in backward");
}
END_TEST

START_TEST(what_is_not_checked_is_taken)
{
	struct mft_check c = begin(false, false, false);

	for (int i = 0; i < 2 * MFT_CHECK_SAMPLES; i++) {
		mft_check_loss(&c, 1, 1, i < MFT_CHECK_SAMPLES ? 1 : (double)NAN);
		mft_check_grads(&c, 1, i < MFT_CHECK_SAMPLES ? 1 : 1000);
	}
	ck_assert_int_eq(c.verdict, MFT_TAKEN);
}
END_TEST

/* As is_unexpectedly_large(): the largest of the first hundred stays, whatever comes later. */
START_TEST(ten_times_the_largest_is_suspect)
{
	struct mft_check c = begin(true, true, true);

	for (int i = 0; i < MFT_CHECK_SAMPLES; i++)
		mft_check_loss(&c, 1, 1, i == 50 ? -2 : i == 0 ? 0.001 : 1);
	mft_check_loss(&c, 2, 1, 19.9);
	ck_assert_int_eq(c.verdict, MFT_TAKEN);
	mft_check_loss(&c, 2, 2, 20);
	ck_assert_int_eq(c.verdict, MFT_SUSPECT);
	ck_assert_str_eq(c.why, "Unexpected result 20 on rank 0 at iteration #2 invocation #2 "
				"(message='Spiky loss')");
	/* What is worse is reported instead; what is as bad is not. */
	mft_check_loss(&c, 2, 3, 30);
	unit_sentence(c.why, "invocation #2");
	mft_check_loss(&c, 2, 4, (double)NAN);
	ck_assert_int_eq(c.verdict, MFT_REJECTED);
	unit_sentence(c.why, "invocation #4");

	/* Gradients have a largest of their own. What is not finite is no sample. */
	mft_check_begin(&c);
	for (int i = 0; i < MFT_CHECK_SAMPLES - 1; i++)
		mft_check_grads(&c, 3, 1);
	c.finite = false;
	mft_check_grads(&c, 3, (double)INFINITY);
	mft_check_grads(&c, 3, 500);
	ck_assert_int_eq(c.verdict, MFT_TAKEN);
	mft_check_grads(&c, 4, 4999);
	ck_assert_int_eq(c.verdict, MFT_TAKEN);
	mft_check_grads(&c, 4, 5000);
	ck_assert_int_eq(c.verdict, MFT_SUSPECT);
	unit_sentence(c.why, "found unexpected large grads in bucket #0");
}
END_TEST

/* A process speaks of its own losses, and the first one of what all find. */
START_TEST(the_first_of_all_processes_that_finds_it_says_it)
{
	const struct mft_train_config config = {.check_for_nan_in_loss_and_grad = true};
	struct mft_check c;

	mft_check_init(&c, &config, 3);
	mft_check_begin(&c);
	mft_check_loss(&c, 7, 2, (double)NAN);
	mft_check_reject(&c, 3);
	ck_assert_int_eq(c.verdict, MFT_REJECTED);
	ck_assert_ptr_nonnull(strstr(c.why, "nan on rank 3 at iteration #7 invocation #2"));
	/* One before it found the same. */
	mft_check_reject(&c, 1);
	ck_assert_int_eq(c.verdict, MFT_REJECTED);
	ck_assert_str_eq(c.why, "");
	mft_check_begin(&c);
	mft_check_loss(&c, 8, 1, 1);
	mft_check_reject(&c, 0);
	ck_assert_int_eq(c.verdict, MFT_REJECTED);
	ck_assert_str_eq(c.why, "");
	mft_check_begin(&c);
	mft_check_grads(&c, 9, (double)NAN);
	ck_assert_int_eq(c.verdict, MFT_REJECTED);
	ck_assert_str_eq(c.why, "");
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("check");
	TCase *c = unit_case(s, "check", what_is_not_finite_is_rejected);

	tcase_add_test(c, what_is_not_checked_is_taken);
	tcase_add_test(c, ten_times_the_largest_is_suspect);
	tcase_add_test(c, the_first_of_all_processes_that_finds_it_says_it);
	return s;
}
