/* Where rank 0 is: trainer/parallel/master_address.h. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdlib.h>

#include "formats/base/array.h"
#include "trainer/parallel/master_address.h"

static struct mfs_error err;

static void forget(void)
{
	static const char *const names[] = {
		"MASTER_ADDR",	       "MASTER_PORT",	     "MCOREFS_PORT",
		"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "PMIX_NAMESPACE",
		"SLURM_JOB_ID",	       "SLURM_STEP_ID",	     "TORCHELASTIC_RUN_ID",
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(names); i++)
		unsetenv(names[i]);
}

static void set(const char *name, const char *value)
{
	ck_assert_int_eq(setenv(name, value, 1), 0);
}

static void expect_first(const char *list, const char *want)
{
	char host[32];

	unit_ok(mft_first_host(list, host, sizeof(host), &err), &err);
	ck_assert_str_eq(host, want);
}

START_TEST(first_host)
{
	static const char *const wrong[] = {
		"",	   ",a",
		"a[",	   "a[]",
		"a[x]",	   "a[1",
		"a[-2]",   "a[1;2]",
		"a[01-03", "a-name-that-is-longer-than-there-is-room-for,b"};
	char host[32];

	expect_first("a[01-03,7],b", "a01");
	expect_first("a", "a");
	expect_first("gpu-7,gpu-9", "gpu-7");
	expect_first("n[7]", "n7");
	expect_first("n[7,9-12]", "n7");
	expect_first("rack[1-2]n[003-010]", "rack1n003");
	expect_first("n[1-2]-ib,x", "n1-ib");
	expect_first("10.0.0.1,10.0.0.2", "10.0.0.1");
	expect_first("node-of-exactly-thirty-1-chars.", "node-of-exactly-thirty-1-chars.");
	for (size_t i = 0; i < MFS_ARRAY_SIZE(wrong); i++)
		unit_fails(mft_first_host(wrong[i], host, sizeof(host), &err), &err, -EINVAL,
			   "expected a list of hosts");
}
END_TEST

static void expect(const struct mft_launch *l, const char *host, unsigned port)
{
	struct mft_address at;

	unit_ok(mft_address_find(l, &at, &err), &err);
	ck_assert_str_eq(at.host, host);
	if (port)
		ck_assert_uint_eq(at.port, port);
	else
		ck_assert(at.port >= 20000 && at.port < 30000);
}

START_TEST(the_first_host_is_known_by_each_launcher)
{
	const struct mft_launch torchrun = {
		.rank = 3, .size = 8, .local_rank = 3, .local_size = 4, .by = "torchrun"};
	const struct mft_launch one_host = {
		.rank = 3, .size = 8, .local_rank = 3, .local_size = 8, .by = "mpirun"};
	const struct mft_launch hosts = {
		.rank = 3, .size = 8, .local_rank = 3, .local_size = 4, .by = "mpirun"};
	const struct mft_launch step = {.rank = 3,
					.size = 8,
					.local_rank = 1,
					.local_size = 8,
					.by = "srun"}; /* Slurm does not say how many */
	struct mft_address at;

	forget();
	expect(&one_host, "127.0.0.1", 0);
	unit_fails(mft_address_find(&hosts, &at, &err), &err, -EINVAL, "-x MASTER_ADDR=HOST");
	unit_fails(mft_address_find(&step, &at, &err), &err, -EINVAL, "set MASTER_ADDR");
	set("SLURM_JOB_NODELIST", "gpu[17-20]");
	expect(&step, "gpu17", 0);
	set("SLURM_STEP_NODELIST", "gpu[18-19]");
	expect(&step, "gpu18", 0);
	set("SLURM_STEP_NODELIST", "gpu[");
	unit_fails(mft_address_find(&step, &at, &err), &err, -EINVAL, "list of nodes: expected");
	set("MASTER_ADDR", "head");
	set("MASTER_PORT", "29500");
	expect(&torchrun, "head", 29501);
	expect(&hosts, "head", 29501);
	expect(&step, "head", 29501);
	set("MCOREFS_PORT", "4000");
	expect(&torchrun, "head", 4000);
}
END_TEST

START_TEST(a_port_is_a_number_or_follows_the_job)
{
	static const char *const wrong[] = {"0", "-1",	   "65536",
					    "x", "29500 ", "99999999999999999999"};
	const struct mft_launch l = {
		.rank = 0, .size = 2, .local_rank = 0, .local_size = 2, .by = "mpirun"};
	struct mft_address at, other;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(wrong); i++) {
		forget();
		set("MCOREFS_PORT", wrong[i]);
		unit_fails(mft_address_find(&l, &at, &err), &err, -EINVAL,
			   "MCOREFS_PORT: expected");
	}
	forget();
	set("MASTER_PORT", "65535");
	unit_fails(mft_address_find(&l, &at, &err), &err, -EINVAL, "a port below 65535");
	set("MASTER_PORT", "65534");
	expect(&l, "127.0.0.1", 65535);
	/* two jobs of one host */
	forget();
	set("PMIX_NAMESPACE", "1910964225");
	unit_ok(mft_address_find(&l, &at, &err), &err);
	set("PMIX_NAMESPACE", "1910964226");
	unit_ok(mft_address_find(&l, &other, &err), &err);
	ck_assert_uint_ne(at.job, other.job);
	ck_assert_uint_ne(at.port, other.port);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("address");
	TCase *c = unit_case(s, "address", first_host);

	tcase_add_test(c, the_first_host_is_known_by_each_launcher);
	tcase_add_test(c, a_port_is_a_number_or_follows_the_job);
	return s;
}
