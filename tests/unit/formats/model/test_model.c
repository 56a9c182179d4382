/* Families, targets and refusals: formats/model/model.h, on checkpoints without files. */
#include "tests/unit/unit.h"

#include "formats/base/array.h"
#include "formats/ckpt/names.h"
#include "formats/ckpt/read/ckpt_open.h"
#include "formats/model/families/family.h"
#include "formats/model/hf_config.h"
#include "formats/model/hf_weights.h"
#include "formats/model/model.h"
#include "tests/unit/fake_ckpt.h"

static struct mfs_error err;

/* The families with what must come out of their fake: by hand, from the models' own definitions. */
static const struct {
	const char *name, *architecture;
	struct mfs_megatron_args (*args)(void);
	uint32_t targets;
	const char *first, *some, *last;
	const char *shape; /* of some */
} families[] = {
	{"llama", "LlamaForCausalLM", fake_llama, 1 + 2 * 9 + 2, "model.embed_tokens.weight",
	 "model.layers.1.self_attn.k_proj.weight", "lm_head.weight", "[32, 64]"},
	{"qwen2", "Qwen2ForCausalLM", fake_qwen2, 1 + 2 * 12 + 1, "model.embed_tokens.weight",
	 "model.layers.0.self_attn.v_proj.bias", "model.norm.weight", "[32]"},
	{"qwen3", "Qwen3ForCausalLM", fake_qwen3, 1 + 2 * 11 + 2, "model.embed_tokens.weight",
	 "model.layers.1.self_attn.q_norm.weight", "lm_head.weight", "[32]"},
	{"mixtral", "MixtralForCausalLM", fake_mixtral, 1 + 2 * (6 + 1 + 4 * 3) + 2,
	 "model.embed_tokens.weight", "model.layers.1.block_sparse_moe.experts.3.w2.weight",
	 "lm_head.weight", "[64, 48]"},
	{"deepseek-v3", "DeepseekV3ForCausalLM", fake_deepseek,
	 1 + (9 + 3) + (9 + 2 + 3 + 4 * 3) + 2, "model.embed_tokens.weight",
	 "model.layers.1.mlp.experts.2.up_proj.weight", "lm_head.weight", "[48, 64]"},
	{"gpt-oss", "GptOssForCausalLM", fake_gpt_oss, 1 + 2 * (2 + 9 + 2 + 4) + 2,
	 "model.embed_tokens.weight", "model.layers.1.mlp.experts.gate_up_proj", "lm_head.weight",
	 "[4, 64, 96]"},
	{"qwen3-next", "Qwen3NextForCausalLM", fake_qwen3_next,
	 1 + (2 + 7 + 1 + 4 + 4 * 3) + (2 + 6 + 1 + 4 + 4 * 3) + 2, "model.embed_tokens.weight",
	 "model.layers.0.linear_attn.in_proj_qkvz.weight", "lm_head.weight", "[104, 64]"},
	{"nemotron-h", "NemotronHForCausalLM", fake_nemotron_h, 1 + 9 + 5 + 3 + (3 + 2 * 4 + 2) + 2,
	 "backbone.embeddings.weight", "backbone.layers.0.mixer.conv1d.weight", "lm_head.weight",
	 "[60, 1, 4]"},
	{"gpt2", "GPT2LMHeadModel", fake_gpt2, 2 + 2 * 12 + 2, "transformer.wte.weight",
	 "transformer.h.1.attn.c_attn.weight", "transformer.ln_f.bias", "[64, 192]"},
};

#define FAMILIES MFS_ARRAY_SIZE(families)

static const char *name_of(const struct mfs_hf_target *t)
{
	static char text[256];
	size_t len = mfs_target_name(&t->base, text, sizeof(text));

	ck_assert_uint_eq(len, strlen(text));
	return text;
}

static const struct mfs_hf_target *target(const struct mfs_model *m, const char *name)
{
	for (uint32_t i = 0; i < m->target_count; i++)
		if (!strcmp(name_of(&m->targets[i]), name))
			return &m->targets[i];
	ck_abort_msg("%s: no such target", name);
	return NULL;
}

static int build(struct mfs_ckpt *c, const char *arch, struct mfs_model **ret)
{
	return mfs_model_new(c, arch, NULL, ret, &err);
}

/* The model of some arguments must be refused with these words. */
static void refused(const struct mfs_megatron_args *args, int code, const char *part)
{
	struct mfs_model *m;
	struct mfs_ckpt c;

	fake_ckpt(&c, args);
	unit_fails(build(&c, NULL, &m), &err, code, part);
	fake_release(&c);
}

/* ---- what comes out ---- */

static const struct mfs_target *box_target;
static uint64_t box_elements;

static int check_box(const struct mfs_box_map *m, void *arg)
{
	uint64_t elements = 1;

	(void)arg;
	ck_assert_ptr_nonnull(m->src);
	for (unsigned a = 0; a < box_target->ndim; a++) {
		const uint64_t lanes = a + 1 == box_target->ndim && m->lanes ? m->lanes : 1;
		unsigned s = m->src_axis[a];

		ck_assert_uint_gt(m->size[a], 0);
		ck_assert_uint_le((m->lo[a] + m->size[a]) * lanes, box_target->shape[a]);
		elements *= m->size[a];
		if (s == MFS_AXIS_NONE)
			continue;
		ck_assert_uint_lt(s, m->src->ndim);
		ck_assert_uint_lt(m->src_lo[s] + (m->size[a] - 1) * m->step[a], m->src->shape[s]);
	}
	box_elements += elements;
	return 0;
}

static void check_boxes(const struct mfs_hf_target *hf)
{
	const struct mfs_target *t = &hf->base;
	uint64_t elements;

	box_target = t;
	box_elements = 0;
	ck_assert_int_eq(mfs_target_boxes(t, check_box, NULL), 0);
	ck_assert(mfs_shape_count(t->shape, t->ndim, &elements));
	ck_assert_uint_eq(box_elements, elements);
	ck_assert_uint_eq(t->bytes, elements * mfs_dtype_size(t->dtype));
}

START_TEST(each_family_has_its_tensors)
{
	struct mfs_megatron_args args = families[_i].args();
	char shape[64];
	const struct mfs_hf_target *t;
	struct mfs_model *m;
	struct mfs_ckpt c;

	fake_ckpt(&c, &args);
	unit_ok(build(&c, NULL, &m), &err);
	ck_assert_str_eq(mfs_model_family(m), families[_i].name);
	ck_assert_str_eq(mfs_model_architecture(m), families[_i].architecture);
	ck_assert_uint_eq(m->target_count, families[_i].targets);
	ck_assert_str_eq(name_of(&m->targets[0]), families[_i].first);
	ck_assert_str_eq(name_of(&m->targets[m->target_count - 1]), families[_i].last);
	t = target(m, families[_i].some);
	ck_assert_str_eq(mfs_shape_text(t->base.shape, t->base.ndim, shape, sizeof(shape)),
			 families[_i].shape);
	ck_assert_int_eq(m->dtype, MFS_BF16);
	for (uint32_t i = 0; i < m->target_count; i++) {
		check_boxes(&m->targets[i]);
		ck_assert_ptr_eq(m->targets[i].model, m);
		ck_assert(!i || m->targets[i].unit >= m->targets[i - 1].unit);
	}
	ck_assert_uint_eq(m->targets[m->target_count - 1].unit, args.num_layers + 1);
	mfs_model_free(m);
	fake_release(&c);
}
END_TEST

/* What SEMANTICS.md promises of the order of files: what comes before the layers, the layers, what
 * comes after them. A layer is in one file, or in files that follow each other without another. */
START_TEST(files_follow_the_layers)
{
	static const uint64_t limits[] = {1, 20000, 70000, UINT64_MAX};
	struct mfs_megatron_args args = families[_i].args();
	struct mfs_hf_weights w = {0};
	struct mfs_hf_shard *shards;
	struct mfs_model *m;
	struct mfs_ckpt c;
	uint32_t count;

	fake_ckpt(&c, &args);
	unit_ok(build(&c, NULL, &m), &err);
	unit_ok(mfs_hf_weights_add_model(&w, m, &err), &err);
	for (size_t l = 0; l < MFS_ARRAY_SIZE(limits); l++) {
		uint32_t at = 0;

		unit_ok(mfs_hf_cut_shards(&w, limits[l], &shards, &count, &err), &err);
		for (uint32_t i = 0; i < count; at += shards[i++].count) {
			const struct mfs_hf_shard *s = &shards[i];
			const struct mfs_hf_weight *first = &w.items[s->first];

			ck_assert_uint_eq(s->first, at);
			ck_assert(s->bytes <= limits[l] || s->count == 1);
			/* A file that begins inside of a layer follows one with its beginning. */
			if (i && first[-1].unit == first->unit)
				ck_assert_uint_gt(shards[i - 1].bytes + first->target->bytes,
						  limits[l]);
		}
		ck_assert_uint_eq(at, m->target_count);
		free(shards);
	}
	mfs_hf_weights_release(&w);
	mfs_model_free(m);
	fake_release(&c);
}

/* Every tensor of the checkpoint is needed, and no other is. */
START_TEST(every_tensor_is_needed)
{
	struct mfs_megatron_args args = families[_i].args();
	char name[MFS_CKPT_NAME_SIZE];
	struct mfs_model *m;
	struct mfs_ckpt c;

	fake_ckpt(&c, &args);
	for (uint32_t i = 0, count = c.tensor_count; i < count; i++) {
		struct mfs_global_tensor lost = c.tensors[i];

		mfs_global_tensor_name(&lost, name, sizeof(name));
		fake_drop(&c, &c.tensors[i]);
		unit_fails(build(&c, NULL, &m), &err, -ENODATA, name);
		c.tensors[c.tensor_count++] = lost;
		fake_sort(&c);
	}
	fake_add(&c, "decoder.layers.", "self_attention.core_attention.more", 1, -1, 4, 0);
	fake_sort(&c);
	unit_fails(build(&c, NULL, &m), &err, -ENOTSUP,
		   "decoder.layers.1.self_attention.core_attention.more");
	fake_release(&c);
}
END_TEST

START_TEST(every_shape_is_checked)
{
	struct mfs_megatron_args args = families[_i].args();
	char name[MFS_CKPT_NAME_SIZE], shape[64];
	struct mfs_model *m;
	struct mfs_ckpt c;

	fake_ckpt(&c, &args);
	for (uint32_t i = 0; i < c.tensor_count; i++) {
		struct mfs_global_tensor *t = &c.tensors[i];

		mfs_global_tensor_name(t, name, sizeof(name));
		mfs_shape_text(t->shape, t->ndim, shape, sizeof(shape));
		t->shape[t->ndim - 1]++;
		unit_fails(build(&c, NULL, &m), &err, -EINVAL, name);
		unit_sentence(err.msg, shape);
		t->shape[t->ndim - 1]--;
		t->ndim++;
		unit_fails(build(&c, NULL, &m), &err, -EINVAL, name);
		t->ndim--;
		t->dtype = MFS_U8;
		unit_fails(build(&c, NULL, &m), &err, -ENOTSUP, "uint8");
		t->dtype = MFS_BF16;
	}
	fake_release(&c);
}
END_TEST

static void check_names(const struct mfs_family *f)
{
	char key[256];
	struct mfs_name name;

	for (const struct mfs_family_tensor *row = f->tensors; row->hf; row++) {
		const char *prefix = row->scope == MFS_SCOPE_LAYER ? "decoder.layers.0."
				     : row->scope == MFS_SCOPE_MTP ? "mtp.layers.0."
								   : "";

		snprintf(key, sizeof(key), "%s%s", prefix, row->name);
		mfs_name_parse(key, &name);
		ck_assert_msg(name.known, "%s: %s is no parameter of Megatron's", f->name, key);
		ck_assert_msg(!mfs_is_per_expert(row) == !strstr(row->hf, "{e}"), "%s: %s", f->name,
			      row->hf);
	}
	ck_assert(strstr(f->layer_prefix, "{i}"));
	ck_assert(!(f->required & f->optional));
	ck_assert_msg(strstr(mfs_family_names(), f->name), "%s is not in '%s'", f->name,
		      mfs_family_names());
}

/* Names that the readers never produce would never be found. */
START_TEST(tables_use_canonical_names)
{
	const struct mfs_family *const *f = mfs_families();

	ck_assert_msg(*f, "%s", mfs_family_names());
	for (; *f; f++)
		if (mfs_family_has_models(*f))
			check_names(*f);
}
END_TEST
START_TEST(token_names_are_cut_not_overrun)
{
	struct mfs_megatron_args args = fake_llama();
	struct mfs_model *m;
	struct mfs_ckpt c;
	char text[8];

	fake_ckpt(&c, &args);
	unit_ok(build(&c, NULL, &m), &err);
	memset(text, 'x', sizeof(text));
	ck_assert_uint_eq(mfs_target_name(&m->targets[0].base, text, 7),
			  strlen("model.embed_tokens.weight"));
	ck_assert_int_eq(text[7], 'x');
	ck_assert_uint_lt(strlen(text), 7);
	mfs_model_free(m);
	fake_release(&c);
}
END_TEST

/* ---- the rarer shapes of models ---- */

START_TEST(biases_of_llama)
{
	struct mfs_megatron_args args = fake_llama();
	struct mfs_model *m;
	struct mfs_ckpt c;

	args.add_bias_linear = args.add_qkv_bias = true;
	fake_ckpt(&c, &args);
	unit_ok(build(&c, NULL, &m), &err);
	ck_assert_str_eq(mfs_model_family(m), "llama");
	target(m, "model.layers.0.self_attn.o_proj.bias");
	target(m, "model.layers.0.mlp.gate_proj.bias");
	ck_assert_uint_eq(m->target_count, 1 + 2 * (9 + 7) + 2);
	mfs_model_free(m);
	fake_release(&c);
}
END_TEST

START_TEST(mtp_layers_follow_the_last)
{
	struct mfs_megatron_args args = fake_deepseek();
	const struct mfs_hf_target *t;
	struct mfs_model *m;
	struct mfs_ckpt c;

	args.mtp_num_layers = 2;
	fake_ckpt(&c, &args);
	unit_ok(build(&c, NULL, &m), &err);
	t = target(m, "model.layers.3.mlp.experts.3.down_proj.weight");
	ck_assert_int_eq(t->src->layer, 1);
	ck_assert_str_eq(t->src->name,
			 "mtp.layers.transformer_layer.mlp.experts.experts.linear_fc2.weight");
	ck_assert_uint_eq(t->unit, 4);
	t = target(m, "model.layers.2.shared_head.norm.weight");
	ck_assert_str_eq(t->src->name, "mtp.layers.final_layernorm.weight");
	ck_assert_uint_eq(target(m, "lm_head.weight")->unit, 5);
	ck_assert_uint_eq(m->target_count, families[4].targets + 2 * (4 + 9 + 2 + 3 + 4 * 3));
	mfs_model_free(m);
	fake_release(&c);
}
END_TEST

START_TEST(queries_without_a_low_rank)
{
	struct mfs_megatron_args args = fake_deepseek();
	struct mfs_model *m;
	struct mfs_ckpt c;

	args.q_lora_rank = MFS_ABSENT;
	fake_ckpt(&c, &args);
	unit_ok(build(&c, NULL, &m), &err);
	ck_assert_uint_eq(target(m, "model.layers.0.self_attn.q_proj.weight")->base.shape[0],
			  4 * 24);
	mfs_model_free(m);
	fake_release(&c);
}
END_TEST

START_TEST(router_bias_keeps_its_dtype)
{
	struct mfs_megatron_args args = fake_deepseek();
	struct mfs_model *m;
	struct mfs_ckpt c;

	fake_ckpt(&c, &args);
	unit_ok(build(&c, NULL, &m), &err);
	ck_assert_int_eq(target(m, "model.layers.1.mlp.gate.e_score_correction_bias")->base.dtype,
			 MFS_F32);
	ck_assert_uint_eq(m->warning_count, 2);
	unit_sentence(m->warnings[0], "eps 1e-6");
	unit_sentence(m->warnings[1], "1024 padded rows");
	mfs_model_free(m);
	fake_release(&c);
}
END_TEST

START_TEST(zero_centred_norms)
{
	struct mfs_megatron_args args = families[_i].args();
	struct mfs_model *m;
	struct mfs_ckpt c;

	args.zero_centered_gamma = true;
	fake_ckpt(&c, &args);
	unit_ok(build(&c, NULL, &m), &err);
	for (uint32_t i = 0; i < m->target_count; i++) {
		const char *name = name_of(&m->targets[i]);
		bool norm =
			(strstr(name, "norm") || strstr(name, "ln_")) && strstr(name, ".weight");

		if (m->family->norms_minus_one) /* of qwen3-next all but one are stored so */
			norm = strstr(name, "linear_attn.norm.weight");
		if (strstr(name, "mixer.norm.weight")) /* a Mamba mixer's is never stored so */
			norm = false;
		ck_assert_msg(mfs_target_op(&m->targets[i].base) ==
				      (norm ? MFS_OP_ADD_ONE : MFS_OP_COPY),
			      "%s", name);
	}
	mfs_model_free(m);
	fake_release(&c);
}
END_TEST

/* A norm that an HF directory has as it is, where the others are weight - 1, stays so in HF. */
START_TEST(norms_that_are_stored_whole)
{
	struct mfs_megatron_args args = fake_qwen3_next();
	struct mfs_global_tensor *norm;
	struct mfs_model *m;
	struct mfs_ckpt c;

	fake_ckpt(&c, &args);
	norm = fake_find(&c, "decoder.layers.self_attention.out_norm.weight", 0, -1);
	ck_assert(mfs_global_tensor_is_shifted(&args, norm));
	ck_assert_int_eq(mfs_megatron_op(norm), MFS_OP_COPY);
	norm->whole_norm = true;
	ck_assert(!mfs_global_tensor_is_shifted(&args, norm));
	ck_assert_int_eq(mfs_megatron_op(norm), MFS_OP_SUBTRACT_ONE);
	unit_ok(build(&c, NULL, &m), &err);
	ck_assert_int_eq(mfs_target_op(&target(m, "model.layers.0.linear_attn.norm.weight")->base),
			 MFS_OP_COPY);
	mfs_model_free(m);
	fake_release(&c);
}
END_TEST

/* The tensors of a layer follow from its kind, that of MTP's inner layer from the last one's. */
START_TEST(kinds_of_layers)
{
	static const uint8_t linear[] = {0, 1};
	struct mfs_megatron_args args = fake_qwen3_next();
	struct mfs_model *m;
	struct mfs_ckpt c;

	args.linear_layers = linear;
	fake_ckpt(&c, &args);
	unit_ok(build(&c, NULL, &m), &err);
	target(m, "model.layers.0.self_attn.q_proj.weight");
	target(m, "model.layers.1.linear_attn.A_log");
	ck_assert_uint_eq(m->target_count, families[6].targets);
	mfs_model_free(m);
	/* Of the other kind. */
	fake_add(&c, "decoder.layers.", "self_attention.A_log", 0, -1, 4, 0);
	fake_sort(&c);
	unit_fails(build(&c, NULL, &m), &err, -ENOTSUP,
		   "tensor 'decoder.layers.0.self_attention.A_log' [4] has no counterpart");
	fake_release(&c);
}
END_TEST

static int only_box(const struct mfs_box_map *m, void *arg)
{
	ck_assert_int_eq(((struct mfs_box_map *)arg)->src_axis[0], 9);
	*(struct mfs_box_map *)arg = *m;
	return 0;
}

START_TEST(transposed_box)
{
	struct mfs_box_map box = {.src_axis = {9}};
	struct mfs_megatron_args args = fake_gpt2();
	const struct mfs_hf_target *t;
	struct mfs_model *m;
	struct mfs_ckpt c;

	fake_ckpt(&c, &args);
	unit_ok(build(&c, NULL, &m), &err);
	t = target(m, "transformer.h.0.mlp.c_fc.weight");
	ck_assert_uint_eq(t->base.shape[0], 64);
	ck_assert_uint_eq(t->base.shape[1], 176);
	ck_assert_int_eq(mfs_target_boxes(&t->base, only_box, &box), 0);
	ck_assert_int_eq(box.src_axis[0], 1);
	ck_assert_int_eq(box.src_axis[1], 0);
	ck_assert_uint_eq(box.size[0], 64);
	ck_assert_uint_eq(box.size[1], 176);
	mfs_model_free(m);
	fake_release(&c);
}
END_TEST

/* ---- the vocabulary ---- */

static void vocabulary(const struct mfs_megatron_args *args, struct mfs_vocab_given given,
		       uint64_t rows, enum mfs_vocab_source source)
{
	struct mfs_vocab vocab;
	struct mfs_model *m;
	struct mfs_ckpt c;

	fake_ckpt(&c, args);
	unit_ok(mfs_vocab_decide(&c, &given, &vocab, &err), &err);
	ck_assert_uint_eq(mfs_vocab_true(&vocab), source == MFS_VOCAB_PADDED ? 0 : rows);
	unit_ok(mfs_model_new(&c, NULL, &vocab, &m, &err), &err);
	ck_assert_uint_eq(m->vocab.rows, rows);
	ck_assert_uint_eq(m->vocab.padded, 1024);
	ck_assert_int_eq(m->vocab.source, source);
	ck_assert_uint_eq(target(m, "model.embed_tokens.weight")->base.shape[0], rows);
	ck_assert_uint_eq(target(m, "lm_head.weight")->base.shape[0], rows);
	ck_assert_uint_eq(m->warning_count, source == MFS_VOCAB_PADDED);
	mfs_model_free(m);
	fake_release(&c);
}

START_TEST(the_true_vocabulary_is_found_in_order)
{
	static const char sized[] = "{\"vocab_size\": 7}";
	struct mfs_megatron_args args = fake_llama();
	struct mfs_hf_ref *ref, *silent;

	unit_ok(mfs_hf_ref_parse(sized, strlen(sized), "config.json", &ref, &err), &err);
	unit_ok(mfs_hf_ref_parse("{}", 2, "config.json", &silent, &err), &err);
	vocabulary(&args, (struct mfs_vocab_given){0}, 1024, MFS_VOCAB_PADDED);
	vocabulary(&args, (struct mfs_vocab_given){.ref = silent}, 1024, MFS_VOCAB_PADDED);
	vocabulary(&args, (struct mfs_vocab_given){.ref = ref}, 7, MFS_VOCAB_REF);
	args.vocab_size = 1000;
	vocabulary(&args, (struct mfs_vocab_given){0}, 1000, MFS_VOCAB_ARGS);
	vocabulary(&args, (struct mfs_vocab_given){.ref = ref}, 7, MFS_VOCAB_REF);
	vocabulary(&args, (struct mfs_vocab_given){.size = 999, .ref = ref}, 999, MFS_VOCAB_OPTION);
	args.vocab_size = 990;
	vocabulary(&args,
		   (struct mfs_vocab_given){.size = MFS_VOCAB_TOKENIZER,
					    .ref = ref,
					    .tokenizer = unit_fixture("data/tokenizer")},
		   1000, MFS_VOCAB_TOKENIZED);
	args.vocab_size = 1000;
	args.tokenizer_type = "NullTokenizer";
	vocabulary(&args, (struct mfs_vocab_given){0}, 1001, MFS_VOCAB_ARGS);
	args.null_tokenizer_counts_eod = true;
	vocabulary(&args, (struct mfs_vocab_given){0}, 1000, MFS_VOCAB_ARGS);
	args.vocab_size = 1024;
	vocabulary(&args, (struct mfs_vocab_given){0}, 1024, MFS_VOCAB_ARGS);
	/* Sizes that nobody padded to what is stored: the run's tokenizer did not use them. */
	args.vocab_size = 1025;
	vocabulary(&args, (struct mfs_vocab_given){0}, 1024, MFS_VOCAB_PADDED);
	args.vocab_size = 500;
	vocabulary(&args, (struct mfs_vocab_given){0}, 1024, MFS_VOCAB_PADDED);
	mfs_hf_ref_free(ref);
	mfs_hf_ref_free(silent);
}
END_TEST

START_TEST(vocabulary_beyond_what_is_stored)
{
	const struct mfs_vocab_given given = {.size = 1025};
	struct mfs_megatron_args args = fake_llama();
	struct mfs_vocab vocab;
	struct mfs_ckpt c;

	fake_ckpt(&c, &args);
	unit_fails(mfs_vocab_decide(&c, &given, &vocab, &err), &err, -EINVAL,
		   "1025 rows (asked for by vocab_size=)");
	fake_release(&c);
}
END_TEST

/* ---- families that do not fit ---- */

START_TEST(an_architecture_is_a_familys_name_or_class)
{
	struct mfs_megatron_args args = fake_llama();
	struct mfs_model *m;
	struct mfs_ckpt c;

	fake_ckpt(&c, &args);
	unit_ok(build(&c, "llama", &m), &err);
	mfs_model_free(m);
	unit_ok(build(&c, "LlamaForCausalLM", &m), &err);
	mfs_model_free(m);
	unit_fails(build(&c, "qwen3", &m), &err, -ENOTSUP, "qk_layernorm");
	unit_fails(build(&c, "lama", &m), &err, -EINVAL, "arch=lama");
	unit_sentence(err.msg, "deepseek-v3, gpt2");
	fake_release(&c);
}
END_TEST

/* Each changes the result of a model without a word in the tensors, or has no place in the
 * family. */
START_TEST(a_feature_of_no_family_is_refused)
{
	static const uint8_t mixed[] = {1, 0};
	struct mfs_megatron_args a;

#define REFUSED(base, field, value, part)                                                          \
	do {                                                                                       \
		a = fake_##base();                                                                 \
		a.field = value;                                                                   \
		refused(&a, -ENOTSUP, part);                                                       \
	} while (0)

	REFUSED(qwen3, layernorm, true, "nearest is qwen3");
	REFUSED(llama, qk_l2_norm, true, "qk_l2_norm");
	REFUSED(llama, attention_output_gate, true, "attention_output_gate");
	REFUSED(qwen3, rotary_percent, 0.5, "rotary_percent");
	REFUSED(gpt2, window_size, 128, "window_size");
	REFUSED(llama, position_embedding_type, "mrope", "position_embedding_type");
	REFUSED(llama, position_embedding_type, "none", "position_embedding_type");
	REFUSED(llama, foreign, "softmax_type", "softmax_type");
	REFUSED(mixtral, learnable_softmax, true, "softmax_type learnable");
	REFUSED(mixtral, activation_func_clamp_value, 7, "activation_func_clamp_value");
	REFUSED(mixtral, glu_linear_offset, 1, "glu_linear_offset");
	REFUSED(llama, position_embedding_type, "yarn", "YaRN");
	REFUSED(gpt_oss, learnable_softmax, false, "softmax_type learnable");
	REFUSED(gpt_oss, activation_func_clamp_value, 0, "activation_func_clamp_value");
	REFUSED(llama, mtp_num_layers, 1, "mtp_num_layers");
	REFUSED(gpt2, hidden_size, 66, "not a multiple of num_attention_heads");
	REFUSED(gpt2, squared_relu, true, "squared_relu");
	REFUSED(qwen2, quick_geglu, (a.swiglu = false, true), "quick_geglu");
	REFUSED(qwen3, add_qkv_bias, true, "qk_layernorm");
	REFUSED(mixtral, moe_router_pre_softmax, true, "moe_router_pre_softmax");
	REFUSED(mixtral, moe_router_topk_scaling_factor, 2.5, "moe_router_topk_scaling_factor");
	REFUSED(mixtral, moe_router_score_function, "sqrtsoftplus", "moe_router_score_function");
	REFUSED(mixtral, moe_mlp_glu_interleave_size, 32, "moe_mlp_glu_interleave_size");
	REFUSED(mixtral, moe_layers, mixed, "moe_layer_freq");
	REFUSED(deepseek, moe_shared_expert_gate, true, "moe_shared_expert_gate");
	REFUSED(deepseek, moe_shared_expert_intermediate_size, 50,
		"not a multiple of moe_ffn_hidden_size");
	REFUSED(deepseek, moe_shared_expert_glu_interleave_size, 8, "interleave");
	REFUSED(deepseek, moe_router_enable_expert_bias, false, "moe_router_enable_expert_bias");
	REFUSED(deepseek, rotary_interleaved, true, "rotary_interleaved");
	REFUSED(deepseek, rope_type, NULL, "position_embedding_type");
	REFUSED(deepseek, mscale_all_dim, (a.rotary_scaling_factor = 40, 1.0), "mscale_all_dim");
	REFUSED(deepseek, moe_router_num_groups, (a.moe_router_group_topk = 2, 4), "two best");
	REFUSED(gpt2, num_query_groups, 2, "num_query_groups");
	REFUSED(gpt2, kv_channels, 32, "kv_channels");
#undef REFUSED
}
END_TEST

/* ---- size ---- */

static struct mfs_megatron_args deepseek_v3(void)
{
	static uint8_t moe[61];
	struct mfs_megatron_args a = fake_deepseek();

	memset(moe + 3, 1, sizeof(moe) - 3);
	a.num_layers = 61;
	a.moe_layers = moe;
	a.first_dense_layers = 3;
	a.mtp_num_layers = 1;
	a.num_experts = 256;
	return a;
}

START_TEST(many_targets)
{
	struct mfs_megatron_args args = deepseek_v3();
	struct mfs_model *m;
	struct mfs_ckpt c;

	fake_ckpt(&c, &args);
	unit_ok(build(&c, NULL, &m), &err);
	ck_assert_uint_eq(m->target_count,
			  1 + 3 * (9 + 3) + 58 * (9 + 5 + 768) + (4 + 9 + 5 + 768) + 2);
	ck_assert_uint_lt(m->target_count * sizeof(*m->targets) + m->arena.total, 8u << 20);
	mfs_model_free(m);
	fake_release(&c);
}
END_TEST

/* ---- real checkpoints ---- */

static const struct {
	const char *dir, *family;
	uint32_t targets;
} fixtures[] = {
	{"weights/llama-torch-tp2-pp2/iter_0000040", "llama", 1 + 4 * 9 + 2},
	{"resume/qwen2-torch-tp2-dp2-distopt/iter_0000020", "qwen2", 1 + 4 * 12 + 1},
	{"weights/qwen3-torch_dist-tp4/iter_0000040", "qwen3", 1 + 4 * 11 + 1},
	{"weights/mixtral-torch-pp2-ep2/iter_0000040", "mixtral", 1 + 4 * 19 + 2},
	{"weights/deepseek-torch_dist-pp2-ep2/iter_0000040", "deepseek-v3", 1 + 12 + 3 * 26 + 2},
	{"weights/gpt2-torch-tp2-pp2/iter_0000040", "gpt2", 2 + 4 * 12 + 2},
};

START_TEST(fixtures_have_their_families_tensors)
{
	struct mfs_ckpt *c;
	struct mfs_model *m;

	unit_ok(mfs_ckpt_open(unit_fixture(fixtures[_i].dir), 0, &c, &err), &err);
	unit_ok(build(c, NULL, &m), &err);
	ck_assert_str_eq(mfs_model_family(m), fixtures[_i].family);
	ck_assert_uint_eq(m->target_count, fixtures[_i].targets);
	for (uint32_t i = 0; i < m->target_count; i++)
		check_boxes(&m->targets[i]);
	mfs_model_free(m);
	mfs_ckpt_free(c);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("model");
	TCase *c = unit_case(s, "families", token_names_are_cut_not_overrun);

	tcase_add_loop_test(c, each_family_has_its_tensors, 0, FAMILIES);
	tcase_add_loop_test(c, files_follow_the_layers, 0, FAMILIES);
	tcase_add_loop_test(c, every_tensor_is_needed, 0, FAMILIES);
	tcase_add_loop_test(c, every_shape_is_checked, 0, FAMILIES);
	tcase_add_test(c, tables_use_canonical_names);
	tcase_add_loop_test(c, zero_centred_norms, 0, FAMILIES);
	c = unit_case(s, "variants", biases_of_llama);
	tcase_add_test(c, mtp_layers_follow_the_last);
	tcase_add_test(c, queries_without_a_low_rank);
	tcase_add_test(c, router_bias_keeps_its_dtype);
	tcase_add_test(c, norms_that_are_stored_whole);
	tcase_add_test(c, kinds_of_layers);
	tcase_add_test(c, transposed_box);
	tcase_add_test(c, the_true_vocabulary_is_found_in_order);
	tcase_add_test(c, vocabulary_beyond_what_is_stored);
	c = unit_case(s, "refusals", an_architecture_is_a_familys_name_or_class);
	tcase_add_test(c, a_feature_of_no_family_is_refused);
	c = unit_case(s, "size", many_targets);
	tcase_add_loop_test(c, fixtures_have_their_families_tensors, 0, MFS_ARRAY_SIZE(fixtures));
	return s;
}
