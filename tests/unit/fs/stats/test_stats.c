/* Counters and their text: fs/stats. */
#include "tests/unit/unit.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/tally.h"
#include "fs/stats/prom.h"
#include "fs/stats/prom_sources.h"
#include "fs/stats/stats.h"

enum { OPS_READ, OPS_OPEN, SIZES, ERRORS, INFLIGHT, COUNT };

static const struct mfs_stats_row rows[COUNT] = {
	{"t_ops_seconds", "Time.", "op=\"read\"", MFS_STATS_SECONDS},
	{"t_ops_seconds", NULL, "op=\"open\"", MFS_STATS_SECONDS},
	{"t_read_bytes", "Sizes.", NULL, MFS_STATS_BYTES},
	{"t_errors_total", "Lost.", NULL, MFS_STATS_COUNTER},
	{"t_inflight", "Now.", NULL, MFS_STATS_GAUGE},
};

static const char *line(const struct mfs_buf *out, const char *text)
{
	const char *found = strstr(out->data, text);

	ck_assert_msg(found && (found == out->data || found[-1] == '\n'), "no line '%s' in\n%s",
		      text, out->data);
	return found;
}

START_TEST(counters_have_prometheus_text)
{
	struct mfs_stats *s = mfs_stats_new(rows, COUNT);
	struct mfs_buf out = {0};

	mfs_stats_add(s, OPS_READ, 10000); /* a bound belongs to its bucket */
	mfs_stats_add(s, OPS_READ, 10001);
	mfs_stats_add(s, OPS_OPEN, 200000000000);
	mfs_stats_add(s, SIZES, 1048576);
	mfs_stats_add(s, ERRORS, 3);
	mfs_stats_add(s, ERRORS, 4);
	mfs_stats_add(s, INFLIGHT, 1);
	mfs_stats_add(s, INFLIGHT, 1);
	mfs_stats_add(s, INFLIGHT, MFS_STATS_DOWN);
	ck_assert_uint_eq(mfs_stats_count(s, OPS_READ), 2);
	ck_assert_uint_eq(mfs_stats_sum(s, OPS_READ), 20001);
	ck_assert_uint_eq(mfs_stats_count(s, ERRORS), 7);
	mfs_stats_write(s, "mp=\"/m\"", &out);
	ck_assert(!out.failed);
	line(&out, "# HELP t_ops_seconds Time.\n# TYPE t_ops_seconds histogram\n"
		   "t_ops_seconds_bucket{mp=\"/m\",op=\"read\",le=\"1e-05\"} 1\n"
		   "t_ops_seconds_bucket{mp=\"/m\",op=\"read\",le=\"3e-05\"} 2\n");
	line(&out, "t_ops_seconds_bucket{mp=\"/m\",op=\"read\",le=\"+Inf\"} 2\n"
		   "t_ops_seconds_sum{mp=\"/m\",op=\"read\"} 2.0001e-05\n"
		   "t_ops_seconds_count{mp=\"/m\",op=\"read\"} 2\n"
		   "t_ops_seconds_bucket{mp=\"/m\",op=\"open\",le=\"1e-05\"} 0\n");
	line(&out, "t_ops_seconds_bucket{mp=\"/m\",op=\"open\",le=\"100\"} 0\n"
		   "t_ops_seconds_bucket{mp=\"/m\",op=\"open\",le=\"+Inf\"} 1\n");
	line(&out, "t_read_bytes_bucket{mp=\"/m\",le=\"524288\"} 0\n"
		   "t_read_bytes_bucket{mp=\"/m\",le=\"1048576\"} 1\n");
	line(&out, "# TYPE t_errors_total counter\nt_errors_total{mp=\"/m\"} 7\n");
	line(&out, "# TYPE t_inflight gauge\nt_inflight{mp=\"/m\"} 1\n");
	ck_assert_int_eq(out.data[out.len - 1], '\n');
	mfs_buf_release(&out);
	mfs_stats_add(s, INFLIGHT, MFS_STATS_DOWN);
	mfs_stats_add(s, INFLIGHT, MFS_STATS_DOWN); /* as if its other half were not seen yet */
	mfs_stats_write(s, NULL, &out);
	line(&out, "t_errors_total 7\n");
	line(&out, "t_inflight 0\n");
	mfs_buf_release(&out);
	mfs_stats_free(s);
	mfs_stats_add(NULL, ERRORS, 1);
}
END_TEST

START_TEST(labels_and_helps_are_escaped)
{
	struct mfs_buf labels = {0}, out = {0};

	mfs_prom_label(&labels, "vol_name", "a\"b\\c\nd");
	mfs_prom_label(&labels, "mp", "/m");
	ck_assert_str_eq(labels.data, "vol_name=\"a\\\"b\\\\c\\nd\",mp=\"/m\"");
	mfs_prom_gauge(&out, "t_x", "One \\ and\ntwo.", labels.data, -0.5);
	ck_assert_str_eq(out.data, "# HELP t_x One \\\\ and\\ntwo.\n# TYPE t_x gauge\n"
				   "t_x{vol_name=\"a\\\"b\\\\c\\nd\",mp=\"/m\"} -0.5\n");
	mfs_buf_release(&labels);
	mfs_buf_release(&out);
}
END_TEST

#define THREADS 8
#define EVENTS	20000

static void *count_events(void *arg)
{
	for (unsigned i = 0; i < EVENTS; i++) {
		mfs_stats_add(arg, ERRORS, 1);
		mfs_stats_add(arg, SIZES, 4096 + i % 2);
		mfs_stats_add(arg, INFLIGHT, i % 2 ? MFS_STATS_DOWN : 1);
		mfs_tally_add(MFS_TALLY_CAST, 3);
	}
	return NULL;
}

/* No event is lost, and what a reader sees meanwhile never goes back. */
START_TEST(no_event_is_lost)
{
	struct mfs_stats *s = mfs_stats_new(rows, COUNT);
	pthread_t threads[THREADS];
	uint64_t before = 0, now;
	struct mfs_buf out = {0};

	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, count_events, s), 0);
	for (int i = 0; i < 1000; i++) {
		now = mfs_stats_count(s, ERRORS);
		ck_assert_uint_ge(now, before);
		before = now;
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(mfs_stats_count(s, ERRORS), THREADS * EVENTS);
	ck_assert_uint_eq(mfs_stats_count(s, INFLIGHT), 0);
	ck_assert_uint_eq(mfs_tally_sum(MFS_TALLY_CAST), 3 * THREADS * EVENTS);
	ck_assert_uint_eq(mfs_tally_sum(MFS_TALLY_MERGE), 0);
	mfs_prom_sources(&out, "mp=\"/m\"");
	line(&out, "mcorefs_convert_bytes_total{mp=\"/m\",kernel=\"cast\"} 480000\n");
	line(&out, "mcorefs_source_changed_total{mp=\"/m\"} 0\n");
	mfs_buf_release(&out);
	ck_assert_uint_eq(mfs_stats_count(s, SIZES), THREADS * EVENTS);
	ck_assert_uint_eq(mfs_stats_sum(s, SIZES), THREADS * (EVENTS * 4096ull + EVENTS / 2));
	mfs_stats_free(s);
}
END_TEST

START_TEST(a_process_tells_its_memory_and_time)
{
	struct mfs_buf out = {0};
	unsigned long long memory = 0;
	const char *found;

	mfs_prom_process(&out, "t", NULL, 0);
	found = line(&out, "# TYPE t_memory gauge\nt_memory ");
	ck_assert_int_eq(sscanf(found, "# TYPE t_memory gauge t_memory %llu", &memory), 1);
	ck_assert_uint_gt(memory, 1 << 19);
	line(&out, "# TYPE t_uptime gauge\nt_uptime ");
	line(&out, "# TYPE t_cpu_usage gauge\nt_cpu_usage ");
	mfs_buf_release(&out);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("stats");
	TCase *c = unit_case(s, "text", counters_have_prometheus_text);

	tcase_add_test(c, labels_and_helps_are_escaped);
	tcase_add_test(c, no_event_is_lost);
	tcase_add_test(c, a_process_tells_its_memory_and_time);
	return s;
}
