#include "formats/model/hf_args.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/args/field.h"
#include "formats/model/features.h"
#include "formats/model/hf_config.h"
#include "formats/model/hf_args_i.h"
#include "formats/model/hf_known.h"
#include "formats/model/language.h"
#include "formats/model/model.h"

/* ---- keys ---- */

json_t *mfs_hf_key(const struct mfs_hf_reader *r, const char *key)
{
	json_t *found = json_object_get(r->config, key);

	for (const struct mfs_config_alias *a = r->family->aliases; a->key && !found; a++)
		if (!strcmp(a->key, key))
			found = json_object_get(r->config, a->other);
	return found ? found : json_object_get(r->defaults, key);
}

json_t *mfs_hf_set_key(const struct mfs_hf_reader *r, const char *key)
{
	json_t *found = mfs_hf_key(r, key);

	return json_is_null(found) ? NULL : found;
}

/* A value in a sentence: one line, cut where it is long. */
static const char *in_words(const json_t *value, char *text, size_t size)
{
	char *json = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));

	snprintf(text, size, "%s", json ? json : "?");
	free(json);
	return text;
}

void mfs_hf_refuse(struct mfs_hf_reader *r, int code, const char *key, const json_t *found,
		   const char *expected)
{
	char text[160];

	if (r->rc)
		return;
	if (found)
		r->rc = mfs_fail(r->err, code, "%s: '%s' is %s, expected %s", r->name, key,
				 in_words(found, text, sizeof(text)), expected);
	else
		r->rc = mfs_fail(r->err, code, "%s: '%s' is missing, expected %s", r->name, key,
				 expected);
}

double mfs_hf_real(struct mfs_hf_reader *r, const char *key, const json_t *found, double otherwise)
{
	if (!found || json_is_null(found))
		return otherwise;
	if (json_is_number(found) && isfinite(json_number_value(found)))
		return json_number_value(found);
	mfs_hf_refuse(r, -EINVAL, key, found, "a number");
	return otherwise;
}

int64_t mfs_hf_integer(struct mfs_hf_reader *r, const char *key, const json_t *found, int64_t least,
		       int64_t otherwise)
{
	const json_int_t n = json_integer_value(found);

	if (!found || json_is_null(found))
		return otherwise;
	if (json_is_integer(found) && n >= least && n <= MFS_HF_MAX_NUMBER)
		return n;
	mfs_hf_refuse(r, -EINVAL, key, found,
		      least ? "a number from 1 to 2^31" : "a number from 0 to 2^31");
	return otherwise;
}

bool mfs_hf_bool(struct mfs_hf_reader *r, const char *key, const json_t *found, bool otherwise)
{
	if (!found || json_is_null(found))
		return otherwise;
	if (json_is_boolean(found))
		return json_is_true(found);
	mfs_hf_refuse(r, -EINVAL, key, found, "true or false");
	return otherwise;
}

/* ---- which family ---- */

/* The class without its head: "GPT2Model". */
static bool is_base_of(const char *architecture, const struct mfs_family *f)
{
	static const char *const heads[] = {"ForCausalLM", "LMHeadModel"};

	for (size_t i = 0; i < 2; i++) {
		const char *head = strstr(f->architecture, heads[i]);
		const size_t len = head ? (size_t)(head - f->architecture) : 0;

		if (head && !strncmp(architecture, f->architecture, len) &&
		    !strcmp(architecture + len, "Model"))
			return true;
	}
	return false;
}

static const struct mfs_family *find_family(const char *text, bool base)
{
	for (const struct mfs_family *const *f = mfs_families(); *f; f++)
		if (!(*f)->language &&
		    (mfs_family_is_called(*f, text) || (base && is_base_of(text, *f))))
			return *f;
	return NULL;
}

/* Every key that names the family must name the same one. */
static void agree_on_family(struct mfs_hf_reader *r, const char *key, const char *text)
{
	const struct mfs_family *f = find_family(text, true);

	if (r->rc)
		return;
	if (!f)
		r->rc = mfs_fail(r->err, -ENOTSUP, "%s: '%s' is \"%.80s\", expected one of %s",
				 r->name, key, text, mfs_family_names());
	else if (r->family && r->family != f)
		r->rc = mfs_fail(r->err, -ENOTSUP, "%s: '%s' is \"%.80s\", expected a %s", r->name,
				 key, text, r->family->name);
	else if (f->impossible)
		r->rc = mfs_fail(r->err, -ENOTSUP,
				 "%s: '%s' is \"%.80s\", which Megatron cannot express: %s",
				 r->name, key, text, f->impossible);
	else
		r->family = f;
}

/* Classes of several families may have one model_type: then the class says which it is. */
static bool decides(const char *architecture, const char *type)
{
	const struct mfs_family *f = architecture ? find_family(architecture, false) : NULL;

	return f && type && mfs_family_is_called(f, type);
}

/* True if classes of this type are there that Megatron can express, and others: the type alone
 * leaves it open. */
static bool is_shared(const char *type)
{
	bool possible = false, impossible = false;

	for (const struct mfs_family *const *f = mfs_families(); *f; f++)
		if (!strcmp((*f)->model_type, type))
			*((*f)->impossible ? &impossible : &possible) = true;
	return possible && impossible;
}

/* Files of one class may be read as another's: see family.h. */
static void follow_layer_types(struct mfs_hf_reader *r)
{
	const char *name = r->family->with_layer_types;

	if (name && json_array_size(json_object_get(r->config, "layer_types")))
		r->family = find_family(name, false);
	if (!r->family)
		r->rc = mfs_fail(r->err, -EINVAL, "%s: 'layer_types' means a %s, and there is none",
				 r->name, name);
}

static void choose_family(struct mfs_hf_reader *r, const char *arch, bool whole)
{
	const json_t *architectures = json_object_get(r->config, "architectures");
	const char *architecture = json_string_value(json_array_get(architectures, 0));
	const char *type = json_string_value(json_object_get(r->config, "model_type"));

	if (type && !architecture && !arch && is_shared(type))
		r->rc = mfs_fail(r->err, -ENODATA,
				 "%s: 'model_type' is \"%.80s\", which several classes have, and "
				 "'architectures' names none",
				 r->name, type);
	else if (type && !decides(architecture ? architecture : arch, type))
		agree_on_family(r, "model_type", type);
	if (architecture)
		agree_on_family(r, "architectures", architecture);
	if (arch && !find_family(arch, false))
		r->rc = mfs_fail(r->err, -EINVAL, "arch=%s: no such family; there are %s", arch,
				 mfs_family_names());
	if (arch)
		agree_on_family(r, "arch", arch);
	if (!r->rc && !r->family)
		r->rc = mfs_fail(r->err, -ENODATA,
				 "%s: neither 'model_type' nor 'architectures' names the family",
				 r->name);
	if (!r->rc && !arch && !whole)
		follow_layer_types(r);
}

/* What names the family by another name than its own. */
static const char *other_name(struct mfs_hf_reader *r, const char *text, const char *own)
{
	const char *kept = NULL;

	if (text && strcmp(text, own) != 0 && mfs_family_list_has(r->family->also, text)) {
		kept = mfs_arena_strndup(r->arena, text, strlen(text));
		if (!kept)
			r->rc = mfs_fail_nomem(r->err);
	}
	return kept;
}

static void keep_names(struct mfs_hf_reader *r)
{
	const json_t *architectures = json_object_get(r->config, "architectures");
	const char *architecture = json_string_value(json_array_get(architectures, 0));
	const char *type = json_string_value(json_object_get(r->config, "model_type"));

	r->args->hf_architecture = other_name(r, architecture, r->family->architecture);
	r->args->hf_model_type = other_name(r, type, r->family->model_type);
}

/* ---- models that do more than their class ---- */

static bool says_nothing(const json_t *value)
{
	return !value || json_is_null(value) || json_is_false(value) ||
	       (json_is_object(value) && !json_object_size(value)) ||
	       (json_is_array(value) && !json_array_size(value));
}

/* The form that DeepSeek's weights have: {"quant_method": "fp8", "weight_block_size": [128, 128]}.
 * activation_scheme and scale_fmt say how to compute with them, not what they are. GPT-OSS' form is
 * {"quant_method": "mxfp4"}: which tensors have it is seen by their names. */
static void read_quantisation(struct mfs_hf_reader *r, const json_t *found)
{
	static const char key[] = "weight_block_size";
	const json_t *block = json_object_get(found, key);
	const char *method = json_string_value(json_object_get(found, "quant_method"));
	const char *fmt = json_string_value(json_object_get(found, "fmt"));

	if (says_nothing(found))
		return;
	if (method && !strcmp(method, "mxfp4")) {
		r->args->hf_mxfp4 = true;
		return;
	}
	if (!method || strcmp(method, "fp8") || (fmt && strcmp(fmt, "e4m3")) ||
	    json_array_size(block) != 2) {
		mfs_hf_refuse(r, -ENOTSUP, "quantization_config", found,
			      "none, mxfp4, or fp8 in blocks: other quantised weights are not "
			      "read");
		return;
	}
	for (size_t i = 0; i < 2; i++) {
		const json_t *size = json_array_get(block, i);

		if (json_is_null(size))
			mfs_hf_refuse(r, -EINVAL, key, block, "two numbers");
		r->args->hf_fp8_block[i] = mfs_hf_integer(r, key, size, 1, 0);
	}
}

/* ---- keys that no row has ---- */

/* A sentence that views of the model show. */
static void remark(struct mfs_hf_reader *r, const char *sentence)
{
	const char *const *old = r->args->hf_remarks;
	const char **all;
	size_t count = 0;

	while (old && old[count])
		count++;
	all = mfs_arena_array(r->arena, count + 2, sizeof(*all));
	if (!all || !sentence) {
		r->rc = mfs_fail_nomem(r->err);
		return;
	}
	if (count)
		memcpy(all, old, count * sizeof(*all));
	all[count] = sentence;
	all[count + 1] = NULL;
	r->args->hf_remarks = all;
}

/* Refuses keys that Megatron has no argument for, and reports keys that nobody here knows. A
 * vision-language model also has keys of its other parts. */
static void check_others(struct mfs_hf_reader *r, bool whole)
{
	struct mfs_hf_key_list unknown = {0};
	const char *key, *usual;
	json_t *value;

	json_object_foreach(r->config, key, value)
	{
		switch (mfs_hf_meaning_of(r->family, r->args, key, value, &usual)) {
		case MFS_HF_COMPUTES:
		case MFS_HF_STORES:
			mfs_hf_refuse(r, -ENOTSUP, key, value, usual);
			return;
		case MFS_HF_UNKNOWN:
			mfs_hf_key_list_add(&unknown, key);
			break;
		default:
			break;
		}
	}
	if (*unknown.text && !whole)
		remark(r, mfs_arena_printf(
				  r->arena,
				  "config.json has %s: if that changes what the model computes, "
				  "Megatron and gguf views are wrong",
				  mfs_hf_key_list_text(&unknown)));
}

/* transformers from 5 on takes it for a floor, Megatron and the makers' code have none. */
static void remark_time_step(struct mfs_hf_reader *r)
{
	const double floor =
		mfs_hf_real(r, "time_step_min",
			    r->args->hybrid_layers ? mfs_hf_set_key(r, "time_step_min") : NULL, 0);

	if (floor > MFS_HF_NO_TIME_STEP)
		remark(r, mfs_arena_printf(
				  r->arena,
				  "config.json has time_step_min %g: transformers from 5.0 on puts "
				  "this floor under the time steps of Mamba; Megatron and the "
				  "makers' code have none, nor have Megatron views",
				  floor));
}

static void check_aliases(struct mfs_hf_reader *r)
{
	char expected[96];

	for (const struct mfs_config_alias *alias = r->family->aliases; alias->key; alias++) {
		const json_t *a = json_object_get(r->config, alias->key);
		const json_t *b = json_object_get(r->config, alias->other);

		if (!a || !b || json_equal(a, b))
			continue;
		snprintf(expected, sizeof(expected), "the same as '%.60s'", alias->key);
		mfs_hf_refuse(r, -EINVAL, alias->other, b, expected);
	}
}

/* ---- all of it ---- */

/* The features that the arguments give must be the family's. Views choose it by its name. */
static void check_family(struct mfs_hf_reader *r)
{
	const struct mfs_family *f;

	r->args->hf_family = r->family->name;
	r->rc = mfs_family_choose(r->args, r->family->name, &f, r->err);
	if (r->rc)
		mfs_fail_in(r->err, "%s", r->name);
}

static void read_config(struct mfs_hf_reader *r, bool whole)
{
	read_quantisation(r, json_object_get(r->config, "quantization_config"));
	check_aliases(r);
	if (!r->rc)
		mfs_hf_read_keys(r);
	if (!r->rc)
		check_others(r, whole);
	if (!r->rc)
		remark_time_step(r);
	if (!r->rc)
		check_family(r);
}

static int load(struct mfs_hf_reader *r, const char *bytes, size_t len)
{
	int rc = mfs_json_load(bytes, len, MFS_HF_CONFIG_MAX, 0, r->name, &r->config, r->err);

	if (!rc && !json_is_object(r->config))
		rc = mfs_fail(r->err, -EINVAL, "%s: expected a JSON object", r->name);
	return rc;
}

/* A vision-language class has defaults of its own for its language model. */
static int load_defaults(struct mfs_hf_reader *r, const struct mfs_family *whole)
{
	json_t *more = whole ? json_loads(whole->defaults, 0, NULL) : NULL;

	r->defaults = json_loads(r->family->defaults, 0, NULL);
	if (!r->defaults || (whole && !more))
		r->rc = mfs_fail_nomem(r->err);
	else if (more)
		json_object_update(r->defaults, more);
	json_decref(more);
	return r->rc;
}

/* Goes on with the config of a vision-language model's language model. */
static int enter_language(struct mfs_hf_reader *r, const struct mfs_family **ret_whole)
{
	const struct mfs_family *family;
	json_t *text;
	int rc;

	*ret_whole = mfs_language_family(r->config);
	if (!*ret_whole)
		return mfs_language_unknown(r->config, r->name, r->err);
	rc = mfs_language_config(r->config, r->name, *ret_whole, &text, &family, r->err);
	if (rc)
		return rc;
	json_decref(r->config);
	r->config = text;
	return 0;
}

int mfs_hf_args_parse(const char *bytes, size_t len, const char *name, const char *arch,
		      struct mfs_arena *arena, struct mfs_megatron_args *ret,
		      const struct mfs_family **ret_family, const struct mfs_family **ret_whole,
		      struct mfs_error *err)
{
	struct mfs_megatron_args args = mfs_args_plain();
	struct mfs_hf_reader r = {.name = name, .arena = arena, .args = &args, .err = err};

	r.rc = load(&r, bytes, len);
	if (!r.rc)
		r.rc = enter_language(&r, ret_whole);
	if (!r.rc)
		choose_family(&r, arch, *ret_whole != NULL);
	if (!r.rc)
		keep_names(&r);
	if (!r.rc)
		r.rc = load_defaults(&r, *ret_whole);
	if (!r.rc)
		read_config(&r, *ret_whole != NULL);
	json_decref(r.config);
	json_decref(r.defaults);
	if (r.rc)
		return r.rc;
	*ret = args;
	*ret_family = r.family;
	return 0;
}
