#include "fs/view/kind.h"

#include <string.h>

#include "formats/base/buf.h"

const struct mfs_view_table mfs_ckpt_views = {MFS_CKPT_VIEWS(MFS_VIEW_COUNT),
					      {MFS_CKPT_VIEWS(MFS_VIEW_LIST)}};

/* True if rest, the part after a kind's name, is one name or empty. */
static bool is_spec(const char *rest)
{
	return *rest && !strchr(rest, '/');
}

const struct mfs_view_kind *mfs_view_kind_find(const struct mfs_view_table *table, unsigned of,
					       const char *name, const char **ret_spec)
{
	for (unsigned i = 0; i < table->count; i++) {
		const struct mfs_view_kind *k = table->kinds[i];
		const size_t len = strlen(k->name);

		if (!(k->of & of) || strncmp(name, k->name, len))
			continue;
		if (!name[len] || (k->spec && name[len] == '/' && is_spec(name + len + 1))) {
			*ret_spec = name + len + (name[len] == '/');
			return k;
		}
	}
	return NULL;
}

bool mfs_view_kind_is_group(const struct mfs_view_table *table, unsigned of, const char *name)
{
	const size_t len = strlen(name);

	for (unsigned i = 0; len && i < table->count; i++)
		if (table->kinds[i]->of & of && !strncmp(table->kinds[i]->name, name, len) &&
		    table->kinds[i]->name[len] == '/')
			return true;
	return !len;
}

void mfs_view_kind_names(const struct mfs_view_table *table, unsigned of, struct mfs_buf *ret)
{
	const char *between = "";

	for (unsigned i = 0; i < table->count; i++) {
		const struct mfs_view_kind *k = table->kinds[i];

		if (!(k->of & of))
			continue;
		mfs_buf_printf(ret, "%s%s", between, k->name);
		if (k->spec)
			mfs_buf_printf(ret, "/%s (or another)", k->spec);
		between = ", ";
	}
}
