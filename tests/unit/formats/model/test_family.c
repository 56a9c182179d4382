/* Families' files: formats/model/families/family.h, read.h. */
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/model/families/conf.h"
#include "formats/model/families/read.h"
#include "formats/model/features.h"
#include "formats/model/model.h"
#include "tests/unit/fake_ckpt.h"

static struct mfs_error err;
static struct mfs_arena arena;

static const struct mfs_family *find(const char *name, void *arg)
{
	(void)arg;
	for (const struct mfs_family *const *f = mfs_families(); *f; f++)
		if (!strcmp((*f)->name, name))
			return *f;
	return NULL;
}

static int read_text(const char *text, struct mfs_family **ret)
{
	return mfs_family_read("f.conf", text, strlen(text), find, NULL, &arena, ret, &err);
}

static struct mfs_family *accepted(const char *text)
{
	struct mfs_family *f;

	unit_ok(read_text(text, &f), &err);
	return f;
}

#define HEAD                                                                                       \
	"[family]\nname = parrot\narchitecture = ParrotForCausalLM\nmodel_type = parrot\n"         \
	"layers = bird.{i}.\n"
#define EMBEDDING "[before]\nwords = embedding.word_embeddings.weight\n"

#define WHOLE "[family]\nname = v\narchitecture = VForConditionalGeneration\nmodel_type = v\n"

/* ---- what a file says ---- */

static const struct mfs_family_tensor *tensor(const struct mfs_family *f, const char *hf)
{
	for (const struct mfs_family_tensor *row = f->tensors; row->hf; row++)
		if (!strcmp(row->hf, hf))
			return row;
	return NULL;
}

static const struct mfs_config_row *key(const struct mfs_family *f, const char *name)
{
	for (const struct mfs_config_row *row = f->config; row->key; row++)
		if (!strcmp(row->key, name))
			return row;
	return NULL;
}

START_TEST(rows_have_rules_and_conditions)
{
	const struct mfs_family *f = accepted(
		HEAD
		"requires = rope, swiglu\nallows = swiglu, tied\nalso = parakeet, Macaw\n" EMBEDDING
		"[layer]\n"
		"a.q = q of self_attention.linear_qkv.weight\n"
		"a.qn = self_attention.q_layernorm.weight, if qk-norm or mla, unless tied\n"
		"a.o = self_attention.linear_proj.weight,\n    transposed\n"
		"[layer dense]\n# nothing\nm.up = up of mlp.linear_fc1.weight\n"
		"[layer moe]\nm.{e}.up = up of mlp.experts.experts.linear_fc1.weight\n"
		"[config]\n"
		"width = hidden_size and ffn_hidden_size, reference wins noted, if tied\n"
		"act = \"silu, or so\"\n"
		"[defaults]\nact = \"x\"\nwidth = 8\n"
		"[aliases]\nbreadth = width\n"
		"[notes]\ntied and gqa = it talks\n");
	const struct mfs_family_tensor *q = tensor(f, "a.q"), *norm = tensor(f, "a.qn");

	ck_assert(f->required == (MFS_HAS(ROPE) | MFS_HAS(SWIGLU)));
	ck_assert(f->optional == MFS_HAS(TIED));
	ck_assert(mfs_family_is_called(f, "PARROT") && mfs_family_is_called(f, "Macaw"));
	ck_assert(mfs_family_is_called(f, "parakeet") && !mfs_family_is_called(f, "para"));
	ck_assert_int_eq(tensor(f, "words")->rule, MFS_RULE_VOCAB);
	ck_assert_int_eq(q->rule, MFS_RULE_Q);
	ck_assert(q->shape[0] == MFS_DIM_QKV && q->shape[1] == MFS_DIM_HIDDEN && !q->norm);
	ck_assert_int_eq(norm->rule, MFS_RULE_HEAD);
	ck_assert(norm->norm && norm->when == (MFS_HAS(QK_NORM) | MFS_HAS(MLA)));
	ck_assert(norm->unless == MFS_HAS(TIED));
	ck_assert(tensor(f, "a.o")->transposed);
	ck_assert(tensor(f, "m.up")->kind == MFS_LAYER_DENSE && !tensor(f, "m.up")->experts);
	ck_assert(tensor(f, "m.{e}.up")->experts);
	ck_assert(tensor(f, "m.{e}.up")->shape[0] == MFS_DIM_MOE_FFN_X2);
	ck_assert_uint_eq(key(f, "width")->field, MFS_FIELD(hidden_size));
	ck_assert_uint_eq(key(f, "width")[1].field, MFS_FIELD(ffn_hidden_size));
	ck_assert_int_eq(key(f, "width")[1].ref, MFS_REF_WINS_NOTED);
	ck_assert(key(f, "width")[1].when == MFS_HAS(TIED));
	ck_assert_str_eq(key(f, "act")->text, "silu, or so");
	ck_assert_str_eq(f->defaults, "{\"act\": \"x\", \"width\": 8}");
	ck_assert_str_eq(f->aliases[0].other, "breadth");
	ck_assert_str_eq(f->notes[0].text, "it talks");
	ck_assert(f->notes[0].when == (MFS_HAS(TIED) | MFS_HAS(GQA)));
}
END_TEST

/* Rows of a base stay in their places; features of it can be refused. */
START_TEST(layers_ahead)
{
	const struct mfs_family *f = accepted(HEAD "mtp-layers = egg.{i}.\nallows = mtp\n" EMBEDDING
						   "[mtp]\nin = swapped of eh_proj.weight\n");

	ck_assert_str_eq(f->mtp_prefix, "egg.{i}.");
	ck_assert_int_eq(tensor(f, "in")->rule, MFS_RULE_SWAPPED);
	ck_assert_ptr_null(accepted(HEAD EMBEDDING)->mtp_prefix);
	ck_assert_str_eq(accepted("[family]\nname = chick\nbase = mimo\n")->mtp_prefix,
			 "model.mtp_layers.{i}.");
}
END_TEST

START_TEST(a_family_changes_its_base)
{
	const struct mfs_family *f =
		accepted("[family]\nname = parrot\nbase = llama\narchitecture = P\nmodel_type = p\n"
			 "requires = qk-norm\nrefuses = linear-bias, rope-linear\n"
			 "[layer]\nself_attn.q_* = none\nself_attn.o_proj.weight = "
			 "self_attention.linear_proj.weight, transposed\n"
			 "[config]\nmlp_bias = none\nhead_dim = 7\n");
	const struct mfs_family *llama = find("llama", NULL);
	uint32_t base = 0, rows = 0;

	while (llama->tensors[base].hf)
		base++;
	while (f->tensors[rows].hf)
		rows++;
	ck_assert(f->required == (llama->required | MFS_HAS(QK_NORM)));
	ck_assert(f->optional ==
		  (llama->optional & ~(MFS_HAS(LINEAR_BIAS) | MFS_HAS(ROPE_LINEAR))));
	ck_assert_uint_eq(rows, base - 3);
	ck_assert(!tensor(f, "self_attn.q_proj.weight") && !tensor(f, "self_attn.q_norm.weight"));
	ck_assert(tensor(f, "self_attn.o_proj.weight")->transposed);
	ck_assert(tensor(f, "self_attn.o_proj.weight") < tensor(f, "self_attn.o_proj.bias"));
	ck_assert_str_eq(f->layer_prefix, "model.layers.{i}.");
	ck_assert(!key(f, "mlp_bias"));
	ck_assert_int_eq(key(f, "head_dim")->kind, MFS_CONFIG_NUMBER);
	ck_assert_str_eq(f->defaults, "{}");
	ck_assert(!f->proved);
}
END_TEST

START_TEST(norms_that_are_stored_as_in_megatron)
{
	const struct mfs_family *f =
		accepted(HEAD "norms = weight - 1\nrequires = zero-centered\n" EMBEDDING
			      "[layer]\nn = input_layernorm.weight\n");

	ck_assert(!tensor(f, "n")->norm);
}
END_TEST

START_TEST(kinds_of_layers)
{
	const struct mfs_family *f = accepted(
		HEAD "norms = weight - 1\nrequires = zero-centered, output-gate, swiglu\nignores = "
		     "extra.\n" EMBEDDING "[layer full]\nx = self_attention.linear_proj.weight\n"
		     "q = q-gates of self_attention.linear_qkv.weight\n"
		     "[layer linear]\nx = self_attention.out_proj.weight\n"
		     "n = self_attention.out_norm.weight, plain\n"
		     "c = self_attention.conv1d.weight\n"
		     "[layer dense]\nup = up of mlp.linear_fc1.weight\n");
	static const uint8_t linear[] = {1, 0};
	const struct mfs_megatron_args a = {.num_layers = 2, .linear_layers = linear};
	const struct mfs_family_tensor *x = tensor(f, "x");

	ck_assert_str_eq(f->ignores, "extra.");
	ck_assert(x->kind == MFS_LAYER_FULL && x[2].kind == MFS_LAYER_LINEAR);
	ck_assert(!mfs_is_of_layer(x, &a, 0) && mfs_is_of_layer(x, &a, 1));
	ck_assert(mfs_is_of_layer(&x[2], &a, 0) && !mfs_is_of_layer(&x[2], &a, 1));
	ck_assert(mfs_is_of_layer(tensor(f, "up"), &a, 0));
	ck_assert(tensor(f, "n")->norm && tensor(f, "n")->plain);
	ck_assert_int_eq(tensor(f, "q")->rule, MFS_RULE_Q_GATES);
	ck_assert_int_eq(tensor(f, "c")->shape[2], MFS_DIM_LINEAR_KERNEL);
}
END_TEST

/* In a hybrid model a layer is of one kind, so tensors of all kinds may have one name. */
START_TEST(kinds_of_sublayers)
{
	const struct mfs_family *f =
		accepted(HEAD "requires = hybrid\n" EMBEDDING "[layer mamba]\nx = norm.weight\n"
			      "c = mixer.conv1d.weight\n[layer full]\nx = input_layernorm.weight\n"
			      "[layer dense]\nx = pre_mlp_layernorm.weight\n"
			      "[layer moe]\nx = pre_mlp_layernorm.weight\n");
	static const uint8_t moe[] = {0, 0, 0, 1};
	const struct mfs_megatron_args a = {
		.num_layers = 4, .hybrid_layers = "M*-E", .moe_layers = moe};
	const struct mfs_family_tensor *x = tensor(f, "x");
	/* Where the rows of the four kinds are, after the first. */
	static const int at[] = {0, 2, 3, 4};

	for (int layer = 0; layer < 4; layer++)
		for (int i = 0; i < 4; i++)
			ck_assert_int_eq(mfs_is_of_layer(&x[at[i]], &a, layer), i == layer);
	ck_assert_int_eq(tensor(f, "c")->shape[2], MFS_DIM_MAMBA_KERNEL);
	ck_assert(x->norm && !tensor(f, "c")->norm);
}
END_TEST

/* ---- which family a model is shown as ---- */

static const char *chosen(const struct mfs_megatron_args *a)
{
	const struct mfs_family *f;

	unit_ok(mfs_family_choose(a, NULL, &f, &err), &err);
	return f->name;
}

/* That of the HF directory it comes from, while the model still fits. */
START_TEST(where_it_comes_from)
{
	struct mfs_megatron_args a = fake_llama();

	ck_assert_str_eq(chosen(&a), "llama");
	a.hf_family = "mistral";
	ck_assert_str_eq(chosen(&a), "mistral");
	a.hf_family = "qwen3";
	ck_assert_str_eq(chosen(&a), "llama");
	a.hf_family = "gemma2";
	ck_assert_str_eq(chosen(&a), "llama");
	a.hf_family = "ostrich";
	ck_assert_str_eq(chosen(&a), "llama");
}
END_TEST

/* What plain runs of pretrain_gpt.py are, and what several families have. */
START_TEST(first_that_fits)
{
	struct mfs_megatron_args a = fake_llama();

	a.window_size = 64;
	ck_assert_str_eq(chosen(&a), "mistral");
	a.rotary_percent = 0.5;
	ck_assert_str_eq(chosen(&a), "phi3");
	a = fake_llama();
	a.swiglu = false;
	a.squared_relu = true;
	ck_assert_str_eq(chosen(&a), "arcee");
	a.layernorm = true;
	ck_assert_str_eq(chosen(&a), "jais2");
	a.zero_centered_gamma = true;
	ck_assert_str_eq(chosen(&a), "jais2");
	a.rotary_percent = 0.5;
	ck_assert_str_eq(chosen(&a), "nemotron");
	a = fake_gpt2();
	a.position_embedding_type = "rope";
	ck_assert_str_eq(chosen(&a), "gpt-neox");
	a.num_query_groups = 1;
	ck_assert_str_eq(chosen(&a), "starcoder2");
}
END_TEST

START_TEST(a_family_that_megatron_cannot_express_is_refused)
{
	const struct mfs_megatron_args a = fake_llama();
	const struct mfs_family *f;

	unit_fails(mfs_family_choose(&a, "olmo2", &f, &err), &err, -ENOTSUP,
		   "not a olmo2: Megatron cannot express one: norms after");
	ck_assert_ptr_null(strstr(mfs_family_names(), "olmo2"));
	ck_assert_ptr_nonnull(find("olmo2", NULL));
}
END_TEST

/* ---- the class that made a model ---- */

/* A class of a family without modules of its own adds nothing; a size may follow its name. */
START_TEST(plain_providers)
{
	static const char *const plain[] = {"GPTModelProvider",
					    "MLAModelProvider",
					    "Llama31ModelProvider",
					    "Qwen3MoEModelProvider30B_A3B",
					    "Llama2Config7B",
					    "KimiK2Provider",
					    "MistralSmall3ModelProvider24B"};
	static const char *const others[] = {"Llama",
					     "Llama4ModelProvider",
					     "ModelProvider",
					     "Qwen25VLModelProvider",
					     "GemmaModelProvider",
					     ""};
	struct mfs_megatron_args a = fake_llama();

	for (size_t i = 0; i < MFS_ARRAY_SIZE(plain); i++) {
		a.provider = plain[i];
		ck_assert_msg(mfs_provider_is_plain(plain[i]), "%s", plain[i]);
		ck_assert_str_eq(chosen(&a), "llama");
	}
	for (size_t i = 0; i < MFS_ARRAY_SIZE(others); i++)
		ck_assert_msg(!mfs_provider_is_plain(others[i]), "%s", others[i]);
}
END_TEST

static struct mfs_megatron_args fake_gemma(const char *provider)
{
	struct mfs_megatron_args a = fake_llama();

	a.swiglu = false;
	a.geglu = a.zero_centered_gamma = true;
	a.provider = provider;
	return a;
}

/* Modules of its own are those of the family that names the class, and of no other. */
START_TEST(own_modules)
{
	struct mfs_megatron_args a = fake_gemma("CodeGemmaModelProvider2B");
	const struct mfs_family *f;

	ck_assert_str_eq(chosen(&a), "gemma");
	a.provider = "Qwen25VLModelProvider";
	unit_fails(mfs_family_choose(&a, NULL, &f, &err), &err, -ENOTSUP,
		   "nearest is gemma, but the model has model_provider (Qwen25VLModelProvider)");
	a.provider = "Gemma2ModelProvider";
	unit_fails(mfs_family_choose(&a, "gemma", &f, &err), &err, -ENOTSUP,
		   "not a gemma: it has model_provider (Gemma2ModelProvider)");
	a.provider = NULL;
	unit_fails(mfs_family_choose(&a, "gemma", &f, &err), &err, -ENOTSUP,
		   "not a gemma: it lacks modules of Megatron-Bridge's own");
	a = fake_llama();
	a.softmax_scale = 0.5;
	unit_fails(mfs_family_choose(&a, NULL, &f, &err), &err, -ENOTSUP,
		   "another scale of attention scores");
	a.softmax_scale = 1 / sqrt((double)a.kv_channels);
	ck_assert_str_eq(chosen(&a), "llama");
}
END_TEST

/* ---- what is refused ---- */

static const struct {
	const char *text, *part;
} wrong[] = {
	{"x", "f.conf:1: 'x', expected KEY = VALUE"},
	{"= x", "f.conf:1: '= x', expected KEY = VALUE"},
	{"\n[family", "f.conf:2: '[family', expected [SECTION]"},
	{"  x = 1", "f.conf:1: 'x = 1' goes on with a value"},
	{"[family]\nname = a\x01", "f.conf:2: byte 0x01"},
	{"a = b", "f.conf:1: [] is no section"},
	{"[familly]\na = b", "did you mean 'family'"},
	{"[family]\nnam = b", "f.conf:2: 'nam' is no key of [family]; did you mean 'name'?"},
	{"[family]\nname =", "f.conf:2: 'name' has no value"},
	{HEAD EMBEDDING "[after]\nx = swapped of output_layer.weight",
	 "swapped are the halves of eh_proj's columns"},
	{HEAD "mtp-layers = egg." EMBEDDING, "expected one like model.layers.{i}."},
	{HEAD "[fused]\nall = one.weight", "'one.weight', expected a tensor of each expert"},
	{HEAD "[fused]\nall = one.{e}.{e}", "'one.{e}.{e}', expected a tensor of each expert"},
	{HEAD "[fused]\nall = {x}.{e}", "'{x}.{e}', expected a tensor of each expert"},
	{HEAD "[fused]\nall = a.{e} and b.{e} and c.{e}", "more than 2 parts"},
	{HEAD "[fused]\nall = a.{e} and", "'', expected a tensor of each expert"},
	{HEAD "[fused]\nall = a.{e}, or", "expected parts, and perhaps ', or transposed'"},
	{HEAD "[fused]\nall = a.{e}, transposed", "expected parts, and perhaps ', or transposed'"},
	{HEAD "[fused]\nall = a.{e} b.{e}", "expected parts, and perhaps ', or transposed'"},
	{HEAD "[fused]\nall.{e} = a.{e}", "'all.{e}', expected one tensor of all experts"},
	{WHOLE "[language]\nfamily = ostrich", "family 'ostrich': there is no such family of text"},
	{WHOLE "[language]\nfamily = llama, gemma3-vl", "family 'gemma3-vl': there is no such"},
	{WHOLE "[language]\nfamiliy = llama", "'familiy' is no key of [language]"},
	{WHOLE "[language]\nconfig = text or less", "expected KEY or KEY or the whole"},
	{WHOLE "[language]\npositions = rope", "positions 'rope', expected mrope"},
	{WHOLE "[language]\nfamily = llama", "[language] has no names"},
	{WHOLE "[language hf]\nmodel. = model.", "[language] has no 'family'"},
	{WHOLE "[language hf]\nmodel. = a b", "'a b', expected what such names begin with"},
	{WHOLE "requires = rope\n[language]\nfamily = llama\n[language hf]\na. = a.",
	 "[language], expected an architecture, and neither features"},
	{"[family]\nbase = ostrich", "base 'ostrich': there is no such family"},
	{"[family]\nbase = llama\nbase = llama", "f.conf:3: base, expected before"},
	{"[family]\nrequires = rope\nbase = llama", "f.conf:3: base, expected before"},
	{"[family]\norder = -1", "order '-1', expected a number"},
	{"[family]\nlayers = model.layers.", "layers 'model.layers.', expected one like"},
	{"[family]\nlayers = {i}.", "expected one like model.layers.{i}."},
	{"[family]\nrequires = ropes", "'ropes' is no feature; did you mean 'rope'?"},
	{"[family]\nrequires = rope, ", "a feature is missing at the end"},
	{"[family]\nrequires = rope tied", "'tied' is not expected here"},
	{"[family]\nabout = x", "f.conf: [family] has no 'name'"},
	{"[family]\nname = x\narchitecture = X", "f.conf: [family] has no 'model_type'"},
	{"[family]\nname = x\narchitecture = X\nmodel_type = x", "has no 'layers'"},
	{HEAD, "no tensor is made of embedding.word_embeddings.weight"},
	{HEAD "norms = weight", "norms 'weight', expected weight - 1"},
	{HEAD "norms = weight - 1\n" EMBEDDING, "expected that it requires zero-centered"},
	{HEAD "impossible = wings\n" EMBEDDING, "impossible, expected an architecture, and no"},
	{"[family]\nname = x\nimpossible = wings", "impossible, expected an architecture"},
	{"[layer]\nx = y", "f.conf:2: 'y' is no parameter that a GPTModel has here"},
	{"[layer]\nx = input_layernorm.weigth", "did you mean 'input_layernorm.weight'?"},
	{"[layer]\nx = enorm.weight", "'enorm.weight' is no parameter"},
	{"[layer]\nx = half of input_layernorm.weight", "'half of' is no rule"},
	{"[layer]\nx = q of", "Megatron's parameter is missing"},
	{"[layer]\nx =", "Megatron's parameter is missing"},
	{"[layer]\nx = input_layernorm.weight, upside-down", "'upside-down' is not expected here"},
	{"[layer]\nx = input_layernorm.weight if", "a feature is missing"},
	{"[layer]\nx = input_layernorm.weight if tied or", "a feature is missing"},
	{"[layer]\nx y = input_layernorm.weight", "a name has no blanks"},
	{"[layer]\nx{e} = input_layernorm.weight", "is not of experts"},
	{"[layer]\nx{f} = input_layernorm.weight", "expected {e} once"},
	{"[layer]\nx = none", "'x' is none, but no base has it here"},
	{"[layer moe]\nx = mlp.experts.experts.linear_fc2.weight", "expected {e} in its name"},
	{"[layer]\nx{e} = mlp.experts.experts.linear_fc2.weight", "expected it in [layer moe]"},
	{"[layer moe]\nx{e} = mlp.experts.experts.linear_fc2.weight, stacked",
	 "expected a name without {e}"},
	{"[layer]\nx = input_layernorm.weight, stacked", "nothing is stacked"},
	{"[vllm]\nx =", "expected the engine's name"},
	{"[vllm]\nx = y{e}", "expected the engine's name, without an expert"},
	{"[vllm]\nx = y, float64", "'float64"},
	{"[vllm]\nx = none", "'x' is none, but no base has it here"},
	{HEAD EMBEDDING "\n[vllm]\nx = y", "f.conf: [vllm]: there is no tensor 'x'"},
	{HEAD EMBEDDING "\n[sglang]\ncache = y", "f.conf: [sglang]: there is no tensor 'cache'"},
	{HEAD "sglang = 1, if gqa", "expected VERSION, unless A or B"},
	{HEAD "requires = swiglu\n" EMBEDDING
	      "[layer moe]\nx = gate-up of mlp.experts.experts.linear_fc1.weight, stacked",
	 "along the last axis alone"},
	{HEAD "requires = swiglu\n" EMBEDDING
	      "[layer moe]\nx = gate-up of mlp.experts.experts.linear_fc2.bias, stacked",
	 "gate and up are of a linear_fc1"},
	{HEAD "requires = swiglu\n" EMBEDDING "[layer]\nx = q of mlp.linear_fc1.weight",
	 "f.conf: tensor 'x': q, k and v are of linear_qkv"},
	{HEAD EMBEDDING "[layer dense]\nx = up of mlp.linear_fc1.weight",
	 "gate and up are of a linear_fc1 in a gated model"},
	{HEAD EMBEDDING "[layer]\nx = input_layernorm.weight, transposed",
	 "only a matrix has a transpose"},
	{HEAD EMBEDDING "[layer]\nx = q of self_attention.linear_qkv.bias, transposed",
	 "only a matrix has a transpose"},
	{HEAD EMBEDDING "[layer]\nx = self_attention.conv1d.weight, transposed",
	 "only a matrix has a transpose"},
	{HEAD EMBEDDING "[layer]\nx = self_attention.A_log, plain", "only a norm is plain"},
	{HEAD "allows = output-gate\n" EMBEDDING
	      "[layer]\nx = q of self_attention.linear_qkv.weight",
	 "with output gates, queries are q-gates"},
	{HEAD EMBEDDING "[layer]\nx = q-gates of self_attention.linear_qkv.weight",
	 "in a model that requires output-gate"},
	{HEAD EMBEDDING "[layer]\nx = ba of self_attention.conv1d.weight",
	 "qkvz and ba are of in_proj"},
	{HEAD "requires = hybrid\n" EMBEDDING
	      "[layer]\nx = norm.bias\n[layer mamba]\nx = norm.weight",
	 "tensor 'x' is there twice"},
	{HEAD EMBEDDING "[layer mamba]\nx = mixer.norm.weight, plain", "only a norm is plain"},
	{HEAD EMBEDDING
	 "[layer full]\nx = input_layernorm.bias\n[layer dense]\nx = input_layernorm.weight",
	 "tensor 'x' is there twice"},
	{"[layer quick]\nx = input_layernorm.bias", "[layer quick] is no section"},
	{HEAD EMBEDDING "[layer]\nx = input_layernorm.bias\nx = input_layernorm.weight",
	 "tensor 'x' is there twice"},
	{HEAD EMBEDDING
	 "[layer]\nx = input_layernorm.bias\n[layer moe]\nx = input_layernorm.weight",
	 "tensor 'x' is there twice"},
	{"[config]\nx =", "f.conf:2: the value is missing"},
	{"[config]\nx = hiden_size", "did you mean 'hidden_size'?"},
	{"[config]\nx = computed", "'computed ' is nothing"},
	{"[config]\nx = computed pi", "'computed pi' is nothing"},
	{"[config]\nx = \"y", "a \" without its end"},
	{"[config]\nx = 1e", "'1e' is no JSON value"},
	{"[config]\nx = 1, reference draws", "'reference draws', expected wins or loses"},
	{"[config]\nx = 1, reference", "expected wins or loses"},
	{"[config]\nx = has", "a feature is missing"},
	{"[config]\nx = 1 2", "'2' is not expected here"},
	{"[config]\nx = 1\nx = 2", "f.conf:3: 'x' is there twice"},
	{"[defaults]\nx = y", "'y' is no JSON value"},
	{"[family]\nname = x\n[defaults]\ny = 1", "[defaults]: [config] has no 'y'"},
	{"[family]\nname = x\n[config]\ny = 1\n[defaults]\ny = 1\ny = 2", "twice in [defaults]"},
	{"[family]\nname = x\n[aliases]\ny = z", "[aliases]: [config] has no 'z'"},
	{"[notes]\nblue = it is", "'blue' is no feature"},
};

START_TEST(a_language_part_is_read)
{
	const struct mfs_family *f =
		accepted(WHOLE "[language]\nfamily = llama, qwen2\nconfig = text or the whole\n"
			       "positions = mrope\n[language hf]\nmouth. = model.\neye. = none\n"
			       "[defaults]\nhidden_size = 7\n");
	const struct mfs_language *l = f->language;

	ck_assert(l && !mfs_family_has_models(f) && l->whole && l->part.mrope);
	ck_assert_str_eq(l->config, "text");
	ck_assert(!strcmp(l->part.shown, "llama, qwen2") && !l->part.only && !l->part.names->from);
	ck_assert_str_eq(l->hf[0].to, "model.");
	ck_assert(!strcmp(l->hf[1].from, "eye.") && !l->hf[1].to && !l->hf[2].from);
	ck_assert_ptr_null(strstr(mfs_family_names(), "gemma3-vl"));
	ck_assert_ptr_nonnull(find("gemma3-vl", NULL)->language);
}
END_TEST

START_TEST(a_wrong_line_is_refused)
{
	struct mfs_family *f;

	unit_fails(read_text(wrong[_i].text, &f), &err, -EINVAL, wrong[_i].part);
}
END_TEST

START_TEST(many_words)
{
	char text[4096] = "[layer]\nx = input_layernorm.weight, if tied";
	struct mfs_family *f;

	for (unsigned i = 0; i < 50; i++)
		strcat(text, " or tied");
	unit_fails(read_text(text, &f), &err, -EINVAL, "more than 96 words");
}
END_TEST

/* ---- a person's file ---- */

static char path[] = "/tmp/mcorefs-family-XXXXXX";

static void write_file(const char *text, size_t zeros)
{
	int fd = open(path, O_WRONLY | O_TRUNC);

	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	ck_assert(!ftruncate(fd, (off_t)(strlen(text) + zeros)));
	close(fd);
}

START_TEST(a_family_may_come_from_a_file)
{
	struct mfs_megatron_args args = fake_llama();
	const struct mfs_family *f;
	struct mfs_model *m;
	struct mfs_ckpt c;

	close(mkstemp(path));
	unit_ok(mfs_family_choose(&args, NULL, &f, &err), &err);
	ck_assert_str_eq(f->name, "llama");
	write_file("[family]\nname = parrot\nbase = llama\narchitecture = Parrot\nmodel_type = p\n"
		   "layers = bird.{i}.\n[before]\nmodel.embed_tokens.weight = none\n"
		   "words = embedding.word_embeddings.weight\n",
		   0);
	unit_ok(mfs_families_add(path, &err), &err);
	unit_ok(mfs_families_add(path, &err), &err); /* it takes its own place */
	unit_ok(mfs_family_choose(&args, NULL, &f, &err), &err);
	ck_assert_str_eq(f->name, "parrot");
	ck_assert(!f->built_in && !strcmp(f->file, path));
	ck_assert_ptr_nonnull(strstr(mfs_family_names(), "parrot, llama"));
	unit_ok(mfs_family_choose(&args, "llama", &f, &err), &err);
	ck_assert_str_eq(f->name, "llama");
	fake_ckpt(&c, &args);
	unit_ok(mfs_model_new(&c, "parrot", NULL, &m, &err), &err);
	ck_assert_str_eq(m->targets[0].row->hf, "words");
	mfs_model_free(m);
	fake_release(&c);
	unlink(path);
}
END_TEST

START_TEST(not_added)
{
	close(mkstemp(path));
	unit_fails(mfs_families_add("/tmp", &err), &err, -EINVAL, "family=/tmp: ");
	unit_fails(mfs_families_add("/tmp/none/at.conf", &err), &err, -ENOENT, "No such file");
	write_file("[family]\nname = parrot\n", 0);
	unit_fails(mfs_families_add(path, &err), &err, -EINVAL, "has no 'architecture'");
	write_file("[family]\n", MFS_FAMILY_MAX);
	unit_fails(mfs_families_add(path, &err), &err, -ENOTSUP, "expected at most 262144");
	write_file("[family]\n", 10);
	unit_fails(mfs_families_add(path, &err), &err, -EINVAL, "byte 0x00");
	ck_assert_ptr_null(strstr(mfs_family_names(), "parrot"));
	unlink(path);
}
END_TEST

static void tear_down(void)
{
	mfs_arena_release(&arena);
}

Suite *mfs_suite(void)
{
	Suite *s = suite_create("family");
	TCase *c = tcase_create("files");

	tcase_add_checked_fixture(c, NULL, tear_down);
	tcase_add_test(c, rows_have_rules_and_conditions);
	tcase_add_test(c, layers_ahead);
	tcase_add_test(c, a_family_changes_its_base);
	tcase_add_test(c, norms_that_are_stored_as_in_megatron);
	tcase_add_test(c, kinds_of_layers);
	tcase_add_test(c, kinds_of_sublayers);
	tcase_add_test(c, where_it_comes_from);
	tcase_add_test(c, first_that_fits);
	tcase_add_test(c, a_family_that_megatron_cannot_express_is_refused);
	tcase_add_test(c, plain_providers);
	tcase_add_test(c, own_modules);
	tcase_add_loop_test(c, a_wrong_line_is_refused, 0, MFS_ARRAY_SIZE(wrong));
	tcase_add_test(c, a_language_part_is_read);
	tcase_add_test(c, many_words);
	tcase_add_test(c, a_family_may_come_from_a_file);
	tcase_add_test(c, not_added);
	suite_add_tcase(s, c);
	return s;
}
