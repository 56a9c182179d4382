#include "formats/model/language.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "formats/base/array.h"
#include "formats/base/nearest.h"

/* ---- families ---- */

static bool is_family(const struct mfs_family *f, const char *text)
{
	return text && (!strcmp(text, f->model_type) || !strcmp(text, f->architecture) ||
			mfs_family_list_has(f->also, text));
}

static const char *architecture_of(const json_t *config)
{
	return json_string_value(json_array_get(json_object_get(config, "architectures"), 0));
}

static const char *type_of(const json_t *config)
{
	return json_string_value(json_object_get(config, "model_type"));
}

/* A text config may have the model_type of its whole model, or one that is a family's name. The
 * class tells them apart. */
const struct mfs_family *mfs_language_family(const json_t *config)
{
	const char *class = architecture_of(config);
	const char *type = type_of(config);

	for (const struct mfs_family *const *f = mfs_families(); *f; f++)
		if ((*f)->language && (class ? is_family(*f, class) : is_family(*f, type)))
			return *f;
	return NULL;
}

static const struct mfs_family *text_family(const char *name)
{
	for (const struct mfs_family *const *f = mfs_families(); *f; f++)
		if (!strcasecmp((*f)->name, name))
			return *f;
	return NULL;
}

int mfs_language_unknown(const json_t *config, const char *name, struct mfs_error *err)
{
	const char *class = architecture_of(config), *type = type_of(config);
	struct mfs_nearest near = {.word = class ? class : type ? type : ""};
	char hint[MFS_NEAREST_HINT];

	if (!json_is_object(json_object_get(config, "vision_config")))
		return 0;
	for (const struct mfs_family *const *f = mfs_families(); *f; f++)
		if (type && mfs_family_is_called(*f, type))
			return 0;
	for (const struct mfs_family *const *f = mfs_families(); *f; f++)
		if ((*f)->language)
			mfs_nearest_try(&near, class ? (*f)->architecture : (*f)->model_type);
	return mfs_fail(err, -ENOTSUP,
			"%s: a vision-language model (\"%.80s\"), and no family's file says which "
			"tensors are its language model's%s",
			name, near.word, mfs_nearest_hint(&near, "", hint));
}

/* ---- for Megatron's files ---- */

static const struct mfs_ckpt_part *candidate(const char *provider, uint32_t i)
{
	for (const struct mfs_family *const *f = mfs_families(); *f; f++) {
		const struct mfs_language *l = (*f)->language;

		if (!l || !l->part.names->from ||
		    (provider ? !mfs_family_is_made_by(*f, provider) : !!(*f)->providers))
			continue;
		if (!i--)
			return &l->part;
	}
	return NULL;
}

/* Length of what both begin with, without regard to case. */
static size_t common(const char *a, const char *b)
{
	size_t n = 0;

	while (a[n] && b[n] && !strncasecmp(a + n, b + n, 1))
		n++;
	return n;
}

/* Names of classes begin alike. */
static const char *nearest(const char *provider)
{
	const char *best = NULL;
	size_t most = 3;

	for (const struct mfs_family *const *f = mfs_families(); *f; f++) {
		const char *stem = (*f)->language ? (*f)->providers : NULL;

		for (; stem; stem = strpbrk(stem, " ,")) {
			stem += strspn(stem, " ,");
			if (common(stem, provider) > most) {
				most = common(stem, provider);
				best = (*f)->name;
			}
		}
	}
	return best;
}

const struct mfs_ckpt_part_ops mfs_language_parts = {candidate, nearest};

/* ---- the text config ---- */

/* The object that has the text config's keys. NULL: there is none. */
static int find_config(const json_t *config, const char *name, const struct mfs_family *whole,
		       const json_t **ret, struct mfs_error *err)
{
	const struct mfs_language *l = whole->language;
	const json_t *found = json_object_get(config, l->config);
	char *text;
	int rc;

	if (json_is_object(found) || (l->whole && (!found || json_is_null(found)))) {
		*ret = json_is_object(found) ? found : config;
		return 0;
	}
	if (!found)
		return mfs_fail(err, -ENODATA,
				"%s: '%s' is missing, where a %s has the config of its language "
				"model",
				name, l->config, whole->name);
	text = json_dumps(found, JSON_ENCODE_ANY | JSON_COMPACT);
	rc = mfs_fail(err, -EINVAL, "%s: '%s' is %.80s, expected an object", name, l->config,
		      text ? text : "?");
	free(text);
	return rc;
}

/* Of several families the text config's model_type names one; without it the first is meant. */
static int find_text(const json_t *text, const char *name, const struct mfs_family *whole,
		     const struct mfs_family **ret, struct mfs_error *err)
{
	const struct mfs_ckpt_part *part = &whole->language->part;
	const char *type = part->only ? NULL : type_of(text), *at = part->shown;
	char one[64];

	while (*at) {
		const size_t len = strcspn(at, ", ");
		const struct mfs_family *f;

		snprintf(one, sizeof(one), "%.*s", (int)len, at);
		f = text_family(one);
		if (f && (!type || mfs_family_is_called(f, type))) {
			*ret = f;
			return 0;
		}
		at += len;
		at += strspn(at, ", ");
	}
	return mfs_fail(err, -ENOTSUP, "%s: '%s.model_type' is \"%.80s\", expected one of %s", name,
			whole->language->config, type ? type : "", part->shown);
}

/* Sections of mrope are left out, and the type is that of plain rope. */
static void drop_sections(json_t *config, const char *key)
{
	json_t *rope = json_object_get(config, key);
	const char *type;

	if (!json_is_object(rope))
		return;
	rope = json_copy(rope);
	json_object_del(rope, "mrope_section");
	json_object_del(rope, "mrope_interleaved");
	type = json_string_value(json_object_get(rope, "type"));
	if (type && !strcmp(type, "mrope"))
		json_object_del(rope, "type");
	type = json_string_value(json_object_get(rope, "rope_type"));
	if (type && !strcmp(type, "mrope"))
		json_object_set_new(rope, "rope_type", json_string("default"));
	if (json_object_size(rope))
		json_object_set_new(config, key, rope);
	else {
		json_decref(rope);
		json_object_del(config, key);
	}
}

/* Drops the keys of images and videos, which some files have among the text config's. */
static void drop_images(json_t *made)
{
	static const char *const prefixes[] = {"vision_", "image_", "video_"};
	const char *key;
	json_t *value;
	void *next;

	json_object_foreach_safe(made, next, key, value)
	{
		for (size_t i = 0; i < MFS_ARRAY_SIZE(prefixes); i++)
			if (!strncmp(key, prefixes[i], strlen(prefixes[i]))) {
				json_object_del(made, key);
				break;
			}
	}
}

static void set_tied(json_t *made, const json_t *config, const json_t *text)
{
	static const char key[] = "tie_word_embeddings";
	const json_t *a = json_object_get(config, key), *b = json_object_get(text, key);

	if (json_is_true(a) || json_is_true(b))
		json_object_set_new(made, key, json_true());
	else if (json_is_boolean(a) || json_is_boolean(b))
		json_object_set_new(made, key, json_false());
}

/* What holds for all weights stands next to the text config. */
static void keep_common(json_t *made, const json_t *config)
{
	static const char *const keys[] = {
		"dtype",	"torch_dtype",	       "quantization_config", "compression_config",
		"quantization", "transformers_version"};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(keys); i++) {
		json_t *value = json_object_get(config, keys[i]);

		if (value && !json_object_get(made, keys[i]))
			json_object_set(made, keys[i], value);
	}
}

int mfs_language_config(const json_t *config, const char *name, const struct mfs_family *whole,
			json_t **ret, const struct mfs_family **ret_text, struct mfs_error *err)
{
	const struct mfs_family *family;
	const json_t *text;
	json_t *made;
	int rc = find_config(config, name, whole, &text, err);

	if (!rc)
		rc = find_text(text, name, whole, &family, err);
	if (rc)
		return rc;
	made = json_copy((json_t *)text);
	if (!made)
		return mfs_fail_nomem(err);
	if (text == config)
		drop_images(made);
	json_object_del(made, "auto_map");
	json_object_set_new(made, "model_type", json_string(family->model_type));
	json_object_set_new(made, "architectures", json_pack("[s]", family->architecture));
	if (whole->language->part.mrope) {
		drop_sections(made, "rope_scaling");
		drop_sections(made, "rope_parameters");
	}
	set_tied(made, config, text);
	keep_common(made, config);
	*ret = made;
	*ret_text = family;
	return 0;
}
