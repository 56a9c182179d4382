#include "formats/model/families/read.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/buf.h"
#include "formats/base/nearest.h"
#include "formats/base/str.h"
#include "formats/model/families/read_i.h"

#define LONGEST_PREFIX 60

/* ---- [family] ---- */

static int set_text(struct mfs_family_reader *r, const char *value, size_t field)
{
	*(const char **)((char *)r->family + field) = value;
	return 0;
}

/* The rows and features of another family. The rest is of each alone. */
static int read_base(struct mfs_family_reader *r, const char *value, size_t field)
{
	const struct mfs_family *base = r->find(value, r->arg);
	int rc = 0;

	(void)field;
	if (!base)
		return mfs_fail(r->err, -EINVAL, "base '%.60s': there is no such family", value);
	if (r->tensors.count || r->config.count || r->family->required || r->family->optional)
		return mfs_fail(r->err, -EINVAL,
				"base, expected before features and rows, and once");
	r->family->required = base->required;
	r->family->optional = base->optional;
	if (!r->family->layer_prefix)
		r->family->layer_prefix = base->layer_prefix;
	if (!r->family->mtp_prefix)
		r->family->mtp_prefix = base->mtp_prefix;
	for (const struct mfs_family_tensor *row = base->tensors; row->hf && !rc; row++)
		rc = mfs_family_put(r, &r->tensors, mfs_family_where(row->scope, row->kind),
				    row->hf, row, false);
	for (const struct mfs_config_row *row = base->config; row->key && !rc; row++)
		rc = mfs_family_put(r, &r->config, 0, row->key, row, false);
	for (const struct mfs_vllm_name *row = base->vllm_names; row->hf && !rc; row++)
		rc = mfs_family_put(r, &r->vllm, 0, row->hf, row, false);
	for (const struct mfs_vllm_name *row = base->sglang_names; row->hf && !rc; row++)
		rc = mfs_family_put(r, &r->sglang, 0, row->hf, row, false);
	return rc;
}

static int read_set(struct mfs_family_reader *r, const char *value, mfs_features *ret)
{
	struct mfs_words w;
	int rc = mfs_words_split(value, r->arena, &w, r->err);

	if (!rc)
		rc = mfs_words_features(&w, ",", ret, r->err);
	if (!rc && w.at[w.next])
		rc = mfs_fail(r->err, -EINVAL, "'%.60s' is not expected here", w.at[w.next]);
	return rc;
}

static int read_requires(struct mfs_family_reader *r, const char *value, size_t field)
{
	(void)field;
	return read_set(r, value, &r->family->required);
}

static int read_allows(struct mfs_family_reader *r, const char *value, size_t field)
{
	(void)field;
	return read_set(r, value, &r->family->optional);
}

/* What a base requires or allows, and this family does not have. */
static int read_refuses(struct mfs_family_reader *r, const char *value, size_t field)
{
	mfs_features set = 0;
	int rc = read_set(r, value, &set);

	(void)field;
	r->family->required &= ~set;
	r->family->optional &= ~set;
	return rc;
}

static int read_order(struct mfs_family_reader *r, const char *value, size_t field)
{
	char *end;
	const unsigned long n = strtoul(value, &end, 10);

	(void)field;
	if (*value < '0' || *value > '9' || *end || n > 1000)
		return mfs_fail(r->err, -EINVAL, "order '%.60s', expected a number up to 1000",
				value);
	r->family->order = (unsigned)n;
	return 0;
}

static int read_norms(struct mfs_family_reader *r, const char *value, size_t field)
{
	(void)field;
	if (strcmp(value, "weight - 1"))
		return mfs_fail(r->err, -EINVAL, "norms '%.60s', expected weight - 1", value);
	r->family->norms_minus_one = true;
	return 0;
}

/* "model.layers.{i}." */
static int read_layers(struct mfs_family_reader *r, const char *value, size_t field)
{
	const char *hole = strstr(value, "{i}.");

	if (!hole || hole == value || hole[4] || strchr(value, '{') != hole ||
	    strpbrk(value, " \t") || strlen(value) > LONGEST_PREFIX)
		return mfs_fail(r->err, -EINVAL, "layers '%.60s', expected one like %s", value,
				"model.layers.{i}.");
	return set_text(r, value, field);
}

/* VERSION [, unless A or B] */
static int read_sglang(struct mfs_family_reader *r, const char *value, size_t field)
{
	struct mfs_words w;
	mfs_features when = 0;
	int rc = mfs_words_split(value, r->arena, &w, r->err);

	(void)field;
	if (rc)
		return rc;
	r->family->sglang = w.at[w.next++];
	rc = mfs_words_conditions(&w, &when, &r->family->sglang_unless, r->err);
	if (!rc && when)
		rc = mfs_fail(r->err, -EINVAL, "expected VERSION, unless A or B");
	return rc;
}

#define FAMILY_FIELD(name) offsetof(struct mfs_family, name)

static const struct key {
	const char *key;
	int (*read)(struct mfs_family_reader *r, const char *value, size_t field);
	size_t field;
} keys[] = {
	{"name", set_text, FAMILY_FIELD(name)},
	{"about", set_text, FAMILY_FIELD(about)},
	{"base", read_base, 0},
	{"architecture", set_text, FAMILY_FIELD(architecture)},
	{"model_type", set_text, FAMILY_FIELD(model_type)},
	{"also", set_text, FAMILY_FIELD(also)},
	{"with-layer-types", set_text, FAMILY_FIELD(with_layer_types)},
	{"layers", read_layers, FAMILY_FIELD(layer_prefix)},
	{"mtp-layers", read_layers, FAMILY_FIELD(mtp_prefix)},
	{"order", read_order, 0},
	{"requires", read_requires, 0},
	{"allows", read_allows, 0},
	{"refuses", read_refuses, 0},
	{"norms", read_norms, 0},
	{"ignores", set_text, FAMILY_FIELD(ignores)},
	{"providers", set_text, FAMILY_FIELD(providers)},
	{"proved", set_text, FAMILY_FIELD(proved)},
	{"vllm", set_text, FAMILY_FIELD(vllm)},
	{"sglang", read_sglang, 0},
	{"gguf", set_text, FAMILY_FIELD(gguf)},
	{"impossible", set_text, FAMILY_FIELD(impossible)},
};

static int no_key(struct mfs_family_reader *r, const char *key)
{
	struct mfs_nearest near = {.word = key};
	char hint[MFS_NEAREST_HINT];

	for (size_t i = 0; i < MFS_ARRAY_SIZE(keys); i++)
		mfs_nearest_try(&near, keys[i].key);
	mfs_nearest_hint(&near, "", hint);
	return mfs_fail(r->err, -EINVAL, "'%.60s' is no key of [family]%s", key, hint);
}

static int read_family(struct mfs_family_reader *r, const struct mfs_conf_line *line)
{
	if (!*line->value)
		return mfs_fail(r->err, -EINVAL, "'%.60s' has no value", line->key);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(keys); i++)
		if (!strcmp(keys[i].key, line->key))
			return keys[i].read(r, line->value, keys[i].field);
	return no_key(r, line->key);
}

/* ---- the small sections ---- */

static int read_default(struct mfs_family_reader *r, const struct mfs_conf_line *line)
{
	json_t *value = json_loads(line->value, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);

	json_decref(value);
	if (!value)
		return mfs_fail(r->err, -EINVAL, "'%.60s' is no JSON value", line->value);
	return mfs_family_put(r, &r->defaults, 0, line->key, line->value, true);
}

static int read_alias(struct mfs_family_reader *r, const struct mfs_conf_line *line)
{
	struct mfs_config_alias *row = mfs_arena_alloc(r->arena, sizeof(*row));

	if (!row)
		return mfs_fail_nomem(r->err);
	*row = (struct mfs_config_alias){line->key, line->value};
	return mfs_family_put(r, &r->aliases, 0, line->key, row, true);
}

static int read_note(struct mfs_family_reader *r, const struct mfs_conf_line *line)
{
	struct mfs_family_note *row = mfs_arena_alloc(r->arena, sizeof(*row));
	struct mfs_words w;
	int rc;

	if (!row)
		return mfs_fail_nomem(r->err);
	row->text = line->value;
	rc = mfs_words_split(line->key, r->arena, &w, r->err);
	if (!rc)
		rc = mfs_words_features(&w, "and", &row->when, r->err);
	if (!rc && w.at[w.next])
		rc = mfs_fail(r->err, -EINVAL, "'%.60s' is not expected here", w.at[w.next]);
	return rc ? rc : mfs_family_put(r, &r->notes, 0, line->key, row, true);
}

/* ---- sections ---- */

static const struct section {
	const char *name;
	int (*read)(struct mfs_family_reader *r, const struct mfs_conf_line *line);
	enum mfs_scope scope; /* of tensors, where there is no function */
	enum mfs_layer_kind kind;
} sections[] = {
	{"family", read_family, 0, 0},
	{"before", NULL, MFS_SCOPE_BEFORE, MFS_LAYER_ANY},
	{"layer", NULL, MFS_SCOPE_LAYER, MFS_LAYER_ANY},
	{"layer dense", NULL, MFS_SCOPE_LAYER, MFS_LAYER_DENSE},
	{"layer moe", NULL, MFS_SCOPE_LAYER, MFS_LAYER_MOE},
	{"layer full", NULL, MFS_SCOPE_LAYER, MFS_LAYER_FULL},
	{"layer linear", NULL, MFS_SCOPE_LAYER, MFS_LAYER_LINEAR},
	{"layer mamba", NULL, MFS_SCOPE_LAYER, MFS_LAYER_MAMBA},
	{"mtp", NULL, MFS_SCOPE_MTP, MFS_LAYER_ANY},
	{"after", NULL, MFS_SCOPE_AFTER, MFS_LAYER_ANY},
	{"fused", mfs_family_read_fused, 0, 0},
	{"vllm", mfs_family_read_vllm, 0, 0},
	{"sglang", mfs_family_read_sglang, 0, 0},
	{"config", mfs_family_read_config, 0, 0},
	{"defaults", read_default, 0, 0},
	{"aliases", read_alias, 0, 0},
	{"notes", read_note, 0, 0},
	{"language", mfs_family_read_language, 0, 0},
	{"language hf", mfs_family_read_hf_name, 0, 0},
	{"language megatron", mfs_family_read_megatron_name, 0, 0},
};

static int no_section(struct mfs_family_reader *r, const char *name)
{
	struct mfs_nearest near = {.word = name};
	char hint[MFS_NEAREST_HINT];

	for (size_t i = 0; i < MFS_ARRAY_SIZE(sections); i++)
		mfs_nearest_try(&near, sections[i].name);
	mfs_nearest_hint(&near, "", hint);
	return mfs_fail(r->err, -EINVAL, "[%.60s] is no section%s", name, hint);
}

static int read_line(struct mfs_family_reader *r, const struct mfs_conf_line *line)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(sections); i++) {
		const struct section *s = &sections[i];

		if (strcmp(s->name, line->section))
			continue;
		return s->read ? s->read(r, line)
			       : mfs_family_read_tensor(r, line, s->scope, s->kind);
	}
	return no_section(r, line->section);
}

/* ---- the whole ---- */

static int settle_defaults(struct mfs_family_reader *r)
{
	struct mfs_buf text = {0};
	json_t *object;

	for (size_t i = 0; i < r->defaults.count; i++) {
		mfs_buf_adds(&text, i ? ", " : "{");
		mfs_buf_add_json(&text, r->defaults.at[i].key);
		mfs_buf_printf(&text, ": %s", (const char *)r->defaults.at[i].row);
	}
	mfs_buf_adds(&text, r->defaults.count ? "}" : "{}");
	if (!text.failed)
		r->family->defaults = mfs_arena_strndup(r->arena, text.data, text.len);
	mfs_buf_release(&text);
	if (!r->family->defaults)
		return mfs_fail_nomem(r->err);
	object = json_loads(r->family->defaults, JSON_REJECT_DUPLICATES, NULL);
	json_decref(object);
	return object ? 0 : mfs_fail(r->err, -EINVAL, "%s: a key is twice in [defaults]", r->file);
}

static bool has_key(const struct mfs_family_reader *r, const char *key)
{
	for (size_t i = 0; i < r->config.count; i++)
		if (!strcmp(r->config.at[i].key, key))
			return true;
	return false;
}

static int settle_small(struct mfs_family_reader *r)
{
	struct mfs_config_alias *aliases =
		mfs_arena_array(r->arena, r->aliases.count + 1, sizeof(*aliases));
	struct mfs_family_note *notes =
		mfs_arena_array(r->arena, r->notes.count + 1, sizeof(*notes));

	if (!aliases || !notes)
		return mfs_fail_nomem(r->err);
	for (size_t i = 0; i < r->aliases.count; i++) {
		memcpy(&aliases[i], r->aliases.at[i].row, sizeof(*aliases));
		if (!has_key(r, aliases[i].key))
			return mfs_fail(r->err, -EINVAL, "%s: [aliases]: [config] has no '%s'",
					r->file, aliases[i].key);
	}
	for (size_t i = 0; i < r->notes.count; i++)
		memcpy(&notes[i], r->notes.at[i].row, sizeof(*notes));
	for (size_t i = 0; i < r->defaults.count && !r->language; i++)
		if (!has_key(r, r->defaults.at[i].key))
			return mfs_fail(r->err, -EINVAL, "%s: [defaults]: [config] has no '%s'",
					r->file, r->defaults.at[i].key);
	r->family->aliases = aliases;
	r->family->notes = notes;
	return settle_defaults(r);
}

static bool has_embedding(const struct mfs_family *f)
{
	for (const struct mfs_family_tensor *row = f->tensors; row->hf; row++)
		if (!strcmp(row->name, "embedding.word_embeddings.weight"))
			return true;
	return false;
}

static int settle(struct mfs_family_reader *r)
{
	struct mfs_family *f = r->family;
	int rc;

	f->optional &= ~f->required;
	if (!f->name)
		return mfs_fail(r->err, -EINVAL, "%s: [family] has no 'name'", r->file);
	if (f->architecture &&
	    (!f->model_type || (!f->layer_prefix && !f->impossible && !r->language)))
		return mfs_fail(r->err, -EINVAL, "%s: [family] has no '%s'", r->file,
				f->model_type ? "layers" : "model_type");
	if (f->norms_minus_one && !(f->required & MFS_HAS(ZERO_CENTERED)))
		return mfs_fail(r->err, -EINVAL, "%s: norms are weight - 1, expected %s", r->file,
				"that it requires zero-centered");
	if (f->impossible && (!f->architecture || r->tensors.count))
		return mfs_fail(r->err, -EINVAL, "%s: impossible, expected %s", r->file,
				"an architecture, and no tensors");
	rc = r->language ? mfs_family_settle_language(r) : 0;
	if (!rc)
		rc = mfs_family_settle_tensors(r);
	if (!rc)
		rc = mfs_family_settle_fused(r);
	if (!rc)
		rc = mfs_family_settle_config(r);
	if (!rc)
		rc = settle_small(r);
	if (!rc && f->architecture && mfs_family_has_models(f) && !has_embedding(f))
		rc = mfs_fail(r->err, -EINVAL, "%s: no tensor is made of %s", r->file,
			      "embedding.word_embeddings.weight");
	return rc;
}

static int read_lines(struct mfs_family_reader *r, const char *bytes, size_t len)
{
	struct mfs_conf_line *lines;
	size_t count;
	int rc = mfs_conf_parse(r->file, bytes, len, r->arena, &lines, &count, r->err);

	for (size_t i = 0; i < count && !rc; i++) {
		rc = read_line(r, &lines[i]);
		if (rc)
			mfs_fail_in(r->err, "%s:%u", r->file, lines[i].number);
	}
	return rc ? rc : settle(r);
}

int mfs_family_read(const char *file, const char *bytes, size_t len, mfs_find_base find, void *arg,
		    struct mfs_arena *arena, struct mfs_family **ret, struct mfs_error *err)
{
	struct mfs_family_reader r = {
		.file = file, .find = find, .arg = arg, .arena = arena, .err = err};
	struct mfs_family_rows *const lists[] = {
		&r.tensors,  &r.config,		&r.aliases, &r.notes, &r.defaults,
		&r.hf_names, &r.megatron_names, &r.fused,   &r.vllm,  &r.sglang};
	int rc;

	r.family = mfs_arena_alloc(arena, sizeof(*r.family));
	if (!r.family)
		return mfs_fail_nomem(err);
	r.family->file = file;
	r.family->order = 100;
	rc = read_lines(&r, bytes, len);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(lists); i++)
		free(lists[i]->at);
	if (!rc)
		*ret = r.family;
	return rc;
}
