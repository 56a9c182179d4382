/* A row of a dataset, of what is open of it. */
#include <errno.h>

#include "fs/data/data.h"
#include "fs/gateway/repos/facts.h"
#include "fs/gateway/repos/repos_i.h"

int mfs_repos_show_row(struct mfs_repos *repos, const char *name, uint64_t row,
		       struct mfs_buf *text, struct mfs_row_fact *ret, struct mfs_error *err)
{
	enum mfs_absent_kind absent;
	struct mfs_dataset_row found = {0};
	const struct mfs_dataset *d;
	struct mfs_revision r;
	int rc = mfs_repos_hold(repos, MFS_REPO_DATASET, name, "main", &r, &absent, err);

	if (rc)
		return rc;
	d = mfs_revision_dataset(&r);
	rc = d ? mfs_dataset_show_row(d, row, MFS_FACT_TOKENS, text, &found, err)
	       : mfs_fail(err, -ENODATA, "%s is no dataset", name);
	*ret = (struct mfs_row_fact){.rows = found.rows,
				     .row = found.row,
				     .tokens = found.tokens,
				     .shown = found.shown,
				     .is_text = found.is_text,
				     .why_ids = found.why_ids};
	mfs_revision_drop(&r);
	return rc;
}
