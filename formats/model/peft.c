#include "formats/model/peft.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/base/str.h"
#include "formats/ckpt/ckpt_build.h"
#include "formats/hf/hf_json.h"
#include "formats/hf/safetensors.h"
#include "formats/model/hf_ckpt.h"
#include "formats/model/model.h"

#define WEIGHTS	  "adapter_model.safetensors"
#define PREFIX	  "base_model.model."
#define IN	  ".lora_A.weight"
#define OUT	  ".lora_B.weight"
#define MOST_RANK 65536

/* ---- adapter_config.json ---- */

/* Nothing is asked for: null, false, an empty text, list or dict. */
static bool says_nothing(const json_t *v)
{
	return !v || json_is_null(v) || json_is_false(v) ||
	       (json_is_string(v) && !json_string_length(v)) ||
	       (json_is_array(v) && !json_array_size(v)) ||
	       (json_is_object(v) && !json_object_size(v));
}

/* Keys that make more of an adapter than W + scale * B * A. */
static const char *asks_for_more(const json_t *root)
{
	static const char *const keys[] = {
		"use_dora",
		"use_qalora",
		"use_bdlora",
		"lora_bias",
		"rank_pattern",
		"alpha_pattern",
		"modules_to_save",
		"layer_replication",
		"megatron_config",
		"target_parameters",
		"trainable_token_indices",
		"alora_invocation_tokens",
		"arrow_config",
		"monteclora_config",
		"velora_config",
		"kasa_config",
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(keys); i++)
		if (!says_nothing(json_object_get(root, keys[i])))
			return keys[i];
	return NULL;
}

/* True if the matrices were begun without a change of the model's own weights. PiSSA, OLoRA,
 * CorDA, LoftQ and LoRA-GA take something off these, which is in no file of the adapter. */
static bool leaves_the_model_as_it_was(const json_t *v)
{
	const char *text = json_string_value(v);

	return !v || json_is_boolean(v) || json_is_null(v) ||
	       (text &&
		(!strcmp(text, "gaussian") || !strcmp(text, "eva") || !strcmp(text, "orthogonal")));
}

static int check_kind(const json_t *root, const char *name, struct mfs_error *err)
{
	const char *type = json_string_value(json_object_get(root, "peft_type"));
	const char *bias = json_string_value(json_object_get(root, "bias"));
	const json_t *init = json_object_get(root, "init_lora_weights");
	const char *more;

	if (!type || strcmp(type, "LORA"))
		return mfs_fail(err, -ENOTSUP,
				"%s: peft_type is '%.40s', expected LORA: no other adapter is "
				"merged",
				name, type ? type : "missing");
	more = asks_for_more(root);
	if (more)
		return mfs_fail(err, -ENOTSUP,
				"%s: '%s' is set, and only plain LoRA is merged: merge it by PEFT "
				"(merge_and_unload)",
				name, more);
	if (bias && strcmp(bias, "none"))
		return mfs_fail(err, -ENOTSUP, "%s: bias is '%.40s', expected none", name, bias);
	if (!leaves_the_model_as_it_was(init))
		return mfs_fail(err, -ENOTSUP,
				"%s: init_lora_weights is '%.40s', which changes the model's own "
				"weights: merge it by PEFT (merge_and_unload)",
				name, json_is_string(init) ? json_string_value(init) : "not text");
	return 0;
}

static int read_scale(const json_t *root, const char *name, struct mfs_peft_config *ret,
		      struct mfs_error *err)
{
	const json_t *rank = json_object_get(root, "r"),
		     *alpha = json_object_get(root, "lora_alpha");
	const bool stabilised = json_is_true(json_object_get(root, "use_rslora"));
	const double r = (double)json_integer_value(rank);
	double scale;

	if (!json_is_integer(rank) || r < 1 || r > MOST_RANK)
		return mfs_fail(err, -EINVAL, "%s: expected 'r', a whole number from 1 to %d", name,
				MOST_RANK);
	if (!json_is_number(alpha))
		return mfs_fail(err, -EINVAL, "%s: expected 'lora_alpha', a number", name);
	scale = json_number_value(alpha) / (stabilised ? sqrt(r) : r);
	if (!(fabs(scale) <= FLT_MAX))
		return mfs_fail(err, -EINVAL,
				"%s: expected 'lora_alpha' and 'r' whose quotient fp32 holds, "
				"found %g",
				name, scale);
	ret->rank = (uint64_t)json_integer_value(rank);
	ret->scale = (float)scale;
	return 0;
}

int mfs_peft_config_parse(const char *bytes, size_t len, const char *name,
			  struct mfs_peft_config *ret, struct mfs_error *err)
{
	json_t *root;
	int rc = mfs_json_load(bytes, len, MFS_PEFT_CONFIG_MAX, 0, name, &root, err);

	if (rc)
		return rc;
	rc = check_kind(root, name, err);
	if (!rc)
		rc = read_scale(root, name, ret, err);
	json_decref(root);
	return rc;
}

bool mfs_peft_looks_like_one(const char *dir)
{
	char path[4096];

	return (size_t)snprintf(path, sizeof(path), "%s/" MFS_PEFT_CONFIG, dir) < sizeof(path) &&
	       !access(path, F_OK);
}

/* ---- adapter_model.safetensors ---- */

struct builder {
	struct mfs_ckpt *ckpt, *adapter;
	struct mfs_peft_config config;
	struct mfs_model *model;
	bool *used; /* of the adapter's tensors */
	/* the module whose boxes are being added */
	const struct mfs_hf_target *target;
	const struct mfs_global_tensor *in, *out;
	struct mfs_error *err;
};

static int read_config(struct builder *b)
{
	char *bytes, path[4096];
	size_t len;
	int rc = mfs_hf_slurp_added(b->adapter->files, MFS_PEFT_CONFIG, MFS_PEFT_CONFIG_MAX, &bytes,
				    &len, b->err);

	if (rc)
		return rc;
	snprintf(path, sizeof(path), "%s/" MFS_PEFT_CONFIG, b->adapter->dir);
	rc = mfs_peft_config_parse(bytes, len, path, &b->config, b->err);
	free(bytes);
	return rc;
}

static int add_tensor(struct builder *b, uint32_t file, uint64_t data,
		      const struct mfs_safetensors_tensor *t)
{
	const struct mfs_storage s = {.file = file,
				      .dtype = t->dtype,
				      .at = data + t->begin,
				      .length = t->end - t->begin};
	struct mfs_found_chunk p = {.name = mfs_ckpt_intern(b->adapter, t->name),
				    .layer = -1,
				    .expert = -1,
				    .dtype = t->dtype,
				    .ndim = t->ndim};
	int rc;

	if (t->ndim != 2 || !t->shape[0] || !t->shape[1] || !mfs_dtype_is_float(t->dtype))
		return mfs_fail(b->err, -ENOTSUP,
				"%s/" WEIGHTS ": tensor '%s' is no matrix of floats of 16 bits or "
				"more",
				b->adapter->dir, t->name);
	if (!p.name)
		return mfs_fail_nomem(b->err);
	memcpy(p.shape, t->shape, 2 * sizeof(*p.shape));
	memcpy(p.chunk.size, t->shape, 2 * sizeof(*p.shape));
	mfs_ckpt_contiguous(t->shape, 2, p.chunk.stride);
	rc = mfs_ckpt_add_storage(b->adapter, &s, &p.chunk.storage, b->err);
	return rc ? rc : mfs_ckpt_add_found(b->adapter, &p, b->err);
}

static int read_weights(struct builder *b)
{
	struct mfs_safetensors st;
	struct mfs_source src;
	uint32_t file;
	int rc = mfs_fileset_add(b->adapter->files, WEIGHTS, &file, b->err);

	if (rc == -ENOENT)
		return mfs_fail(b->err, -ENODATA,
				"%s/" WEIGHTS
				" is missing (of an adapter_model.bin, PEFT makes one "
				"when it saves again)",
				b->adapter->dir);
	if (rc)
		return rc;
	src = mfs_source_file(b->adapter->files, file);
	rc = mfs_safetensors_open(&src, &st, b->err);
	if (rc) {
		mfs_fail_in(b->err, "%s", b->adapter->dir);
		return rc;
	}
	for (uint32_t i = 0; i < st.count && !rc; i++)
		rc = add_tensor(b, file, st.data, &st.tensors[i]);
	mfs_safetensors_release(&st);
	return rc ? rc : mfs_ckpt_group(b->adapter, b->err);
}

/* ---- modules ---- */

/* A box of HF's tensor is one of Megatron's. Rows of B are rows of Megatron's, columns of A are its
 * columns, wherever HF has these. */
static int add_box(const struct mfs_box_map *m, void *arg)
{
	const struct builder *b = arg;
	struct mfs_ckpt_delta d = {
		.of = m->src, .out = b->out, .in = b->in, .scale = b->config.scale};

	for (unsigned a = 0; a < 2; a++) {
		const unsigned to = m->src_axis[a];

		if (m->step[a] != 1 || m->lanes > 1)
			return mfs_fail(b->err, -ENOTSUP,
					"tensor '%s': rows that are interleaved are not merged",
					b->out->name);
		d.lo[to] = m->src_lo[to];
		d.size[to] = m->size[a];
		d.first[to] = m->lo[a];
	}
	return mfs_ckpt_add_delta(b->ckpt, &d, b->err);
}

static int check_shapes(const struct builder *b)
{
	const struct mfs_target *t = &b->target->base;
	const unsigned rows = b->target->row->transposed ? 1 : 0;
	char in[64], out[64], weight[64], name[MFS_CKPT_NAME_SIZE];

	if (t->ndim == 2 && b->in->shape[0] == b->config.rank &&
	    b->out->shape[1] == b->config.rank && b->out->shape[0] == t->shape[rows] &&
	    b->in->shape[1] == t->shape[!rows])
		return 0;
	mfs_target_name(t, name, sizeof(name));
	return mfs_fail(b->err, -EINVAL,
			"'%s' %s and '%s' %s are no adapter of rank %llu of '%s' %s", b->in->name,
			mfs_shape_text(b->in->shape, 2, in, sizeof(in)), b->out->name,
			mfs_shape_text(b->out->shape, 2, out, sizeof(out)),
			(unsigned long long)b->config.rank, name,
			mfs_shape_text(t->shape, t->ndim, weight, sizeof(weight)));
}

/* The matrix of a module, which is used from now on. NULL: it is not there. */
static const struct mfs_global_tensor *take(struct builder *b, const char *module, const char *end)
{
	char name[MFS_CKPT_NAME_SIZE + 64];
	const struct mfs_global_tensor *t;

	snprintf(name, sizeof(name), PREFIX "%s%s", module, end);
	t = mfs_ckpt_find(b->adapter, name, -1, -1);
	if (t)
		b->used[t - mfs_ckpt_at(b->adapter, 0)] = true;
	return t;
}

static int add_module(struct builder *b, const struct mfs_hf_target *t)
{
	char module[MFS_CKPT_NAME_SIZE];
	int rc;

	mfs_target_name(&t->base, module, sizeof(module));
	if (!mfs_str_ends(module, ".weight"))
		return 0;
	module[strlen(module) - strlen(".weight")] = '\0';
	b->target = t;
	b->in = take(b, module, IN);
	b->out = take(b, module, OUT);
	if (!b->in && !b->out)
		return 0;
	if (!b->in || !b->out)
		return mfs_fail(b->err, -ENODATA, "'" PREFIX "%s%s' is missing", module,
				b->in ? OUT : IN);
	rc = check_shapes(b);
	return rc ? rc : mfs_target_boxes(&t->base, add_box, b);
}

static int check_leftovers(const struct builder *b)
{
	for (uint32_t i = 0; i < mfs_ckpt_count(b->adapter); i++)
		if (!b->used[i])
			return mfs_fail(b->err, -ENOTSUP,
					"tensor '%s' has no place in a %s: it is no lora_A or "
					"lora_B of a matrix of it",
					mfs_ckpt_at(b->adapter, i)->name,
					mfs_model_architecture(b->model));
	return 0;
}

static int add_modules(struct builder *b)
{
	int rc = 0;

	b->used = calloc(mfs_ckpt_count(b->adapter), sizeof(*b->used));
	if (!b->used)
		return mfs_fail_nomem(b->err);
	for (uint32_t i = 0; i < b->model->target_count && !rc; i++)
		rc = add_module(b, &b->model->targets[i]);
	if (!rc)
		rc = check_leftovers(b);
	free(b->used);
	return rc ? (mfs_fail_in(b->err, "%s/" WEIGHTS, b->adapter->dir), rc) : 0;
}

int mfs_peft_attach(struct mfs_ckpt *ckpt, const char *arch, const char *dir, struct mfs_error *err)
{
	struct builder b = {.ckpt = ckpt, .err = err};
	int rc = mfs_ckpt_new(dir, 0, &mfs_ckpt_format_hf, &b.adapter, err);

	if (rc)
		return rc;
	rc = read_config(&b);
	if (!rc)
		rc = read_weights(&b);
	rc = mfs_ckpt_end(b.adapter, rc, &b.adapter);
	if (rc)
		return rc;
	rc = mfs_model_new(ckpt, arch, NULL, &b.model, err);
	if (!rc)
		rc = add_modules(&b);
	mfs_model_free(b.model);
	if (rc)
		mfs_ckpt_free(b.adapter);
	else
		mfs_ckpt_attach(ckpt, b.adapter);
	return rc;
}
