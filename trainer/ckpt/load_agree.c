/*
 * All processes of a run load one checkpoint.
 *
 * Each process finds the last checkpoint by itself, since its arguments may stand there, and the
 * layout of the run follows from those. But a host may see a shared directory late: NFS keeps names
 * and attributes for up to 60 s (nfs(5): acregmax, acdirmax). A run that was started again on other
 * hosts would then go on from two iterations at once.
 *
 * So processes compare what they have found as soon as they can talk. Those that have found an
 * older checkpoint look again until they see the newest one. Megatron takes the newest number of
 * all ranks, too, but does not wait for its files (megatron/training/checkpointing.py:
 * read_metadata).
 *
 * What a run cannot begin without is looked for again before that: nobody can be asked yet whether
 * it is there. On one host all see the same, and nothing is waited for.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "formats/megatron/tracker.h"
#include "trainer/ckpt/load_i.h"
#include "trainer/config/settle/settle.h"

#define LATE_SECONDS 90 /* NFS's 60, and time to read; at most, see late_seconds() */
#define LOOK_NS	     200000000L

static void wait_a_little(void)
{
	const struct timespec pause = {.tv_nsec = LOOK_NS};

	nanosleep(&pause, NULL);
}

/* What a process has found. The order is that of preference. */
enum found_kind {
	FOUND_NONE,
	FOUND_PRETRAINED, /* --pretrained-checkpoint stands in for --load */
	FOUND_LOAD,
};

struct found {
	uint32_t kind;
	int64_t iteration; /* MFS_RELEASE: none */
	char host[64];	   /* cut if it is longer */
};

static struct found what_is_found(const struct mft_load *l, const struct mft_train_config *config,
				  const struct mft_launch *launch)
{
	struct found f = {.kind = FOUND_NONE, .iteration = MFS_RELEASE};

	if (l) {
		f.kind = l->finetune && !config->finetune ? FOUND_PRETRAINED : FOUND_LOAD;
		f.iteration = l->iteration;
	}
	snprintf(f.host, sizeof(f.host), "%.63s", launch->host);
	return f;
}

static bool is_newer(const struct found *a, const struct found *b)
{
	return a->kind != b->kind ? a->kind > b->kind : a->iteration > b->iteration;
}

static const char *describe(const struct found *f, char text[64])
{
	static const char *const kinds[] = {
		[FOUND_NONE] = "no checkpoint",
		[FOUND_PRETRAINED] = "the pretrained checkpoint",
		[FOUND_LOAD] = "a checkpoint without an iteration",
	};

	if (f->kind == FOUND_LOAD && f->iteration != MFS_RELEASE)
		snprintf(text, 64, "iteration %lld", (long long)f->iteration);
	else
		snprintf(text, 64, "%s", kinds[f->kind]);
	return text;
}

/* The others wait meanwhile, and are watched: the sentence must come before their time is over. */
static int late_seconds(const struct mft_train_config *config)
{
	const double half = 30 * config->distributed_timeout_minutes; /* may not be settled yet */

	return half <= 0 ? 0 : half < LATE_SECONDS ? (int)half : LATE_SECONDS;
}

static int64_t late_until(const struct mft_train_config *config)
{
	return mfs_now_ns() + late_seconds(config) * INT64_C(1000000000);
}

/* ---- before processes can talk ---- */

/* rc: of mft_load_open(). Whether that which is missing may be there on another host. */
static bool may_be_late(int rc, const struct mft_load *l, const struct mft_train_config *config)
{
	if (rc)
		return rc == -ENOENT || rc == -ENODATA || rc == -ESTALE;
	return !l && config->load && config->use_checkpoint_args &&
	       mft_train_config_lacks_model(config);
}

int mft_load_await(const struct mft_train_config *config, const struct mft_launch *launch,
		   struct mft_load **ret, struct mfs_error *err)
{
	const bool shared = launch->local_size < launch->size && !config->dry_run;
	int rc = mft_load_open(config, ret, err);
	char who[MFT_LAUNCH_WHO];
	int64_t until;

	if (!shared || !may_be_late(rc, *ret, config))
		return rc;
	fprintf(stderr,
		"mcorefs-train: %sfound no checkpoint%s%s: this host may see the directory late, "
		"and looks again for up to %d s\n",
		mft_launch_who(launch, who), rc ? ": " : "", rc ? err->msg : "",
		late_seconds(config));
	for (until = late_until(config); may_be_late(rc, *ret, config) && mfs_now_ns() < until;) {
		wait_a_little();
		rc = mft_load_open(config, ret, err);
	}
	return rc;
}

/* ---- when they can ---- */

/* ret: all [size]. *newest, *oldest: ranks, the first of several. */
static int compare(const struct mft_parallel *p, const struct found *own, struct found *all,
		   uint32_t *newest, uint32_t *oldest, struct mfs_error *err)
{
	const int rc = mft_parallel_gather(p, MFT_GROUP_WORLD, all, own, sizeof(*own), err);

	*newest = *oldest = 0;
	for (uint32_t i = 1; !rc && i < p->launch.size; i++) {
		if (is_newer(&all[i], &all[*newest]))
			*newest = i;
		if (is_newer(&all[*oldest], &all[i]))
			*oldest = i;
	}
	return rc;
}

/* Looks again until it sees what another process has found, for late_seconds(). What cannot be
 * opened meanwhile may be seen in part. */
static void look_again(struct mft_load **load, const struct mft_train_config *config,
		       const struct mft_parallel *p, const struct found *wanted)
{
	const int64_t until = late_until(config);
	struct found own = what_is_found(*load, config, &p->launch);

	while (is_newer(wanted, &own) && mfs_now_ns() < until) {
		struct mfs_error err = {0};
		struct mft_load *l = NULL;

		wait_a_little();
		if (mft_load_open(config, &l, &err) || !l)
			continue;
		mft_load_free(*load);
		*load = l;
		own = what_is_found(l, config, &p->launch);
	}
}

static void tell(const struct mft_train_config *config, const struct mft_parallel *p,
		 const struct found *own, const struct found *newest)
{
	char who[MFT_LAUNCH_WHO], mine[64], theirs[64];

	fprintf(stderr,
		"mcorefs-train: %sfound %s, and other processes %s: this host sees the directory "
		"late, and looks again for up to %d s\n",
		mft_launch_who(&p->launch, who), describe(own, mine), describe(newest, theirs),
		late_seconds(config));
}

/* All fail alike, each with the same sentence. */
static int disagree(const struct found *all, uint32_t newest, uint32_t oldest,
		    const struct mft_train_config *config, struct mfs_error *err)
{
	char a[64], b[64];

	return mfs_fail(err, -ESTALE,
			"--load: '%.200s' is not the same on all hosts: rank %u on %s finds %s, "
			"and rank %u on %s %s",
			config->load ? config->load : config->pretrained_checkpoint, newest,
			all[newest].host, describe(&all[newest], a), oldest, all[oldest].host,
			describe(&all[oldest], b));
}

static int agree(struct mft_load **load, struct mft_train_config *config,
		 const struct mft_parallel *p, struct found *all, struct mfs_error *err)
{
	struct found own = what_is_found(*load, config, &p->launch);
	uint32_t newest, oldest;
	int rc = compare(p, &own, all, &newest, &oldest, err);

	if (rc || !is_newer(&all[newest], &all[oldest]))
		return rc;
	if (is_newer(&all[newest], &own)) {
		const struct found wanted = all[newest];

		tell(config, p, &own, &wanted);
		mft_watch_rest(p->watch, true);
		look_again(load, config, p, &wanted);
		mft_watch_rest(p->watch, false);
		own = what_is_found(*load, config, &p->launch);
	}
	rc = compare(p, &own, all, &newest, &oldest, err);
	if (!rc && is_newer(&all[newest], &all[oldest]))
		rc = disagree(all, newest, oldest, config, err);
	/* Of what was opened now nothing but its model was taken for granted. */
	return rc || !*load ? rc : mft_load_args(*load, config, err);
}

int mft_load_agree(struct mft_load **load, struct mft_train_config *config,
		   const struct mft_parallel *p, struct mfs_error *err)
{
	struct found *all;
	int rc;

	if (p->launch.size == 1 || (!config->load && !config->pretrained_checkpoint))
		return 0;
	all = calloc(p->launch.size, sizeof(*all));
	if (!all)
		return mfs_fail_nomem(err);
	rc = agree(load, config, p, all, err);
	free(all);
	return rc;
}
