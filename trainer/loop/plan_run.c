/*
 * A plan of a run: its memory, and with a machine its time.
 *
 * The time is that of the run itself: each stage's process takes two steps with a backend that
 * writes down what it is asked (kernels/record), and the second one's record is played on the
 * machine (trainer/simulate). So nothing here depends on how a step is made up.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/record/record.h"
#include "trainer/loop/dry_run.h"
#include "trainer/loop/rl.h"
#include "trainer/loop/trainer_i.h"

#define GIB ((double)(UINT64_C(1) << 30))

/* ---- a stage's record ---- */

static bool spans_stages(enum mft_group g)
{
	return g == MFT_GROUP_WORLD || g == MFT_GROUP_PIPELINE || g == MFT_GROUP_MODEL ||
	       g == MFT_GROUP_EMBEDDING || g == MFT_GROUP_EXPERT_MODEL || g == MFT_GROUP_INSTANCE;
}

static void describe_groups(const struct mft_trainer *t, const struct mft_machine *machine,
			    struct mft_plan_stage *s)
{
	for (int g = 0; g < MFT_GROUP_COUNT; g++) {
		const struct mft_group_place *place = &t->parallel.group[g];

		s->groups[g] = (struct mft_timeline_group){
			.comm = place->comm,
			.machine = {.size = place->size,
				    .on_host = mft_parallel_on_host(&t->parallel, (enum mft_group)g,
								    machine->gpus_per_host)},
			.stages = t->parallel.size.pp > 1 && spans_stages((enum mft_group)g),
			.ends_only = g == MFT_GROUP_EMBEDDING,
		};
		if (place->comm)
			mfk_record_group(place->comm, place->rank, place->size);
	}
}

/* The second step is like all others. */
static int record_steps(struct mft_trainer *t, struct mft_plan_stage *s, struct mfs_error *err)
{
	struct mft_step step;
	int rc = 0;

	for (int i = 0; i < 2 && !rc; i++) {
		mfk_record_release(&s->record);
		mfk_record_take(t->device, &s->record); /* of what came before */
		mfk_record_release(&s->record);
		rc = mft_trainer_step(t, &step, err);
		mfk_record_take(t->device, &s->record);
	}
	memcpy(s->traffic, t->step_traffic, sizeof(s->traffic));
	return rc;
}

/* The batch of the run's first step, which is the one that is planned. */
static int64_t first_batch(const struct mft_train_config *c)
{
	return (int64_t)mft_schedule_batch(c, 0);
}

/* Data are made up, of the run's own sizes, and what a plan need not say. */
static void make_up(struct mft_train_config *c)
{
	c->mock_data = true;
	c->sft = false;
	c->data_path = (struct mfs_arg_words){0};
	for (int i = 0; i < 3; i++)
		c->split_data_path[i] = (struct mfs_arg_words){0};
	c->data_args_path = c->per_split_data_args_path = NULL;
	c->eval_iters = 0;
	c->full_validation = c->multiple_validation_sets = c->skip_train = false;
	c->validation_set_names = (struct mfs_arg_words){0};
	c->global_batch_size = first_batch(c);
	c->batch_step_count = 0;
	c->rampup_samples = 0;
	if (c->train_iters < 2 && c->train_samples < 2 * c->global_batch_size)
		c->train_iters = 2;
	if (c->eod == MFS_ABSENT)
		c->eod = 0;
	if (c->lr < 0)
		c->lr = 1;
}

static int record_stage(struct mft_train_config *config, const struct mft_launch *launch,
			const struct mft_machine *machine, struct mft_plan_stage *s,
			struct mfs_error *err)
{
	struct mft_train_config c = *config; /* with other data */
	struct mfs_error none;
	struct mft_trainer t;
	int rc;

	make_up(&c);
	rc = mft_trainer_open(&c, launch, &mfk_recorder, &t, err);
	if (!rc) {
		describe_groups(&t, machine, s);
		rc = record_steps(&t, s, err);
	}
	mft_trainer_close(&t, &none); /* there is nobody to wait for */
	return rc;
}

/* ---- all stages ---- */

/* Adds what reinforcement learning takes besides. */
static int plan_rl(const struct mft_trainer *t, bool says, struct mft_plan_stage *s,
		   struct mfs_error *err)
{
	struct mft_rl_needs needs;
	const int rc = mft_rl_plan(t, &needs, err);

	if (rc)
		return rc;
	s->bytes += needs.sampler;
	s->host_bytes += needs.reference;
	if (says)
		printf("reinforcement learning takes more: %.3f GiB for the sampler; of the host "
		       "%.3f for the reference\n",
		       (double)needs.sampler / GIB, (double)needs.reference / GIB);
	return 0;
}

static int plan_stage(struct mft_train_config *config, const struct mft_launch *launch, bool says,
		      struct mft_plan *p, uint32_t stage, struct mfs_error *err)
{
	struct mft_trainer t;
	int rc = mft_trainer_open(config, launch, NULL, &t, err);
	struct mft_plan_stage *more;
	struct mfs_error none;

	if (!rc && says) {
		if (!stage)
			mft_log_arguments(config);
		if (t.parallel.size.pp > 1)
			printf("stage %u of %u: ", t.parallel.place.pp, t.parallel.size.pp);
		mft_log_memory(&t);
	}
	if (!rc && !stage) {
		p->flops = mft_step_flops(&t, (uint64_t)first_batch(config));
		p->tokens = (double)first_batch(config) * (double)config->seq_length;
		p->stage_count = t.parallel.size.pp;
		more = calloc(p->stage_count, sizeof(*more));
		p->stages = more;
	}
	if (!rc && p->stages) {
		p->stages[stage].bytes = t.memory.total;
		p->stages[stage].remedies = mft_memory_remedies(&t.memory);
		p->stages[stage].of_experts = mft_memory_is_of_experts(&t.memory);
		p->stages[stage].host_bytes = t.memory.bytes[MFT_MEMORY_HOST];
		if (config->perform_rl_step)
			rc = plan_rl(&t, says, &p->stages[stage], err);
		p->most = p->stages[stage].bytes > p->most ? p->stages[stage].bytes : p->most;
	}
	mft_trainer_close(&t, &none);
	return !rc && !p->stages ? mfs_fail_nomem(err) : rc;
}

static int play(const struct mft_machine *m, struct mft_plan *p, struct mfs_error *err)
{
	struct mft_timeline_stage *of = calloc(p->stage_count, sizeof(*of));
	struct mft_timeline without;
	int rc = of ? 0 : mfs_fail_nomem(err);

	for (uint32_t i = 0; i < p->stage_count && !rc; i++) {
		of[i].record = &p->stages[i].record;
		for (int g = 0; g < MFT_GROUP_COUNT; g++)
			of[i].groups[g] = p->stages[i].groups[g];
	}
	if (!rc)
		rc = mft_timeline_run(m, of, p->stage_count, MFT_TIMELINE_GROUPS, &p->time, err);
	for (unsigned g = 0; g < MFT_GROUP_COUNT && !rc; g++) {
		if (p->time.groups[g] <= 0)
			continue;
		rc = mft_timeline_run(m, of, p->stage_count, g, &without, err);
		p->exposed[g] = p->time.step - without.step;
	}
	free(of);
	return rc;
}

/* It may take a minute, and nothing else is printed before its end. */
static void say_simulated(const struct mft_plan *p, uint32_t stage, uint32_t processes)
{
	printf("simulating a step of %u processes", processes);
	if (p->stage_count > 1)
		printf(": stage %u of %u", stage, p->stage_count);
	puts(" ...");
	fflush(stdout);
}

int mft_plan_run(struct mft_train_config *config, const struct mft_launch *launch,
		 const struct mft_machine *machine, bool says, struct mft_plan *ret,
		 struct mfs_error *err)
{
	struct mft_launch of = *launch;
	int rc = 0;

	*ret = (struct mft_plan){.stage_count = 1};
	/* The stages of a pipeline differ, and each other dimension gives equal parts: so a process
	 * of each stage is planned, the first of its ranks. How many there are is known after the
	 * first, which opens the checkpoint. */
	for (uint32_t i = 0; i < ret->stage_count && !rc; i++) {
		rc = plan_stage(config, &of, says, ret, i, err);
		if (rc)
			break;
		of.size = (uint32_t)(config->model.tensor_model_parallel_size *
				     config->model.pipeline_model_parallel_size *
				     config->context_parallel_size * config->data_parallel_size);
		of.local_size = of.size;
		of.rank = i * (of.size / ret->stage_count);
		if (machine && says)
			say_simulated(ret, i, of.size);
		if (machine)
			rc = record_stage(config, &of, machine, &ret->stages[i], err);
		of.rank = (i + 1) * (of.size / ret->stage_count);
	}
	ret->processes = of.size;
	return rc || !machine ? rc : play(machine, ret, err);
}

void mft_plan_release(struct mft_plan *p)
{
	for (uint32_t i = 0; i < p->stage_count && p->stages; i++)
		mfk_record_release(&p->stages[i].record);
	free(p->stages);
	*p = (struct mft_plan){0};
}
