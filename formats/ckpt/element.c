#include "formats/ckpt/element.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"

struct element {
	const struct mfs_megatron_args *args;
	const struct mfs_global_tensor *tensor;
	const uint64_t *index;
	char *text;
	size_t size;
};

typedef unsigned long long number;

/* [query heads of a group | their gates | key | value] for each group. */
static void say_qkv(const struct element *p)
{
	const struct mfs_megatron_args *a = p->args;
	const uint64_t d = (uint64_t)a->kv_channels, groups = (uint64_t)a->num_query_groups;
	const uint64_t heads = groups ? (uint64_t)a->num_attention_heads / groups : 0;
	const uint64_t gates = a->attention_output_gate ? heads : 0;
	const uint64_t each = (heads + gates + 2) * d;
	uint64_t group, part, row;

	if (a->kv_channels <= 0 || a->num_query_groups <= 0 || !each)
		return;
	group = p->index[0] / each;
	part = p->index[0] % each / d;
	row = p->index[0] % d;
	if (part < heads + gates)
		snprintf(p->text, p->size, "query group %llu, %s %llu of it, row %llu",
			 (number)group, part < heads ? "query head" : "gate of query head",
			 (number)(part < heads ? part : part - heads), (number)row);
	else
		snprintf(p->text, p->size, "query group %llu, its %s, row %llu", (number)group,
			 part == heads + gates ? "key" : "value", (number)row);
}

/* Rows of each head in two parts: what is not rotated and what is, or the key's and the value's. */
static void say_halves(const struct element *p, uint64_t first, const char *first_name,
		       uint64_t second, const char *second_name)
{
	const uint64_t each = first + second;
	uint64_t row;

	if (!each)
		return;
	row = p->index[0] % each;
	snprintf(p->text, p->size, "head %llu, %s row %llu", (number)(p->index[0] / each),
		 row < first ? first_name : second_name, (number)(row < first ? row : row - first));
}

static void say_q_up(const struct element *p)
{
	say_halves(p, (uint64_t)p->args->qk_head_dim, "unrotated",
		   (uint64_t)p->args->qk_pos_emb_head_dim, "rotated");
}

static void say_kv_up(const struct element *p)
{
	say_halves(p, (uint64_t)p->args->qk_head_dim, "key", (uint64_t)p->args->v_head_dim,
		   "value");
}

static void say_kv_down(const struct element *p)
{
	const uint64_t latent = (uint64_t)p->args->kv_lora_rank, row = p->index[0];

	snprintf(p->text, p->size, row < latent ? "latent row %llu" : "rotated key row %llu",
		 (number)(row < latent ? row : row - latent));
}

static void say_proj(const struct element *p)
{
	const struct mfs_megatron_args *a = p->args;
	const int64_t width = a->multi_latent_attention ? a->v_head_dim : a->kv_channels;

	if (width > 0 && p->tensor->ndim > 1)
		snprintf(p->text, p->size, "query head %llu, its column %llu",
			 (number)(p->index[1] / (uint64_t)width),
			 (number)(p->index[1] % (uint64_t)width));
}

static void say_fc1(const struct element *p)
{
	const uint64_t half = p->tensor->shape[0] / 2;

	if (mfs_args_gated(p->args) && half)
		snprintf(p->text, p->size, "%s row %llu", p->index[0] < half ? "gate" : "up",
			 (number)(p->index[0] % half));
}

static void say_token(const struct element *p)
{
	snprintf(p->text, p->size, "token %llu", (number)p->index[0]);
}

static void say_position(const struct element *p)
{
	snprintf(p->text, p->size, "position %llu", (number)p->index[0]);
}

static void say_expert(const struct element *p)
{
	snprintf(p->text, p->size, "expert %llu", (number)p->index[0]);
}

static void say_softmax(const struct element *p)
{
	snprintf(p->text, p->size, "query head %llu", (number)p->index[0]);
}

/* Of [embedding; hidden state], the input of MTP's projection. */
static void say_eh_proj(const struct element *p)
{
	const uint64_t h = (uint64_t)p->args->hidden_size;

	if (p->tensor->ndim > 1 && h)
		snprintf(p->text, p->size, "column %llu of the %s", (number)(p->index[1] % h),
			 p->index[1] < h ? "embedding" : "hidden state");
}

static const struct {
	const char *part; /* of a name */
	void (*say)(const struct element *p);
} rules[] = {
	{"word_embeddings.weight", say_token},
	{"output_layer.weight", say_token},
	{"position_embeddings.", say_position},
	{"linear_qkv.", say_qkv},
	{"linear_q_proj.", say_q_up},
	{"linear_q_up_proj.", say_q_up},
	{"linear_kv_up_proj.", say_kv_up},
	{"linear_kv_down_proj.", say_kv_down},
	{"self_attention.linear_proj.", say_proj},
	{".linear_fc1.", say_fc1},
	{".router.", say_expert},
	{".softmax_offset", say_softmax},
	{".eh_proj.", say_eh_proj},
};

const char *mfs_element_text(const struct mfs_megatron_args *args,
			     const struct mfs_global_tensor *t, const uint64_t index[MFS_CKPT_DIMS],
			     char *text, size_t size)
{
	const struct element p = {args, t, index, text, size};

	*text = '\0';
	for (size_t i = 0; i < MFS_ARRAY_SIZE(rules) && t->ndim; i++)
		if (strstr(t->name, rules[i].part)) {
			rules[i].say(&p);
			break;
		}
	return text;
}
