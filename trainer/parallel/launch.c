#include "trainer/parallel/launch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "formats/base/array.h"

struct launcher {
	const char *by, *rank, *size, *local_rank, *local_size;
	const char *also; /* must be there, too; NULL: nothing */
};

static const struct launcher launchers[] = {
	{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
	 "OMPI_COMM_WORLD_LOCAL_SIZE", NULL},
	{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", NULL},
	/* A batch script has the variables of the whole job, and is one process. */
	{"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL, "SLURM_STEP_ID"},
};

/* missing: what it is where the variable is not there. */
static int take(const char *name, uint32_t missing, uint32_t *ret, struct mfs_error *err)
{
	const char *text = name ? getenv(name) : NULL;
	unsigned long value;
	char *end;

	*ret = missing;
	if (!text)
		return 0;
	errno = 0;
	value = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || value > INT32_MAX)
		return mfs_fail(err, -EINVAL, "%s: expected a number, found '%.40s'", name, text);
	*ret = (uint32_t)value;
	return 0;
}

static int read_launcher(const struct launcher *l, struct mft_launch *ret, struct mfs_error *err)
{
	int rc = take(l->rank, 0, &ret->rank, err);

	if (!rc)
		rc = take(l->size, 1, &ret->size, err);
	if (!rc)
		rc = take(l->local_rank, ret->rank, &ret->local_rank, err);
	if (!rc)
		rc = take(l->local_size, ret->size, &ret->local_size, err);
	if (rc)
		return rc;
	if (ret->rank >= ret->size)
		return mfs_fail(err, -EINVAL, "%s: expected less than %s, which is %u, found %u",
				l->rank, l->size, ret->size, ret->rank);
	ret->by = l->by;
	return 0;
}

int mft_launch_find(struct mft_launch *ret, struct mfs_error *err)
{
	*ret = (struct mft_launch){.size = 1, .local_size = 1};
	/* A name that is too long is cut. */
	gethostname(ret->host, sizeof(ret->host) - 1);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(launchers); i++) {
		const struct launcher *l = &launchers[i];

		if (getenv(l->rank) && getenv(l->size) && (!l->also || getenv(l->also)))
			return read_launcher(l, ret, err);
	}
	return 0;
}

const char *mft_launch_who(const struct mft_launch *launch, char text[MFT_LAUNCH_WHO])
{
	text[0] = '\0';
	if (launch->size > 1)
		snprintf(text, MFT_LAUNCH_WHO, "rank %u on %s: ", launch->rank, launch->host);
	return text;
}
