/* Groups of processes on CPUs: MPI, and what it has no type for. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/mpi/mpi.h"
#include "kernels/ref/cpu.h"
#include "kernels/ref/ref_i.h"

/* Elements of a 16-bit type that are exchanged in one go. */
#define GATHERED (INT64_C(1) << 20)

struct mfk_comm {
	void *mpi;
	void *gathered; /* [size][GATHERED] of a 16-bit type; NULL until it is needed */
	float *sum;	/* [2][GATHERED] */
};

static const struct mfk_mpi_ops *mpi; /* the plugin; NULL: not loaded */

int mfk_mpi_load(const char *path, char *why)
{
	void *plugin;

	if (access(path, F_OK)) {
		snprintf(why, MFK_WHY, "%.180s: %s", path, strerror(errno));
		return -ENOENT;
	}
	/* MPI opens plugins of its own, which look for its symbols. */
	plugin = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (plugin)
		mpi = dlsym(plugin, "mfk_mpi_plugin");
	if (!mpi) {
		snprintf(why, MFK_WHY, "%.240s", dlerror());
		return -ENODEV;
	}
	return 0;
}

static int comm_new(void *from, unsigned color, unsigned key, struct mfk_comm **ret, char *why)
{
	struct mfk_comm *g = calloc(1, sizeof(*g));
	int rc;

	if (!g) {
		snprintf(why, MFK_WHY, "no memory for a group");
		return -ENOMEM;
	}
	rc = mpi->split(from, color, key, &g->mpi, why);
	if (rc)
		free(g);
	else
		*ret = g;
	return rc;
}

/* Those that are open: MPI ends with the last one. One thread opens and frees them. */
static unsigned open_count;

static int comm_world(struct mfk_device *d, const struct mfk_world *w, struct mfk_comm **ret,
		      char *why)
{
	struct mfk_world found;
	int rc;

	(void)d;
	if (!mpi) {
		snprintf(why, MFK_WHY, "MPI was not loaded");
		return -ENODEV;
	}
	rc = mpi->begin(&found, why);
	if (rc)
		return rc;
	if (found.rank != w->rank || found.size != w->size) {
		snprintf(why, MFK_WHY,
			 "MPI says rank %u of %u, expected %u of %u; start the processes with "
			 "mpirun",
			 found.rank, found.size, w->rank, w->size);
		return -EINVAL;
	}
	rc = comm_new(NULL, 0, w->rank, ret, why);
	open_count += !rc;
	return rc;
}

static int comm_split(struct mfk_comm *from, unsigned color, unsigned key, struct mfk_comm **ret,
		      char *why)
{
	const int rc = comm_new(from->mpi, color, key, ret, why);

	open_count += !rc;
	return rc;
}

static void comm_free(struct mfk_comm *g)
{
	mpi->free(g->mpi);
	free(g->gathered);
	free(g->sum);
	free(g);
	if (!--open_count)
		mpi->end();
}

static void comm_end_all(int code)
{
	mpi->end_all(code);
}

/* ---- types that MPI does not have ---- */

static int make_room(struct mfk_comm *g)
{
	if (!g->gathered)
		g->gathered = malloc(mpi->size(g->mpi) * (size_t)GATHERED * 2);
	if (!g->sum)
		g->sum = malloc(2 * (size_t)GATHERED * sizeof(*g->sum));
	return g->gathered && g->sum ? 0 : -ENOMEM;
}

static float greater(float a, float b)
{
	return a > b || a != a ? a : b;
}

/* What all ranks have of one piece, put together in their order. */
static void join_ranks(struct mfk_comm *g, enum mfk_reduce op, enum mfk_dtype dtype, void *ret,
		       int64_t n)
{
	float *sum = g->sum, *one = g->sum + GATHERED;

	mfk_to_f32(dtype, g->gathered, n, sum);
	for (unsigned rank = 1; rank < mpi->size(g->mpi); rank++) {
		mfk_to_f32(dtype, mfk_at(dtype, g->gathered, rank * n), n, one);
		for (int64_t i = 0; i < n; i++)
			sum[i] = op == MFK_MAX ? greater(sum[i], one[i]) : sum[i] + one[i];
	}
	mfk_from_f32(dtype, sum, n, ret);
}

static int reduce_rounded(struct mfk_comm *g, enum mfk_reduce op, enum mfk_dtype dtype, void *data,
			  int64_t count, char *why)
{
	if (make_room(g)) {
		snprintf(why, MFK_WHY, "no memory to add up what the processes have");
		return -ENOMEM;
	}
	for (int64_t done = 0; done < count; done += GATHERED) {
		const int64_t n = count - done < GATHERED ? count - done : GATHERED;
		void *at = mfk_at(dtype, data, done);
		const int rc = mpi->gather(g->mpi, g->gathered, at,
					   n * (int64_t)mfk_dtype_size(dtype), why);

		if (rc)
			return rc;
		join_ranks(g, op, dtype, at, n);
	}
	return 0;
}

/* ---- operations: the others wait for one that has failed, too ---- */

static void comm_all_reduce(struct mfk_ctx *c, struct mfk_comm *g, enum mfk_reduce op,
			    enum mfk_dtype dtype, void *data, int64_t count)
{
	char why[MFK_WHY];

	if (mfk_is_exact(dtype) ? mpi->reduce_f32(g->mpi, op, data, count, why)
				: reduce_rounded(g, op, dtype, data, count, why))
		mfk_fail(c, "%s", why);
}

static void comm_all_gather(struct mfk_ctx *c, struct mfk_comm *g, enum mfk_dtype dtype, void *to,
			    const void *from, int64_t count)
{
	char why[MFK_WHY];

	if (mpi->gather(g->mpi, to, from, count * (int64_t)mfk_dtype_size(dtype), why))
		mfk_fail(c, "%s", why);
}

/* MPI does not write into what it reads. */
static int scatter_f32(struct mfk_comm *g, float *to, const float *from, int64_t count, char *why)
{
	float *sum =
		to == from + mpi->rank(g->mpi) * count ? malloc((size_t)count * sizeof(*sum)) : to;
	int rc;

	if (!sum) {
		snprintf(why, MFK_WHY, "no memory to add up what the processes have");
		return -ENOMEM;
	}
	rc = mpi->reduce_scatter_f32(g->mpi, sum, from, count, why);
	if (sum == to)
		return rc;
	if (!rc)
		memcpy(to, sum, (size_t)count * sizeof(*sum));
	free(sum);
	return rc;
}

/* All have the whole sum, of types that MPI does not have. */
static void comm_reduce_scatter(struct mfk_ctx *c, struct mfk_comm *g, enum mfk_dtype dtype,
				void *to, void *from, int64_t count)
{
	const void *own = mfk_at(dtype, from, mpi->rank(g->mpi) * count);
	char why[MFK_WHY];
	int rc;

	if (mfk_is_exact(dtype)) {
		rc = scatter_f32(g, to, from, count, why);
	} else {
		rc = reduce_rounded(g, MFK_SUM, dtype, from, mpi->size(g->mpi) * count, why);
		if (!rc && to != own)
			memcpy(to, own, (size_t)count * mfk_dtype_size(dtype));
	}
	if (rc)
		mfk_fail(c, "%s", why);
}

static void comm_exchange(struct mfk_ctx *c, struct mfk_comm *g, const struct mfk_message *list,
			  unsigned count)
{
	char why[MFK_WHY];

	if (mpi->exchange(g->mpi, list, count, why))
		mfk_fail(c, "%s", why);
}

static int comm_host_sum(struct mfk_comm *g, double *values, unsigned count, char *why)
{
	return mpi->sum_f64(g->mpi, values, count, why);
}

static int comm_host_gather(struct mfk_comm *g, void *to, const void *from, size_t bytes, char *why)
{
	return mpi->gather(g->mpi, to, from, (int64_t)bytes, why);
}

const struct mfk_comm_ops mfk_ref_comm = {
	.name = "MPI",
	.world = comm_world,
	.split = comm_split,
	.free = comm_free,
	.end_all = comm_end_all,
	.all_reduce = comm_all_reduce,
	.all_gather = comm_all_gather,
	.reduce_scatter = comm_reduce_scatter,
	.exchange = comm_exchange,
	.host_sum = comm_host_sum,
	.host_gather = comm_host_gather,
};
