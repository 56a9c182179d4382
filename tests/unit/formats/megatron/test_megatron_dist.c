/*
 * torch_dist views (formats/megatron/write/files.h): what they hold is what the source holds, under
 * the keys that a run asks for. Views are written out and read back by our own reader.
 */
#define _GNU_SOURCE
#include "tests/unit/fake_ckpt.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>

#include "formats/base/array.h"
#include "formats/ckpt/names.h"
#include "formats/ckpt/rng.h"
#include "formats/ckpt/target.h"
#include "formats/optim/read/optim_open.h"
#include "formats/torch/dcp.h"
#include "formats/optim/buffers/rank_optim.h"
#include "formats/megatron/write/dist_boxes.h"
#include "formats/megatron/write/dist_keys.h"
#include "formats/megatron/write/extra_items.h"
#include "formats/megatron/write/files.h"

static struct mfs_error err;

/* ---- views in a directory, or in memory ---- */

#define MAX_FILES 256

struct shown {
	char *names[MAX_FILES];
	struct mfs_vfile *files[MAX_FILES];
	unsigned count;
	struct mfs_megatron_options view;
	struct mfs_megatron_dist *dist;
};

static int take(void *arg, const char *path, struct mfs_vfile *data, struct mfs_error *e)
{
	struct shown *s = arg;

	(void)e;
	ck_assert_uint_lt(s->count, MAX_FILES);
	s->names[s->count] = strdup(path);
	s->files[s->count++] = data;
	return 0;
}

static int try_show(struct shown *s, struct mfs_ckpt *ckpt, const struct mfs_layout *layout,
		    enum mfs_layer_spec spec)
{
	const struct mfs_file_sink sink = {take, s};

	*s = (struct shown){.view = {.ckpt = ckpt,
				     .layout = *layout,
				     .spec = spec,
				     .number = 7,
				     .optimizer = mfs_ckpt_count_all(ckpt) > mfs_ckpt_count(ckpt)}};
	return mfs_megatron_dist_new(&s->view, &sink, &s->dist, &err);
}

static void release(struct shown *s)
{
	for (unsigned i = 0; i < s->count; i++) {
		mfs_vfile_free(s->files[i]);
		free(s->names[i]);
	}
	mfs_megatron_dist_free(s->dist);
}

static uint8_t *content(const struct shown *s, const char *name, size_t *ret_len)
{
	for (unsigned i = 0; i < s->count; i++) {
		uint8_t *bytes;

		if (strcmp(s->names[i], name))
			continue;
		*ret_len = mfs_vfile_size(s->files[i]);
		bytes = malloc(*ret_len + 1);
		unit_ok(mfs_vfile_pread(s->files[i], 0, bytes, *ret_len, ret_len, &err), &err);
		return bytes;
	}
	ck_abort_msg("no file %s", name);
	return NULL;
}

static void write_out(const struct shown *s, const char *dir)
{
	for (unsigned i = 0; i < s->count; i++) {
		size_t len;
		uint8_t *bytes = content(s, s->names[i], &len);

		ck_assert_uint_eq(len, mfs_vfile_size(s->files[i]));
		unit_ok(mfs_vfile_check(s->files[i], NULL, &err), &err);
		unit_write(dir, s->names[i], bytes, len);
		free(bytes);
	}
}

static void read_index(const struct shown *s, struct mfs_dcp *ret)
{
	size_t len;
	uint8_t *bytes = content(s, ".metadata", &len);

	unit_ok(mfs_dcp_parse(bytes, len, ".metadata", ret, &err), &err);
	free(bytes);
}

/* ---- fixtures ---- */

static const char *const fixtures[] = {
	"weights/llama-torch_dist-tp2-pp2-vpp2/iter_0000040",
	"weights/qwen3-torch_dist-tp4/iter_0000040",
	"weights/mixtral-torch_dist-pp2-ep2/iter_0000040",
	"weights/deepseek-torch_dist-pp2-ep2/iter_0000040",
	"weights/llama-torch-tp2-pp2/iter_0000040",
	"weights/mixtral-torch-pp2-ep2/iter_0000040",
	"weights/gpt2-torch-tp2-pp2/iter_0000040",
	"resume/llama-torch_dist-tp2-pp2/iter_0000020",
	"resume/llama-torch_dist-tp2-pp2/iter_0000040",
	"resume/llama-torch_dist-tp2-pp2-vpp2/iter_0000020",
	"resume/llama-torch-tp2-pp2/iter_0000020",
	"resume/qwen2-torch-tp2-dp2-distopt/iter_0000020",
	"hybrid/llama-torch_dist-mtp/iter_0000001",
	"hybrid/bridge/iter_0000001",
	"hybrid/mla-torch-fused/iter_0000001",
	"hybrid/mamba-torch/iter_0000001",
};

#define FIXTURES MFS_ARRAY_SIZE(fixtures)

static struct mfs_ckpt *open_fixture(const char *name)
{
	struct mfs_ckpt *ckpt;

	unit_ok(mfs_optim_open(unit_fixture(name), &ckpt, &err), &err);
	return ckpt;
}

static void show_own(struct shown *s, struct mfs_ckpt *ckpt)
{
	struct mfs_layout own;

	ck_assert(mfs_layout_of(ckpt, &own));
	unit_ok(try_show(s, ckpt, &own, mfs_layer_spec_of(ckpt)), &err);
}

static uint8_t *tensor_bytes(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t, size_t *len)
{
	struct mfs_whole_target target;
	struct mfs_vfile *f;
	uint8_t *bytes;

	mfs_whole_target_init(&target, ckpt, t);
	unit_ok(mfs_vfile_new(&f, &err), &err);
	unit_ok(mfs_vfile_add_tensor(f, &target.base, &err), &err);
	*len = mfs_vfile_size(f);
	bytes = malloc(*len + 1);
	unit_ok(mfs_vfile_pread(f, 0, bytes, *len, len, &err), &err);
	mfs_vfile_free(f);
	return bytes;
}

static void same_tensor(struct mfs_ckpt *a, struct mfs_ckpt *b, uint32_t i)
{
	const struct mfs_global_tensor *x = mfs_ckpt_at(a, i);
	const struct mfs_global_tensor *y =
		mfs_ckpt_find_state(b, x->state, x->name, x->layer, x->expert);
	char name[MFS_CKPT_NAME_SIZE];
	uint8_t *p, *q;
	size_t n, m;

	mfs_global_tensor_name(x, name, sizeof(name));
	ck_assert_msg(y != NULL, "%s is missing", name);
	ck_assert_msg(x->dtype == y->dtype && x->ndim == y->ndim &&
			      !memcmp(x->shape, y->shape, sizeof(x->shape)),
		      "%s: another type or shape", name);
	p = tensor_bytes(a, x, &n);
	q = tensor_bytes(b, y, &m);
	ck_assert_uint_eq(n, m);
	ck_assert_msg(!memcmp(p, q, n), "%s: other bytes", name);
	free(p);
	free(q);
}

/* A GPTModel's tensors come back from both of its forms. */
START_TEST(round_trip)
{
	struct mfs_ckpt *ckpt = open_fixture(fixtures[_i % FIXTURES]), *again;
	struct mfs_layout own;
	struct shown s;

	ck_assert(mfs_layout_of(ckpt, &own));
	own.hybrid = (size_t)_i >= FIXTURES && !mfs_ckpt_args(ckpt)->hybrid_layers;
	unit_ok(try_show(&s, ckpt, &own, own.hybrid ? MFS_LAYER_SPEC_TE : mfs_layer_spec_of(ckpt)),
		&err);
	write_out(&s, unit_tmpdir());
	unit_ok(mfs_optim_open(unit_tmpdir(), &again, &err), &err);
	ck_assert_uint_eq(mfs_ckpt_count(again), mfs_ckpt_count(ckpt));
	ck_assert_uint_eq(mfs_ckpt_count_all(again), mfs_ckpt_count_all(ckpt));
	for (uint32_t i = 0; i < mfs_ckpt_count_all(ckpt); i++)
		same_tensor(ckpt, again, i);
	ck_assert_int_eq(mfs_rng_there(again), mfs_rng_there(ckpt));
	ck_assert_uint_eq(mfs_ckpt_layout(again)->tp, mfs_ckpt_layout(ckpt)->tp);
	ck_assert_uint_eq(mfs_ckpt_layout(again)->pp, mfs_ckpt_layout(ckpt)->pp);
	ck_assert_int_eq(mfs_ckpt_args(again)->hybrid_form, own.hybrid);
	ck_assert_int_eq(mfs_ckpt_args(again)->num_layers, mfs_ckpt_args(ckpt)->num_layers);
	if (!own.hybrid)
		ck_assert_int_eq(mfs_ckpt_args(again)->moe_layer_freq_listed,
				 mfs_ckpt_args(ckpt)->moe_layer_freq_listed);
	mfs_ckpt_free(again);
	release(&s);
	mfs_ckpt_free(ckpt);
}
END_TEST

/* ---- keys: those that Megatron wrote ---- */

static bool is_weight(const char *key)
{
	return mfs_name_is_model(key) && !strstr(key, "._extra_state");
}

static uint32_t count_weights(const struct mfs_dcp *dcp)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < dcp->tensor_count; i++)
		count += is_weight(dcp->tensors[i].key);
	return count;
}

static void check_key(const struct mfs_dcp_tensor *want, const struct mfs_dcp *have)
{
	const struct mfs_dcp_tensor *t = mfs_dcp_tensor(have, want->key);

	ck_assert_msg(t != NULL, "%s is missing", want->key);
	ck_assert_int_eq(t->dtype, want->dtype);
	ck_assert_uint_eq(t->ndim, want->ndim);
	ck_assert_msg(!memcmp(t->shape, want->shape, t->ndim * sizeof(*t->shape)), "%s: shape",
		      want->key);
	/* Cut as the run had it cut. */
	ck_assert_msg(t->chunk_count == want->chunk_count, "%s: %u chunks, not %u", want->key,
		      t->chunk_count, want->chunk_count);
}

START_TEST(keys_are_those_of_megatron)
{
	struct mfs_ckpt *ckpt = open_fixture(fixtures[_i]);
	struct mfs_dcp own, shown;
	struct shown s;
	char path[600];
	uint8_t *bytes;
	size_t len;

	if (!strcmp(mfs_ckpt_format(ckpt)->name, "torch_dist")) {
		snprintf(path, sizeof(path), "%s/.metadata", unit_fixture(fixtures[_i]));
		bytes = unit_slurp(path, &len);
		unit_ok(mfs_dcp_parse(bytes, len, path, &own, &err), &err);
		show_own(&s, ckpt);
		read_index(&s, &shown);
		ck_assert_uint_eq(count_weights(&shown), count_weights(&own));
		for (uint32_t i = 0; i < own.tensor_count; i++)
			if (is_weight(own.tensors[i].key))
				check_key(&own.tensors[i], &shown);
		for (uint32_t i = 0; i < own.bytes_count; i++)
			if (strstr(own.bytes[i].key, "._extra_state") ||
			    strstr(own.bytes[i].key, "rng_state"))
				ck_assert_msg(mfs_dcp_bytes(&shown, own.bytes[i].key) != NULL,
					      "%s is missing", own.bytes[i].key);
		mfs_dcp_release(&own);
		mfs_dcp_release(&shown);
		free(bytes);
		release(&s);
	}
	mfs_ckpt_free(ckpt);
}
END_TEST

/* Every tensor's chunks tile it, and items lie side by side from each file's start to its end. */
START_TEST(items_tile_their_tensors_and_files)
{
	static const struct mfs_layout cuts[] = {
		{.tp = 1, .pp = 1, .ep = 1, .etp = 1, .vpp = 1},
		{.tp = 4, .pp = 1, .ep = 1, .etp = 2, .vpp = 1},
		{.tp = 8, .pp = 1, .ep = 1, .etp = 8, .vpp = 1},
	};
	struct mfs_ckpt *ckpt = open_fixture(fixtures[_i]);

	for (unsigned c = 0; c < MFS_ARRAY_SIZE(cuts); c++) {
		uint64_t items = 0, files = 0;
		struct mfs_dcp dcp;
		struct shown s;

		unit_ok(try_show(&s, ckpt, &cuts[c], MFS_LAYER_SPEC_TE), &err);
		read_index(&s, &dcp);
		for (uint32_t i = 0; i < dcp.tensor_count; i++) {
			unit_ok(mfs_dcp_check(&dcp.tensors[i], ".metadata", &err), &err);
			for (uint32_t k = 0; k < dcp.tensors[i].chunk_count; k++)
				items += dcp.tensors[i].chunks[k].item.length;
		}
		for (uint32_t i = 0; i < dcp.bytes_count; i++)
			items += dcp.bytes[i].item.length;
		for (unsigned i = 0; i < s.count; i++)
			files += strstr(s.names[i], ".distcp") ? mfs_vfile_size(s.files[i]) : 0;
		ck_assert_uint_eq(items, files);
		mfs_dcp_release(&dcp);
		release(&s);
	}
	mfs_ckpt_free(ckpt);
}
END_TEST

/* ---- keys of models that no fixture has ---- */

static void expect_at(struct mfs_layout two, struct mfs_megatron_args args,
		      enum mfs_layer_spec spec, const char *const *keys)
{
	struct mfs_ckpt ckpt;
	struct mfs_dcp dcp;
	struct shown s;

	fake_ckpt(&ckpt, &args);
	unit_ok(try_show(&s, &ckpt, &two, spec), &err);
	read_index(&s, &dcp);
	for (; *keys; keys++)
		ck_assert_msg(mfs_dcp_tensor(&dcp, *keys) || mfs_dcp_bytes(&dcp, *keys),
			      "%s is missing", *keys);
	mfs_dcp_release(&dcp);
	release(&s);
	fake_release(&ckpt);
}

static const struct mfs_layout halves = {.tp = 2, .pp = 1, .ep = 1, .etp = 2, .vpp = 1};

static void expect(struct mfs_megatron_args args, enum mfs_layer_spec spec, const char *const *keys)
{
	expect_at(halves, args, spec, keys);
}

#define KEYS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define LAYERS	  "decoder.layers."

/* TransformerLayerSubmodules of gpt_layer_specs.py, by hand. */
START_TEST(te_keys)
{
	struct mfs_megatron_args a = fake_llama();

	expect(a, MFS_LAYER_SPEC_TE,
	       KEYS(LAYERS "self_attention.linear_qkv.layer_norm_weight",
		    LAYERS "mlp.linear_fc1.layer_norm_weight",
		    LAYERS "self_attention.core_attention._extra_state/shard_1_2",
		    "decoder.final_layernorm._extra_state/shard_0_1"));
	a = fake_qwen3();
	expect(a, MFS_LAYER_SPEC_TE,
	       KEYS(LAYERS "self_attention.q_layernorm.weight",
		    LAYERS "self_attention.k_layernorm._extra_state/shard_0_2"));
	a = fake_mixtral();
	expect(a, MFS_LAYER_SPEC_TE,
	       KEYS(LAYERS "pre_mlp_layernorm.weight",
		    LAYERS "pre_mlp_layernorm._extra_state/shard_0_2",
		    LAYERS "mlp.experts.experts.linear_fc2._extra_state/shard_1.3_2.4"));
	expect(a, MFS_LAYER_SPEC_LOCAL, KEYS(LAYERS "mlp.linear_fc1.layer_norm_weight"));
	/* The same model, its pattern written as a list of ones. */
	a.moe_layer_freq_listed = true;
	expect(a, MFS_LAYER_SPEC_LOCAL,
	       KEYS(LAYERS "0.mlp.linear_fc1.layer_norm_weight",
		    LAYERS "1.mlp.experts.experts.linear_fc1.weight",
		    LAYERS "1.mlp.experts.experts.linear_fc1._extra_state/shard_3_4",
		    LAYERS "0.self_attention.linear_qkv._extra_state/shard_0_1"));
	a = fake_deepseek();
	expect(a, MFS_LAYER_SPEC_TE,
	       KEYS(LAYERS "0.input_layernorm.weight", LAYERS "0.mlp.linear_fc1.layer_norm_weight",
		    LAYERS "1.pre_mlp_layernorm.weight",
		    LAYERS "1.self_attention.linear_q_up_proj.layer_norm_weight",
		    LAYERS "0.self_attention.linear_kv_up_proj.layer_norm_weight"));
	expect(a, MFS_LAYER_SPEC_LOCAL,
	       KEYS(LAYERS "0.input_layernorm.weight", LAYERS "0.pre_mlp_layernorm.weight",
		    LAYERS "1.self_attention.q_layernorm.weight",
		    LAYERS "0.self_attention.kv_layernorm.weight"));
}
END_TEST

START_TEST(mtp_keys)
{
	struct mfs_megatron_args a = fake_llama();

	a.mtp_num_layers = 1;
	expect(a, MFS_LAYER_SPEC_TE,
	       KEYS("mtp.layers.0.eh_proj.weight", "mtp.layers.0.enorm.weight",
		    "mtp.layers.0.final_layernorm.weight",
		    "mtp.layers.0.eh_proj._extra_state/shard_0_1",
		    "mtp.layers.0.hnorm._extra_state/shard_0_1",
		    "mtp.layers.0.transformer_layer.mlp.linear_fc1.weight",
		    "mtp.layers.0.transformer_layer.mlp.linear_fc1.layer_norm_weight",
		    "mtp.layers.0.transformer_layer.self_attention.core_attention._extra_state/"
		    "shard_0_1",
		    "mtp.layers.0.transformer_layer.mlp.linear_fc1._extra_state/shard_0_1",
		    LAYERS "mlp.linear_fc1.weight"));
	/* As megatron-core 0.16.1 says them of a model of local modules. */
	a = fake_mixtral();
	a.mtp_num_layers = 1;
	expect(a, MFS_LAYER_SPEC_LOCAL,
	       KEYS("mtp.layers.0.transformer_layer.self_attention.linear_qkv.layer_norm_weight",
		    "mtp.layers.0.transformer_layer.mlp.linear_fc1.layer_norm_weight",
		    "mtp.layers.0.transformer_layer.mlp.router.weight",
		    "mtp.layers.0.transformer_layer.mlp.experts.experts.linear_fc1.weight",
		    "mtp.layers.0.transformer_layer.mlp.experts.experts.linear_fc1._extra_state/"
		    "shard_3_4"));
}
END_TEST

/* models/hybrid/hybrid_block.py, hybrid_layer_specs.py, by hand. */
START_TEST(hybrid_keys)
{
	struct mfs_megatron_args a = fake_deepseek();
	struct mfs_layout p = halves;

	p.hybrid = true;
	a.mtp_num_layers = 1;
	expect_at(p, a, MFS_LAYER_SPEC_TE,
		  KEYS("decoder.final_norm.weight", "output_layer._extra_state/shard_0_1",
		       LAYERS "0.input_layernorm.weight",
		       LAYERS "1.mlp.linear_fc1.layer_norm_weight",
		       LAYERS "2.self_attention.linear_kv_down_proj.weight",
		       LAYERS "3.pre_mlp_layernorm.weight", LAYERS "3.mlp.router.weight",
		       LAYERS "3.mlp.experts.experts.linear_fc1._extra_state/shard_3_4",
		       "mtp.layers.0.eh_proj.weight", "mtp.layers.0.final_layernorm.weight",
		       "mtp.layers.0.mtp_model_layer.layers.0.self_attention.linear_proj.weight",
		       "mtp.layers.0.mtp_model_layer.layers.1.mlp.router.weight",
		       "mtp.layers.0.mtp_model_layer.layers.1.mlp.shared_experts.linear_fc2."
		       "_extra_state/shard_0_1"));
	a = fake_llama();
	expect_at(p, a, MFS_LAYER_SPEC_TE,
		  KEYS(LAYERS "2.self_attention.linear_qkv.layer_norm_weight",
		       LAYERS "3.mlp.linear_fc2.weight"));
}
END_TEST

/* ---- common.pt ---- */

struct common {
	uint8_t *bytes;
	struct mfs_torch_file file;
	mfs_value root, one; /* the state dict, and its (first) optimizer */
};

static void open_common(const struct shown *s, struct common *ret)
{
	struct mfs_source src;
	size_t len;

	ret->bytes = content(s, "common.pt", &len);
	src = mfs_source_memory(ret->bytes, len, "common.pt");
	unit_ok(mfs_torch_file_open(&src, &ret->file, &err), &err);
	ret->root = mfs_pickle_root(ret->file.doc);
	ret->one = mfs_value_get(ret->file.doc, ret->root, "optimizer");
}

static void close_common(struct common *c)
{
	mfs_torch_file_release(&c->file);
	free(c->bytes);
}

/* Two groups, of weights and of norms, which are the run's but for its parameters. */
static void check_groups(const struct common *c, bool step)
{
	const struct mfs_pickle *doc = c->file.doc;
	mfs_value groups =
		mfs_value_get(doc, mfs_value_get(doc, c->one, "optimizer"), "param_groups");

	ck_assert_uint_eq(mfs_value_count(doc, groups), 2);
	for (uint32_t i = 0; i < 2; i++) {
		mfs_value g = mfs_value_at(doc, groups, i);
		double n = 0;
		double wd = -1;

		ck_assert(!mfs_value_has(doc, g, "params"));
		ck_assert(mfs_value_has(doc, g, "max_lr"));
		ck_assert(mfs_value_float(doc, mfs_value_get(doc, g, "wd_mult"), &wd));
		ck_assert(wd == (i ? 0 : 1));
		ck_assert_int_eq(mfs_value_float(doc, mfs_value_get(doc, g, "step"), &n), step);
		/* As the source has it: torch's Adam counts in floating point. */
		ck_assert(!step ||
			  mfs_value_type(doc, mfs_value_get(doc, g, "step")) == MFS_V_FLOAT);
		ck_assert(n == (step ? 20 : 0));
	}
}

START_TEST(the_distributed_optimizers_state_is_reshardable)
{
	struct mfs_ckpt *ckpt = open_fixture("resume/qwen2-torch-tp2-dp2-distopt/iter_0000020");
	const struct mfs_pickle *doc;
	struct common c;
	struct shown s;

	show_own(&s, ckpt);
	open_common(&s, &c);
	doc = c.file.doc;
	check_groups(&c, true);
	ck_assert(mfs_value_is_str(doc, mfs_value_get(doc, c.one, "param_state_sharding_type"),
				   "fully_reshardable"));
	ck_assert(
		mfs_value_is_str(doc,
				 mfs_value_get(doc, mfs_value_get(doc, c.root, "content_metadata"),
					       "distrib_optim_sharding_type"),
				 "fully_reshardable"));
	close_common(&c);
	release(&s);
	mfs_ckpt_free(ckpt);
}
END_TEST

START_TEST(the_float16_optimizers_state_is_shown)
{
	struct mfs_ckpt *ckpt = open_fixture("resume/llama-torch-tp2-pp2/iter_0000020");
	struct mfs_torch_tensor step;
	const struct mfs_pickle *doc;
	struct common c;
	struct shown s;
	mfs_value state;

	show_own(&s, ckpt);
	open_common(&s, &c);
	doc = c.file.doc;
	check_groups(&c, false);
	state = mfs_value_get(doc, mfs_value_get(doc, c.one, "optimizer"), "state");
	unit_ok(mfs_torch_tensor(&c.file, mfs_value_get(doc, state, "common_step"), &step, &err),
		&err);
	ck_assert_int_eq(step.dtype, MFS_F32);
	ck_assert_uint_eq(step.ndim, 0);
	ck_assert(!mfs_value_has(doc, mfs_value_get(doc, c.root, "content_metadata"),
				 "distrib_optim_sharding_type"));
	close_common(&c);
	release(&s);
	mfs_ckpt_free(ckpt);
}
END_TEST

/* ---- the vocabulary ---- */

/* Tensor ranks of which each has a multiple of 64 rows: 2048, where the source has 1024. */
START_TEST(more_ranks_pad_the_vocabulary)
{
	const struct mfs_layout wide = {.tp = 32, .pp = 1, .ep = 1, .etp = 32, .vpp = 1};
	const char *name = "embedding.word_embeddings.weight";
	struct mfs_ckpt *ckpt = open_fixture("resume/llama-torch-tp2-pp2/iter_0000020"), *again;
	uint8_t *stored, *padded;
	size_t len, padded_len;
	struct shown s;

	unit_ok(try_show(&s, ckpt, &wide, MFS_LAYER_SPEC_LOCAL), &err);
	write_out(&s, unit_tmpdir());
	unit_ok(mfs_optim_open(unit_tmpdir(), &again, &err), &err);
	ck_assert_int_eq(mfs_ckpt_args(again)->padded_vocab_size, 2048);
	for (enum mfs_state state = MFS_STATE_MODEL; state < MFS_STATE_ADAM_END; state++) {
		stored = tensor_bytes(ckpt, mfs_ckpt_find_state(ckpt, state, name, -1, -1), &len);
		padded = tensor_bytes(again, mfs_ckpt_find_state(again, state, name, -1, -1),
				      &padded_len);
		ck_assert_uint_eq(padded_len, 2 * len);
		ck_assert_mem_eq(stored, padded, len);
		for (size_t i = len; i < padded_len; i++)
			ck_assert_uint_eq(padded[i], 0);
		free(stored);
		free(padded);
	}
	mfs_ckpt_free(again);
	release(&s);
	mfs_ckpt_free(ckpt);
}
END_TEST

/* ---- what cannot be shown ---- */

START_TEST(a_missing_tensor_refuses_the_view)
{
	const struct mfs_layout one = {.tp = 1, .pp = 1, .ep = 1, .etp = 1, .vpp = 1};
	struct mfs_megatron_args a = fake_llama();
	struct mfs_ckpt ckpt;
	struct shown s;

	fake_ckpt(&ckpt, &a);
	fake_drop(&ckpt, fake_find(&ckpt, LAYERS "mlp.linear_fc1.weight", 1, -1));
	unit_fails(try_show(&s, &ckpt, &one, MFS_LAYER_SPEC_TE), &err, -ENOTSUP,
		   "decoder.layers.0.mlp.linear_fc1.weight");
	ck_assert_ptr_nonnull(s.dist); /* files that were taken may refer to it */
	release(&s);
	fake_release(&ckpt);
	fake_ckpt(&ckpt, &a);
	fake_find(&ckpt, LAYERS "mlp.linear_fc2.weight", 1, -1)->dtype = MFS_F32;
	unit_fails(try_show(&s, &ckpt, &one, MFS_LAYER_SPEC_TE), &err, -ENOTSUP,
		   "decoder.layers.1.mlp.linear_fc2.weight");
	release(&s);
	fake_release(&ckpt);
}
END_TEST

/* ---- files whose parts are made on first touch ---- */

static _Atomic int builds;

static int build_parts(void *arg, struct mfs_vfile *parts, struct mfs_error *e)
{
	char *text = strdup(arg);

	builds++;
	mfs_vfile_keep(parts, text, free);
	return mfs_vfile_add_shared(parts, text, strlen(text), e);
}

static void *read_lazily(void *arg)
{
	char text[8] = "";
	size_t len;

	ck_assert_int_eq(mfs_vfile_pread(arg, 1, text, sizeof(text), &len, NULL), 0);
	ck_assert_uint_eq(len, 4);
	ck_assert_mem_eq(text, "bcde", 4);
	return NULL;
}

START_TEST(a_lazy_file_is_built_once)
{
	char good[] = "abcde", bad[] = "abc", text[8];
	pthread_t threads[8];
	struct mfs_vfile *f;
	uint32_t part = 0;
	size_t len;

	unit_ok(mfs_vfile_new_lazy(5, build_parts, good, &f, &err), &err);
	ck_assert_uint_eq(mfs_vfile_size(f), 5);
	ck_assert_int_eq(builds, 0);
	for (unsigned i = 0; i < 8; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, read_lazily, f), 0);
	for (unsigned i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_ge(builds, 1);
	unit_ok(mfs_vfile_check(f, &part, &err), &err);
	mfs_vfile_free(f);
	unit_ok(mfs_vfile_new_lazy(5, build_parts, bad, &f, &err), &err);
	unit_fails(mfs_vfile_pread(f, 0, text, 5, &len, &err), &err, -EINVAL,
		   "5 bytes turned out to have 3");
	mfs_vfile_free(f);
}
END_TEST

/* A module's own state is one of the items that follow one another. */
START_TEST(boxes_have_states)
{
	struct mfs_extra_state state = {.products = 1, .length = 2, .most = {448, 57344}};
	struct mfs_dist_extras extras;
	struct mfs_dist_boxes *boxes;
	struct mfs_dist_boxes_options o = {.spec = MFS_LAYER_SPEC_TE};
	const struct mfs_global_tensor *t;
	struct mfs_arena arena = {0};
	struct mfs_buf item = {0}, index = {0};
	struct mfs_dcp dcp;
	struct mfs_ckpt *ckpt;

	unit_ok(mfs_extra_state_alloc(&state, &arena, &err), &err);
	unit_ok(mfs_extra_item_write(&state, &item, &err), &err);
	unit_ok(mfs_optim_open(unit_fixture("weights/qwen3-torch_dist-tp4/iter_0000040"), &ckpt,
			       &err),
		&err);
	o.ckpt = ckpt;
	unit_ok(mfs_dist_boxes_new(&o, &boxes, &err), &err);
	mfs_dist_boxes_file(boxes, 0, 0, 0);
	t = mfs_ckpt_find(ckpt, "decoder.layers.self_attention.linear_proj.weight", 0, -1);
	unit_ok(mfs_dist_boxes_add_extras(boxes, t, item.len, &extras, &err), &err);
	ck_assert_uint_eq(extras.count, 2); /* its own, and that of core_attention */
	ck_assert_uint_eq(extras.own, 0);
	t = mfs_ckpt_find(ckpt, "decoder.final_layernorm.weight", -1, -1);
	unit_ok(mfs_dist_boxes_add_extras(boxes, t, 0, &extras, &err), &err);
	ck_assert_uint_eq(extras.count, 1);
	t = mfs_ckpt_find(ckpt, "embedding.word_embeddings.weight", -1, -1);
	unit_ok(mfs_dist_boxes_add_extras(boxes, t, 0, &extras, &err), &err);
	ck_assert_uint_eq(extras.count, 0);
	ck_assert_uint_eq(extras.own, 0);
	unit_ok(mfs_dist_boxes_index(boxes, &index, &err), &err);
	unit_ok(mfs_dcp_parse(index.data, index.len, "index", &dcp, &err), &err);
	ck_assert_uint_eq(dcp.bytes_count, 3);
	ck_assert_uint_eq(mfs_dcp_bytes(&dcp, "decoder.layers.self_attention.linear_proj."
					      "_extra_state/shard_0_4")
				  ->item.length,
			  item.len);
	ck_assert_uint_eq(mfs_dcp_bytes(&dcp, "decoder.layers.self_attention.core_attention."
					      "_extra_state/shard_0_4")
				  ->item.offset,
			  item.len);
	mfs_dcp_release(&dcp);
	mfs_buf_release(&index);
	mfs_buf_release(&item);
	mfs_dist_boxes_free(boxes);
	mfs_arena_release(&arena);
	mfs_ckpt_free(ckpt);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("megatron_dist");
	TCase *c = unit_case(s, "keys", te_keys);

	tcase_add_loop_test(c, keys_are_those_of_megatron, 0, FIXTURES);
	tcase_add_test(c, mtp_keys);
	tcase_add_test(c, hybrid_keys);
	tcase_add_test(c, a_missing_tensor_refuses_the_view);
	c = unit_case(s, "files", a_lazy_file_is_built_once);
	tcase_add_loop_test(c, round_trip, 0, 2 * FIXTURES);
	tcase_add_loop_test(c, items_tile_their_tensors_and_files, 0, FIXTURES);
	tcase_add_test(c, the_distributed_optimizers_state_is_reshardable);
	tcase_add_test(c, the_float16_optimizers_state_is_shown);
	tcase_add_test(c, boxes_have_states);
	tcase_add_test(c, more_ranks_pad_the_vocabulary);
	return s;
}
