/*
 * --rl-delta-dir: what has changed between two versions of the weights, for engines that are far
 * away: `mcorefs delta` of the two saves that are in memory, while steps are trained. The directory
 * is what slime's and SGLang's receivers pull from.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainer/loop/rl_i.h"

/* The program that lies next to this one, or in PATH. */
static void find_program(char path[PATH_MAX])
{
	ssize_t len = readlink("/proc/self/exe", path, PATH_MAX - 1);
	char *slash;

	path[len > 0 ? len : 0] = '\0';
	slash = strrchr(path, '/');
	if (slash && (size_t)(slash - path) + sizeof("/mcorefs") < PATH_MAX) {
		strcpy(slash, "/mcorefs");
		if (!access(path, X_OK))
			return;
	}
	strcpy(path, "mcorefs");
}

/* A chain with a link that is missing is of no use, and no reason to stop training. */
static void give_up(struct mft_rl *rl, const char *why)
{
	rl->no_more_deltas = true;
	fprintf(stderr, "mcorefs-train: --rl-delta-dir: %s; no more deltas are written\n", why);
}

void mft_rl_await_delta(struct mft_rl *rl)
{
	int status;

	if (!rl->delta)
		return;
	while (waitpid(rl->delta, &status, 0) < 0 && errno == EINTR)
		;
	rl->delta = 0;
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		give_up(rl, "mcorefs delta has failed, for the reason above");
}

void mft_rl_begin_delta(struct mft_trainer *t, uint64_t before)
{
	const struct mft_train_config *c = t->config;
	char program[PATH_MAX], from[PATH_MAX], to[PATH_MAX], whole[PATH_MAX];
	const char *base = c->pretrained_checkpoint ? c->pretrained_checkpoint : c->load;
	/* The directory may be read from anywhere. */
	const char *named = base && realpath(base, whole) ? whole : base;
	/* Without a tokenizer's files all rows are shown, as engines see them. */
	char *argv[] = {"mcorefs",
			"delta",
			from,
			to,
			(char *)(uintptr_t)c->rl_delta_dir,
			"-o",
			"vocab_size=tokenizer",
			base ? "--base" : NULL,
			(char *)(uintptr_t)named,
			NULL};
	posix_spawnattr_t own;
	int rc;

	if (t->rl->no_more_deltas)
		return;
	find_program(program);
	snprintf(from, sizeof(from), "%s/iter_%07llu", c->rl_sync_dir, (unsigned long long)before);
	snprintf(to, sizeof(to), "%s/iter_%07llu", c->rl_sync_dir,
		 (unsigned long long)t->progress.iteration);
	/* What a terminal sends to end the run is not for it: the run waits for it. */
	rc = posix_spawnattr_init(&own);
	if (!rc) {
		posix_spawnattr_setflags(&own, POSIX_SPAWN_SETPGROUP);
		rc = posix_spawnp(&t->rl->delta, program, NULL, &own, argv, environ);
		posix_spawnattr_destroy(&own);
	}
	if (!rc)
		return;
	t->rl->delta = 0;
	give_up(t->rl, strerror(rc));
}
