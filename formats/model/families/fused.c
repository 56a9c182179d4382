/* The section of tensors that files may have in the place of several others. */
#include <errno.h>
#include <string.h>

#include "formats/base/str.h"
#include "formats/model/families/read_i.h"

static int check_part(struct mfs_family_reader *r, const char *name)
{
	const char *hole = name ? strstr(name, "{e}") : NULL;

	if (hole && !strpbrk(hole + 3, "{}") && !memchr(name, '{', (size_t)(hole - name)))
		return 0;
	return mfs_fail(r->err, -EINVAL, "'%.80s', expected a tensor of each expert, with {e} once",
			name ? name : "");
}

/* PART {"and" PART} ["," "or" "transposed"] */
static int read_parts(struct mfs_family_reader *r, struct mfs_words *w, struct mfs_fused *row)
{
	int rc = 0;

	do {
		if (row->count == MFS_FUSED_PARTS)
			return mfs_fail(r->err, -EINVAL, "more than %d parts", MFS_FUSED_PARTS);
		rc = check_part(r, w->at[w->next]);
		if (!rc)
			row->to[row->count++] = w->at[w->next++];
	} while (!rc && mfs_words_take(w, "and"));
	if (rc)
		return rc;
	row->transposed = mfs_words_take(w, ",");
	if (row->transposed && (!mfs_words_take(w, "or") || !mfs_words_take(w, "transposed")))
		rc = -EINVAL;
	return !rc && !w->at[w->next]
		       ? 0
		       : mfs_fail(r->err, -EINVAL, "expected parts, and perhaps ', or transposed'");
}

int mfs_family_read_fused(struct mfs_family_reader *r, const struct mfs_conf_line *line)
{
	struct mfs_fused *row = mfs_arena_alloc(r->arena, sizeof(*row));
	struct mfs_words w;
	int rc;

	if (!row)
		return mfs_fail_nomem(r->err);
	*row = (struct mfs_fused){.from = line->key};
	if (strpbrk(line->key, "{} \t"))
		return mfs_fail(r->err, -EINVAL, "'%.60s', expected one tensor of all experts",
				line->key);
	rc = mfs_words_split(line->value, r->arena, &w, r->err);
	if (!rc)
		rc = read_parts(r, &w, row);
	return rc ? rc : mfs_family_put(r, &r->fused, 0, line->key, row, true);
}

int mfs_family_settle_fused(struct mfs_family_reader *r)
{
	struct mfs_fused *rows = mfs_arena_array(r->arena, r->fused.count + 1, sizeof(*rows));

	if (!rows)
		return mfs_fail_nomem(r->err);
	for (size_t i = 0; i < r->fused.count; i++)
		memcpy(&rows[i], r->fused.at[i].row, sizeof(*rows));
	r->family->fused = rows;
	return 0;
}
