/* The sections of a vision-language family: where its language model is. */
#include <errno.h>
#include <string.h>

#include "formats/model/families/read_i.h"

static struct mfs_language *language(struct mfs_family_reader *r)
{
	if (!r->language) {
		r->language = mfs_arena_alloc(r->arena, sizeof(*r->language));
		if (r->language)
			*r->language = (struct mfs_language){.config = "text_config"};
	}
	return r->language;
}

/* ---- [language] ---- */

/* "a, b": families that there are, and that are no vision-language ones. */
static int check_families(struct mfs_family_reader *r, const char *value)
{
	char name[64];

	while (*value) {
		const size_t len = strcspn(value, ", ");
		const struct mfs_family *f = NULL;

		if (len < sizeof(name)) {
			memcpy(name, value, len);
			name[len] = '\0';
			f = r->find(name, r->arg);
		}
		if (!f || !f->architecture || !mfs_family_has_models(f))
			return mfs_fail(r->err, -EINVAL,
					"family '%.*s': there is no such family of text",
					len < 60 ? (int)len : 60, value);
		value += len;
		value += strspn(value, ", ");
	}
	return 0;
}

static int read_family(struct mfs_family_reader *r, const char *value)
{
	struct mfs_ckpt_part *part = &r->language->part;

	part->shown = value;
	part->only = strpbrk(value, ", ") ? NULL : value;
	return check_families(r, value);
}

/* "text_config", "text_config or the whole" */
static int read_config(struct mfs_family_reader *r, const char *value)
{
	const char *end = strchr(value, ' ');

	r->language->whole = end && !strcmp(end, " or the whole");
	if (end && !r->language->whole)
		return mfs_fail(r->err, -EINVAL, "config '%.60s', expected KEY or KEY or the whole",
				value);
	r->language->config =
		mfs_arena_strndup(r->arena, value, end ? (size_t)(end - value) : strlen(value));
	return r->language->config ? 0 : mfs_fail_nomem(r->err);
}

int mfs_family_read_language(struct mfs_family_reader *r, const struct mfs_conf_line *line)
{
	if (!language(r))
		return mfs_fail_nomem(r->err);
	if (!*line->value)
		return mfs_fail(r->err, -EINVAL, "'%.60s' has no value", line->key);
	if (!strcmp(line->key, "family"))
		return read_family(r, line->value);
	if (!strcmp(line->key, "config"))
		return read_config(r, line->value);
	if (strcmp(line->key, "positions") != 0)
		return mfs_fail(r->err, -EINVAL,
				"'%.60s' is no key of [language], expected family, config or "
				"positions",
				line->key);
	r->language->part.mrope = !strcmp(line->value, "mrope");
	return r->language->part.mrope ? 0
				       : mfs_fail(r->err, -EINVAL,
						  "positions '%.60s', expected mrope", line->value);
}

/* ---- names ---- */

static int read_name(struct mfs_family_reader *r, const struct mfs_conf_line *line,
		     struct mfs_family_rows *rows)
{
	if (!language(r))
		return mfs_fail_nomem(r->err);
	if (rows->count == MFS_PREFIXES_MAX)
		return mfs_fail(r->err, -EINVAL, "more than %d names", MFS_PREFIXES_MAX);
	if (!*line->value || strpbrk(line->value, " \t"))
		return mfs_fail(r->err, -EINVAL,
				"'%.60s', expected what such names begin with, or none",
				line->value);
	return mfs_family_put(r, rows, 0, line->key, line->value, true);
}

int mfs_family_read_hf_name(struct mfs_family_reader *r, const struct mfs_conf_line *line)
{
	return read_name(r, line, &r->hf_names);
}

int mfs_family_read_megatron_name(struct mfs_family_reader *r, const struct mfs_conf_line *line)
{
	return read_name(r, line, &r->megatron_names);
}

/* ---- the whole ---- */

/* NULL: no memory. */
static const struct mfs_prefix *table(struct mfs_family_reader *r,
				      const struct mfs_family_rows *rows)
{
	struct mfs_prefix *list = mfs_arena_array(r->arena, rows->count + 1, sizeof(*list));

	for (size_t i = 0; i < rows->count && list; i++) {
		const char *to = rows->at[i].row;

		list[i].from = rows->at[i].key;
		list[i].to = strcmp(to, "none") ? to : NULL;
	}
	return list;
}

/* The language model is made of modules of its family's class, not of the whole model's. */
static int name_provider(struct mfs_family_reader *r)
{
	struct mfs_ckpt_part *part = &r->language->part;
	const struct mfs_family *f = part->only ? r->find(part->only, r->arg) : NULL;

	if (!f || !f->providers || !(f->required & MFS_HAS(OWN_MODULES)))
		return 0;
	part->provider = mfs_arena_printf(r->arena, "%.*sModelProvider",
					  (int)strcspn(f->providers, ", "), f->providers);
	return part->provider ? 0 : -ENOMEM;
}

int mfs_family_settle_language(struct mfs_family_reader *r)
{
	struct mfs_family *f = r->family;
	struct mfs_language *l = r->language;

	if (!f->architecture || f->impossible || f->required || f->optional || r->tensors.count ||
	    r->config.count)
		return mfs_fail(r->err, -EINVAL,
				"%s: [language], expected an architecture, and neither features "
				"nor tensors nor keys: these are those of its family",
				r->file);
	if (!l->part.shown || !(r->hf_names.count + r->megatron_names.count))
		return mfs_fail(r->err, -EINVAL, "%s: [language] has no %s", r->file,
				l->part.shown ? "names: [language hf] or [language megatron]"
					      : "'family'");
	l->part.family = f->name;
	if (name_provider(r))
		return mfs_fail_nomem(r->err);
	l->hf = table(r, &r->hf_names);
	l->part.names = table(r, &r->megatron_names);
	f->language = l;
	return l->hf && l->part.names ? 0 : mfs_fail_nomem(r->err);
}
