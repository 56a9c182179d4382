/*
 * New weights for engines: a save of the weights alone to memory (--rl-sync-dir), by all processes
 * at once and without a gather; a mount that shows it as an HF directory (--rl-mount); and the word
 * to the engines to read that. Its pages are fetched before the engines pause.
 *
 * Two versions stay: engines may still read the last one when the next one is written.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "formats/io/regular.h"
#include "trainer/loop/rl_i.h"

#define VERSIONS 2 /* that stay */
#define PIECE	 (8u << 20)
#define WAIT	 600 /* seconds that a mount may take to show a save */

static const struct timespec pause_of_looks = {.tv_nsec = 50000000};

/* Whether the mount shows an iteration. Where nothing is mounted yet it shows none. */
static bool shows_any(const char *mount)
{
	DIR *dir = opendir(mount);
	struct dirent *d;
	bool ret = false;

	while (dir && !ret && (d = readdir(dir)))
		ret = !strncmp(d->d_name, "iter_", strlen("iter_"));
	if (dir)
		closedir(dir);
	return ret;
}

/* Weights of an earlier run have the names that those of this one get: engines that read them would
 * not know. A mount looks for changes from time to time. */
static int await_empty(const char *mount, struct mfs_error *err)
{
	const int64_t from = mfs_now_ns();

	while (shows_any(mount)) {
		if (mft_rl_stops())
			return mfs_fail(err, -EINTR,
					"--rl-mount: a signal has ended the wait for "
					"'%s' to show nothing",
					mount);
		if (mfs_now_ns() - from > WAIT * INT64_C(1000000000))
			return mfs_fail(
				err, -EEXIST,
				"--rl-mount: '%s' shows iterations of an earlier run, which "
				"--rl-sync-dir has no more",
				mount);
		nanosleep(&pause_of_looks, NULL);
	}
	return 0;
}

/* The first process makes the directory this run's. */
static int take_over(struct mft_trainer *t, struct mfs_error *err)
{
	double none = 0;
	int rc = 0;

	if (!t->parallel.launch.rank) {
		rc = mft_saver_own(t->rl->sync_saver, err);
		rc = rc ? mfs_fail_in(err, "--rl-sync-dir") : await_empty(t->config->rl_mount, err);
	}
	return rc ? rc : mft_parallel_sum(&t->parallel, MFT_GROUP_WORLD, &none, 1, err);
}

int mft_rl_open_sync(struct mft_trainer *t, struct mfs_error *err)
{
	struct mft_rl *rl = t->rl;
	int rc;

	rl->sync_config = *t->config;
	rl->sync_config.save = t->config->rl_sync_dir;
	rl->sync_config.save_keep_last = VERSIONS;
	rl->sync_config.no_save_optim = rl->sync_config.no_save_rng = true;
	rl->sync_config.saves_torch = false;
	rl->sync_config.non_persistent_save_interval = MFS_ABSENT;
	/* By its tokenizer a view has the rows of the vocabulary without those of padding. */
	rc = mft_saver_new(&rl->sync_config, t->params, &t->parallel, t->backend, t->device,
			   mft_trainer_tokenizer(t->config), &rl->sync_saver, err);
	return rc ? rc : take_over(t, err);
}

/* ---- the save ---- */

static int save(struct mft_trainer *t, struct mfs_error *err)
{
	struct mft_save_result result = {0};
	int rc;

	mft_sync_await(t->sync, t->ctx);
	rc = mft_saver_start(t->rl->sync_saver, t->ctx, MFT_SAVE_PERSISTENT, &t->progress, err);
	if (rc)
		return rc;
	while (!mft_saver_ended(t->rl->sync_saver, true, &result))
		;
	if (!result.failed)
		return 0;
	return mfs_fail(err, -EIO, "the weights were not saved for the engines: %s",
			result.why[0] ? result.why : "the first process says why");
}

/* ---- what the mount shows ---- */

/* Reads a file that engines are going to read, to the end. */
static int read_ahead(int dirfd, const char *name, void *piece, uint64_t *bytes,
		      struct mfs_error *err)
{
	int fd, rc = mfs_open_regular(dirfd, name, 0, &fd, NULL);
	ssize_t n = 1;

	if (rc)
		return mfs_fail(err, rc, "%s: %s", name, mfs_open_regular_why(rc));
	while (n > 0) {
		n = read(fd, piece, PIECE);
		*bytes += n > 0 ? (uint64_t)n : 0;
	}
	rc = n < 0 ? -errno : 0;
	close(fd);
	return rc ? mfs_fail(err, rc, "%s: %s", name, strerror(-rc)) : 0;
}

/* The files of an index, each once: a file that an index names and that is not there would end
 * vLLM. */
static int read_indexed(int dirfd, const json_t *index, void *piece, uint64_t *bytes,
			struct mfs_error *err)
{
	json_t *map = json_object_get(index, "weight_map"), *seen = json_object(), *name;
	const char *key, *file;
	int rc = 0;

	json_object_foreach(map, key, name)
	{
		file = json_string_value(name);
		if (rc || !file || json_object_get(seen, file))
			continue;
		json_object_set_new(seen, file, json_true());
		rc = read_ahead(dirfd, file, piece, bytes, err);
	}
	json_decref(seen);
	return rc;
}

static json_t *load_json(int dirfd, const char *name)
{
	json_t *ret;
	int fd;

	if (mfs_open_regular(dirfd, name, 0, &fd, NULL))
		return NULL;
	ret = json_loadfd(fd, 0, NULL);
	close(fd);
	return ret;
}

static int read_view(int dirfd, uint64_t *bytes, struct mfs_error *err)
{
	json_t *index = load_json(dirfd, "model.safetensors.index.json");
	void *piece = malloc(PIECE);
	int rc = piece ? 0 : mfs_fail_nomem(err);

	if (!rc)
		rc = index ? read_indexed(dirfd, index, piece, bytes, err)
			   : read_ahead(dirfd, "model.safetensors", piece, bytes, err);
	json_decref(index);
	free(piece);
	return rc;
}

/* A mount looks for new iterations from time to time. -EINTR: a signal ends the run. */
static int await_view(const char *path, int *ret, struct mfs_error *err)
{
	const int64_t from = mfs_now_ns();

	for (;;) {
		*ret = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (*ret >= 0)
			return 0;
		if (mft_rl_stops())
			return mfs_fail(err, -EINTR, "a signal has ended the wait for a mount");
		if (errno != ENOENT || mfs_now_ns() - from > WAIT * INT64_C(1000000000))
			return mfs_fail(err, -errno,
					"%s: %s; expected --rl-mount to be where --rl-sync-dir is "
					"mounted by mcorefs",
					path, strerror(errno));
		nanosleep(&pause_of_looks, NULL);
	}
}

/* Engines sample from all rows that they are shown. */
static int check_vocab(int dirfd, uint64_t expected, struct mfs_error *err)
{
	json_t *config = load_json(dirfd, "config.json");
	const json_t *size = json_object_get(config, "vocab_size");
	const json_int_t found = json_integer_value(size);
	const bool is_other = json_is_integer(size) && (uint64_t)found != expected;

	json_decref(config);
	return is_other ? mfs_fail(err, -EPROTO,
				   "config.json: expected a vocab_size of %llu, which is the "
				   "tokenizer's, found %lld with padding: mount --rl-sync-dir with "
				   "-o vocab_size=tokenizer, or vocab_size=%llu",
				   (unsigned long long)expected, (long long)found,
				   (unsigned long long)expected)
			: 0;
}

static int fetch(const char *path, uint64_t vocab, uint64_t *bytes, struct mfs_error *err)
{
	int fd, rc = await_view(path, &fd, err);

	if (rc)
		return rc;
	rc = check_vocab(fd, vocab, err);
	if (!rc)
		rc = read_view(fd, bytes, err);
	close(fd);
	return rc ? mfs_fail_in(err, "%s", path) : 0;
}

/* ---- all of it ---- */

/* Others answer for an engine that is away, but its share of the work is theirs then. */
static void log_away(struct mft_trainer *t, const struct mft_engine_update *u)
{
	struct mfs_buf b = {0};

	if (!u->why.msg[0])
		return;
	mfs_buf_printf(&b, "engines: %zu of %zu are left out until the next weights: %s\n", u->out,
		       mft_engines_count(t->rl->told), u->why.msg);
	mft_log_text(t, &b);
}

static int tell(struct mft_trainer *t, struct mfs_error *err)
{
	struct mft_rl_numbers *n = &t->rl->numbers;
	struct mft_engine_update update = {0};
	char path[PATH_MAX];
	const struct mft_engine_weights w = {path, t->progress.iteration, t->rl->engines};
	const int64_t from = mfs_now_ns();
	int rc;

	snprintf(path, sizeof(path), "%s/iter_%07llu/hf", t->config->rl_mount,
		 (unsigned long long)t->progress.iteration);
	n->sync_bytes = 0;
	rc = fetch(path, mft_rl_vocab(t), &n->sync_bytes, err);
	n->ahead_s = (double)(mfs_now_ns() - from) / 1e9;
	if (!rc)
		rc = mft_engines_update(t->rl->told, &w, &update, err);
	n->paused_s = update.paused;
	if (!rc)
		log_away(t, &update);
	return rc;
}

int mft_rl_save_weights(struct mft_trainer *t, struct mfs_error *err)
{
	const int64_t from = mfs_now_ns();
	int rc;

	/* The run's first one is there before its engines are. */
	if (t->rl->saved && t->rl->saved_version == t->progress.iteration)
		return 0;
	/* It reads the version that this one may remove. */
	mft_rl_await_delta(t->rl);
	rc = save(t, err);
	if (!rc && t->rl->saved && t->config->rl_delta_dir && !t->parallel.launch.rank)
		mft_rl_begin_delta(t, t->rl->saved_version);
	t->rl->saved = !rc;
	t->rl->saved_version = t->progress.iteration;
	t->rl->numbers.save_s = (double)(mfs_now_ns() - from) / 1e9;
	return rc;
}

int mft_rl_sync(struct mft_trainer *t, struct mfs_error *err)
{
	const int rc = mft_rl_save_weights(t, err);

	return rc || !t->rl->engines ? rc : tell(t, err);
}
