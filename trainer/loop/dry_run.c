#include "trainer/loop/dry_run.h"

#include <stdio.h>
#include <stdlib.h>

#include "trainer/config/parse/yaml.h"
#include "trainer/loop/train.h"
#include "trainer/loop/trainer_i.h"

#define GIB ((double)(UINT64_C(1) << 30))

static int fail(const struct mft_train_config *config, const struct mfs_error *err)
{
	fprintf(stderr, "mcorefs-train: %s\n", err->msg);
	return config->refused ? MFT_TRAIN_USAGE : MFT_TRAIN_FAILED;
}

/* ---- the machine ---- */

int mft_dry_run_machine(const struct mft_train_config *config, struct mft_machine *ret,
			struct mfs_error *err)
{
	const char *path = config->machine;
	char *bytes = NULL;
	size_t len = 0;
	int rc = mft_yaml_slurp(path, &bytes, &len, err);

	if (!rc)
		rc = mft_machine_parse(path, bytes, len, ret, err);
	free(bytes);
	return rc;
}

/* ---- what is printed ---- */

static void say_traffic(const struct mft_plan *p)
{
	for (uint32_t i = 0; i < p->stage_count; i++) {
		if (p->stage_count > 1)
			printf("stage %u of %u: ", i, p->stage_count);
		mft_log_traffic(p->stages[i].traffic);
	}
}

static void say_part(const char *name, double seconds, double step)
{
	if (seconds > 0)
		printf(", %s %.1f %%", name, 100 * seconds / step);
}

static void say_time(const struct mft_plan *p, const struct mft_machine *m)
{
	const struct mft_timeline *t = &p->time;

	printf("a step on %u of %s: %.1f ms, %.0f tokens/s, %.1f TFLOP/s of each\n", p->processes,
	       m->name, 1e3 * t->step, p->tokens / t->step,
	       p->flops / t->step / p->processes / 1e12);
	printf("of it, in the stage that computes the most: products %.1f %%",
	       100 * t->products / t->step);
	say_part("attention", t->attention, t->step);
	say_part("memory", t->memory, t->step);
	say_part("copies", t->host, t->step);
	putchar('\n');
	for (int g = 0; g < MFT_GROUP_COUNT; g++)
		if (t->groups[g] > 0)
			printf("  %s: %.1f ms, of which %.1f ms are exposed\n",
			       mft_group_name((enum mft_group)g), 1e3 * t->groups[g],
			       1e3 * p->exposed[g]);
}

static const struct mft_plan_stage *neediest(const struct mft_plan *p)
{
	const struct mft_plan_stage *most = p->stages;

	for (uint32_t i = 1; i < p->stage_count; i++)
		if (p->stages[i].bytes > most->bytes)
			most = &p->stages[i];
	return most;
}

static void say_memory(const struct mft_plan *p)
{
	if (p->stage_count > 1)
		printf("stage %u needs the most, of %u processes: %.3f GiB each\n",
		       (unsigned)(neediest(p) - p->stages), p->processes, (double)p->most / GIB);
}

/* Where no machine says whether it fits. */
static void say_experts(const struct mft_plan *p)
{
	if (neediest(p)->of_experts)
		printf("rows of experts are the largest part: %s needs less\n",
		       neediest(p)->remedies);
}

/* Of the processes of a host each has state of the optimizer there. */
static void say_host_fit(const struct mft_plan *p, const struct mft_machine *m)
{
	const unsigned sharers = p->processes < m->gpus_per_host ? p->processes : m->gpus_per_host;
	uint64_t most = 0;

	for (uint32_t i = 0; i < p->stage_count; i++)
		most = p->stages[i].host_bytes > most ? p->stages[i].host_bytes : most;
	if (m->host_memory > 0 && (double)most * sharers > m->host_memory)
		printf("WARNING: a host of %s has %.0f GiB, and %u processes would take %.0f GiB "
		       "of it; a smaller --optimizer-offload-fraction needs less\n",
		       m->name, m->host_memory / GIB, sharers, (double)most * sharers / GIB);
}

static void say_fit(const struct mft_plan *p, const struct mft_machine *m)
{
	if ((double)p->most > m->memory)
		printf("WARNING: %s has %.0f GiB; %s needs less\n", m->name, m->memory / GIB,
		       neediest(p)->remedies);
}

/* ---- all of it ---- */

static int plan(struct mft_train_config *config, const struct mft_launch *launch,
		const struct mft_machine *machine, struct mfs_error *err)
{
	struct mft_plan p;
	const int rc = mft_plan_run(config, launch, machine, true, &p, err);

	if (!rc) {
		say_memory(&p);
		if (machine) {
			say_fit(&p, machine);
			say_host_fit(&p, machine);
			say_traffic(&p);
			say_time(&p, machine);
		} else {
			say_experts(&p);
		}
	}
	mft_plan_release(&p);
	return rc;
}

int mft_dry_run(struct mft_train_config *config, const struct mft_launch *launch)
{
	struct mft_machine machine;
	struct mfs_error err = {0};
	int rc = 0;

	/* All would say the same. */
	if (launch->rank)
		return MFT_TRAIN_OK;
	if (config->machine)
		rc = mft_dry_run_machine(config, &machine, &err);
	if (!rc)
		rc = plan(config, launch, config->machine ? &machine : NULL, &err);
	return rc ? fail(config, &err) : MFT_TRAIN_OK;
}
