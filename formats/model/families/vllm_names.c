/* The sections of what classes of vLLM and SGLang call their parameters. */
#include <errno.h>
#include <string.h>

#include "formats/model/families/read_i.h"

#define CACHE "cache" /* the key of the module that has the scales of an 8-bit cache */

/* NAME {"," FLAG} [CONDITIONS] */
static int read_name(struct mfs_family_reader *r, struct mfs_words *w, struct mfs_vllm_name *row)
{
	row->name = w->at[w->next];
	if (!row->name || strpbrk(row->name, "{},"))
		return mfs_fail(r->err, -EINVAL, "expected the engine's name, without an expert");
	w->next++;
	for (size_t at = w->next; mfs_words_take(w, ","); at = w->next) {
		if (mfs_words_take(w, "float32")) {
			row->f32 = true;
		} else if (mfs_words_take(w, "rows")) {
			row->rows = true;
		} else if (mfs_words_take(w, "heads")) {
			row->heads = true;
		} else {
			w->next = at;
			break;
		}
	}
	return mfs_words_conditions(w, &row->when, &row->unless, r->err);
}

static int read_row(struct mfs_family_reader *r, struct mfs_family_rows *names,
		    const struct mfs_conf_line *line)
{
	struct mfs_vllm_name *row = mfs_arena_alloc(r->arena, sizeof(*row));
	struct mfs_words w;
	int rc;

	if (!row)
		return mfs_fail_nomem(r->err);
	if (!strcmp(line->value, "none"))
		return mfs_family_drop(r, names, 0, line->key);
	*row = (struct mfs_vllm_name){.hf = line->key};
	rc = mfs_words_split(line->value, r->arena, &w, r->err);
	if (!rc)
		rc = read_name(r, &w, row);
	return rc ? rc : mfs_family_put(r, names, 0, line->key, row, true);
}

int mfs_family_read_vllm(struct mfs_family_reader *r, const struct mfs_conf_line *line)
{
	return read_row(r, &r->vllm, line);
}

int mfs_family_read_sglang(struct mfs_family_reader *r, const struct mfs_conf_line *line)
{
	return read_row(r, &r->sglang, line);
}

/* Whether a tensor of the family has the name. */
static bool give(struct mfs_family_tensor *rows, const struct mfs_vllm_name *name, bool sglang)
{
	bool found = false;

	for (struct mfs_family_tensor *row = rows; row->hf; row++) {
		if (strcmp(row->hf, name->hf))
			continue;
		*(sglang ? &row->sglang : &row->vllm) = name;
		found = true;
	}
	return found;
}

/* Gives the names of one section to tensors; *ret: all of these. */
static int give_all(struct mfs_family_reader *r, struct mfs_family_tensor *rows, bool sglang,
		    const struct mfs_vllm_name **ret)
{
	const struct mfs_family_rows *of = sglang ? &r->sglang : &r->vllm;
	struct mfs_vllm_name *names = mfs_arena_array(r->arena, of->count + 1, sizeof(*names));

	if (!names)
		return mfs_fail_nomem(r->err);
	*ret = names;
	for (size_t i = 0; i < of->count; i++) {
		memcpy(&names[i], of->at[i].row, sizeof(*names));
		if (!strcmp(names[i].hf, CACHE) && !sglang)
			r->family->vllm_cache = names[i].name;
		else if (!give(rows, &names[i], sglang) && of->at[i].own)
			return mfs_fail(r->err, -EINVAL, "%s: [%s]: there is no tensor '%s'",
					r->file, sglang ? "sglang" : "vllm", names[i].hf);
	}
	return 0;
}

/* rows: the family's own, in which the base's names are not its own. */
int mfs_family_settle_vllm(struct mfs_family_reader *r, struct mfs_family_tensor *rows)
{
	int rc;

	for (struct mfs_family_tensor *row = rows; row->hf; row++)
		row->vllm = row->sglang = NULL;
	rc = give_all(r, rows, false, &r->family->vllm_names);
	return rc ? rc : give_all(r, rows, true, &r->family->sglang_names);
}
