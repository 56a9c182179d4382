#include "formats/text/tables/table_text.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "formats/base/array.h"
#include "formats/text/arrow/arrow_text.h"
#include "formats/text/parquet/parquet_text.h"

struct mfs_table_text {
	const struct mfs_table_ops *kind;
	void *table;
};

static const struct mfs_table_ops *const kinds[] = {&mfs_parquet_table, &mfs_arrow_table};

const struct mfs_table_ops *mfs_table_ops_of(const uint8_t *first, size_t len)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(kinds); i++)
		if (kinds[i]->is(first, len))
			return kinds[i];
	return NULL;
}

int mfs_table_text_open(const struct mfs_table_ops *kind, int fd, const char *name,
			const struct mfs_table_want *want, struct mfs_table_text **ret,
			struct mfs_error *err)
{
	struct mfs_table_text *t;
	struct mfs_source src;
	struct stat st;
	int rc;

	if (fstat(fd, &st))
		return mfs_fail_errno(err, "cannot read %s", name);
	t = calloc(1, sizeof(*t));
	if (!t)
		return mfs_fail_nomem(err);
	t->kind = kind;
	src = mfs_source_fd(fd, (uint64_t)st.st_size, name);
	rc = kind->open(&src, want, &t->table, err);
	if (rc)
		free(t);
	else
		*ret = t;
	return rc;
}

void mfs_table_text_free(struct mfs_table_text *t)
{
	if (!t)
		return;
	t->kind->free(t->table);
	free(t);
}

int mfs_table_text_next(struct mfs_table_text *t, struct mfs_buf *to, bool *ret_end,
			struct mfs_error *err)
{
	return t->kind->next(t->table, to, ret_end, err);
}
