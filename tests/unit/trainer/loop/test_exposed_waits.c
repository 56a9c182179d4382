/*
 * Passes wait for parallel contexts in many places. These waits are measured in all of them
 * (trainer/parallel/exposure.h). Runs take two steps with the recorder, on a clock that a wait of
 * the passes alone moves on: all waits of a step must be found, for the right groups.
 */
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/str.h"
#include "kernels/record/record.h"
#include "tests/unit/unit.h"
#include "trainer/config/parse/parse.h"
#include "trainer/config/value.h"
#include "trainer/loop/trainer_i.h"

#define MAX_WORDS 128
#define MODEL                                                                                      \
	"--num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 32 "                 \
	"--max-position-embeddings 32 --micro-batch-size 1 --global-batch-size 8 "                 \
	"--train-iters 4 --lr 0.1 --tokenizer-type NullTokenizer --vocab-size 100 --mock-data "    \
	"--eval-iters 0 --eod-id 0 --attention-dropout 0 --hidden-dropout 0 "
#define OVERLAP "--overlap-grad-reduce --overlap-param-gather "
#define EXPERTS                                                                                    \
	"--num-experts 4 --moe-router-topk 2 --moe-token-dispatcher-type alltoall "                \
	"--moe-ffn-hidden-size 32 --disable-bias-linear --expert-model-parallel-size 2 "

static struct mfs_error err;

/* ---- the recorder, with a clock ---- */

static struct mfk_device_ops device_ops;
static struct mfk_backend backend;
static const struct mfk_ctx *passes;
static int64_t now;

static void stamp(struct mfk_ctx *c, int64_t *ns)
{
	ck_assert_ptr_eq(c, passes);
	*ns = now;
}

static void event_wait(struct mfk_ctx *c, struct mfk_event *e)
{
	now += c == passes ? 1000000 : 0;
	mfk_recorder.device->event_wait(c, e);
}

static void begin(void)
{
	device_ops = *mfk_recorder.device;
	device_ops.stamp = stamp;
	device_ops.event_wait = event_wait;
	backend = mfk_recorder;
	backend.device = &device_ops;
}

/* ---- runs ---- */

static void config_of(const char *layout, uint32_t processes, char *text, size_t size,
		      struct mft_train_config *c)
{
	const char *words[MAX_WORDS];
	char *rest = NULL;
	size_t count = 0;

	snprintf(text, size, "%s%s", MODEL, layout);
	for (char *w = strtok_r(text, " ", &rest); w; w = strtok_r(NULL, " ", &rest)) {
		ck_assert_uint_lt(count, MAX_WORDS);
		words[count++] = w;
	}
	unit_ok(mft_train_config_parse_words(words, count, c, &err), &err);
	mft_flag_set_number(c->values, "world_size", processes);
}

/* Two steps; the second one is measured. Returns the milliseconds that its passes waited. */
static double take_steps(struct mft_trainer *t, struct mft_exposed *ret)
{
	struct mft_step step;
	int64_t before = 0;

	for (int i = 0; i < 2; i++) {
		before = now;
		unit_ok(mft_trainer_step(t, &step, &err), &err);
	}
	unit_ok(mft_exposure_sum(t->exposure, ret, &err), &err);
	return (double)(now - before) / 1e6;
}

static void measure(const char *layout, uint32_t processes, struct mft_exposed *ret,
		    double *ret_waited)
{
	const struct mft_launch launch = {.size = processes, .local_size = processes};
	struct mft_train_config config;
	struct mft_trainer t;
	struct mfs_error none;
	char text[2048];

	begin();
	config_of(layout, processes, text, sizeof(text), &config);
	unit_ok(mft_trainer_open(&config, &launch, &backend, &t, &err), &err);
	for (int g = 0; g < MFT_GROUP_COUNT; g++)
		if (t.parallel.group[g].comm)
			mfk_record_group(t.parallel.group[g].comm, t.parallel.group[g].rank,
					 t.parallel.group[g].size);
	passes = t.ctx;
	unit_ok(mft_exposure_new(&backend, t.device, t.ctx, &t.exposure, &err), &err);
	t.parallel.exposure = t.exposure;
	*ret_waited = take_steps(&t, ret);
	mft_trainer_close(&t, &none);
	mft_train_config_release(&config);
}

/* ---- where passes wait ---- */

static const struct {
	const char *layout;
	uint32_t processes;
	enum mft_group groups[3]; /* for which they wait; WORLD: no more */
	double alone;		  /* waits for groups of one, in which nothing is sent */
} layouts[] = {
	{.layout = "--tensor-model-parallel-size 2 ", .processes = 2, .groups = {MFT_GROUP_TENSOR}},
	{.layout = "--tensor-model-parallel-size 2 --sequence-parallel ",
	 .processes = 2,
	 .groups = {MFT_GROUP_TENSOR}},
	{.layout = "--pipeline-model-parallel-size 2 ",
	 .processes = 2,
	 .groups = {MFT_GROUP_PIPELINE}},
	{.layout = "--context-parallel-size 2 ", .processes = 2, .groups = {MFT_GROUP_CONTEXT}},
	{.layout = "--context-parallel-size 4 --hierarchical-context-parallel-sizes 2 2 "
		   "--cp-comm-type a2a+p2p ",
	 .processes = 4,
	 .groups = {MFT_GROUP_CONTEXT_HEADS, MFT_GROUP_CONTEXT_RING}},
	{.layout = OVERLAP "--use-distributed-optimizer ",
	 .processes = 2,
	 .groups = {MFT_GROUP_GRADS}},
	{.layout = OVERLAP "--use-megatron-fsdp ", .processes = 2, .groups = {MFT_GROUP_GRADS}},
	{.layout = EXPERTS "--moe-shared-expert-overlap --moe-shared-expert-intermediate-size 32 ",
	 .processes = 2,
	 .groups = {MFT_GROUP_EXPERT_TOKENS}},
	{.layout = EXPERTS OVERLAP "--use-distributed-optimizer ",
	 .processes = 4,
	 .groups = {MFT_GROUP_GRADS, MFT_GROUP_EXPERT_GRADS}},
	{.layout = OVERLAP "--use-distributed-optimizer --num-distributed-optimizer-instances 2 ",
	 .processes = 4,
	 .groups = {MFT_GROUP_INSTANCE_GRADS, MFT_GROUP_ACROSS_INSTANCES}},
	{.layout = EXPERTS OVERLAP "--use-distributed-optimizer "
				   "--num-distributed-optimizer-instances 2 ",
	 .processes = 8,
	 .groups = {MFT_GROUP_INSTANCE_GRADS, MFT_GROUP_INSTANCE_EXPERT_GRADS,
		    MFT_GROUP_ACROSS_INSTANCES}},
	{.layout = EXPERTS OVERLAP "--use-megatron-fsdp ",
	 .processes = 4,
	 .groups = {MFT_GROUP_GRADS, MFT_GROUP_EXPERT_GRADS}},
	/* Dense parameters are one process's: nothing is sent for windows without experts, which
	 * are those of the embedding and of the head. */
	{.layout = EXPERTS OVERLAP
	 "--use-megatron-fsdp --tensor-model-parallel-size 4 --sequence-parallel "
	 "--expert-tensor-parallel-size 1 ",
	 .processes = 4,
	 .groups = {MFT_GROUP_TENSOR, MFT_GROUP_EXPERT_GRADS},
	 .alone = 6},
};

START_TEST(every_wait_of_a_step_is_measured)
{
	struct mft_exposed exposed;
	double waited, found = 0;

	measure(layouts[_i].layout, layouts[_i].processes, &exposed, &waited);
	ck_assert_double_gt(waited, 0);
	for (int i = 0; i < 3 && layouts[_i].groups[i] != MFT_GROUP_WORLD; i++) {
		const double seconds = exposed.seconds[layouts[_i].groups[i]];

		ck_assert_msg(seconds > 0, "%s: none for %s", layouts[_i].layout,
			      mft_group_name(layouts[_i].groups[i]));
		found += 1e3 * seconds;
	}
	found += layouts[_i].alone;
	ck_assert_msg(found > waited - 0.5 && found < waited + 0.5, "%s: %g of %g waits",
		      layouts[_i].layout, found, waited);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("exposed_waits");
	TCase *c = tcase_create("waits");

	tcase_add_loop_test(c, every_wait_of_a_step_is_measured, 0, MFS_ARRAY_SIZE(layouts));
	suite_add_tcase(s, c);
	return s;
}
