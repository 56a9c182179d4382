/* The section of what vLLM's class calls its parameters. */
#include <errno.h>
#include <string.h>

#include "formats/model/families/read_i.h"

#define CACHE "cache" /* the key of the module that has the scales of an 8-bit cache */

/* NAME {"," FLAG} [CONDITIONS] */
static int read_name(struct mfs_family_reader *r, struct mfs_words *w, struct mfs_vllm_name *row)
{
	row->vllm = w->at[w->next];
	if (!row->vllm || strpbrk(row->vllm, "{},"))
		return mfs_fail(r->err, -EINVAL, "expected vLLM's name, without an expert");
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

int mfs_family_read_vllm(struct mfs_family_reader *r, const struct mfs_conf_line *line)
{
	struct mfs_vllm_name *row = mfs_arena_alloc(r->arena, sizeof(*row));
	struct mfs_words w;
	int rc;

	if (!row)
		return mfs_fail_nomem(r->err);
	if (!strcmp(line->value, "none"))
		return mfs_family_drop(r, &r->vllm, 0, line->key);
	*row = (struct mfs_vllm_name){.hf = line->key};
	rc = mfs_words_split(line->value, r->arena, &w, r->err);
	if (!rc)
		rc = read_name(r, &w, row);
	return rc ? rc : mfs_family_put(r, &r->vllm, 0, line->key, row, true);
}

/* Whether a tensor of the family has the name. */
static bool give(struct mfs_family_tensor *rows, const struct mfs_vllm_name *name)
{
	bool found = false;

	for (struct mfs_family_tensor *row = rows; row->hf; row++) {
		if (strcmp(row->hf, name->hf))
			continue;
		row->vllm = name;
		found = true;
	}
	return found;
}

/* rows: the family's own, in which the base's names are not its own. */
static int give_all(struct mfs_family_reader *r, struct mfs_family_tensor *rows,
		    const struct mfs_vllm_name *names)
{
	for (struct mfs_family_tensor *row = rows; row->hf; row++)
		row->vllm = NULL;
	for (size_t i = 0; i < r->vllm.count; i++) {
		if (!strcmp(names[i].hf, CACHE))
			r->family->vllm_cache = names[i].vllm;
		else if (!give(rows, &names[i]) && r->vllm.at[i].own)
			return mfs_fail(r->err, -EINVAL, "%s: [vllm]: there is no tensor '%s'",
					r->file, names[i].hf);
	}
	return 0;
}

int mfs_family_settle_vllm(struct mfs_family_reader *r, struct mfs_family_tensor *rows)
{
	struct mfs_vllm_name *names = mfs_arena_array(r->arena, r->vllm.count + 1, sizeof(*names));

	if (!names)
		return mfs_fail_nomem(r->err);
	for (size_t i = 0; i < r->vllm.count; i++)
		memcpy(&names[i], r->vllm.at[i].row, sizeof(*names));
	r->family->vllm_names = names;
	return give_all(r, rows, names);
}
