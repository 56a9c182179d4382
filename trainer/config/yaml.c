#include "trainer/config/yaml.h"
int mfs_yaml_read(const char *path, struct mfs_flag_values *v, struct mfs_arena *arena,
		  struct mfs_error *err)
{
	(void)v, (void)arena;
	return mfs_fail(err, -ENOTSUP, "%s: no YAML yet", path);
}
