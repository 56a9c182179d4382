#include "fs/source/view_owner.h"

#include "fs/data/data.h"
#include "fs/source/root.h"

static int iteration_hold(void *object, const char *name, struct mfs_held **ret,
			  struct mfs_view **ret_view, struct mfs_error *err)
{
	return mfs_iteration_hold_view(object, name, ret, ret_view, err);
}

static int iteration_check(void *object, const char *name, struct mfs_error *err)
{
	return mfs_iteration_check_view(object, name, err);
}

/* There is one such directory. */
static int iteration_list(void *object, const char *dir, const char *const **ret,
			  uint32_t *ret_count, struct mfs_error *err)
{
	(void)dir;
	return mfs_iteration_layouts(object, ret, ret_count, err);
}

static int dataset_hold(void *object, const char *name, struct mfs_held **ret,
			struct mfs_view **ret_view, struct mfs_error *err)
{
	return mfs_dataset_hold_view(object, name, ret, ret_view, err);
}

static int dataset_check(void *object, const char *name, struct mfs_error *err)
{
	return mfs_dataset_check_view(object, name, err);
}

static int dataset_list(void *object, const char *dir, const char *const **ret, uint32_t *ret_count,
			struct mfs_error *err)
{
	return mfs_dataset_list(object, dir, ret, ret_count, err);
}

const struct mfs_view_owner mfs_iteration_views = {iteration_hold, iteration_check, iteration_list};
const struct mfs_view_owner mfs_dataset_views = {dataset_hold, dataset_check, dataset_list};
