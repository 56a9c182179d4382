#include "formats/base/prefixes.h"

#include <stdio.h>
#include <string.h>

const struct mfs_prefix *mfs_prefix_find(const struct mfs_prefix *table, const char *name)
{
	const struct mfs_prefix *best = NULL;
	size_t longest = 0;

	for (; table->from; table++) {
		const size_t len = strlen(table->from);

		if (len <= longest || strncmp(name, table->from, len) != 0)
			continue;
		longest = len;
		best = table;
	}
	return best;
}

const struct mfs_prefix *mfs_prefixes_see(struct mfs_prefixes *seen, const char *name)
{
	const struct mfs_prefix *p = mfs_prefix_find(seen->table, name);

	seen->all++;
	if (p)
		seen->used |= 1ull << (p - seen->table);
	if (!p || !p->to)
		seen->others++;
	return p;
}

static bool is_used(const struct mfs_prefixes *seen, const struct mfs_prefix *p)
{
	return p->to && seen->used >> (p - seen->table) & 1;
}

bool mfs_prefixes_clash(const struct mfs_prefixes *seen, const struct mfs_prefix **ret_a,
			const struct mfs_prefix **ret_b)
{
	for (const struct mfs_prefix *a = seen->table; a->from; a++)
		for (const struct mfs_prefix *b = a + 1; b->from; b++)
			if (is_used(seen, a) && is_used(seen, b) && !strcmp(a->to, b->to)) {
				*ret_a = a;
				*ret_b = b;
				return true;
			}
	return false;
}

size_t mfs_prefix_replace(const struct mfs_prefix *prefix, const char *name, char *text,
			  size_t size)
{
	const int len = snprintf(text, size, "%s%s", prefix->to, name + strlen(prefix->from));

	return len < 0 ? 0 : (size_t)len;
}
