/* Adapters: what PEFT's files say, and a model that is read with one. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/numbers/half.h"
#include "formats/numbers/low_rank.h"
#include "formats/ckpt/delta.h"
#include "formats/ckpt/read/ckpt_open.h"
#include "formats/hf/safetensors.h"
#include "formats/model/model.h"
#include "formats/model/peft.h"
#include "formats/plan/vfile.h"
#include "tests/unit/unit.h"

#define RANK  3
#define SCALE (5.0f / RANK)

static struct mfs_error err;

static float random_float(void)
{
	return (float)(rand() % 2001 - 1000) / 1000;
}

/* ---- the loop ---- */

START_TEST(low_rank)
{
	static const enum mfs_dtype types[] = {MFS_F32, MFS_BF16, MFS_F16};
	float a[7], b[7 * 600];
	const struct mfs_low_rank l = {a, b, 1, 600, 7, 0.3f};

	for (unsigned i = 0; i < 7; i++)
		a[i] = random_float();
	for (unsigned i = 0; i < 7 * 600; i++)
		b[i] = random_float();
	for (unsigned t = 0; t < 3; t++) {
		const unsigned size = mfs_dtype_size(types[t]);
		uint8_t w[600 * 4 + 1], portable[600 * 4 + 1];

		for (unsigned i = 0; i < sizeof(w); i++)
			portable[i] = w[i] = (uint8_t)(rand() & 0x3f);
		mfs_low_rank_add(types[t], w + 1, &l, 600);
		mfs_low_rank_add_portable(types[t], portable + 1, &l, 600);
		ck_assert_mem_eq(w, portable, 600 * size + 1);
	}
}
END_TEST

/* ---- adapter_config.json ---- */

static const struct {
	const char *more;
	int rc;
	const char *message;
} configs[] = {
	{"\"r\": 4, \"lora_alpha\": 6", 0, NULL},
	{"\"r\": 4, \"lora_alpha\": 6, \"use_dora\": false, \"rank_pattern\": {}", 0, NULL},
	{"\"r\": 4, \"lora_alpha\": 6, \"init_lora_weights\": \"gaussian\"", 0, NULL},
	{"\"r\": 4, \"lora_alpha\": 6, \"use_dora\": true", -ENOTSUP, "'use_dora' is set"},
	{"\"r\": 4, \"lora_alpha\": 6, \"alpha_pattern\": {\"q\": 1}", -ENOTSUP, "'alpha_pattern'"},
	{"\"r\": 4, \"lora_alpha\": 6, \"modules_to_save\": [\"x\"]", -ENOTSUP,
	 "'modules_to_save'"},
	{"\"r\": 4, \"lora_alpha\": 6, \"bias\": \"all\"", -ENOTSUP, "bias is 'all'"},
	{"\"r\": 4, \"lora_alpha\": 6, \"init_lora_weights\": \"pissa\"", -ENOTSUP, "is 'pissa'"},
	{"\"r\": 0, \"lora_alpha\": 6", -EINVAL, "'r'"},
	{"\"r\": \"4\", \"lora_alpha\": 6", -EINVAL, "'r'"},
	{"\"r\": 4, \"lora_alpha\": 2e39", -EINVAL, "whose quotient fp32 holds, found 5e+38"},
	{"\"r\": 1, \"lora_alpha\": -1e39", -EINVAL, "whose quotient fp32 holds"},
	{"\"r\": 4, \"lora_alpha\": null", -EINVAL, "'lora_alpha'"},
	{"\"r\": 4,", -EINVAL, "not valid JSON"},
};

START_TEST(configs_have_rank_and_scale_or_are_refused)
{
	struct mfs_peft_config c = {0};
	char text[256];
	int rc;

	snprintf(text, sizeof(text), "{\"peft_type\": \"LORA\", %s}", configs[_i].more);
	rc = mfs_peft_config_parse(text, strlen(text), "c.json", &c, &err);
	ck_assert_msg(rc == configs[_i].rc, "%d: %d", _i, rc);
	if (rc)
		unit_sentence(err.msg, configs[_i].message);
	else
		ck_assert(c.rank == 4 && c.scale == 1.5f);
}
END_TEST

START_TEST(config_kinds)
{
	static const char stabilised[] = "{\"peft_type\": \"LORA\", \"r\": 12, \"lora_alpha\": 20, "
					 "\"use_rslora\": true}";
	static const char other[] = "{\"peft_type\": \"IA3\", \"r\": 4, \"lora_alpha\": 6}";
	struct mfs_peft_config c;

	unit_ok(mfs_peft_config_parse(stabilised, strlen(stabilised), "c", &c, &err), &err);
	ck_assert(c.scale == (float)(20 / sqrt(12)));
	unit_fails(mfs_peft_config_parse(other, strlen(other), "c", &c, &err), &err, -ENOTSUP,
		   "peft_type is 'IA3'");
}
END_TEST

/* ---- a model with an adapter ---- */

struct module {
	const char *name;
	uint64_t rows, cols;
	float *a, *b;
};

static void write_adapter(const char *dir, struct module *modules, unsigned count, unsigned rank)
{
	struct mfs_safetensors_tensor tensors[16] = {{0}};
	char names[16][128], config[128];
	struct mfs_buf out = {0};

	for (unsigned i = 0; i < 2 * count; i++) {
		const struct module *m = &modules[i / 2];

		snprintf(names[i], sizeof(names[i]), "base_model.model.%s.lora_%c.weight", m->name,
			 i % 2 ? 'B' : 'A');
		tensors[i] = (struct mfs_safetensors_tensor){
			.name = names[i],
			.dtype = MFS_F32,
			.ndim = 2,
			.shape = {i % 2 ? m->rows : rank, i % 2 ? rank : m->cols}};
	}
	unit_ok(mfs_safetensors_layout(tensors, 2 * count, &err), &err);
	mfs_safetensors_header(tensors, 2 * count, &out);
	for (unsigned i = 0; i < 2 * count; i++)
		for (unsigned k = 0; k < 2 * count; k++) {
			const struct module *m = &modules[k / 2];

			if (tensors[i].name == names[k])
				mfs_buf_add(&out, k % 2 ? m->b : m->a,
					    tensors[i].end - tensors[i].begin);
		}
	unit_write(dir, "adapter_model.safetensors", out.data, out.len);
	snprintf(config, sizeof(config), "{\"peft_type\": \"LORA\", \"r\": %u, \"lora_alpha\": 5}",
		 rank);
	unit_write(dir, "adapter_config.json", config, strlen(config));
	mfs_buf_release(&out);
}

static const struct mfs_hf_target *find(const struct mfs_model *m, const char *module)
{
	char name[MFS_CKPT_NAME_SIZE], want[MFS_CKPT_NAME_SIZE];

	snprintf(want, sizeof(want), "%s.weight", module);
	for (uint32_t i = 0; i < m->target_count; i++) {
		mfs_target_name(&m->targets[i].base, name, sizeof(name));
		if (!strcmp(name, want))
			return &m->targets[i];
	}
	ck_abort_msg("no %s", want);
}

static uint16_t *read_all(const struct mfs_target *t)
{
	struct mfs_vfile *f;
	uint16_t *bytes = malloc(t->bytes);
	size_t len;

	unit_ok(mfs_vfile_new(&f, &err), &err);
	unit_ok(mfs_vfile_add_tensor(f, t, &err), &err);
	unit_ok(mfs_vfile_pread(f, 0, bytes, t->bytes, &len, &err), &err);
	/* Any range of it is the same. */
	for (unsigned i = 0; i < 50; i++) {
		uint64_t off = (uint64_t)rand() % t->bytes;
		uint8_t part[700];

		unit_ok(mfs_vfile_pread(f, off, part, sizeof(part), &len, &err), &err);
		ck_assert_mem_eq(part, (uint8_t *)bytes + off, len);
	}
	mfs_vfile_free(f);
	return bytes;
}

/* By the definition, one element at a time. */
static void check_merged(const struct module *m, const uint16_t *w, const uint16_t *merged)
{
	for (uint64_t i = 0; i < m->rows; i++)
		for (uint64_t j = 0; j < m->cols; j++) {
			float sum = 0;

			for (unsigned k = 0; k < RANK; k++)
				sum = fmaf(m->b[i * RANK + k], m->a[k * m->cols + j], sum);
			sum = sum * SCALE;
			sum += mfs_bf16_to_float(w[i * m->cols + j]);
			ck_assert_uint_eq(merged[i * m->cols + j], mfs_float_to_bf16(sum));
		}
}

static struct mfs_ckpt *open_source(void)
{
	struct mfs_ckpt *ckpt;

	unit_ok(mfs_ckpt_open(unit_fixture("weights/llama-torch-tp2-pp2/iter_0000040"), 0, &ckpt,
			      &err),
		&err);
	return ckpt;
}

static void fill(struct module *m, const struct mfs_target *t, unsigned rank)
{
	m->rows = t->shape[0];
	m->cols = t->shape[1];
	m->a = malloc(rank * m->cols * sizeof(float));
	m->b = malloc(rank * m->rows * sizeof(float));
	for (uint64_t i = 0; i < rank * m->cols; i++)
		m->a[i] = random_float();
	for (uint64_t i = 0; i < rank * m->rows; i++)
		m->b[i] = random_float();
}

static void free_modules(struct module *m, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		free(m[i].a);
		free(m[i].b);
	}
}

START_TEST(an_adapter_is_added_to_its_weights)
{
	struct module modules[] = {{.name = "model.layers.0.self_attn.q_proj"},
				   {.name = "model.layers.1.self_attn.v_proj"},
				   {.name = "model.layers.1.mlp.up_proj"},
				   {.name = "model.layers.0.mlp.down_proj"}};
	struct mfs_ckpt *plain = open_source(), *ckpt = open_source();
	struct mfs_model *before, *after;
	const char *dir = unit_tmpdir();

	unit_ok(mfs_model_new(plain, NULL, NULL, &before, &err), &err);
	ck_assert_int_eq(before->dtype, MFS_BF16);
	for (unsigned i = 0; i < 4; i++)
		fill(&modules[i], &find(before, modules[i].name)->base, RANK);
	write_adapter(dir, modules, 4, RANK);
	ck_assert(mfs_peft_looks_like_one(dir));
	unit_ok(mfs_peft_attach(ckpt, NULL, dir, &err), &err);
	unit_ok(mfs_model_new(ckpt, NULL, NULL, &after, &err), &err);
	for (uint32_t i = 0; i < before->target_count; i++) {
		const struct mfs_target *t = &before->targets[i].base;
		uint16_t *w = read_all(t), *merged = read_all(&after->targets[i].base);
		const struct module *m = NULL;

		for (unsigned k = 0; k < 4; k++)
			if (find(before, modules[k].name) == &before->targets[i])
				m = &modules[k];
		if (m)
			check_merged(m, w, merged);
		else
			ck_assert_mem_eq(w, merged, t->bytes);
		free(w);
		free(merged);
	}
	mfs_model_free(before);
	mfs_model_free(after);
	mfs_ckpt_free(plain);
	mfs_ckpt_free(ckpt);
	free_modules(modules, 4);
}
END_TEST

static void refuse(struct module *m, unsigned rank, int want, const char *part)
{
	struct mfs_ckpt *ckpt = open_source();
	const char *dir = unit_tmpdir();

	write_adapter(dir, m, 1, rank);
	unit_fails(mfs_peft_attach(ckpt, NULL, dir, &err), &err, want, part);
	mfs_ckpt_free(ckpt);
}

START_TEST(an_adapter_that_does_not_fit_is_refused)
{
	struct module m = {.name = "model.layers.0.self_attn.q_proj"};
	struct mfs_ckpt *ckpt = open_source();
	struct mfs_model *model;

	unit_ok(mfs_model_new(ckpt, NULL, NULL, &model, &err), &err);
	fill(&m, &find(model, m.name)->base, RANK);
	m.rows--;
	refuse(&m, RANK, -EINVAL, "are no adapter of rank 3 of 'model.layers.0.self_attn.q_proj");
	m.rows++;
	m.name = "model.layers.0.self_attn.other";
	refuse(&m, RANK, -ENOTSUP, "self_attn.other.lora_A.weight' has no place in a Llama");
	unit_fails(mfs_peft_attach(ckpt, NULL, unit_fixture("data"), &err), &err, -ENOENT,
		   "adapter_config.json");
	mfs_model_free(model);
	mfs_ckpt_free(ckpt);
	free_modules(&m, 1);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("adapter");

	unit_case(s, "low_rank", low_rank);
	tcase_add_loop_test(unit_case(s, "config", config_kinds),
			    configs_have_rank_and_scale_or_are_refused, 0, MFS_ARRAY_SIZE(configs));
	unit_case(s, "merged", an_adapter_is_added_to_its_weights);
	unit_case(s, "refused", an_adapter_that_does_not_fit_is_refused);
	return s;
}
