/* The reference: an HF directory whose config.json a view follows. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/array.h"
#include "formats/base/str.h"
#include "formats/io/directory.h"
#include "formats/model/hf_config_i.h"
#include "formats/model/hf_known.h"
#include "formats/model/families/family.h"
#include "formats/model/language.h"

#define CONFIG "config.json"

/* Writers of config.json print numbers with different precision. */
#define TOLERANCE 1e-6

struct mfs_hf_ref {
	char *name; /* of the file, for messages */
	json_t *config;
	struct mfs_access_fold access; /* who may read it */
	json_t *rope;		       /* its rotary scaling, normalised; empty if there is none */
};

/* ---- reading ---- */

/* Brings rope_scaling (transformers 4) and rope_parameters (5) into one form: no rope_theta,
 * rope_type for "type", and an empty object if nothing is scaled. */
static json_t *normal_rope(const json_t *config)
{
	const json_t *found = json_object_get(config, "rope_scaling");
	json_t *rope, *type;

	if (!json_is_object(found))
		found = json_object_get(config, "rope_parameters");
	rope = json_is_object(found) ? json_copy((json_t *)found) : json_object();
	if (!rope)
		return NULL;
	type = json_object_get(rope, "type");
	if (type && !json_object_get(rope, "rope_type"))
		json_object_set(rope, "rope_type", type);
	json_object_del(rope, "type");
	json_object_del(rope, "rope_theta");
	type = json_object_get(rope, "rope_type");
	if (!json_is_string(type) || !strcmp(json_string_value(type), "default"))
		json_object_clear(rope);
	return rope;
}

/* A vision-language model is a reference for its language model. */
static int enter_language(struct mfs_hf_ref *ref, const char *name, struct mfs_error *err)
{
	const struct mfs_family *whole = mfs_language_family(ref->config), *family;
	json_t *text;
	int rc;

	if (!whole)
		return 0;
	rc = mfs_language_config(ref->config, name, whole, &text, &family, err);
	if (rc)
		return rc;
	json_decref(ref->config);
	ref->config = text;
	return 0;
}

int mfs_hf_ref_parse(const char *bytes, size_t len, const char *name, struct mfs_hf_ref **ret,
		     struct mfs_error *err)
{
	struct mfs_hf_ref *ref = calloc(1, sizeof(*ref));
	int rc;

	if (!ref)
		return mfs_fail_nomem(err);
	rc = mfs_json_load(bytes, len, MFS_HF_CONFIG_MAX, 0, name, &ref->config, err);
	if (!rc && !json_is_object(ref->config))
		rc = mfs_fail(err, -EINVAL, "%s: expected a JSON object", name);
	if (!rc)
		rc = enter_language(ref, name, err);
	if (!rc) {
		ref->name = strdup(name);
		ref->rope = normal_rope(ref->config);
		if (!ref->name || !ref->rope)
			rc = mfs_fail_nomem(err);
	}
	if (rc) {
		mfs_hf_ref_free(ref);
		return rc;
	}
	*ret = ref;
	return 0;
}

int mfs_hf_ref_open(const char *dir, struct mfs_hf_ref **ret, struct mfs_error *err)
{
	struct mfs_access_fold access = {0};
	char *bytes, name[4096];
	size_t len;
	int rc;

	rc = mfs_hf_slurp_counted(dir, CONFIG, MFS_HF_CONFIG_MAX, &bytes, &len, &access, err);
	if (rc == -ENOENT)
		return mfs_fail(err, -ENODATA, "ref=%s: not a directory with a " CONFIG, dir);
	if (rc)
		return rc;
	snprintf(name, sizeof(name), "%s/" CONFIG, dir);
	rc = mfs_hf_ref_parse(bytes, len, name, ret, err);
	free(bytes);
	if (!rc)
		(*ret)->access = access;
	return rc;
}

void mfs_hf_ref_free(struct mfs_hf_ref *ref)
{
	if (!ref)
		return;
	json_decref(ref->config);
	json_decref(ref->rope);
	free(ref->name);
	free(ref);
}

bool mfs_hf_ref_is_of(const char *dir, const struct mfs_ckpt *ckpt)
{
	return dir && mfs_ckpt_format(ckpt)->is_hf && !strcmp(dir, mfs_ckpt_dir(ckpt));
}

bool mfs_hf_ref_is_source(const char *dir, const struct mfs_ckpt *ckpt)
{
	return mfs_hf_ref_is_of(dir, ckpt) && !mfs_ckpt_is_language(ckpt);
}

int mfs_hf_ref_set_tied(struct mfs_hf_ref *ref, bool tied, struct mfs_error *err)
{
	return json_object_set_new(ref->config, "tie_word_embeddings", json_boolean(tied))
		       ? mfs_fail_nomem(err)
		       : 0;
}

int mfs_hf_ref_json(const struct mfs_hf_ref *ref, char **ret, size_t *ret_len,
		    struct mfs_error *err)
{
	return mfs_json_text(ref->config, ret, ret_len, err);
}

const struct mfs_access_fold *mfs_hf_ref_access(const struct mfs_hf_ref *ref)
{
	return &ref->access;
}

uint64_t mfs_hf_ref_vocab(const struct mfs_hf_ref *ref)
{
	const json_int_t n = json_integer_value(json_object_get(ref->config, "vocab_size"));

	return n > 0 ? (uint64_t)n : 0;
}

double mfs_hf_ref_llama3_factor(const struct mfs_hf_ref *ref)
{
	const char *type = json_string_value(json_object_get(ref->rope, "rope_type"));

	return type && !strcmp(type, "llama3")
		       ? json_number_value(json_object_get(ref->rope, "factor"))
		       : 0;
}

bool mfs_hf_ref_has_code(const struct mfs_hf_ref *ref)
{
	return json_is_object(json_object_get(ref->config, "auto_map"));
}

/* ---- comparing ---- */

static bool same_number(double a, double b)
{
	return a == b || fabs(a - b) <= TOLERANCE * fmax(fabs(a), fabs(b));
}

static bool agree(const json_t *a, const json_t *b)
{
	if (json_is_number(a) && json_is_number(b))
		return same_number(json_number_value(a), json_number_value(b));
	return json_equal(a, b);
}

/* True if every key of a is in b with the same value. A null counts as absent. */
static bool covered(const json_t *a, const json_t *b)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)a, key, value)
	{
		if (!json_is_null(value) && !agree(value, json_object_get(b, key)))
			return false;
	}
	return true;
}

static bool same_rope(const json_t *mine, const json_t *theirs)
{
	return covered(mine, theirs) && covered(theirs, mine);
}

/* The reference's value of a key, wherever its version of transformers keeps it. NULL: it is absent
 * or null. */
static json_t *ref_value(const struct mfs_hf_ref *ref, const struct mfs_family *f, const char *key)
{
	json_t *value = json_object_get(ref->config, key);

	for (const struct mfs_config_alias *a = f->aliases; a->key && !value; a++)
		if (!strcmp(a->key, key))
			value = json_object_get(ref->config, a->other);
	if (!strcmp(key, "rope_scaling"))
		return ref->rope;
	if (!strcmp(key, "rope_theta") && !value)
		value = json_object_get(json_object_get(ref->config, "rope_parameters"), key);
	return json_is_null(value) ? NULL : value;
}

static bool same_value(const char *key, const json_t *mine, const json_t *theirs)
{
	const char *a = mfs_hf_activation(json_string_value(mine));
	const char *b = mfs_hf_activation(json_string_value(theirs));

	if (!strcmp(key, "rope_scaling"))
		return same_rope(mine, theirs);
	return agree(mine, theirs) || (strstr(key, "act") && a && b && !strcmp(a, b));
}

/* A value for a message: one line, cut if it is long. */
static const char *in_words(const json_t *value, char *text, size_t size)
{
	char *json = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS |
					       JSON_REAL_PRECISION(15));

	snprintf(text, size, "%s", json ? json : "?");
	free(json);
	return text;
}

static int disagree(const struct mfs_hf_ref *ref, const char *key, const json_t *mine,
		    const json_t *theirs, struct mfs_error *err)
{
	char a[160], b[160];

	return mfs_fail(err, -EINVAL, "%s: '%s' is %s, but the checkpoint has %s", ref->name, key,
			in_words(theirs, a, sizeof(a)), in_words(mine, b, sizeof(b)));
}

static int note(struct mfs_model *m, const char *key, const json_t *shown, const char *whose,
		const json_t *other)
{
	char a[160], b[160];

	return mfs_model_warn(m, "config.json has %s %s from %s, not %s", key,
			      in_words(shown, a, sizeof(a)), whose, in_words(other, b, sizeof(b)));
}

/* Names of one family are one class: the reference says which of them loaders find. */
static bool names_family(const struct mfs_model *m, const struct mfs_config_row *row,
			 const json_t *theirs)
{
	const char *text = json_string_value(theirs);

	if (row->kind != MFS_CONFIG_VALUE)
		return false;
	if (row->value == MFS_VALUE_ARCHITECTURES)
		text = json_string_value(json_array_get(theirs, 0));
	else if (row->value != MFS_VALUE_MODEL_TYPE)
		return false;
	return text &&
	       (mfs_family_list_has(m->family->also, text) ||
		!strcmp(text, m->family->architecture) || !strcmp(text, m->family->model_type));
}

static int merge_row(const struct mfs_hf_ref *ref, struct mfs_model *m,
		     const struct mfs_config_row *row, json_t *config, struct mfs_error *err)
{
	json_t *mine = json_object_get(config, row->key),
	       *theirs = ref_value(ref, m->family, row->key);
	int rc = 0;

	if (!theirs || same_value(row->key, mine, theirs))
		return 0;
	if (names_family(m, row, theirs))
		return json_object_set(config, row->key, theirs) ? mfs_fail_nomem(err) : 0;
	switch (row->ref) {
	case MFS_REF_AGREES:
		return disagree(ref, row->key, mine, theirs, err);
	case MFS_REF_WINS_NOTED:
		rc = note(m, row->key, theirs, "the reference", mine);
		/* fall through */
	case MFS_REF_WINS:
		rc = rc ? rc : json_object_set(config, row->key, theirs);
		break;
	case MFS_REF_LOSES_NOTED:
		rc = note(m, row->key, mine, "the checkpoint", theirs);
		break;
	case MFS_REF_LOSES:
		break;
	}
	return rc ? mfs_fail_nomem(err) : 0;
}

/* ---- merging ---- */

/* A list that had Infinity, which JSON cannot say (hf_json.h). */
static bool had_infinity(const json_t *value)
{
	const json_t *item;
	size_t i;

	json_array_foreach(value, i, item)
	{
		if (json_is_null(item))
			return true;
	}
	return false;
}

static int contradicts(const struct mfs_hf_ref *ref, const char *key, const json_t *theirs,
		       const char *usual, struct mfs_error *err)
{
	char word[64], text[160];

	return mfs_fail(err, -EINVAL, "%s: %s is %s, expected %s", ref->name,
			mfs_hf_key_in_words(key, word, sizeof(word)),
			in_words(theirs, text, sizeof(text)), usual);
}

/* Only keys that are known to be harmless are copied. */
static int add_rest(const struct mfs_hf_ref *ref, struct mfs_model *m, json_t *config,
		    struct mfs_error *err)
{
	const struct mfs_megatron_args *args = mfs_ckpt_args(m->ckpt);
	struct mfs_hf_key_list unknown = {0};
	const char *key, *usual;
	json_t *value;
	int rc = 0;

	json_object_foreach(ref->config, key, value)
	{
		if (!strcmp(key, "quantization_config"))
			rc = mfs_model_warn(
				m,
				"the reference's quantization_config is left out: these "
				"weights are %s",
				mfs_dtype_torch(m->dtype));
		switch (mfs_hf_meaning_of(m->family, args, key, value, &usual)) {
		case MFS_HF_COMPUTES:
			return contradicts(ref, key, value, usual, err);
		case MFS_HF_COPIED:
			if (!rc && !had_infinity(value) && !json_object_get(config, key))
				rc = json_object_set(config, key, value);
			break;
		case MFS_HF_UNKNOWN:
			mfs_hf_key_list_add(&unknown, key);
			break;
		case MFS_HF_READ:
		case MFS_HF_LEFT:
		case MFS_HF_STORES:
			break;
		}
		if (rc)
			return mfs_fail_nomem(err);
	}
	if (*unknown.text && !mfs_ckpt_is_language(m->ckpt) &&
	    mfs_model_warn(m, "the reference's %s is left out: nothing here knows what it means",
			   mfs_hf_key_list_text(&unknown)))
		return mfs_fail_nomem(err);
	return 0;
}

int mfs_hf_ref_merge(const struct mfs_hf_ref *ref, struct mfs_model *model, json_t *config,
		     struct mfs_error *err)
{
	const struct mfs_config_row *row = model->family->config;
	int rc = 0;

	for (; row->key && !rc; row++)
		if (mfs_applies(row->when, row->unless, model->features))
			rc = merge_row(ref, model, row, config, err);
	return rc ? rc : add_rest(ref, model, config, err);
}

/* ---- files that are shown as they are ---- */

/* Left out are weights and their indices; config.json, which the view has itself; hidden files; and
 * files that make a reader take the directory for a quantised model, an adapter or Mistral's own
 * format. */
static bool is_left_out(const char *name, bool code)
{
	static const char *const patterns[] = {
		".*",
		"*.safetensors",
		"*.bin",
		"*.pt",
		"*.pth",
		"*.ckpt",
		"*.gguf",
		"*.h5",
		"*.onnx",
		"*.msgpack",
		"*.index.json",
		CONFIG,
		"params.json",
		"hf_quant_config.json",
		"adapter_config.json",
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(patterns); i++)
		if (!fnmatch(patterns[i], name, FNM_CASEFOLD))
			return true;
	return !code && !fnmatch("*.py", name, 0);
}

static bool is_regular(int dir, const char *name)
{
	struct stat st;

	return !fstatat(dir, name, &st, 0) && S_ISREG(st.st_mode);
}

static int list_files(DIR *d, bool code, struct mfs_arena *arena, const char **names,
		      uint32_t *ret_count)
{
	const struct dirent *e;

	while ((e = readdir(d))) {
		if (is_left_out(e->d_name, code) || !is_regular(dirfd(d), e->d_name))
			continue;
		if (*ret_count == MFS_HF_FILES_MAX)
			return -E2BIG;
		names[*ret_count] = mfs_arena_strndup(arena, e->d_name, strlen(e->d_name));
		if (!names[(*ret_count)++])
			return -ENOMEM;
	}
	return 0;
}

int mfs_hf_files(const char *dir, bool code, struct mfs_arena *arena, const char *const **ret,
		 uint32_t *ret_count, struct mfs_error *err)
{
	const char **names;
	uint32_t count = 0;
	DIR *d = mfs_opendir(dir);
	int rc;

	if (!d && errno != ENOENT)
		return mfs_fail_errno(err, "%s", dir);
	names = mfs_arena_array(arena, d ? MFS_HF_FILES_MAX : 1, sizeof(*names));
	rc = names ? 0 : -ENOMEM;
	if (!rc && d)
		rc = list_files(d, code, arena, names, &count);
	if (d)
		closedir(d);
	if (rc == -E2BIG)
		return mfs_fail(err, -ENOTSUP, "%s: more than %d files", dir, MFS_HF_FILES_MAX);
	if (rc)
		return mfs_fail_nomem(err);
	qsort(names, count, sizeof(*names), mfs_str_order);
	*ret = names;
	*ret_count = count;
	return 0;
}
