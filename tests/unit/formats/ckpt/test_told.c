/* Saves whose files do not say what model it is: formats/ckpt/told.h, model/hf_told.h,
 * ckpt/read/verl.h. Real fixtures, put where verl puts them. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/ckpt/ckpt.h"
#include "formats/ckpt/read/ckpt_open.h"
#include "formats/model/hf_told.h"
#include "formats/model/vocab.h"
#include "formats/optim/read/optim_open.h"

#define LLAMA  "weights/llama-torch_dist-tp2-pp2-vpp2/iter_0000040"
#define RESUME "resume/llama-torch_dist-tp2-pp2/iter_0000020"
#define BRIDGE "bridge/llama/iter_0000000"
#define DCP    "dcp/llama"

#define CONFIG(LAYERS, FFN, VOCAB)                                                                 \
	"{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "                  \
	"\"hidden_size\": 64, \"intermediate_size\": " FFN ", \"num_hidden_layers\": " LAYERS      \
	", \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": " VOCAB         \
	", \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": false}"

static struct mfs_error err;
static struct mfs_ckpt *ckpt;
static char step[300]; /* the directory that is opened */

static void run(const char *fmt, const char *a, const char *b)
{
	char command[2000];

	snprintf(command, sizeof(command), fmt, a, b);
	ck_assert_msg(!system(command), "%s", command);
}

static const char *in_step(const char *name)
{
	static char paths[2][700];
	static unsigned next;
	char *path = paths[next++ % 2];

	snprintf(path, sizeof(paths[0]), "%s/%s", step, name);
	return path;
}

static void set_up(void)
{
	snprintf(step, sizeof(step), "%s/global_step_40", unit_tmpdir());
	run("mkdir '%s'%s", step, "");
}

static void put(const char *fixture, const char *weights)
{
	run("mkdir -p '%s' && rmdir '%s'", in_step(weights), in_step(weights));
	run("cp -r '%s' '%s'", unit_fixture(fixture), in_step(weights));
}

static void put_config(const char *folder, const char *text)
{
	run("mkdir -p '%s'%s", in_step(folder), "");
	unit_write(in_step(folder), "config.json", text, strlen(text));
}

static int open_told(const char *ref, const char *arch)
{
	const struct mfs_ckpt_told told = mfs_hf_told(ref, arch);

	return mfs_ckpt_open_part(step, 0, NULL, &told, &ckpt, &err);
}

static int open_full(const char *ref)
{
	const struct mfs_ckpt_told told = mfs_hf_told(ref, NULL);

	return mfs_optim_open_told(step, &told, &ckpt, &err);
}

static void check_llama(const char *by)
{
	ck_assert_uint_eq(mfs_ckpt_count(ckpt), 27);
	ck_assert_int_eq(mfs_ckpt_args(ckpt)->num_layers, 4);
	ck_assert_int_eq(mfs_ckpt_args(ckpt)->num_query_groups, 2);
	ck_assert_int_eq(mfs_ckpt_args(ckpt)->vocab_size, 1000);
	ck_assert_int_eq(mfs_ckpt_args(ckpt)->padded_vocab_size, 1024);
	ck_assert_str_eq(mfs_ckpt_args(ckpt)->params_dtype, "bfloat16");
	ck_assert_str_eq(mfs_ckpt_told_by(ckpt), by);
}

static const struct {
	const char *weights, *hf;
} places[] = {
	{"actor/dist_ckpt", "actor/huggingface"},
	{"actor/model/dist_ckpt", "actor/model/huggingface"},
	{"dist_ckpt", "huggingface"},
	{"model/dist_ckpt", "model/huggingface"},
};

START_TEST(places_of_verl)
{
	put(LLAMA, places[_i].weights);
	put_config(places[_i].hf, CONFIG("4", "176", "1000"));
	unit_ok(open_told(NULL, NULL), &err);
	ck_assert_str_eq(mfs_ckpt_format(ckpt)->name, "torch_dist");
	check_llama(in_step(places[_i].hf));
	mfs_ckpt_free(ckpt);
}
END_TEST

/* Arguments that the files do have are another program's, and verl's place counts. */
START_TEST(weights_alone)
{
	const char *const *warnings;
	uint32_t count;

	put(RESUME, "actor/dist_ckpt");
	put_config("actor/huggingface", CONFIG("4", "176", "1000"));
	unit_ok(open_full(NULL), &err);
	check_llama(in_step("actor/huggingface"));
	ck_assert(!mfs_ckpt_common(ckpt));
	ck_assert_uint_eq(mfs_ckpt_count_all(ckpt), mfs_ckpt_count(ckpt));
	count = mfs_ckpt_warnings(ckpt, &warnings);
	ck_assert_uint_eq(count, 1);
	unit_sentence(warnings[0], "the optimizer's state");
	mfs_ckpt_free(ckpt);
}
END_TEST

/* The optimizer's state has a folder of its own. */
START_TEST(weights_next_to_an_optimizer)
{
	const char *const *warnings;

	put(LLAMA, "actor/model/dist_ckpt");
	put_config("actor/model/huggingface", CONFIG("4", "176", "1000"));
	unit_ok(open_full(NULL), &err);
	ck_assert_uint_eq(mfs_ckpt_warnings(ckpt, &warnings), 0);
	mfs_ckpt_free(ckpt);
	put(RESUME, "actor/optimizer/dist_ckpt");
	unit_ok(open_full(NULL), &err);
	ck_assert_uint_eq(mfs_ckpt_warnings(ckpt, &warnings), 1);
	unit_sentence(warnings[0], "such as 'actor/optimizer/dist_ckpt', is not read");
	mfs_ckpt_free(ckpt);
}
END_TEST

static const struct {
	const char *config;
	int code;
	const char *part;
} contradictions[] = {
	{CONFIG("4", "192", "1000"), -EINVAL,
	 "tensor 'decoder.layers.0.mlp.linear_fc1.weight' is [352, 64], but by "
	 "actor/huggingface/config.json's ffn_hidden_size it should be [384, 64]"},
	{CONFIG("5", "176", "1000"), -EINVAL, "expected 5 stacked layers, found 4"},
	{CONFIG("4", "176", "2000"), -EINVAL, "has 1024 rows, but by "},
	{"{\"model_type\": \"bloom\"}", -ENOTSUP, "which Megatron cannot express"},
	{"{\"model_type\": \"nobodys\"}", -ENOTSUP, "'model_type' is \"nobodys\", expected one of"},
	{"{\"model_type\": \"qwen2_5_vl\", \"text_config\": {\"model_type\": "
	 "\"qwen2_5_vl_text\", \"hidden_size\": 64, \"intermediate_size\": 176, "
	 "\"num_hidden_layers\": 4, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
	 "\"vocab_size\": 1000}, \"vision_config\": {}}",
	 -ENOTSUP, "a vision-language model"},
	{"{\"model_type\": \"qwen2\", \"hidden_size\": 64, \"intermediate_size\": 176, "
	 "\"num_hidden_layers\": 4, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
	 "\"vocab_size\": 1000}",
	 -ENODATA, "linear_qkv.bias"},
	{"{\"model_type\": \"lla", -EINVAL, "config.json"},
	{"[]", -EINVAL, "expected a JSON object"},
};

START_TEST(config_of_another_model)
{
	put(LLAMA, "actor/dist_ckpt");
	put_config("actor/huggingface", contradictions[_i].config);
	unit_fails(open_told(NULL, NULL), &err, contradictions[_i].code, contradictions[_i].part);
	unit_fails(open_full(NULL), &err, contradictions[_i].code, contradictions[_i].part);
}
END_TEST

START_TEST(verl_without_a_config)
{
	put(LLAMA, "actor/dist_ckpt");
	unit_fails(open_told(NULL, NULL), &err, -ENODATA,
		   "actor/huggingface/config.json is missing");
	put_config("elsewhere", CONFIG("4", "176", "1000"));
	unit_ok(open_told(in_step("elsewhere"), NULL), &err);
	check_llama(in_step("elsewhere"));
	mfs_ckpt_free(ckpt);
	/* A person's word counts before the program's. */
	put_config("actor/huggingface", CONFIG("4", "192", "1000"));
	unit_ok(open_told(in_step("elsewhere"), "llama"), &err);
	mfs_ckpt_free(ckpt);
	unit_fails(open_told(in_step("elsewhere"), "qwen3"), &err, -ENOTSUP, "arch");
	unit_fails(open_told(in_step("none"), NULL), &err, -ENODATA, "none/config.json");
}
END_TEST

START_TEST(verl_without_weights)
{
	unit_fails(open_told(NULL, NULL), &err, -ENODATA, "not a Megatron checkpoint");
	put_config("actor/model/huggingface", CONFIG("4", "176", "1000"));
	unit_fails(open_told(NULL, NULL), &err, -ENODATA,
		   "verl has saved no actor/model/dist_ckpt here: SOURCE can be");
	run("mkdir -p '%s'%s", in_step("actor/model/mp_rank_00"), "");
	unit_fails(open_told(NULL, NULL), &err, -ENOTSUP, "a verl before its dist_ckpt/");
}
END_TEST

/* Where the weights are HuggingFace's, the optimizer alone is torch_dist. */
START_TEST(verls_optimizer_alone)
{
	char index[700];
	size_t len;
	uint8_t *bytes, *at;

	put(LLAMA, "actor/dist_ckpt");
	put_config("actor/huggingface", CONFIG("4", "176", "1000"));
	snprintf(index, sizeof(index), "%s", in_step("actor/dist_ckpt"));
	bytes = unit_slurp(in_step("actor/dist_ckpt/.metadata"), &len);
	for (at = bytes; (at = memmem(at, len - (size_t)(at - bytes), "decoder.", 8));)
		memcpy(at, "chained_", 8);
	for (at = bytes; (at = memmem(at, len - (size_t)(at - bytes), "embedding.", 10));)
		memcpy(at, "optimizer.", 10);
	for (at = bytes; (at = memmem(at, len - (size_t)(at - bytes), "output_layer.", 13));)
		memcpy(at, "optimizer.er.", 13);
	unit_write(index, ".metadata", bytes, len);
	free(bytes);
	unit_fails(open_told(NULL, NULL), &err, -ENODATA,
		   "actor/dist_ckpt holds no tensor of a model: SOURCE can be");
}
END_TEST

/* Any program's torch_dist without arguments, and torch's own format. */
static void put_bare(const char *fixture)
{
	run("rmdir '%s'%s", step, "");
	run("cp -r '%s' '%s'", unit_fixture(fixture), step);
}

#define SMALL(LAYERS)                                                                              \
	"{\"model_type\": \"llama\", \"hidden_size\": 16, \"intermediate_size\": 32, "             \
	"\"num_hidden_layers\": " LAYERS ", \"num_attention_heads\": 2, "                          \
	"\"num_key_value_heads\": 1, \"vocab_size\": 48}"

START_TEST(a_reference_for_torch_dist)
{
	const char *dir = unit_tmpdir();

	put_bare(BRIDGE);
	unit_write(dir, "config.json", SMALL("2"), strlen(SMALL("2")));
	/* What the save says of itself counts before. */
	unit_ok(open_told(dir, NULL), &err);
	ck_assert_ptr_null(mfs_ckpt_told_by(ckpt));
	mfs_ckpt_free(ckpt);
	ck_assert_int_eq(unlink(in_step("run_config.yaml")), 0);
	unit_fails(open_told(NULL, NULL), &err, -ENOTSUP, "-o ref=HF_DIR says what model it is");
	unit_ok(open_full(dir), &err);
	ck_assert_str_eq(mfs_ckpt_told_by(ckpt), dir);
	ck_assert_int_eq(mfs_ckpt_args(ckpt)->num_layers, 2);
	ck_assert(!mfs_ckpt_common(ckpt));
	mfs_ckpt_free(ckpt);
}
END_TEST

START_TEST(a_reference_for_plain_dcp)
{
	const char *dir = unit_tmpdir();
	size_t len;
	uint8_t *bytes, *at;

	put_bare(DCP);
	bytes = unit_slurp(in_step(".metadata"), &len);
	for (at = bytes; (at = memmem(at, len - (size_t)(at - bytes), "args", 4));)
		memcpy(at, "argz", 4);
	unit_write(step, ".metadata", bytes, len);
	free(bytes);
	unit_fails(open_told(NULL, NULL), &err, -ENODATA, "-o ref=HF_DIR says what model it is");
	unit_write(dir, "config.json", SMALL("1"), strlen(SMALL("1")));
	unit_ok(open_told(dir, NULL), &err);
	ck_assert_str_eq(mfs_ckpt_format(ckpt)->name, "dcp");
	ck_assert_uint_eq(mfs_ckpt_count(ckpt), 9);
	mfs_ckpt_free(ckpt);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("told");
	TCase *c = unit_case(s, "Verl", weights_alone);

	tcase_add_test(c, a_reference_for_torch_dist);
	tcase_add_test(c, a_reference_for_plain_dcp);
	tcase_add_checked_fixture(c, set_up, NULL);
	tcase_add_loop_test(c, places_of_verl, 0, MFS_ARRAY_SIZE(places));
	tcase_add_loop_test(c, config_of_another_model, 0, MFS_ARRAY_SIZE(contradictions));
	tcase_add_test(c, weights_next_to_an_optimizer);
	tcase_add_test(c, verl_without_a_config);
	tcase_add_test(c, verl_without_weights);
	tcase_add_test(c, verls_optimizer_alone);
	return s;
}
