#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/ckpt/ckpt.h"
#include "formats/model/model.h"
#include "fs/inspect/inspect.h"
#include "fs/inspect/inspect_data.h"
#include "fs/cli/json.h"

/* A JSON null for MFS_ABSENT. */
static json_t *argument(int64_t n)
{
	return n == MFS_ABSENT ? json_null() : json_integer(n);
}

/* An HF directory has none. */
static json_t *iterations(const struct mfs_inspection *in)
{
	const struct mfs_root_snapshot *s = in->snapshot;
	uint32_t count = mfs_root_has_iterations(in->root) ? s->count : 0;
	json_t *array = json_array();

	for (uint32_t i = 0; i < count; i++) {
		const struct mfs_iteration *it = s->iterations[i];
		const char *reason = mfs_iteration_reason(it);
		json_t *o = json_object();

		json_object_set_new(o, "name", mfs_json_string(mfs_iteration_name(it)));
		json_object_set_new(o, "format", mfs_json_string(mfs_iteration_format(it)));
		json_object_set_new(o, "complete", json_boolean(!reason));
		json_object_set_new(o, "reason", mfs_json_string(reason));
		json_object_set_new(o, "latest", json_boolean(it == s->latest));
		json_object_set_new(o, "mtime_ns", json_integer(mfs_iteration_mtime(it)));
		json_array_append_new(array, o);
	}
	return array;
}

static json_t *layout(const struct mfs_ckpt_layout *l)
{
	json_t *o = json_object(), *stages = json_null();

	if (l->stage_layers) {
		stages = json_array();
		for (uint32_t i = 0; i < l->vpp * l->pp; i++)
			json_array_append_new(stages, mfs_json_number(l->stage_layers[i]));
	}
	json_object_set_new(o, "tp", mfs_json_number(l->tp));
	json_object_set_new(o, "pp", mfs_json_number(l->pp));
	json_object_set_new(o, "vpp", mfs_json_number(l->vpp));
	json_object_set_new(o, "ep", mfs_json_number(l->ep));
	json_object_set_new(o, "etp", mfs_json_number(l->etp));
	json_object_set_new(o, "stage_layers", stages);
	return o;
}

static json_t *arguments(const struct mfs_megatron_args *a)
{
	json_t *o = json_object();

	json_object_set_new(o, "num_layers", argument(a->num_layers));
	json_object_set_new(o, "hidden_size", argument(a->hidden_size));
	json_object_set_new(o, "ffn_hidden_size", argument(a->ffn_hidden_size));
	json_object_set_new(o, "num_attention_heads", argument(a->num_attention_heads));
	json_object_set_new(o, "num_query_groups", argument(a->num_query_groups));
	json_object_set_new(o, "kv_channels", argument(a->kv_channels));
	json_object_set_new(o, "num_experts", argument(a->num_experts));
	json_object_set_new(o, "moe_router_topk", argument(a->moe_router_topk));
	json_object_set_new(o, "max_position_embeddings", argument(a->max_position_embeddings));
	json_object_set_new(o, "vocab_size", argument(a->vocab_size));
	json_object_set_new(o, "padded_vocab_size", argument(a->padded_vocab_size));
	json_object_set_new(o, "params_dtype", mfs_json_string(a->params_dtype));
	json_object_set_new(o, "tokenizer_type", mfs_json_string(a->tokenizer_type));
	json_object_set_new(o, "tokenizer_model", mfs_json_string(a->tokenizer_model));
	return o;
}

static json_t *checkpoint(const struct mfs_inspection *in)
{
	const char *const *warnings = NULL;
	uint32_t count;
	json_t *o;

	if (!in->ckpt)
		return json_null();
	count = mfs_ckpt_warnings(in->ckpt, &warnings);
	o = json_object();
	json_object_set_new(o, "format", mfs_json_string(mfs_iteration_format(in->it)));
	json_object_set_new(o, "files",
			    mfs_json_number(mfs_fileset_count(mfs_ckpt_files(in->ckpt))));
	json_object_set_new(o, "bytes", mfs_json_number(in->source_bytes));
	json_object_set_new(o, "tensors", mfs_json_number(mfs_ckpt_count(in->ckpt)));
	json_object_set_new(o, "layout", layout(mfs_ckpt_layout(in->ckpt)));
	json_object_set_new(o, "arguments", arguments(mfs_ckpt_args(in->ckpt)));
	json_object_set_new(o, "warnings", mfs_json_texts(warnings, count));
	return o;
}

static json_t *dtypes(const struct mfs_inspection *in)
{
	json_t *o = json_object();

	for (unsigned t = 0; t < MFS_INSPECT_DTYPES; t++)
		if (in->elements[t])
			json_object_set_new(o, mfs_dtype_torch(t),
					    mfs_json_number(in->elements[t]));
	return o;
}

static json_t *model(const struct mfs_inspection *in)
{
	const struct mfs_model *m = in->view ? in->view->model : NULL;
	json_t *o, *vocab;

	if (!m)
		return json_null();
	vocab = json_object();
	json_object_set_new(vocab, "rows", mfs_json_number(m->vocab.rows));
	json_object_set_new(vocab, "padded", mfs_json_number(m->vocab.padded));
	json_object_set_new(vocab, "source", mfs_json_string(mfs_inspect_vocab_source(in)));
	o = json_object();
	json_object_set_new(o, "family", mfs_json_string(mfs_model_family(m)));
	json_object_set_new(o, "architecture", mfs_json_string(mfs_model_architecture(m)));
	json_object_set_new(o, "parameters", mfs_json_number(m->parameters));
	json_object_set_new(o, "bytes", mfs_json_number(m->bytes));
	json_object_set_new(o, "dtype", mfs_json_string(mfs_dtype_torch(m->dtype)));
	json_object_set_new(o, "elements", dtypes(in));
	json_object_set_new(o, "tensors", mfs_json_number(m->target_count));
	json_object_set_new(o, "tied_head", json_boolean(mfs_ckpt_args(in->ckpt)->tied));
	json_object_set_new(o, "vocabulary", vocab);
	json_object_set_new(o, "tokenizer", mfs_json_string(in->tokenizer));
	json_object_set_new(o, "warnings", mfs_json_texts(m->warnings, m->warning_count));
	return o;
}

static json_t *files(const struct mfs_view *view)
{
	json_t *array = json_array();

	for (uint32_t i = 0; view && i < view->count; i++) {
		json_t *o = json_object();

		json_object_set_new(o, "name", mfs_json_string(view->files[i].name));
		json_object_set_new(o, "size",
				    mfs_json_number(mfs_vfile_size(view->files[i].data)));
		json_array_append_new(array, o);
	}
	return array;
}

static json_t *tensors(const struct mfs_model *m)
{
	json_t *array = json_array();
	char name[512];

	for (uint32_t i = 0; i < m->target_count; i++) {
		const struct mfs_target *t = &m->targets[i].base;
		json_t *o = json_object();

		mfs_target_name(t, name, sizeof(name));
		json_object_set_new(o, "name", mfs_json_string(name));
		json_object_set_new(o, "dtype", mfs_json_string(mfs_dtype_torch(t->dtype)));
		json_object_set_new(o, "shape", mfs_json_numbers(t->shape, t->ndim));
		json_object_set_new(o, "bytes", mfs_json_number(t->bytes));
		json_object_set_new(o, "megatron",
				    mfs_json_string(mfs_global_tensor_name(m->targets[i].src, name,
									   sizeof(name))));
		json_array_append_new(array, o);
	}
	return array;
}

int mfs_inspect_json(const struct mfs_inspection *in)
{
	const struct mfs_root_snapshot *s = in->snapshot;
	const struct mfs_error *why = in->ckpt_error.code ? &in->ckpt_error : &in->view_error;
	const struct mfs_iteration *latest = mfs_root_has_iterations(in->root) ? s->latest : NULL;
	json_t *o = json_object();

	json_object_set_new(o, "source", mfs_json_string(mfs_root_source(in->root)));
	json_object_set_new(o, "ok", json_boolean(in->good));
	json_object_set_new(o, "tracker", mfs_json_string(s->tracker));
	json_object_set_new(o, "latest",
			    mfs_json_string(latest ? mfs_iteration_name(latest) : NULL));
	json_object_set_new(
		o, "latest_reason",
		mfs_json_string(mfs_root_has_model(in->root) ? s->latest_reason : NULL));
	json_object_set_new(o, "iterations", iterations(in));
	json_object_set_new(o, "described",
			    mfs_json_string(in->it ? mfs_iteration_name(in->it) : NULL));
	json_object_set_new(o, "checkpoint", checkpoint(in));
	json_object_set_new(o, "model", model(in));
	json_object_set_new(o, "error", mfs_json_string(why->code ? why->msg : NULL));
	json_object_set_new(o, "files", files(in->view));
	json_object_set_new(o, "datasets", mfs_inspect_data_json(mfs_root_data(in->root)));
	json_object_set_new(o, "hints", mfs_json_texts(in->hints, mfs_inspect_hints(in)));
	if (in->tensors)
		json_object_set_new(o, "tensors",
				    in->view ? tensors(in->view->model) : json_array());
	return mfs_json_print(o);
}

int mfs_inspect_json_failed(const char *source, const char *why)
{
	static const char *const nothing[] = {"tracker",   "latest",	 "latest_reason",
					      "described", "checkpoint", "model"};
	static const char *const empty[] = {"iterations", "files", "datasets", "hints"};
	json_t *o = json_object();

	json_object_set_new(o, "source", mfs_json_string(source));
	json_object_set_new(o, "ok", json_false());
	json_object_set_new(o, "error", mfs_json_string(why));
	for (size_t i = 0; i < MFS_ARRAY_SIZE(nothing); i++)
		json_object_set_new(o, nothing[i], json_null());
	for (size_t i = 0; i < MFS_ARRAY_SIZE(empty); i++)
		json_object_set_new(o, empty[i], json_array());
	return mfs_json_print(o);
}
