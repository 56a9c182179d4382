/* The plugin: MPI's calls in the form of kernels/mpi/mpi.h. */
#include "kernels/mpi/mpi.h"

#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

/* MPI counts in int. */
#define PIECE (INT64_C(1) << 30)

struct comm {
	MPI_Comm mpi;
	int size;
};

static int fail(int rc, const char *what, char *why)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int length;

	if (rc == MPI_SUCCESS)
		return 0;
	MPI_Error_string(rc, text, &length);
	snprintf(why, MFK_WHY, "%s: %.200s", what, text);
	return -EIO;
}

static int begin(struct mfk_world *ret, char *why)
{
	int rank, size, has = MPI_THREAD_FUNNELED, rc, already;

	MPI_Initialized(&already);
	/* The thread of the run calls MPI; there are others, which do not. */
	rc = already ? MPI_SUCCESS : MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &has);
	if (rc == MPI_SUCCESS && has < MPI_THREAD_FUNNELED) {
		snprintf(why, MFK_WHY, "this MPI is for programs without threads");
		return -ENOTSUP;
	}
	if (rc == MPI_SUCCESS)
		rc = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	if (rc == MPI_SUCCESS)
		rc = MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (rc == MPI_SUCCESS)
		rc = MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (rc != MPI_SUCCESS)
		return fail(rc, "MPI does not start", why);
	*ret = (struct mfk_world){(unsigned)rank, (unsigned)size};
	return 0;
}

static void end(void)
{
	MPI_Finalize();
}

static void end_all(int code)
{
	MPI_Abort(MPI_COMM_WORLD, code);
}

static int split(void *from, unsigned color, unsigned key, void **ret, char *why)
{
	const struct comm *of = from;
	struct comm *c = calloc(1, sizeof(*c));
	int rc;

	if (!c) {
		snprintf(why, MFK_WHY, "no memory for a communicator");
		return -ENOMEM;
	}
	rc = MPI_Comm_split(of ? of->mpi : MPI_COMM_WORLD, (int)color, (int)key, &c->mpi);
	if (rc == MPI_SUCCESS)
		rc = MPI_Comm_size(c->mpi, &c->size);
	if (rc != MPI_SUCCESS) {
		free(c);
		return fail(rc, "MPI_Comm_split", why);
	}
	*ret = c;
	return 0;
}

static void free_comm(void *comm)
{
	struct comm *c = comm;

	MPI_Comm_free(&c->mpi);
	free(c);
}

static unsigned size_of(void *comm)
{
	return (unsigned)((const struct comm *)comm)->size;
}

static int sum(void *comm, MPI_Datatype type, size_t size, void *data, int64_t count, char *why)
{
	const struct comm *c = comm;
	int rc = MPI_SUCCESS;

	for (int64_t done = 0; done < count && rc == MPI_SUCCESS; done += PIECE) {
		const int64_t n = count - done < PIECE ? count - done : PIECE;

		rc = MPI_Allreduce(MPI_IN_PLACE, (char *)data + (size_t)done * size, (int)n, type,
				   MPI_SUM, c->mpi);
	}
	return fail(rc, "MPI_Allreduce", why);
}

static int sum_f32(void *comm, float *data, int64_t count, char *why)
{
	return sum(comm, MPI_FLOAT, sizeof(*data), data, count, why);
}

static int sum_f64(void *comm, double *data, int64_t count, char *why)
{
	return sum(comm, MPI_DOUBLE, sizeof(*data), data, count, why);
}

static int gather(void *comm, void *to, const void *from, int64_t bytes, char *why)
{
	const struct comm *c = comm;

	if (bytes > INT32_MAX) {
		snprintf(why, MFK_WHY, "MPI_Allgather: %lld bytes of each process are too many",
			 (long long)bytes);
		return -EINVAL;
	}
	return fail(MPI_Allgather(from, (int)bytes, MPI_BYTE, to, (int)bytes, MPI_BYTE, c->mpi),
		    "MPI_Allgather", why);
}

const struct mfk_mpi mfk_mpi_plugin = {
	.begin = begin,
	.end = end,
	.end_all = end_all,
	.split = split,
	.free = free_comm,
	.size = size_of,
	.sum_f32 = sum_f32,
	.sum_f64 = sum_f64,
	.gather = gather,
};
