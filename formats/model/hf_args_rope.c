/*
 * Rotary positions of a config.json: rope_theta at the top and rope_scaling (transformers 4), or
 * rope_parameters with both (5). Sources: transformers/modeling_rope_utils.py; Megatron's side is
 * megatron/core/models/common/embeddings/{rotary,yarn_rotary}_pos_embedding.py.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/model/hf_args_i.h"

#define LLAMA3_LOW	 1.0
#define LLAMA3_HIGH	 4.0
#define LLAMA3_POSITIONS 8192 /* rotary_pos_embedding.py: _apply_scaling fixes the three */

struct rope {
	const char *object; /* "rope_scaling" or "rope_parameters" */
	const json_t *keys; /* NULL: neither */
	const char *type;
};

/* "rope_scaling.factor" */
struct label {
	char text[96];
};

static struct label label(const struct rope *rope, const char *key)
{
	struct label l;

	snprintf(l.text, sizeof(l.text), "%s.%s", rope->object, key);
	return l;
}

static json_t *member(const struct rope *rope, const char *key)
{
	return rope->keys ? json_object_get(rope->keys, key) : NULL;
}

static double number(struct mfs_hf_reader *r, const struct rope *rope, const char *key,
		     double otherwise)
{
	const json_t *found = member(rope, key);

	return mfs_hf_real(r, label(rope, key).text, found, otherwise);
}

static void refuse(struct mfs_hf_reader *r, int code, const struct rope *rope, const char *key,
		   const char *expected)
{
	mfs_hf_refuse(r, code, label(rope, key).text, member(rope, key), expected);
}

/* A number of the object that must be there and above 0. */
static double required(struct mfs_hf_reader *r, const struct rope *rope, const char *key)
{
	const double value = number(r, rope, key, 0);

	if (!r->rc && value <= 0)
		refuse(r, member(rope, key) ? -EINVAL : -ENODATA, rope, key, "a positive number");
	return value;
}

static const char *type_of(const json_t *keys)
{
	const json_t *type = json_object_get(keys, "rope_type");

	if (!type)
		type = json_object_get(keys, "type");
	return type ? json_string_value(type) : "default";
}

static bool is_filled(const json_t *object)
{
	return json_is_object(object) && json_object_size(object);
}

/* If both forms are there, they must agree on the keys that both have, or versions of transformers
 * would see different models. A key that only one form has is read if that form counts. */
static void check_twins(struct mfs_hf_reader *r, const json_t *scaling, const json_t *parameters)
{
	const char *a = type_of(scaling), *b = type_of(parameters), *key;
	json_t *value;

	if (!a || !b || strcmp(a, b))
		mfs_hf_refuse(r, -EINVAL, "rope_parameters", parameters,
			      "the same as 'rope_scaling'");
	json_object_foreach((json_t *)scaling, key, value)
	{
		const json_t *other = json_object_get(parameters, key);
		const bool numbers = json_is_number(value) && json_is_number(other);

		if (other && (numbers ? json_number_value(value) != json_number_value(other)
				      : !json_equal(value, other)))
			mfs_hf_refuse(r, -EINVAL, "rope_parameters", parameters,
				      "the same as 'rope_scaling'");
	}
}

/* If both are there, rope_scaling counts, as in transformers' convert_rope_params_to_dict. */
static struct rope find_rope(struct mfs_hf_reader *r)
{
	const json_t *scaling = mfs_hf_set_key(r, "rope_scaling");
	/* A class may have a default for the newer form, which the older one replaces. */
	const json_t *parameters = is_filled(scaling)
					   ? json_object_get(r->config, "rope_parameters")
					   : mfs_hf_set_key(r, "rope_parameters");
	struct rope rope = {"rope_parameters", NULL, "default"};
	const char *key;
	json_t *value;

	if (scaling && !json_is_object(scaling))
		mfs_hf_refuse(r, -EINVAL, "rope_scaling", scaling, "an object");
	if (parameters && !json_is_null(parameters) && !json_is_object(parameters))
		mfs_hf_refuse(r, -EINVAL, "rope_parameters", parameters, "an object");
	if (r->rc)
		return rope;
	if (is_filled(scaling) && is_filled(parameters))
		check_twins(r, scaling, parameters);
	if (is_filled(scaling))
		rope = (struct rope){"rope_scaling", scaling, NULL};
	else if (is_filled(parameters))
		rope = (struct rope){"rope_parameters", parameters, NULL};
	if (!rope.type)
		rope.type = type_of(rope.keys);
	if (!rope.type)
		refuse(r, -EINVAL, &rope, "rope_type", "a text");
	json_object_foreach((json_t *)rope.keys, key, value)
	{
		if (json_is_object(value))
			refuse(r, -ENOTSUP, &rope, key, "the same positions in every layer");
	}
	return rope;
}

/* rope_theta may stand in several places, and readers look in different ones. So all must be
 * equal. */
static void read_theta(struct mfs_hf_reader *r, const struct rope *rope)
{
	const json_t *others[] = {
		json_object_get(r->config, "rope_theta"),
		json_object_get(json_object_get(r->config, "rope_parameters"), "rope_theta"),
	};
	const json_t *found = member(rope, "rope_theta");

	if (!found || json_is_null(found))
		found = mfs_hf_key(r, "rope_theta");
	r->args->rotary_base = mfs_hf_real(r, "rope_theta", found, 0);
	if (r->args->rotary_base <= 0)
		mfs_hf_refuse(r, -EINVAL, "rope_theta", found, "a positive number");
	for (size_t i = 0; i < 2; i++)
		if (json_is_number(others[i]) &&
		    json_number_value(others[i]) != r->args->rotary_base)
			mfs_hf_refuse(r, -EINVAL, "rope_theta", others[i],
				      "the same number at the top and next to the scaling");
}

/* For llama3 and yarn: the length that the model was first trained with. A top-level key comes
 * first. */
static int64_t original_positions(struct mfs_hf_reader *r, const struct rope *rope)
{
	static const char key[] = "original_max_position_embeddings";
	const json_t *top = json_object_get(r->config, key);
	const json_t *found = top ? top : member(rope, key);

	return mfs_hf_integer(r, key, found, 1, r->args->max_position_embeddings);
}

static void read_llama3(struct mfs_hf_reader *r, const struct rope *rope)
{
	if (required(r, rope, "low_freq_factor") != LLAMA3_LOW)
		refuse(r, -ENOTSUP, rope, "low_freq_factor", "1, the one that Megatron has");
	if (required(r, rope, "high_freq_factor") != LLAMA3_HIGH)
		refuse(r, -ENOTSUP, rope, "high_freq_factor", "4, the one that Megatron has");
	if (original_positions(r, rope) != LLAMA3_POSITIONS)
		refuse(r, -ENOTSUP, rope, "original_max_position_embeddings",
		       "8192, the one that Megatron has");
	r->args->use_rope_scaling = true;
	r->args->rope_scaling_factor = required(r, rope, "factor");
}

/*
 * transformers scales cos and sin by attention_factor; without it by the quotient of both mscales
 * if neither is 0; else by the mscale of 1. Megatron always scales by the quotient. mscale_all_dim
 * also scales the softmax on both sides, so it stays, and mscale is solved for.
 */
static void read_mscales(struct mfs_hf_reader *r, const struct rope *rope)
{
	struct mfs_megatron_args *a = r->args;
	const double all = number(r, rope, "mscale_all_dim", 0);
	const double mscale = number(r, rope, "mscale", 0);
	const double unit = 0.1 * log(fmax(a->rotary_scaling_factor, 1));
	const double given = number(r, rope, "attention_factor", NAN);
	const double wanted = isnan(given) ? unit + 1 : given;

	a->mscale_all_dim = all;
	a->mscale = 1;
	if (isnan(given) && mscale != 0 && all != 0)
		a->mscale = mscale;
	else if (unit > 0 && (all != 0 || wanted != unit + 1))
		a->mscale = (wanted * (unit * all + 1) - 1) / unit;
	else if (unit == 0 && wanted != 1)
		refuse(r, -ENOTSUP, rope, "attention_factor", "1 with a factor of 1");
}

static void read_yarn(struct mfs_hf_reader *r, const struct rope *rope)
{
	struct mfs_megatron_args *a = r->args;
	const double fast = number(r, rope, "beta_fast", 0);
	const double slow = number(r, rope, "beta_slow", 0);

	a->yarn_unrounded =
		!mfs_hf_bool(r, label(rope, "truncate").text, member(rope, "truncate"), true);
	if (a->yarn_unrounded && !mfs_hf_may(r, MFS_HAS(YARN_UNROUNDED)))
		refuse(r, -ENOTSUP, rope, "truncate", "true");
	/* MLA makes its own rotary embedding, by another argument. */
	if (a->multi_latent_attention)
		a->rope_type = "yarn";
	else
		a->position_embedding_type = "yarn";
	a->rotary_scaling_factor = required(r, rope, "factor");
	a->beta_fast = fast != 0 ? fast : 32;
	a->beta_slow = slow != 0 ? slow : 1;
	a->original_max_position_embeddings = original_positions(r, rope);
	read_mscales(r, rope);
}

static void read_linear(struct mfs_hf_reader *r, const struct rope *rope)
{
	r->args->rotary_seq_len_interpolation_factor = required(r, rope, "factor");
}

static void read_scaling(struct mfs_hf_reader *r, const struct rope *rope)
{
	static const struct {
		const char *type;
		mfs_features feature;
		void (*read)(struct mfs_hf_reader *r, const struct rope *rope);
	} kinds[] = {
		{"llama3", MFS_HAS(ROPE_LLAMA3), read_llama3},
		{"linear", MFS_HAS(ROPE_LINEAR), read_linear},
		{"yarn", MFS_HAS(YARN), read_yarn},
	};
	char known[64] = "default";

	if (!strcmp(rope->type, "default"))
		return;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(kinds); i++) {
		if (!mfs_hf_may(r, kinds[i].feature))
			continue;
		if (!strcmp(rope->type, kinds[i].type)) {
			kinds[i].read(r, rope);
			return;
		}
		strcat(strcat(known, " or "), kinds[i].type);
	}
	refuse(r, -ENOTSUP, rope, json_object_get(rope->keys, "rope_type") ? "rope_type" : "type",
	       known);
}

/* The key at the top that has the part of each head which rotates. */
static const char *partial_key(const struct mfs_family *f)
{
	for (const struct mfs_config_row *row = f->config; row->key; row++)
		if (row->kind == MFS_CONFIG_REAL && row->field == MFS_FIELD(rotary_percent))
			return row->key;
	return "partial_rotary_factor";
}

static double partial(struct mfs_hf_reader *r, const char *key, const json_t *found,
		      double otherwise)
{
	const double value = mfs_hf_real(r, key, found, otherwise);

	if (value != 1 && !mfs_hf_may(r, MFS_HAS(ROPE_PARTIAL)))
		mfs_hf_refuse(r, -ENOTSUP, key, found, "1: whole heads rotate");
	else if (!(value > 0 && value <= 1))
		mfs_hf_refuse(r, -EINVAL, key, found, "a number above 0, and at most 1");
	return value;
}

static const char rotary_dim[] = "rotary_dim";

static bool has_rotary_dim(const struct mfs_family *f)
{
	for (const struct mfs_config_row *row = f->config; row->key; row++)
		if (row->kind == MFS_CONFIG_VALUE && row->value == MFS_VALUE_ROTARY_DIM)
			return true;
	return false;
}

/* The part of a head by its count of rotated numbers; 1: nothing counts them. */
static double by_rotary_dim(struct mfs_hf_reader *r)
{
	const json_t *found = has_rotary_dim(r->family) ? mfs_hf_set_key(r, rotary_dim) : NULL;
	const int64_t count = mfs_hf_integer(r, rotary_dim, found, 1, r->args->kv_channels);

	if (!found)
		return 1;
	if (count > r->args->kv_channels || count % 2)
		mfs_hf_refuse(r, -EINVAL, rotary_dim, found, "an even number, at most head_dim");
	return (double)count / (double)r->args->kv_channels;
}

/* The key may stand at the top and with the scaling. Releases of transformers look in one of these
 * places, so both values must be equal. */
static void read_partial(struct mfs_hf_reader *r, const struct rope *rope)
{
	const char *key = partial_key(r->family);
	const json_t *top = json_object_get(r->config, key);
	const json_t *inner = member(rope, "partial_rotary_factor");
	const double counted = by_rotary_dim(r);
	const double otherwise = partial(r, key, mfs_hf_key(r, key), counted);

	r->args->rotary_percent =
		partial(r, label(rope, "partial_rotary_factor").text, inner, otherwise);
	if (counted != 1 && r->args->rotary_percent != counted)
		mfs_hf_refuse(r, -EINVAL, rotary_dim, mfs_hf_key(r, rotary_dim),
			      "the same part of a head as 'partial_rotary_factor'");
	if (json_is_number(top) && json_is_number(inner) &&
	    json_number_value(top) != json_number_value(inner))
		mfs_hf_refuse(r, -EINVAL, key, top,
			      "the same number at the top and next to the scaling");
}

/* ---- two bases ---- */

/* Of layers with full attention (rope_theta, rope_scaling) and of those with a window: an object
 * with both in rope_parameters (transformers 5), or keys at the top (4). */
static void read_two_bases(struct mfs_hf_reader *r)
{
	const json_t *parameters = mfs_hf_set_key(r, "rope_parameters");
	const json_t *full = json_object_get(parameters, "full_attention");
	const json_t *sliding = json_object_get(parameters, "sliding_attention");
	const json_t *scaling = mfs_hf_set_key(r, "rope_scaling");
	const char *local = "rope_local_base_freq";
	struct rope rope = {"rope_parameters.full_attention", full, "default"};
	const struct rope window = {"rope_parameters.sliding_attention", sliding, "default"};
	struct mfs_megatron_args *a = r->args;

	if (!full && scaling)
		rope = (struct rope){"rope_scaling", scaling, "default"};
	if (rope.keys)
		rope.type = type_of(rope.keys);
	if (!rope.type)
		refuse(r, -EINVAL, &rope, "rope_type", "a text");
	if (sliding && (!type_of(sliding) || strcmp(type_of(sliding), "default")))
		refuse(r, -ENOTSUP, &window, "rope_type", "default");
	a->rotary_base = mfs_hf_real(r, "rope_theta", mfs_hf_key(r, "rope_theta"), 0);
	a->rotary_base = number(r, &rope, "rope_theta", a->rotary_base);
	a->rotary_base_local = mfs_hf_real(r, local, mfs_hf_key(r, local), 0);
	a->rotary_base_local = number(r, &window, "rope_theta", a->rotary_base_local);
	if (a->rotary_base <= 0)
		mfs_hf_refuse(r, -EINVAL, "rope_theta", mfs_hf_key(r, "rope_theta"),
			      "a positive number");
	if (a->rotary_base_local <= 0)
		mfs_hf_refuse(r, -EINVAL, local, mfs_hf_key(r, local), "a positive number");
	if (!r->rc)
		read_scaling(r, &rope);
}

void mfs_hf_read_positions(struct mfs_hf_reader *r)
{
	struct mfs_megatron_args *a = r->args;
	struct rope rope;

	a->seq_length = a->max_position_embeddings;
	if (!(r->family->required & MFS_HAS(ROPE)))
		return;
	if (r->family->required & MFS_HAS(ROPE_TWO_BASES)) {
		read_two_bases(r);
		return;
	}
	rope = find_rope(r);
	if (r->rc)
		return;
	read_partial(r, &rope);
	read_theta(r, &rope);
	if (!r->rc)
		read_scaling(r, &rope);
}
