#include "formats/ckpt/ckpt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/str.h"
#include "formats/ckpt/ckpt_build.h"

const struct mfs_ckpt_format *mfs_ckpt_format(const struct mfs_ckpt *ckpt)
{
	return ckpt->format;
}

const char *mfs_ckpt_dir(const struct mfs_ckpt *ckpt)
{
	return ckpt->dir;
}

struct mfs_fileset *mfs_ckpt_files(const struct mfs_ckpt *ckpt)
{
	return ckpt->files;
}

const struct mfs_megatron_args *mfs_ckpt_args(const struct mfs_ckpt *ckpt)
{
	return &ckpt->args;
}

const struct mfs_ckpt_layout *mfs_ckpt_layout(const struct mfs_ckpt *ckpt)
{
	return &ckpt->layout;
}

uint32_t mfs_ckpt_count(const struct mfs_ckpt *ckpt)
{
	return ckpt->model_count;
}

uint32_t mfs_ckpt_count_all(const struct mfs_ckpt *ckpt)
{
	return ckpt->tensor_count;
}

const struct mfs_global_tensor *mfs_ckpt_at(const struct mfs_ckpt *ckpt, uint32_t i)
{
	return &ckpt->tensors[i];
}

int mfs_global_tensor_order(const void *a, const void *b)
{
	const struct mfs_global_tensor *x = a, *y = b;
	int order = (x->state > y->state) - (x->state < y->state);

	if (!order)
		order = strcmp(x->name, y->name);
	if (!order)
		order = (x->layer > y->layer) - (x->layer < y->layer);
	return order ? order : (x->expert > y->expert) - (x->expert < y->expert);
}

const struct mfs_global_tensor *mfs_ckpt_find(const struct mfs_ckpt *ckpt, const char *name,
					      int32_t layer, int32_t expert)
{
	return mfs_ckpt_find_state(ckpt, MFS_STATE_MODEL, name, layer, expert);
}

const struct mfs_global_tensor *mfs_ckpt_find_state(const struct mfs_ckpt *ckpt,
						    enum mfs_state state, const char *name,
						    int32_t layer, int32_t expert)
{
	const struct mfs_global_tensor key = {
		.state = state, .name = name, .layer = layer, .expert = expert};

	return ckpt->tensor_count ? bsearch(&key, ckpt->tensors, ckpt->tensor_count, sizeof(key),
					    mfs_global_tensor_order)
				  : NULL;
}

const struct mfs_ckpt_common *mfs_ckpt_common(const struct mfs_ckpt *ckpt)
{
	return ckpt->has_state ? &ckpt->state : NULL;
}

bool mfs_ckpt_has_state(const struct mfs_ckpt *ckpt, enum mfs_state state)
{
	for (uint32_t i = state == MFS_STATE_MODEL ? 0 : ckpt->model_count; i < ckpt->tensor_count;
	     i++)
		if (ckpt->tensors[i].state == state)
			return true;
	return false;
}

const char *mfs_state_name(enum mfs_state state)
{
	static const char *const names[MFS_STATE_COUNT] = {"", "fp32_param", "exp_avg",
							   "exp_avg_sq", "momentum_buffer"};

	return names[state];
}

const struct mfs_chunk *mfs_ckpt_chunks(const struct mfs_ckpt *ckpt,
					const struct mfs_global_tensor *t)
{
	return ckpt->chunks + t->first_chunk;
}

bool mfs_global_tensor_is_vocabulary(const struct mfs_global_tensor *t)
{
	return t->layer < 0 && t->ndim &&
	       (!strcmp(t->name, "embedding.word_embeddings.weight") ||
		!strcmp(t->name, "output_layer.weight"));
}

bool mfs_global_tensor_is_norm(const struct mfs_global_tensor *t)
{
	return mfs_str_ends(t->name, "norm.weight") && !mfs_str_ends(t->name, "mixer.norm.weight");
}

bool mfs_global_tensor_is_shifted(const struct mfs_megatron_args *args,
				  const struct mfs_global_tensor *t)
{
	return args->zero_centered_gamma && t->state <= MFS_STATE_MAIN && !t->whole_norm &&
	       mfs_global_tensor_is_norm(t);
}

const char *mfs_global_tensor_name(const struct mfs_global_tensor *t, char *text, size_t size)
{
	static const char *const prefixes[] = {"decoder.layers.", "mtp.layers."};
	static const char experts[] = "mlp.experts.experts.";
	const char *rest = t->name, *at;
	size_t used;

	used = (size_t)snprintf(text, size, "%s%s", mfs_state_name(t->state),
				t->state ? " of " : "");
	for (size_t i = 0; i < 2 && t->layer >= 0; i++) {
		size_t len = strlen(prefixes[i]);

		if (strncmp(rest, prefixes[i], len))
			continue;
		used += (size_t)snprintf(text + used, size - used, "%s%d.", prefixes[i], t->layer);
		rest += len;
		break;
	}
	at = t->expert >= 0 ? strstr(rest, experts) : NULL;
	if (at && used < size) {
		at += sizeof(experts) - 1;
		used += (size_t)snprintf(text + used, size - used, "%.*s%d.", (int)(at - rest),
					 rest, t->expert);
		rest = at;
	}
	if (used < size)
		snprintf(text + used, size - used, "%s", rest);
	return text;
}

uint32_t mfs_ckpt_warnings(const struct mfs_ckpt *ckpt, const char *const **ret)
{
	*ret = ckpt->warnings;
	return ckpt->warning_count;
}

const char *mfs_ckpt_told_by(const struct mfs_ckpt *ckpt)
{
	return ckpt->told_by;
}

bool mfs_ckpt_is_language(const struct mfs_ckpt *ckpt)
{
	return ckpt->language;
}
