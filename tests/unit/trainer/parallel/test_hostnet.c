/* Processes that talk through TCP, as threads of one: trainer/parallel/hostnet.h. */
#include "tests/unit/unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "trainer/parallel/hostnet.h"
#include "trainer/parallel/hostnet_i.h"

#define SIZE 8

/* A process. */
struct one {
	pthread_t thread;
	struct mft_address at;
	struct mft_launch launch;
	unsigned seconds, late_ms;
	void (*then)(struct one *o, struct mfk_host_net_ops *n);
	int rc;
	struct mfs_error err;
	int64_t values[SIZE * 3000];
};

static void wait_ms(unsigned ms)
{
	const struct timespec t = {ms / 1000, ms % 1000 * 1000000L};

	nanosleep(&t, NULL);
}

/* A port that nobody has. */
static struct mft_address here(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct mft_address at = {.host = "127.0.0.1", .job = 7};
	socklen_t len = sizeof(any);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&any, sizeof(any)), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&any, &len), 0);
	close(fd);
	at.port = ntohs(any.sin_port);
	return at;
}

static void *run(void *arg)
{
	struct one *o = arg;
	struct mft_hostnet *n = NULL;
	struct mfs_error ignored;

	wait_ms(o->late_ms);
	o->rc = mft_hostnet_open(&o->at, &o->launch, o->seconds, &n, &o->err);
	if (!o->rc && o->then)
		o->then(o, mft_hostnet_table(n));
	if (o->rc)
		mft_hostnet_close(n, &ignored); /* the first reason stays */
	else
		o->rc = mft_hostnet_close(n, &o->err);
	return NULL;
}

static struct one *prepare(unsigned size, void (*then)(struct one *o, struct mfk_host_net_ops *n))
{
	struct one *all = calloc(size, sizeof(*all));
	const struct mft_address at = here();

	for (unsigned i = 0; i < size; i++)
		all[i] = (struct one){
			.at = at, .launch = {.rank = i, .size = size}, .seconds = 20, .then = then};
	return all;
}

static void start(struct one *o)
{
	ck_assert_int_eq(pthread_create(&o->thread, NULL, run, o), 0);
}

static void end(struct one *o)
{
	pthread_join(o->thread, NULL);
}

/* A connection of somebody who is no process. */
static int stranger(const struct mft_address *at)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(at->port),
				 .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	while (connect(fd, (struct sockaddr *)&to, sizeof(to))) {
		close(fd);
		wait_ms(5);
		fd = socket(AF_INET, SOCK_STREAM, 0);
	}
	return fd;
}

/* A connection that takes the last descriptor there is. */
static int stranger_after(const struct mft_address *at, struct rlimit *limit)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(at->port),
				 .sin_addr = {htonl(INADDR_LOOPBACK)}};
	const int fd = socket(AF_INET, SOCK_STREAM, 0);

	limit->rlim_cur = (rlim_t)fd + 1;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, limit), 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

/* What rank 0 answers to a hello: "": it closes the connection. */
static const char *answer_to(const struct mft_address *at, const struct mft_hostnet_hello *h)
{
	static char text[512];
	struct mft_hostnet_frame f = {0};
	int fd = stranger(at);

	memset(text, 0, sizeof(text));
	ck_assert_int_eq(send(fd, h, sizeof(*h), MSG_NOSIGNAL), sizeof(*h));
	if (recv(fd, &f, sizeof(f), MSG_WAITALL) == sizeof(f)) {
		ck_assert_uint_eq(f.what, MFT_HOSTNET_FAILED);
		ck_assert_int_eq(recv(fd, text, sizeof(text), MSG_WAITALL), (ssize_t)f.bytes);
	}
	close(fd);
	return text;
}

/* ---- values ---- */

/* Sums and gathers of the world, of odd and even ranks, of few bytes and of many. */
static void talk(struct one *o, struct mfk_host_net_ops *n)
{
	const unsigned rank = o->launch.rank;
	const struct mfk_host_group world = {1, rank, SIZE};
	const struct mfk_host_group half = {2 + rank % 2, SIZE / 2 - 1 - rank / 2, SIZE / 2};
	char why[MFK_WHY] = "";
	int64_t own[3000];

	for (int i = 0; i < 50; i++) {
		double sums[2] = {rank, 0.1 * rank};

		ck_assert_int_eq(n->sum(n, &half, sums, 2, why), 0);
		ck_assert_double_eq(sums[0], rank % 2 ? 16 : 12);
		ck_assert_int_eq(n->sum(n, &world, sums, 1, why), 0);
		ck_assert_double_eq(sums[0], 4 * 16 + 4 * 12);
		for (int k = 0; k < 3000; k++)
			own[k] = rank * 10000 + k + i;
		ck_assert_int_eq(n->gather(n, &world, o->values, own, sizeof(own), why), 0);
		for (int k = 0; k < SIZE * 3000; k++)
			ck_assert_int_eq(o->values[k], k / 3000 * 10000 + k % 3000 + i);
		ck_assert_int_eq(n->gather(n, &half, o->values, own, 8, why), 0);
		/* ranks of a half are in the reverse order */
		for (unsigned k = 0; k < SIZE / 2; k++)
			ck_assert_int_eq(o->values[k], (SIZE - 2 - 2 * k + rank % 2) * 10000 + i);
		ck_assert_int_eq(n->gather(n, &world, o->values, own, 0, why), 0);
	}
	ck_assert_int_eq(n->look(n, why), 0);
}

/* Rank 0 comes late, and others, and those who are no processes are turned away. */
START_TEST(values_come_to_all_in_order)
{
	struct one *all = prepare(SIZE, talk);
	struct mft_hostnet_hello h = {
		.magic = MFT_HOSTNET_MAGIC, .job = 7, .rank = 3, .size = SIZE};
	int silent, half;

	all[0].late_ms = 100;
	all[5].late_ms = 600;
	for (int i = 0; i < SIZE; i++)
		if (i != 5)
			start(&all[i]);
	silent = stranger(&all[0].at);
	half = stranger(&all[0].at);
	ck_assert_int_eq(send(half, &h, 10, MSG_NOSIGNAL), 10);
	h.magic++;
	ck_assert_str_eq(answer_to(&all[0].at, &h), "");
	h.magic--;
	h.size++;
	unit_sentence(answer_to(&all[0].at, &h), "expected one of 8 processes, found rank 3 of 9");
	h.size--;
	h.rank = SIZE;
	unit_sentence(answer_to(&all[0].at, &h), "found rank 8 of 8");
	h.rank = 3;
	h.job++;
	unit_sentence(answer_to(&all[0].at, &h), "another run's");
	start(&all[5]);
	for (int i = 0; i < SIZE; i++) {
		end(&all[i]);
		unit_ok(all[i].rc, &all[i].err);
	}
	close(silent);
	close(half);
	free(all);
}
END_TEST

/* ---- who does not come ---- */

START_TEST(processes_that_do_not_come_are_named)
{
	struct one *all = prepare(SIZE, NULL);

	for (int i = 0; i < SIZE; i++) {
		all[i].seconds = 3;
		if (i != 2 && i != 6)
			start(&all[i]);
	}
	for (int i = 0; i < SIZE; i++) {
		if (i == 2 || i == 6)
			continue;
		end(&all[i]);
		ck_assert_int_eq(all[i].rc, -EPROTO);
		unit_sentence(all[i].err.msg, "2 of 8 processes have not come in time: rank 2, 6");
	}
	free(all);
}
END_TEST

START_TEST(no_rank_0)
{
	struct one *all = prepare(2, NULL);

	all[1].seconds = 1;
	start(&all[1]);
	end(&all[1]);
	ck_assert_int_eq(all[1].rc, -ETIMEDOUT);
	unit_sentence(all[1].err.msg, "rank 1 does not reach rank 0 at 127.0.0.1");
	unit_sentence(all[1].err.msg, "within 1 s: Connection refused");
	free(all);
}
END_TEST

/* Somebody else listens there. */
START_TEST(port_in_use)
{
	struct sockaddr_in any = {.sin_family = AF_INET};
	struct one *all = prepare(2, NULL);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	any.sin_port = htons(all[0].at.port);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&any, sizeof(any)), 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	start(&all[0]);
	end(&all[0]);
	ck_assert_int_eq(all[0].rc, -EADDRINUSE);
	unit_sentence(all[0].err.msg, "MCOREFS_PORT");
	close(fd);
	free(all);
}
END_TEST

/* The test itself is rank 1, so that it is there before the second one comes. */
START_TEST(same_rank)
{
	struct one *all = prepare(3, NULL);
	const struct mft_hostnet_hello h = {
		.magic = MFT_HOSTNET_MAGIC, .job = 7, .rank = 1, .size = 3, .host = "first"};
	const struct mft_hostnet_frame bye = {.what = MFT_HOSTNET_BYE};
	struct mft_hostnet_frame f = {0};
	int first;

	start(&all[0]);
	first = stranger(&all[0].at);
	ck_assert_int_eq(send(first, &h, sizeof(h), MSG_NOSIGNAL), sizeof(h));
	unit_sentence(answer_to(&all[0].at, &h), "rank 1 is there already, on first");
	start(&all[2]);
	ck_assert_int_eq(recv(first, &f, sizeof(f), MSG_WAITALL), sizeof(f));
	ck_assert_uint_eq(f.what, MFT_HOSTNET_WELCOME);
	ck_assert_int_eq(send(first, &bye, sizeof(bye), MSG_NOSIGNAL), sizeof(bye));
	close(first);
	for (int i = 0; i < 3; i += 2) {
		end(&all[i]);
		unit_ok(all[i].rc, &all[i].err);
	}
	free(all);
}
END_TEST

/* ---- who ends ---- */

/* Rank 2 has everything it wants, but does not say that it goes. */
static void stay(struct one *o, struct mfk_host_net_ops *n)
{
	(void)n;
	if (o->launch.rank == 2)
		wait_ms(2500);
}

START_TEST(does_not_go)
{
	struct one *all = prepare(4, stay);

	for (int i = 0; i < 4; i++) {
		all[i].seconds = 1;
		start(&all[i]);
	}
	for (int i = 0; i < 4; i++)
		end(&all[i]);
	for (int i = 1; i < 4; i++)
		unit_ok(all[i].rc, &all[i].err);
	ck_assert_int_eq(all[0].rc, -ETIMEDOUT);
	unit_sentence(all[0].err.msg, "1 of 4 processes have not ended in time: rank 2");
	free(all);
}
END_TEST

static int64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* While there is no descriptor for rank 1, rank 0 waits without computing. */
START_TEST(no_descriptor)
{
	struct one *all = prepare(2, NULL);
	const struct mft_hostnet_hello h = {
		.magic = MFT_HOSTNET_MAGIC, .job = 7, .rank = 1, .size = 2};
	const struct mft_hostnet_frame bye = {.what = MFT_HOSTNET_BYE};
	struct mft_hostnet_frame f = {0};
	struct rlimit limit, last;
	int64_t before;
	int first;

	start(&all[0]);
	close(stranger(&all[0].at)); /* rank 0 listens */
	wait_ms(300);		     /* and has closed it, too */
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	last = limit;
	first = stranger_after(&all[0].at, &last);
	before = cpu_ns();
	wait_ms(500);
	ck_assert_int_lt(cpu_ns() - before, 50000000);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_int_eq(send(first, &h, sizeof(h), MSG_NOSIGNAL), sizeof(h));
	ck_assert_int_eq(recv(first, &f, sizeof(f), MSG_WAITALL), sizeof(f));
	ck_assert_uint_eq(f.what, MFT_HOSTNET_WELCOME);
	ck_assert_int_eq(send(first, &bye, sizeof(bye), MSG_NOSIGNAL), sizeof(bye));
	close(first);
	end(&all[0]);
	unit_ok(all[0].rc, &all[0].err);
	free(all);
}
END_TEST

/* A process of its own, since it ends without a word. */
static pid_t start_process(struct one *o)
{
	const pid_t pid = fork();

	if (pid)
		return pid;
	run(o);
	_exit(o->rc ? 1 : 0);
}

static void vanish(struct one *o, struct mfk_host_net_ops *n)
{
	(void)o;
	(void)n;
	wait_ms(200);
	_exit(9);
}

static void end_all(struct one *o, struct mfk_host_net_ops *n)
{
	(void)o;
	wait_ms(200);
	n->end_all(n, 5);
}

/* Hears of it by looking, or by asking for a sum. */
static void survive(struct one *o, struct mfk_host_net_ops *n)
{
	const struct mfk_host_group world = {1, o->launch.rank, o->launch.size};
	double sum = 1;

	if (o->launch.rank % 2) {
		for (int i = 0; i < 2000 && !(o->rc = n->look(n, o->err.msg)); i++)
			wait_ms(5);
		ck_assert_int_eq(o->rc, -EIO);
	}
	o->rc = n->sum(n, &world, &sum, 1, o->err.msg);
}

/* The rank that goes does so in the way `goes`; the others hear why. */
static void expect_end(unsigned going, void (*goes)(struct one *o, struct mfk_host_net_ops *n),
		       int want_status, const char *why)
{
	struct one *all = prepare(4, survive);
	int status;
	pid_t pid;

	all[going].then = goes;
	pid = start_process(&all[going]);
	for (unsigned i = 0; i < 4; i++)
		if (i != going)
			start(&all[i]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(WEXITSTATUS(status), want_status);
	for (unsigned i = 0; i < 4; i++) {
		if (i == going)
			continue;
		end(&all[i]);
		ck_assert_int_lt(all[i].rc, 0);
		unit_sentence(all[i].err.msg, why);
	}
	free(all);
}

START_TEST(the_end_of_one_ends_all)
{
	expect_end(3, vanish, 9, "rank 3 on ");
	expect_end(2, end_all, 5, "has failed, and ends the run with status 5");
	expect_end(0, vanish, 9, "rank 0 on ");
	expect_end(0, end_all, 5, "rank 0 on ");
}
END_TEST

/* Members of a group that do not agree on what they do. */
static void disagree(struct one *o, struct mfk_host_net_ops *n)
{
	const struct mfk_host_group world = {1, o->launch.rank, o->launch.size};
	double sums[2] = {1, 1};

	o->rc = n->sum(n, &world, sums, 1 + (o->launch.rank == 1), o->err.msg);
}

START_TEST(processes_that_disagree_are_found)
{
	struct one *all = prepare(2, disagree);

	for (int i = 0; i < 2; i++)
		start(&all[i]);
	for (int i = 0; i < 2; i++) {
		end(&all[i]);
		ck_assert_int_lt(all[i].rc, 0);
		unit_sentence(all[i].err.msg, "does not say what the others of its group say");
	}
	free(all);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("hostnet");
	TCase *c = unit_case(s, "hostnet", values_come_to_all_in_order);

	tcase_add_test(c, processes_that_do_not_come_are_named);
	tcase_add_test(c, no_rank_0);
	tcase_add_test(c, port_in_use);
	tcase_add_test(c, same_rank);
	tcase_add_test(c, does_not_go);
	tcase_add_test(c, no_descriptor);
	tcase_add_test(c, the_end_of_one_ends_all);
	tcase_add_test(c, processes_that_disagree_are_found);
	return s;
}
