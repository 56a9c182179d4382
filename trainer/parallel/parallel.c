#include "trainer/parallel/parallel.h"

#include <errno.h>
#include <stdlib.h>

void mfs_parallel_one(struct mfs_parallel *ret)
{
	*ret = (struct mfs_parallel){.launch = {.size = 1, .local_size = 1}};
	for (int g = 0; g < MFS_GROUP_COUNT; g++)
		ret->group[g] = (struct mfs_group_place){.rank = 0, .size = 1};
}

static int check(int rc, const char *why, const struct mfs_parallel *p, struct mfs_error *err)
{
	return rc ? mfs_fail(err, rc, "%s: %s", p->ops->name, why) : 0;
}

/* The ranks of the world of one color are a group. */
static int open_group(struct mfs_parallel *p, enum mfs_group g, uint32_t color,
		      struct mfs_error *err)
{
	struct mfs_group_place *place = &p->group[g];
	char why[MFK_WHY];

	if (place->size == 1)
		return 0;
	return check(p->ops->split(p->group[MFS_GROUP_WORLD].comm, color, place->rank, &place->comm,
				   why),
		     why, p, err);
}

int mfs_parallel_open(const struct mfs_launch *launch, const struct mfk_backend *backend,
		      struct mfk_device *device, struct mfs_parallel *ret, struct mfs_error *err)
{
	const struct mfk_world world = {launch->rank, launch->size};
	char why[MFK_WHY];
	int rc;

	mfs_parallel_one(ret);
	ret->launch = *launch;
	ret->group[MFS_GROUP_WORLD].rank = ret->group[MFS_GROUP_DATA].rank = launch->rank;
	ret->group[MFS_GROUP_WORLD].size = ret->group[MFS_GROUP_DATA].size = launch->size;
	if (launch->size == 1 || !device)
		return 0;
	if (!backend->comm)
		return mfs_fail(err, -ENOTSUP,
				"%s started %u processes, and --backend %s trains with one; use "
				"--backend cpu",
				launch->by, launch->size, backend->name);
	ret->ops = backend->comm;
	rc = check(ret->ops->world(device, &world, &ret->group[MFS_GROUP_WORLD].comm, why), why,
		   ret, err);
	return rc ? rc : open_group(ret, MFS_GROUP_DATA, 0, err);
}

void mfs_parallel_close(struct mfs_parallel *p)
{
	for (int g = MFS_GROUP_COUNT; g-- > 0;) {
		if (p->group[g].comm)
			p->ops->free(p->group[g].comm);
		p->group[g].comm = NULL;
	}
}

void mfs_parallel_end_all(const struct mfs_parallel *p, int code)
{
	if (p->group[MFS_GROUP_WORLD].comm)
		p->ops->end_all(code);
}

void mfs_parallel_all_reduce(const struct mfs_parallel *p, enum mfs_group g, struct mfk_ctx *c,
			     enum mfk_dtype dtype, void *data, uint64_t count)
{
	if (p->group[g].comm)
		p->ops->all_reduce(c, p->group[g].comm, dtype, data, (int64_t)count);
}

int mfs_parallel_sum(const struct mfs_parallel *p, enum mfs_group g, double *values, unsigned count,
		     struct mfs_error *err)
{
	char why[MFK_WHY];

	if (!p->group[g].comm)
		return 0;
	return check(p->ops->host_sum(p->group[g].comm, values, count, why), why, p, err);
}

static int sum_on_host(const struct mfs_parallel *p, enum mfs_group g,
		       const struct mfk_device_ops *device, struct mfk_ctx *c, int32_t *counts,
		       uint32_t count, int32_t *host, double *sums, struct mfs_error *err)
{
	char why[MFK_WHY];
	int rc;

	device->copy_out(c, host, counts, count * sizeof(*host));
	rc = check(device->sync(c, why), why, p, err);
	for (uint32_t i = 0; i < count && !rc; i++)
		sums[i] = host[i];
	if (!rc)
		rc = mfs_parallel_sum(p, g, sums, count, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < count; i++)
		host[i] = (int32_t)sums[i];
	device->copy_in(c, counts, host, count * sizeof(*host));
	return check(device->sync(c, why), why, p, err); /* host memory is about to go */
}

int mfs_parallel_sum_counts(const struct mfs_parallel *p, enum mfs_group g,
			    const struct mfk_device_ops *device, struct mfk_ctx *c, int32_t *counts,
			    uint32_t count, struct mfs_error *err)
{
	int32_t *host;
	double *sums;
	int rc;

	if (!p->group[g].comm)
		return 0;
	host = calloc(count, sizeof(*host));
	sums = calloc(count, sizeof(*sums));
	rc = host && sums ? sum_on_host(p, g, device, c, counts, count, host, sums, err)
			  : mfs_fail_nomem(err);
	free(host);
	free(sums);
	return rc;
}
