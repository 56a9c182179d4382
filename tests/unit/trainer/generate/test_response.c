/* What is asked of samplers is checked, and what they answer is released. */
#include "trainer/generate/response.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "tests/unit/unit.h"

static const uint32_t STOPS[] = {7, 9};
static const struct mft_sampling GOOD = {
	.temperature = 1, .top_p = 1, .max_tokens = 1, .stops = STOPS, .stop_count = 2};

START_TEST(refuses_bad_values)
{
	struct mft_sampling how = GOOD;
	struct mfs_error err;

	unit_ok(mft_sampling_check(&how, &err), &err);
	how.temperature = NAN;
	unit_fails(mft_sampling_check(&how, &err), &err, -EINVAL, "temperature");
	how = GOOD;
	how.top_p = 0;
	unit_fails(mft_sampling_check(&how, &err), &err, -EINVAL, "top-p");
	how.top_p = 1.01;
	unit_fails(mft_sampling_check(&how, &err), &err, -EINVAL, "top-p");
	how = GOOD;
	how.top_k = -1;
	unit_fails(mft_sampling_check(&how, &err), &err, -EINVAL, "top-k");
	how = GOOD;
	how.max_tokens = 0;
	unit_fails(mft_sampling_check(&how, &err), &err, -EINVAL, "tokens");
}
END_TEST

START_TEST(stops_at_each_of_its_tokens)
{
	struct mft_sampling how = GOOD;

	ck_assert(mft_sampling_stops(&how, 7) && mft_sampling_stops(&how, 9));
	ck_assert(!mft_sampling_stops(&how, 8));
	how.ignore_stops = true;
	ck_assert(!mft_sampling_stops(&how, 7));
}
END_TEST

START_TEST(releases_a_response_once)
{
	struct mft_response r = {.tokens = malloc(4),
				 .log_probs = malloc(4),
				 .count = 1,
				 .finish = MFT_FINISH_LENGTH,
				 .first_version = 1,
				 .last_version = 2};

	ck_assert_str_eq(mft_finish_name(r.finish), "length");
	mft_response_release(&r);
	mft_response_release(&r);
	ck_assert(!r.tokens && !r.log_probs && !r.count && !r.first_version && !r.last_version);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("response");

	unit_case(s, "refuses bad values", refuses_bad_values);
	unit_case(s, "stops at each of its tokens", stops_at_each_of_its_tokens);
	unit_case(s, "releases a response once", releases_a_response_once);
	return s;
}
