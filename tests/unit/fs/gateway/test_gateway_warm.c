/* What is opened before the first client comes: fs/gateway/repos/warm.h. */
#include "tests/unit/unit.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include "fs/data/data.h"
#include "fs/gateway/repos/repos_i.h"
#include "fs/gateway/repos/warm.h"
#include "fs/source/root.h"
#include "fs/view/view.h"
#include "fs/view/views.h"

#define LLAMA "weights/llama-torch-tp2-pp2"
#define TALES "data/tales_text_document"

static struct mfs_error err;
static const struct mfs_view_options options = {.vocab_size = 1000};

static const char *copy_below(const char *dir, const char *name)
{
	static char path[PATH_MAX];
	char command[3 * PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s/%s", unit_tmpdir(), dir, name);
	snprintf(command, sizeof(command), "mkdir -p '%s/%s' && cp -a '%s' '%s'", unit_tmpdir(),
		 dir, unit_fixture(LLAMA), path);
	ck_assert_int_eq(system(command), 0);
	return path;
}

/* How many views of the newest iteration, and of datasets, are open. -1: the root is not. */
static int count_open(struct mfs_repos *repos, const char *path)
{
	struct mfs_shared_root *shared = mfs_roots_hold_open(repos->roots, path, &options);
	const struct mfs_root_snapshot *s;
	const struct mfs_data *data;
	int count = 0;

	if (!shared)
		return -1;
	s = mfs_root_snapshot(shared->root);
	data = mfs_root_data(shared->root);
	if (s->latest)
		count += (int)mfs_open_set_count(&mfs_iteration_views(s->latest)->open);
	for (uint32_t i = 0; data && i < mfs_data_count(data); i++)
		count += (int)mfs_open_set_count(&mfs_dataset_views(mfs_data_at(data, i))->open);
	mfs_roots_drop(repos->roots, shared);
	return count;
}

/* Until the thread has given its share back. */
static void wait_done(struct mfs_repos *repos)
{
	static const struct timespec pause = {.tv_nsec = 10000000};

	for (int i = 0; i < 60000 && atomic_load(&repos->shares) > 1; i++)
		nanosleep(&pause, NULL);
	ck_assert_uint_eq(atomic_load(&repos->shares), 1);
}

static void *use(void *arg)
{
	struct mfs_repos *repos = arg;
	enum mfs_absent_kind what;
	struct mfs_revision r;
	struct mfs_error e;

	ck_assert_msg(!mfs_repos_hold(repos, MFS_REPO_MODEL, "lab/a", "main", &r, &what, &e), "%s",
		      e.msg);
	ck_assert_uint_gt(r.view->count, 0);
	mfs_revision_drop(&r);
	return NULL;
}

/* All that is named is opened, and nothing of a directory of runs, while a client comes. */
START_TEST(all_that_is_named_is_opened_while_clients_come)
{
	struct mfs_repos *repos = mfs_repos_new(0);
	char runs[PATH_MAX], run[PATH_MAX], a[PATH_MAX], *tales;
	struct mfs_warmer *w;
	pthread_t client;

	snprintf(run, sizeof(run), "%s", copy_below("runs", "r"));
	snprintf(a, sizeof(a), "%s", copy_below("models", "a"));
	snprintf(runs, sizeof(runs), "%s/runs", unit_tmpdir());
	unit_ok(mfs_root_named(unit_fixture(TALES), &tales, &err), &err);
	unit_ok(mfs_repos_add(repos, "runs/*", runs, &options, &err), &err);
	unit_ok(mfs_repos_add(repos, "lab/a", a, &options, &err), &err);
	unit_ok(mfs_repos_add(repos, "lab/tales", tales, &options, &err), &err);
	ck_assert_int_eq(count_open(repos, a), 0);
	ck_assert_int_eq(count_open(repos, tales), 0);
	unit_ok(mfs_warmer_start(&w, &err), &err);
	mfs_warmer_give(w, repos);
	ck_assert_int_eq(pthread_create(&client, NULL, use, repos), 0);
	pthread_join(client, NULL);
	wait_done(repos);
	ck_assert_int_ge(count_open(repos, a), 1);
	ck_assert_int_ge(count_open(repos, tales), 1);
	ck_assert_int_eq(count_open(repos, run), -1);
	ck_assert(mfs_warmer_end(w, 600));
	ck_assert_uint_eq(mfs_repos_state(repos).users, 0);
	mfs_repos_free(repos);
	free(tales);
}
END_TEST

/* As many as stay open: the first ones of the configuration. */
START_TEST(warm_bound)
{
	static const char *const names[] = {"lab/a", "lab/b", "lab/c"};
	struct mfs_repos *repos = mfs_repos_new(2);
	char paths[3][PATH_MAX];
	struct mfs_warmer *w;

	for (int i = 0; i < 3; i++) {
		snprintf(paths[i], sizeof(paths[i]), "%s", copy_below("models", names[i] + 4));
		unit_ok(mfs_repos_add(repos, names[i], paths[i], &options, &err), &err);
	}
	unit_ok(mfs_warmer_start(&w, &err), &err);
	mfs_warmer_give(w, repos);
	wait_done(repos);
	ck_assert(mfs_warmer_end(w, 600));
	ck_assert_int_ge(count_open(repos, paths[0]), 1);
	ck_assert_int_ge(count_open(repos, paths[1]), 1);
	ck_assert_int_eq(count_open(repos, paths[2]), -1);
	mfs_repos_free(repos);
}
END_TEST

/* Repositories that are replaced are opened no more, and freed. */
START_TEST(warm_replaced)
{
	struct mfs_repos *before = mfs_repos_new(0), *after = mfs_repos_new(0);
	char a[PATH_MAX], b[PATH_MAX];
	struct mfs_warmer *w;

	snprintf(a, sizeof(a), "%s", copy_below("models", "a"));
	snprintf(b, sizeof(b), "%s", copy_below("models", "b"));
	unit_ok(mfs_repos_add(before, "lab/a", a, &options, &err), &err);
	unit_ok(mfs_repos_add(after, "lab/b", b, &options, &err), &err);
	unit_ok(mfs_warmer_start(&w, &err), &err);
	mfs_warmer_give(w, before);
	mfs_warmer_give(w, after);
	mfs_repos_free(before);
	wait_done(after);
	ck_assert_int_ge(count_open(after, b), 1);
	ck_assert(mfs_warmer_end(w, 600));
	mfs_repos_free(after);
	ck_assert(mfs_warmer_end(NULL, 0));
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("gateway_warm");
	TCase *c = unit_case(s, "warm", all_that_is_named_is_opened_while_clients_come);

	tcase_add_test(c, warm_bound);
	tcase_add_test(c, warm_replaced);
	return s;
}
