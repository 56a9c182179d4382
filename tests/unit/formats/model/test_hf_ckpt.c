/* HF directories as checkpoints: formats/model/hf_ckpt.h. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/ckpt/read/ckpt_open.h"
#include "formats/model/hf_config.h"
#include "formats/model/features.h"
#include "formats/model/hf_ckpt.h"
#include "formats/model/hf_tensors.h"
#include "formats/plan/vfile.h"
#include "formats/hf/safetensors.h"
#include "fs/view/kind.h"
#include "fs/view/view.h"
#include "tests/unit/fake_ckpt.h"

static struct mfs_error err;

/* ---- reading ---- */

static uint8_t *read_target(const struct mfs_target *t)
{
	uint8_t *bytes = malloc(t->bytes + 1);
	struct mfs_vfile *f;
	size_t len;

	unit_ok(mfs_vfile_new(&f, &err), &err);
	unit_ok(mfs_vfile_add_tensor(f, t, &err), &err);
	unit_ok(mfs_vfile_pread(f, 0, bytes, t->bytes, &len, &err), &err);
	ck_assert_uint_eq(len, t->bytes);
	mfs_vfile_free(f);
	return bytes;
}

static uint8_t *read_global(struct mfs_ckpt *ckpt, const char *name, int32_t layer, int32_t expert)
{
	const struct mfs_global_tensor *t = mfs_ckpt_find(ckpt, name, layer, expert);
	struct mfs_whole_target whole;

	ck_assert_msg(t != NULL, "%s of layer %d, expert %d: not there", name, layer, expert);
	mfs_whole_target_init(&whole, ckpt, t);
	return read_target(&whole.base);
}

static struct mfs_ckpt *open_dir(const char *dir)
{
	struct mfs_ckpt *ckpt;

	ck_assert(mfs_hf_ckpt_looks_like_one(dir));
	unit_ok(mfs_hf_ckpt_open(dir, NULL, 0, &ckpt, &err), &err);
	ck_assert_str_eq(mfs_ckpt_format(ckpt)->name, "hf");
	ck_assert_uint_eq(mfs_ckpt_layout(ckpt)->tp * mfs_ckpt_layout(ckpt)->pp, 1);
	return ckpt;
}

static void fails(const char *dir, int code, const char *says)
{
	struct mfs_ckpt *ckpt;

	unit_fails(mfs_hf_ckpt_open(dir, NULL, 0, &ckpt, &err), &err, code, says);
}

/* ---- directories, written tensor by tensor ---- */

#define MAX_ITEMS 400

struct item {
	char name[128];
	enum mfs_dtype dtype;
	unsigned ndim, shard;
	uint64_t shape[2];
	uint8_t *bytes;
	bool dropped;
};

struct world {
	char dir[256];
	struct item items[MAX_ITEMS];
	unsigned count, shards; /* 0: one file without an index */
	char *config;
	size_t config_len;
};

static uint64_t bytes_of(const struct item *i)
{
	return i->shape[0] * (i->ndim == 2 ? i->shape[1] : 1) * mfs_dtype_size(i->dtype);
}

/* Elements that tell which they are, and of which tensor. */
static void stamp(struct item *i)
{
	const uint64_t len = bytes_of(i);
	uint32_t hash = 2166136261u;

	for (const char *p = i->name; *p; p++)
		hash = (hash ^ (uint8_t)*p) * 16777619u;
	free(i->bytes);
	i->bytes = malloc(len + 1);
	for (uint64_t b = 0; b < len; b++)
		i->bytes[b] = (uint8_t)((hash + b / 2 * 2654435761u) >> (b % 2 ? 24 : 16));
}

static struct item *add_item(struct world *w, const char *name, enum mfs_dtype dtype, unsigned ndim,
			     uint64_t rows, uint64_t columns)
{
	struct item *i = &w->items[w->count];

	ck_assert_uint_lt(w->count++, MAX_ITEMS);
	*i = (struct item){.dtype = dtype, .ndim = ndim, .shape = {rows, columns}};
	snprintf(i->name, sizeof(i->name), "%s", name);
	stamp(i);
	return i;
}

static struct item *item(struct world *w, const char *name)
{
	for (unsigned i = 0; i < w->count; i++)
		if (!strcmp(w->items[i].name, name))
			return &w->items[i];
	ck_abort_msg("%s: no such tensor", name);
	return NULL;
}

/* The tensors and the config.json of a model of some arguments: all of bfloat16. */
static void imagine(struct world *w, const struct mfs_megatron_args *args)
{
	struct mfs_model *model;
	struct mfs_ckpt ckpt;
	char name[128];

	memset(w, 0, sizeof(*w));
	snprintf(w->dir, sizeof(w->dir), "%s", unit_tmpdir());
	fake_ckpt(&ckpt, args);
	unit_ok(mfs_model_new(&ckpt, NULL, NULL, &model, &err), &err);
	for (uint32_t i = 0; i < model->target_count; i++) {
		const struct mfs_target *t = &model->targets[i].base;

		mfs_target_name(t, name, sizeof(name));
		add_item(w, name, t->dtype, t->ndim, t->shape[0], t->ndim > 1 ? t->shape[1] : 1);
	}
	unit_ok(mfs_hf_config_json(model, NULL, NULL, &w->config, &w->config_len, &err), &err);
	mfs_model_free(model);
	fake_release(&ckpt);
}

static void forget(struct world *w)
{
	for (unsigned i = 0; i < w->count; i++)
		free(w->items[i].bytes);
	free(w->config);
}

static void write_shard(const struct world *w, const char *name, unsigned shard)
{
	struct mfs_safetensors_tensor t[MAX_ITEMS];
	struct mfs_buf out = {0};
	uint32_t count = 0;

	for (unsigned i = 0; i < w->count; i++) {
		const struct item *from = &w->items[i];

		if (from->dropped || (w->shards && from->shard != shard))
			continue;
		t[count++] =
			(struct mfs_safetensors_tensor){.name = from->name,
							.dtype = from->dtype,
							.ndim = (uint8_t)from->ndim,
							.shape = {from->shape[0], from->shape[1]}};
	}
	unit_ok(mfs_safetensors_layout(t, count, &err), &err);
	mfs_safetensors_header(t, count, &out);
	for (uint32_t i = 0; i < count; i++)
		for (unsigned k = 0; k < w->count; k++) {
			const struct item *from = &w->items[k];

			if (t[i].name == from->name)
				mfs_buf_add(&out, from->bytes, bytes_of(from));
		}
	unit_write(w->dir, name, out.data, out.len);
	mfs_buf_release(&out);
}

static const char *shard_name(unsigned shard)
{
	static char name[64];

	snprintf(name, sizeof(name), "model-%05u-of-00003.safetensors", shard + 1);
	return name;
}

static json_t *index_of(const struct world *w)
{
	json_t *map = json_object();

	for (unsigned i = 0; i < w->count; i++)
		if (!json_object_get(map, w->items[i].name))
			json_object_set_new(map, w->items[i].name,
					    json_string(shard_name(w->items[i].shard)));
	return json_pack("{s:{s:i}, s:o}", "metadata", "total_size", 1, "weight_map", map);
}

static void write_index(const struct world *w, json_t *index)
{
	char *text = json_dumps(index, 0);

	unit_write(w->dir, "model.safetensors.index.json", text, strlen(text));
	free(text);
	json_decref(index);
}

static void write_world(const struct world *w)
{
	unit_write(w->dir, "config.json", w->config, w->config_len);
	for (unsigned s = 0; s < w->shards; s++)
		write_shard(w, shard_name(s), s);
	if (w->shards)
		write_index(w, index_of(w));
	else
		write_shard(w, "model.safetensors", 0);
}

static void into_shards(struct world *w)
{
	w->shards = 3;
	for (unsigned i = 0; i < w->count; i++)
		w->items[i].shard = i % 3;
}

/* Replaces a key of config.json; value is JSON. */
static void set_key(struct world *w, const char *key, const char *value)
{
	json_t *config = json_loads(w->config, 0, NULL);

	json_object_set_new(config, key, json_loads(value, JSON_DECODE_ANY, NULL));
	free(w->config);
	w->config = json_dumps(config, 0);
	w->config_len = strlen(w->config);
	json_decref(config);
}

static void drop_key(struct world *w, const char *key)
{
	json_t *config = json_loads(w->config, 0, NULL);

	ck_assert_int_eq(json_object_del(config, key), 0);
	free(w->config);
	w->config = json_dumps(config, 0);
	w->config_len = strlen(w->config);
	json_decref(config);
}

static const char *in_dir(const struct world *w, const char *name)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/%s", w->dir, name);
	return path;
}

/* Every tensor of the HF view of the directory equals the one that was written. */
static void check_view(struct world *w, const char *prefix)
{
	struct mfs_ckpt *ckpt = open_dir(w->dir);
	struct mfs_model *model;
	unsigned written = 0;

	unit_ok(mfs_model_new(ckpt, NULL, NULL, &model, &err), &err);
	ck_assert_int_eq(model->vocab.source, MFS_VOCAB_ARGS);
	ck_assert_uint_eq(model->vocab.rows, model->vocab.padded);
	for (uint32_t i = 0; i < model->target_count; i++) {
		const struct mfs_target *t = &model->targets[i].base;
		char name[128];
		const struct item *from;
		uint8_t *bytes;

		mfs_target_name(t, name, sizeof(name));
		from = item(w,
			    strncmp(name, prefix, strlen(prefix)) ? name : name + strlen(prefix));
		ck_assert_uint_eq(t->bytes, bytes_of(from));
		ck_assert_int_eq(t->dtype, from->dtype);
		bytes = read_target(t);
		ck_assert_msg(!memcmp(bytes, from->bytes, t->bytes), "%s differs", name);
		free(bytes);
	}
	for (unsigned i = 0; i < w->count; i++)
		written += !w->items[i].dropped;
	ck_assert_uint_le(model->target_count, written);
	mfs_model_free(model);
	mfs_ckpt_free(ckpt);
}

/* ---- vision-language models ---- */

/* Makes a Llama the language model of a LLaVA with a tensor of another module. */
static void put_into_llava(struct world *w)
{
	char *text;

	for (unsigned i = 0; i < w->count; i++) {
		char name[sizeof(w->items[i].name)];

		snprintf(name, sizeof(name), "language_model.%.100s", w->items[i].name);
		memcpy(w->items[i].name, name, sizeof(name));
	}
	add_item(w, "vision_tower.patch.weight", MFS_BF16, 2, 4, 4);
	ck_assert_int_gt(asprintf(&text,
				  "{\"architectures\": [\"LlavaForConditionalGeneration\"], "
				  "\"vision_config\": {}, \"text_config\": %s}",
				  w->config),
			 0);
	free(w->config);
	w->config = text;
	w->config_len = strlen(text);
}

static void imagine_llava(struct world *w)
{
	struct mfs_megatron_args a = fake_llama();

	imagine(w, &a);
	put_into_llava(w);
}

static void language_fails(const struct world *w, int code, const char *says)
{
	struct mfs_ckpt *ckpt;

	write_world(w);
	unit_fails(mfs_hf_ckpt_open(w->dir, NULL, MFS_CKPT_LANGUAGE, &ckpt, &err), &err, code,
		   says);
}

START_TEST(language_model_of_a_whole_one)
{
	static struct world w;
	struct mfs_ckpt *ckpt;
	struct mfs_model *model;

	imagine_llava(&w);
	if (_i)
		into_shards(&w);
	write_world(&w);
	fails(w.dir, -ENOTSUP, "1 of its 22 tensors");
	ck_assert_ptr_nonnull(strstr(err.msg, "part=language shows the others, as llama"));
	unit_ok(mfs_hf_ckpt_open(w.dir, NULL, MFS_CKPT_LANGUAGE, &ckpt, &err), &err);
	ck_assert(mfs_ckpt_is_language(ckpt) && mfs_hf_ref_is_of(w.dir, ckpt));
	ck_assert(!mfs_hf_ref_is_source(w.dir, ckpt));
	unit_ok(mfs_model_new(ckpt, NULL, NULL, &model, &err), &err);
	ck_assert_uint_eq(model->target_count, 21);
	for (uint32_t i = 0; i < model->target_count; i++) {
		const struct mfs_target *t = &model->targets[i].base;
		char name[128] = "language_model.";
		uint8_t *bytes = read_target(t);

		mfs_target_name(t, name + strlen(name), 100);
		ck_assert_mem_eq(bytes, item(&w, name)->bytes, t->bytes);
		free(bytes);
	}
	mfs_model_free(model);
	mfs_ckpt_free(ckpt);
	forget(&w);
}
END_TEST

START_TEST(no_language_model)
{
	static struct world w;
	struct mfs_megatron_args a = fake_llama();

	imagine_llava(&w);
	item(&w, "language_model.model.norm.weight")->dropped = true;
	language_fails(&w, -ENODATA, "'model.norm.weight' is missing");
	add_item(&w, "model.language_model.norm.weight", MFS_BF16, 1, 64, 1);
	language_fails(&w, -EINVAL, "'language_model.model....' and 'model.language_model....'");
	item(&w, "model.language_model.norm.weight")->dropped = true;
	add_item(&w, "ear.weight", MFS_BF16, 1, 64, 1);
	language_fails(&w, -ENOTSUP, "'ear.weight' is of none of the modules");
	set_key(&w, "text_config", "[]");
	language_fails(&w, -EINVAL, "'text_config' is [], expected an object");
	drop_key(&w, "text_config");
	language_fails(&w, -ENODATA, "'text_config' is missing");
	set_key(&w, "text_config", "{\"model_type\": \"gemma2\"}");
	language_fails(&w, -ENOTSUP, "is \"gemma2\", expected one of llama");
	set_key(&w, "architectures", "[\"LlavoForConditionalGeneration\"]");
	language_fails(&w, -ENOTSUP, "did you mean 'LlavaForConditionalGeneration'");
	forget(&w);
	imagine(&w, &a);
	language_fails(&w, -EINVAL, "no vision-language model");
	forget(&w);
}
END_TEST

/* ---- identity ---- */

static struct mfs_megatron_args deepseek_with_mtp(void)
{
	struct mfs_megatron_args a = fake_deepseek();

	a.mtp_num_layers = 2;
	a.q_lora_rank = MFS_ABSENT;
	return a;
}

static struct mfs_megatron_args mimo(void)
{
	struct mfs_megatron_args a = fake_qwen2();

	a.mtp_num_layers = 2;
	return a;
}

static struct mfs_megatron_args exaone4(void)
{
	struct mfs_megatron_args a = fake_qwen3();

	a.post_norms = true;
	return a;
}

static struct mfs_megatron_args llama_with_biases(void)
{
	struct mfs_megatron_args a = fake_llama();

	a.add_bias_linear = a.tied = true;
	a.kv_channels = 24;
	return a;
}

static struct mfs_megatron_args (*const makers[])(void) = {
	fake_llama,    fake_qwen2,	  fake_qwen3,	     fake_gpt2, fake_mixtral,
	fake_deepseek, deepseek_with_mtp, llama_with_biases, mimo,	exaone4,
};

#define MAKERS MFS_ARRAY_SIZE(makers)

START_TEST(what_was_written_is_shown)
{
	static struct world w;
	struct mfs_megatron_args a = makers[_i]();

	imagine(&w, &a);
	write_world(&w);
	check_view(&w, "");
	forget(&w);
}
END_TEST

START_TEST(in_shards)
{
	static struct world w;
	struct mfs_megatron_args a = makers[_i]();

	imagine(&w, &a);
	into_shards(&w);
	write_world(&w);
	check_view(&w, "");
	forget(&w);
}
END_TEST

/* transformers' base classes save without the name of the module around them. */
START_TEST(base_models)
{
	static struct world w;
	struct mfs_megatron_args a = makers[_i]();
	const char *prefix = a.layernorm ? "transformer." : "model.";

	a.tied = true;
	imagine(&w, &a);
	for (unsigned i = 0; i < w.count; i++)
		memmove(w.items[i].name, w.items[i].name + strlen(prefix),
			sizeof(w.items[i].name) - strlen(prefix));
	write_world(&w);
	check_view(&w, prefix);
	forget(&w);
}
END_TEST

START_TEST(types_are_kept)
{
	static struct world w;
	struct mfs_megatron_args a = fake_deepseek();
	struct mfs_ckpt *ckpt;

	imagine(&w, &a);
	for (unsigned i = 0; i < w.count; i++) {
		w.items[i].dtype =
			strstr(w.items[i].name, "e_score_correction_bias") ? MFS_F32 : MFS_F16;
		stamp(&w.items[i]);
	}
	write_world(&w);
	check_view(&w, "");
	ckpt = open_dir(w.dir);
	ck_assert_str_eq(mfs_ckpt_args(ckpt)->params_dtype, "float16");
	ck_assert_int_eq(mfs_ckpt_find(ckpt, "decoder.layers.mlp.router.expert_bias", 1, -1)->dtype,
			 MFS_F32);
	mfs_ckpt_free(ckpt);
	forget(&w);
}
END_TEST

/* ---- the mapping, by the formulas of hf-mapping.md 3.0.1 and 3.0.4, row by row ---- */

static const uint8_t *row(struct world *w, const char *name, uint64_t i)
{
	const struct item *t = item(w, name);

	return t->bytes + i * t->shape[1] * 2;
}

START_TEST(rows_of_qkv)
{
	static struct world w;
	struct mfs_megatron_args a = fake_llama();
	const uint64_t d = 16, r = 2, bytes = 64 * 2;
	struct mfs_ckpt *ckpt;
	uint8_t *qkv;

	imagine(&w, &a);
	write_world(&w);
	ckpt = open_dir(w.dir);
	qkv = read_global(ckpt, "decoder.layers.self_attention.linear_qkv.weight", 1, -1);
	for (uint64_t i = 0; i < 4 * d; i++)
		ck_assert_mem_eq(qkv + (i / (r * d) * (r + 2) * d + i % (r * d)) * bytes,
				 row(&w, "model.layers.1.self_attn.q_proj.weight", i), bytes);
	for (uint64_t i = 0; i < 2 * d; i++) {
		const uint64_t k = i / d * (r + 2) * d + r * d + i % d;

		ck_assert_mem_eq(qkv + k * bytes,
				 row(&w, "model.layers.1.self_attn.k_proj.weight", i), bytes);
		ck_assert_mem_eq(qkv + (k + d) * bytes,
				 row(&w, "model.layers.1.self_attn.v_proj.weight", i), bytes);
	}
	free(qkv);
	mfs_ckpt_free(ckpt);
	forget(&w);
}
END_TEST

START_TEST(gates_and_experts)
{
	static struct world w;
	struct mfs_megatron_args a = fake_mixtral();
	const size_t half = 48 * 64 * 2;
	struct mfs_ckpt *ckpt;
	uint8_t *fc1;

	imagine(&w, &a);
	write_world(&w);
	ckpt = open_dir(w.dir);
	fc1 = read_global(ckpt, "decoder.layers.mlp.experts.experts.linear_fc1.weight", 1, 3);
	ck_assert_mem_eq(fc1, row(&w, "model.layers.1.block_sparse_moe.experts.3.w1.weight", 0),
			 half);
	ck_assert_mem_eq(fc1 + half,
			 row(&w, "model.layers.1.block_sparse_moe.experts.3.w3.weight", 0), half);
	free(fc1);
	mfs_ckpt_free(ckpt);
	forget(&w);
}
END_TEST

/* Columns of c_attn are q, k, v; Megatron has rows, head by head. */
START_TEST(columns_of_conv1d)
{
	static struct world w;
	struct mfs_megatron_args a = fake_gpt2();
	struct mfs_ckpt *ckpt;
	uint8_t *qkv, *fc2;

	imagine(&w, &a);
	write_world(&w);
	ckpt = open_dir(w.dir);
	qkv = read_global(ckpt, "decoder.layers.self_attention.linear_qkv.weight", 0, -1);
	fc2 = read_global(ckpt, "decoder.layers.mlp.linear_fc2.weight", 1, -1);
	for (uint64_t head = 0; head < 4; head++)
		for (uint64_t part = 0; part < 3; part++)
			for (uint64_t i = 0; i < 16; i++)
				for (uint64_t c = 0; c < 64; c++) {
					const uint64_t from = part * 64 + head * 16 + i;
					const uint64_t to = (head * 3 + part) * 16 + i;

					ck_assert_mem_eq(qkv + (to * 64 + c) * 2,
							 row(&w,
							     "transformer.h.0.attn.c_attn.weight",
							     c) + from * 2,
							 2);
				}
	for (uint64_t i = 0; i < 64; i++)
		for (uint64_t c = 0; c < 176; c++)
			ck_assert_mem_eq(fc2 + (i * 176 + c) * 2,
					 row(&w, "transformer.h.1.mlp.c_proj.weight", c) + i * 2,
					 2);
	free(qkv);
	free(fc2);
	mfs_ckpt_free(ckpt);
	forget(&w);
}
END_TEST

START_TEST(mtp_layers)
{
	static struct world w;
	struct mfs_megatron_args a = deepseek_with_mtp();
	struct mfs_ckpt *ckpt;
	uint8_t *bytes;

	imagine(&w, &a);
	add_item(&w, "model.layers.2.embed_tokens.weight", MFS_BF16, 2, 1024, 64);
	add_item(&w, "model.layers.3.shared_head.head.weight", MFS_BF16, 2, 1024, 64);
	write_world(&w);
	check_view(&w, "");
	ckpt = open_dir(w.dir);
	bytes = read_global(ckpt, "mtp.layers.eh_proj.weight", 1, -1);
	ck_assert_mem_eq(bytes, row(&w, "model.layers.3.eh_proj.weight", 0), 64 * 128 * 2);
	free(bytes);
	bytes = read_global(ckpt, "mtp.layers.transformer_layer.input_layernorm.weight", 0, -1);
	ck_assert_mem_eq(bytes, row(&w, "model.layers.2.input_layernorm.weight", 0), 64 * 2);
	free(bytes);
	mfs_ckpt_free(ckpt);
	forget(&w);
}
END_TEST

/* config.json keeps the number where transformers has dropped the weights. */
/* Under a prefix of their own, counted from 0, and with the halves of eh_proj's columns swapped. */
START_TEST(mtp_layers_of_their_own)
{
	static struct world w;
	struct mfs_megatron_args a = mimo();
	struct mfs_ckpt *ckpt;
	uint8_t *bytes;

	imagine(&w, &a);
	write_world(&w);
	ckpt = open_dir(w.dir);
	bytes = read_global(ckpt, "mtp.layers.eh_proj.weight", 1, -1);
	for (unsigned r = 0; r < 64; r++) {
		const uint8_t *hf = row(&w, "model.mtp_layers.1.input_proj.weight", r);

		ck_assert_mem_eq(bytes + r * 256, hf + 128, 128);
		ck_assert_mem_eq(bytes + r * 256 + 128, hf, 128);
	}
	free(bytes);
	bytes = read_global(ckpt, "mtp.layers.enorm.weight", 0, -1);
	ck_assert_mem_eq(bytes, row(&w, "model.mtp_layers.0.token_layernorm.weight", 0), 128);
	free(bytes);
	mfs_ckpt_free(ckpt);
	forget(&w);
}
END_TEST

START_TEST(mtp_layers_without_weights)
{
	static struct world w;
	struct mfs_megatron_args a = fake_deepseek();
	const char *const *warnings;
	struct mfs_ckpt *ckpt;

	imagine(&w, &a);
	set_key(&w, "num_nextn_predict_layers", "1");
	write_world(&w);
	check_view(&w, "");
	ckpt = open_dir(w.dir);
	ck_assert_int_eq(mfs_ckpt_args(ckpt)->mtp_num_layers, 0);
	ck_assert_uint_eq(mfs_ckpt_warnings(ckpt, &warnings), 1);
	unit_sentence(warnings[0], "multi-token");
	mfs_ckpt_free(ckpt);
	forget(&w);
}
END_TEST

/* ---- heads that are declared tied ---- */

/* A head with the embedding's bytes. */
static struct item *add_head(struct world *w, const char *embedding)
{
	const struct item *from = item(w, embedding);
	struct item *head =
		add_item(w, "lm_head.weight", from->dtype, 2, from->shape[0], from->shape[1]);

	memcpy(head->bytes, from->bytes, bytes_of(from));
	return head;
}

static void check_tied(struct world *w, bool tied)
{
	struct mfs_ckpt *ckpt = open_dir(w->dir);
	const char *const *warnings;

	ck_assert(mfs_ckpt_args(ckpt)->tied == tied);
	ck_assert(mfs_hf_ckpt_is_untied(ckpt) == !tied);
	ck_assert_uint_eq(mfs_ckpt_warnings(ckpt, &warnings), !tied);
	ck_assert(!mfs_ckpt_find(ckpt, "output_layer.weight", -1, -1) == tied);
	if (!tied)
		unit_sentence(warnings[0], "'lm_head.weight' differs");
	mfs_ckpt_free(ckpt);
	check_view(w, "");
}

static struct mfs_megatron_args tied_llama(void)
{
	struct mfs_megatron_args a = fake_llama();

	a.tied = true;
	return a;
}

static struct mfs_megatron_args tied_qwen3(void)
{
	struct mfs_megatron_args a = fake_qwen3();

	a.tied = true;
	return a;
}

static struct mfs_megatron_args tied_deepseek(void)
{
	struct mfs_megatron_args a = fake_deepseek();

	a.tied = true;
	return a;
}

static const struct {
	struct mfs_megatron_args (*make)(void);
	const char *embedding;
} tied_makers[] = {
	{tied_llama, "model.embed_tokens.weight"},    {fake_qwen2, "model.embed_tokens.weight"},
	{tied_qwen3, "model.embed_tokens.weight"},    {fake_gpt2, "transformer.wte.weight"},
	{tied_deepseek, "model.embed_tokens.weight"},
};

#define TIED_MAKERS ((int)(MFS_ARRAY_SIZE(tied_makers)))

/* As transformers: a head that differs from the embedding in one bit is a head of its own. In one
 * file, and in shards, where the two lie in different files. */
START_TEST(tied_heads)
{
	static struct world w;
	struct mfs_megatron_args a = tied_makers[_i].make();
	struct item *head;

	imagine(&w, &a);
	head = add_head(&w, tied_makers[_i].embedding);
	write_world(&w);
	check_tied(&w, true);
	into_shards(&w);
	head->shard = (item(&w, tied_makers[_i].embedding)->shard + 1) % 3;
	ck_assert_int_eq(unlink(in_dir(&w, "model.safetensors")), 0);
	write_world(&w);
	check_tied(&w, true);
	head->bytes[bytes_of(head) - 1] ^= 1;
	write_world(&w);
	check_tied(&w, false);
	forget(&w);
}
END_TEST

/* config.json is read again for a head that is not tied: who may read what stands there by then
 * counts. */
START_TEST(config_through_a_link)
{
	static struct world w;
	struct mfs_megatron_args a = tied_llama();
	struct mfs_view_options opt = {0};
	struct mfs_view_origin source;
	struct mfs_ckpt *ckpt;
	struct mfs_view *view;
	char private[512];

	imagine(&w, &a);
	add_head(&w, "model.embed_tokens.weight")->bytes[0] ^= 1;
	write_world(&w);
	ck_assert_int_eq(chmod(unit_tmpdir(), 0755) | chmod(w.dir, 0755), 0);
	ckpt = open_dir(w.dir);
	snprintf(private, sizeof(private), "%s", in_dir(&w, "private"));
	ck_assert_int_eq(mkdir(private, 0700), 0);
	snprintf(private, sizeof(private), "%s", in_dir(&w, "private/config.json"));
	ck_assert_int_eq(rename(in_dir(&w, "config.json"), private), 0);
	ck_assert_int_eq(symlink("private/config.json", in_dir(&w, "config.json")), 0);
	opt.ref = w.dir;
	source = (struct mfs_view_origin){.options = &opt, .ckpt = ckpt};
	unit_ok(mfs_view_kind_hf.open(&source, "", &view, &err), &err);
	ck_assert_uint_eq(mfs_access_told(&view->access).mode & 0044, 0);
	mfs_view_free(view);
	mfs_ckpt_free(ckpt);
	forget(&w);
}
END_TEST

/* Of another type or shape it is no copy, whatever its bytes; the shape must then be the
 * model's. */
START_TEST(heads_of_another_kind)
{
	static struct world w;
	struct mfs_megatron_args a = tied_llama();
	struct item *head;

	imagine(&w, &a);
	head = add_head(&w, "model.embed_tokens.weight");
	head->dtype = MFS_F16;
	write_world(&w);
	check_tied(&w, false);
	head->shape[0] = 512;
	head->shape[1] = 128;
	write_world(&w);
	fails(w.dir, -EINVAL, "'lm_head.weight' is [512, 128]");
	forget(&w);
}
END_TEST

/* gpt2's class ties where config.json does not say; llama's does not. */
START_TEST(tied_by_default)
{
	static struct world w;
	struct mfs_megatron_args a = fake_gpt2();

	imagine(&w, &a);
	stamp(add_head(&w, "transformer.wte.weight"));
	drop_key(&w, "tie_word_embeddings");
	write_world(&w);
	check_tied(&w, false);
	forget(&w);
}
END_TEST

/* ---- what is passed over ---- */

START_TEST(harmless_extras)
{
	static struct world w;
	struct mfs_megatron_args a = fake_qwen2();

	imagine(&w, &a);
	add_head(&w, "model.embed_tokens.weight");
	add_item(&w, "model.layers.0.self_attn.rotary_emb.inv_freq", MFS_F32, 1, 8, 1);
	add_item(&w, "model.rotary_emb.inv_freq", MFS_F32, 1, 8, 1);
	write_world(&w);
	check_view(&w, "");
	forget(&w);
	a = fake_gpt2();
	imagine(&w, &a);
	add_item(&w, "transformer.h.0.attn.bias", MFS_U8, 2, 8, 8);
	add_item(&w, "transformer.h.0.attn.masked_bias", MFS_F32, 1, 1, 1);
	write_world(&w);
	check_view(&w, "");
	forget(&w);
}
END_TEST

/* As in transformers: the single file counts, whatever an index in the same directory says. */
START_TEST(one_file_before_an_index)
{
	static struct world w;
	struct mfs_megatron_args a = fake_llama();

	imagine(&w, &a);
	write_world(&w);
	unit_write(w.dir, "model.safetensors.index.json", "{", 1);
	unit_write(w.dir, "pytorch_model.bin", "?", 1);
	check_view(&w, "");
	forget(&w);
}
END_TEST

/* The index decides between two copies. */
START_TEST(a_copy_in_another_shard)
{
	static struct world w;
	struct mfs_megatron_args a = fake_llama();
	struct item *copy;

	imagine(&w, &a);
	into_shards(&w);
	copy = add_item(&w, "model.norm.weight", MFS_BF16, 1, 64, 1);
	copy->shard = (item(&w, "model.norm.weight")->shard + 1) % 3;
	memset(copy->bytes, 0, bytes_of(copy));
	write_world(&w);
	check_view(&w, "");
	forget(&w);
}
END_TEST

START_TEST(files_may_lie_in_subdirectories)
{
	static struct world w;
	struct mfs_megatron_args a = fake_llama();
	char sub[300];
	json_t *index, *map, *file;
	const char *name;

	imagine(&w, &a);
	write_world(&w);
	snprintf(sub, sizeof(sub), "%s/part", w.dir);
	ck_assert_int_eq(mkdir(sub, 0755), 0);
	write_shard(&w, "part/all.safetensors", 0);
	index = index_of(&w);
	map = json_object_get(index, "weight_map");
	json_object_foreach(map, name, file)
	{
		json_string_set(file, "part/all.safetensors");
	}
	write_index(&w, index);
	snprintf(sub, sizeof(sub), "%s/model.safetensors", w.dir);
	ck_assert_int_eq(unlink(sub), 0);
	check_view(&w, "");
	forget(&w);
}
END_TEST

/* ---- what is refused ---- */

/* A llama that has been changed must be refused with these words. */
static void refuse(void (*change)(struct world *w), unsigned shards, int code, const char *says)
{
	static struct world w;
	struct mfs_megatron_args a = fake_llama();

	imagine(&w, &a);
	if (shards)
		into_shards(&w);
	change(&w);
	write_world(&w);
	fails(w.dir, code, says);
	forget(&w);
}

static void drop_one(struct world *w)
{
	item(w, "model.layers.1.mlp.up_proj.weight")->dropped = true;
}

static void drop_head(struct world *w)
{
	item(w, "lm_head.weight")->dropped = true;
}

static void drop_layer(struct world *w)
{
	set_key(w, "num_hidden_layers", "1");
}

static void add_tensor(struct world *w)
{
	add_item(w, "model.layers.0.mlp.gate.weight", MFS_BF16, 2, 4, 64);
}

static void add_scale(struct world *w)
{
	add_item(w, "model.layers.0.mlp.up_proj.weight_scale_inv", MFS_F32, 2, 1, 1);
}

static void shorten(struct world *w)
{
	item(w, "model.layers.0.self_attn.k_proj.weight")->shape[0] = 16;
}

static void flatten(struct world *w)
{
	struct item *i = item(w, "model.layers.0.self_attn.k_proj.weight");

	i->shape[0] *= i->shape[1];
	i->shape[1] = 1;
	i->ndim = 1;
}

static void more_words(struct world *w)
{
	set_key(w, "vocab_size", "1025");
}

static void make_fp8(struct world *w)
{
	item(w, "model.layers.0.mlp.up_proj.weight")->dtype = MFS_F8_E4M3;
}

static void mix_types(struct world *w)
{
	item(w, "model.layers.0.self_attn.v_proj.weight")->dtype = MFS_F16;
}

static void quantise(struct world *w)
{
	set_key(w, "quantization_config", "{\"quant_method\": \"gptq\"}");
}

static void put_twice(struct world *w)
{
	add_item(w, "extra.weight", MFS_BF16, 1, 4, 1)->shard = 0;
	add_item(w, "extra.weight", MFS_BF16, 1, 4, 1)->shard = 1;
}

START_TEST(tensors_that_do_not_fit)
{
	refuse(drop_one, 0, -ENODATA, "'model.layers.1.mlp.up_proj.weight' is missing");
	refuse(drop_head, 0, -ENODATA, "'lm_head.weight' is missing");
	refuse(drop_layer, 0, -ENOTSUP, "'model.layers.1.");
	refuse(add_tensor, 0, -ENOTSUP, "'model.layers.0.mlp.gate.weight' [4, 64]");
	refuse(add_scale, 0, -ENOTSUP, "quantised");
	refuse(quantise, 0, -ENOTSUP, "gptq");
	refuse(shorten, 0, -EINVAL, "k_proj.weight' is [16, 64], but by config.json");
	refuse(flatten, 0, -EINVAL, "k_proj.weight' is [2048]");
	refuse(more_words, 0, -EINVAL, "[1025, 64]");
	refuse(make_fp8, 0, -ENOTSUP, "float8");
	refuse(mix_types, 0, -ENOTSUP, "v_proj.weight' is of float16, expected bfloat16");
}
END_TEST

static void forge_index(struct world *w, const char *name, const char *file)
{
	json_t *index = index_of(w);

	json_object_set_new(json_object_get(index, "weight_map"), name, json_string(file));
	write_index(w, index);
}

START_TEST(shards_that_do_not_fit)
{
	static struct world w;
	struct mfs_megatron_args a = fake_llama();
	char path[512];
	json_t *index;

	refuse(drop_one, 1, -ENODATA, "'model.layers.1.mlp.up_proj.weight' is missing");
	imagine(&w, &a);
	into_shards(&w);
	write_world(&w);
	check_view(&w, "");
	forge_index(&w, "other.weight", shard_name(1));
	fails(w.dir, -ENODATA, "'other.weight' is missing");
	forge_index(&w, "other.weight", "model-00004-of-00003.safetensors");
	fails(w.dir, -ENODATA, "model-00004-of-00003.safetensors is missing");
	forge_index(&w, "other.weight", "../config.json");
	fails(w.dir, -EINVAL, "leads out");
	forge_index(&w, "other.weight", "/etc/passwd");
	fails(w.dir, -EINVAL, "leads out");
	index = index_of(&w);
	put_twice(&w);
	write_world(&w);
	write_index(&w, index);
	fails(w.dir, -EINVAL, "'extra.weight' is in");
	w.items[w.count - 1].dropped = w.items[w.count - 2].dropped = true;
	write_world(&w);
	fails(w.dir, -ENODATA, "'extra.weight' is missing");
	w.count -= 2;
	write_world(&w);
	check_view(&w, "");
	snprintf(path, sizeof(path), "%s/%s", w.dir, shard_name(2));
	ck_assert_int_eq(truncate(path, 1000), 0);
	fails(w.dir, -EINVAL, shard_name(2));
	ck_assert_int_eq(unlink(path), 0);
	fails(w.dir, -ENODATA, "is missing; it is listed in model.safetensors.index.json");
	w.count += 2;
	forget(&w);
}
END_TEST

START_TEST(broken_indices)
{
	static const struct {
		const char *text;
		int code;
		const char *says;
	} cases[] = {
		{"{", -EINVAL, "JSON"},
		{"[]", -EINVAL, "weight_map"},
		{"{\"weight_map\": []}", -EINVAL, "weight_map"},
		{"{\"weight_map\": {}}", -EINVAL, "weight_map"},
		{"{\"weight_map\": {\"a\": 1}}", -EINVAL, "'a' is not text"},
		{"{\"weight_map\": {\"a\": \"b\", \"a\": \"c\"}}", -EINVAL, "JSON"},
		{"{\"weight_map\": {\"a\": \"\"}}", -EINVAL, "leads out"},
		{"{\"weight_map\": {\"a\": \"b/././c\"}}", -EINVAL, "named 'b/././c'"},
		{"{\"weight_map\": {\"a\": \"b//c\"}}", -EINVAL, "named 'b//c'"},
		{"{\"weight_map\": {\"a\": \".\"}}", -EINVAL, "regular"},
	};
	static struct world w;
	struct mfs_megatron_args a = fake_llama();

	imagine(&w, &a);
	unit_write(w.dir, "config.json", w.config, w.config_len);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		unit_write(w.dir, "model.safetensors.index.json", cases[i].text,
			   strlen(cases[i].text));
		fails(w.dir, cases[i].code, cases[i].says);
	}
	forget(&w);
}
END_TEST

START_TEST(no_directory_of_a_model)
{
	static struct world w;
	struct mfs_megatron_args a = fake_llama();

	imagine(&w, &a);
	ck_assert(!mfs_hf_ckpt_looks_like_one(w.dir));
	fails(w.dir, -ENODATA, "config.json is missing");
	unit_write(w.dir, "config.json", w.config, w.config_len);
	ck_assert(!mfs_hf_ckpt_looks_like_one(w.dir));
	fails(w.dir, -ENODATA, "no weights");
	unit_write(w.dir, "model.safetensors", "", 0);
	ck_assert(mfs_hf_ckpt_looks_like_one(w.dir));
	fails(w.dir, -EINVAL, "model.safetensors");
	unit_write(w.dir, "config.json", "{}", 2);
	fails(w.dir, -ENODATA, "model_type");
	ck_assert(!mfs_hf_ckpt_looks_like_one("/nonexistent"));
	fails("/nonexistent", -ENOENT, NULL);
	forget(&w);
}
END_TEST

/* ---- checkpoints of Megatron, shown as HF directories, read as Megatron's again ---- */

static const char *const checkpoints[] = {
	"weights/llama-torch-tp2-pp2/iter_0000040",
	"weights/llama-torch_dist-tp2-pp2-vpp2/iter_0000040",
	"weights/qwen3-torch_dist-tp4/iter_0000040",
	"weights/mixtral-torch-pp2-ep2/iter_0000040",
	"weights/mixtral-torch_dist-pp2-ep2/iter_0000040",
	"weights/deepseek-torch_dist-pp2-ep2/iter_0000040",
	"weights/gpt2-torch-tp2-pp2/iter_0000040",
};

#define CHECKPOINTS MFS_ARRAY_SIZE(checkpoints)

/* The HF view's bytes, by way of a list of its tensors. */
static void export_to(struct world *w, struct mfs_model *model)
{
	char name[128];

	memset(w, 0, sizeof(*w));
	snprintf(w->dir, sizeof(w->dir), "%s", unit_tmpdir());
	for (uint32_t i = 0; i < model->target_count; i++) {
		const struct mfs_target *t = &model->targets[i].base;
		struct item *to;

		mfs_target_name(t, name, sizeof(name));
		to = add_item(w, name, t->dtype, t->ndim, t->shape[0],
			      t->ndim > 1 ? t->shape[1] : 1);
		free(to->bytes);
		to->bytes = read_target(t);
	}
	unit_ok(mfs_hf_config_json(model, NULL, NULL, &w->config, &w->config_len, &err), &err);
	write_world(w);
}

/* All global tensors are the same but for the padding of the vocabulary. */
static void compare_globals(struct mfs_ckpt *was, struct mfs_ckpt *is)
{
	ck_assert_uint_eq(mfs_ckpt_count(was), mfs_ckpt_count(is));
	for (uint32_t i = 0; i < mfs_ckpt_count(was); i++) {
		const struct mfs_global_tensor *a = mfs_ckpt_at(was, i);
		const struct mfs_global_tensor *b = mfs_ckpt_find(is, a->name, a->layer, a->expert);
		uint8_t *old = read_global(was, a->name, a->layer, a->expert);
		uint8_t *new = read_global(is, a->name, a->layer, a->expert);
		uint64_t elements;

		ck_assert_int_eq(a->dtype, b->dtype);
		ck_assert_uint_eq(a->ndim, b->ndim);
		ck_assert_uint_ge(a->shape[0], b->shape[0]);
		if (mfs_ckpt_args(is)->padded_vocab_size == mfs_ckpt_args(was)->padded_vocab_size)
			ck_assert_mem_eq(a->shape, b->shape, sizeof(a->shape));
		ck_assert(mfs_shape_count(b->shape, b->ndim, &elements));
		ck_assert_msg(!memcmp(old, new, elements * mfs_dtype_size(b->dtype)),
			      "%s of layer %d differs", a->name, a->layer);
		free(old);
		free(new);
	}
}

START_TEST(megatron_s_tensors_come_back)
{
	static struct world w;
	struct mfs_ckpt *was, *is;
	struct mfs_model *model;

	unit_ok(mfs_ckpt_open(unit_fixture(checkpoints[_i]), 0, &was, &err), &err);
	unit_ok(mfs_model_new(was, NULL, NULL, &model, &err), &err);
	ck_assert_uint_eq(
		(uint64_t)(model->features & (MFS_HAS(ZERO_CENTERED) | MFS_HAS(ROPE_INTERLEAVED))),
		0);
	export_to(&w, model);
	is = open_dir(w.dir);
	ck_assert(mfs_features_of(mfs_ckpt_args(is)) == model->features);
	compare_globals(was, is);
	mfs_model_free(model);
	mfs_ckpt_free(was);
	mfs_ckpt_free(is);
	forget(&w);
}
END_TEST

/* ---- pytorch_model.bin (tests/fixtures/hf/make.py) ---- */

/* One set of weights in both containers: shared storages, transposed strides and buffers in the
 * .bin. */
START_TEST(torch_files)
{
	static const char *const pairs[][2] = {
		{"hf/llama-bin", "hf/llama-safetensors"},
		{"hf/llama-bin-shards", "hf/llama-safetensors"},
		{"hf/gpt2-bin", "hf/gpt2-safetensors"},
	};
	struct mfs_ckpt *a = open_dir(unit_fixture(pairs[_i][0]));
	struct mfs_ckpt *b = open_dir(unit_fixture(pairs[_i][1]));
	struct mfs_model *model;

	compare_globals(a, b);
	unit_ok(mfs_model_new(a, NULL, NULL, &model, &err), &err);
	mfs_model_free(model);
	for (uint32_t i = 0; i < mfs_ckpt_count(a); i++) {
		const struct mfs_global_tensor *t = mfs_ckpt_at(a, i);
		bool checked;

		for (uint32_t c = 0; c < t->chunk_count; c++) {
			unit_ok(mfs_ckpt_check_bytes(a, t, mfs_ckpt_chunks(a, t)[c].storage,
						     &checked, &err),
				&err);
			ck_assert(checked);
		}
	}
	mfs_ckpt_free(a);
	mfs_ckpt_free(b);
}
END_TEST

START_TEST(no_torch_file)
{
	static struct world w;
	struct mfs_megatron_args a = fake_llama();

	imagine(&w, &a);
	unit_write(w.dir, "config.json", w.config, w.config_len);
	unit_write(w.dir, "pytorch_model.bin", "PK", 2);
	fails(w.dir, -EINVAL, "pytorch_model.bin");
	forget(&w);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("hf_ckpt");
	TCase *c = unit_case(s, "identity", types_are_kept);

	tcase_add_loop_test(c, what_was_written_is_shown, 0, MAKERS);
	tcase_add_loop_test(c, in_shards, 0, MAKERS);
	tcase_add_loop_test(c, base_models, 0, MAKERS);
	tcase_add_loop_test(c, megatron_s_tensors_come_back, 0, CHECKPOINTS);
	c = unit_case(s, "mapping", rows_of_qkv);
	tcase_add_test(c, gates_and_experts);
	tcase_add_test(c, columns_of_conv1d);
	tcase_add_test(c, mtp_layers);
	tcase_add_test(c, mtp_layers_of_their_own);
	tcase_add_test(c, mtp_layers_without_weights);
	c = unit_case(s, "tied", heads_of_another_kind);
	tcase_add_test(c, config_through_a_link);
	tcase_add_loop_test(c, tied_heads, 0, TIED_MAKERS);
	tcase_add_test(c, tied_by_default);
	c = unit_case(s, "files", harmless_extras);
	tcase_add_test(c, one_file_before_an_index);
	tcase_add_test(c, a_copy_in_another_shard);
	tcase_add_test(c, files_may_lie_in_subdirectories);
	tcase_add_loop_test(c, torch_files, 0, 3);
	c = unit_case(s, "refused", tensors_that_do_not_fit);
	tcase_add_test(c, shards_that_do_not_fit);
	tcase_add_test(c, broken_indices);
	tcase_add_test(c, no_directory_of_a_model);
	tcase_add_test(c, no_torch_file);
	tcase_add_loop_test(c, language_model_of_a_whole_one, 0, 2);
	tcase_add_test(c, no_language_model);
	return s;
}
