/* The plugin: MPI's calls in the form of kernels/mpi/mpi.h. */
#include "kernels/mpi/mpi.h"

#include <errno.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* MPI counts in int, and Open MPI what all processes bring together, too. So one call has at most
 * this many bytes or elements. A test has less. */
#ifndef PIECE
#define PIECE (INT64_C(1) << 30)
#endif

struct comm {
	MPI_Comm mpi;
	int rank, size;
};

/* More processes of this host than it has processors. */
static bool crowded;

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

/* MPI's own waits take a processor: from whom they wait for, where there are more processes than
 * processors, and from everybody else. */
static void pause_before_test(unsigned tests)
{
	const unsigned busy = crowded ? 0 : 200; /* tests, of less than a microsecond each */
	const struct timespec some = {.tv_nsec = 50 * 1000};

	if (tests >= busy)
		nanosleep(&some, NULL);
}

static int wait_all(int count, MPI_Request *requests)
{
	int done = 0, rc = MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE);

	for (unsigned tests = 0; rc == MPI_SUCCESS && !done; tests++) {
		pause_before_test(tests);
		rc = MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE);
	}
	return rc;
}

/* Returns when all processes of c are here. What blocks after it waits for none of them. */
static int meet(const struct comm *c)
{
	MPI_Request all;
	int rc = MPI_Ibarrier(c->mpi, &all);

	return rc == MPI_SUCCESS ? wait_all(1, &all) : rc;
}

static int look_around(void)
{
	MPI_Comm here;
	int size = 1;
	int rc = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);

	if (rc != MPI_SUCCESS)
		return rc;
	rc = MPI_Comm_size(here, &size);
	crowded = size > sysconf(_SC_NPROCESSORS_ONLN);
	MPI_Comm_free(&here);
	return rc;
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
	if (rc == MPI_SUCCESS)
		rc = look_around();
	if (rc != MPI_SUCCESS)
		return fail(rc, "MPI does not start", why);
	*ret = (struct mfk_world){.rank = (unsigned)rank, .size = (unsigned)size};
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
	if (rc == MPI_SUCCESS)
		rc = MPI_Comm_rank(c->mpi, &c->rank);
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

static unsigned rank_of(void *comm)
{
	return (unsigned)((const struct comm *)comm)->rank;
}

static int reduce(void *comm, MPI_Datatype type, size_t size, MPI_Op op, void *data, int64_t count,
		  char *why)
{
	const struct comm *c = comm;
	int rc = meet(c);

	for (int64_t done = 0; done < count && rc == MPI_SUCCESS; done += PIECE) {
		const int64_t n = count - done < PIECE ? count - done : PIECE;

		rc = MPI_Allreduce(MPI_IN_PLACE, (char *)data + (size_t)done * size, (int)n, type,
				   op, c->mpi);
	}
	return fail(rc, "MPI_Allreduce", why);
}

static int reduce_f32(void *comm, enum mfk_reduce op, float *data, int64_t count, char *why)
{
	return reduce(comm, MPI_FLOAT, sizeof(*data), op == MFK_MAX ? MPI_MAX : MPI_SUM, data,
		      count, why);
}

static int sum_f64(void *comm, double *data, int64_t count, char *why)
{
	return reduce(comm, MPI_DOUBLE, sizeof(*data), MPI_SUM, data, count, why);
}

/* The same n bytes of each process's part: parts lie stride bytes apart in to. */
static int gather_piece(const struct comm *c, void *to, const void *from, int64_t n, int64_t stride)
{
	MPI_Datatype bytes, part;
	int rc = MPI_Type_contiguous((int)n, MPI_BYTE, &bytes);

	if (rc != MPI_SUCCESS)
		return rc;
	rc = MPI_Type_create_resized(bytes, 0, (MPI_Aint)stride, &part);
	if (rc == MPI_SUCCESS) {
		rc = MPI_Type_commit(&part);
		if (rc == MPI_SUCCESS)
			rc = MPI_Allgather(from, (int)n, MPI_BYTE, to, 1, part, c->mpi);
		MPI_Type_free(&part);
	}
	MPI_Type_free(&bytes);
	return rc;
}

static int gather(void *comm, void *to, const void *from, int64_t bytes, char *why)
{
	const struct comm *c = comm;
	const bool in_place = from == (const char *)to + c->rank * bytes;
	const int64_t most = PIECE / c->size;
	int rc = meet(c);

	if (rc == MPI_SUCCESS && bytes <= most)
		rc = MPI_Allgather(in_place ? MPI_IN_PLACE : from, (int)bytes, MPI_BYTE, to,
				   (int)bytes, MPI_BYTE, c->mpi);
	for (int64_t done = 0; bytes > most && done < bytes && rc == MPI_SUCCESS; done += most)
		rc = gather_piece(c, (char *)to + done,
				  in_place ? MPI_IN_PLACE : (const char *)from + done,
				  bytes - done < most ? bytes - done : most, bytes);
	return fail(rc, "MPI_Allgather", why);
}

/* Operations are not defined on types with gaps, so each process's part is a sum of its own. */
static int reduce_parts(const struct comm *c, float *to, const float *from, int64_t count)
{
	int rc = MPI_SUCCESS;

	for (int root = 0; root < c->size; root++)
		for (int64_t done = 0; done < count && rc == MPI_SUCCESS; done += PIECE)
			rc = MPI_Reduce(from + root * count + done, to + done,
					(int)(count - done < PIECE ? count - done : PIECE),
					MPI_FLOAT, MPI_SUM, root, c->mpi);
	return rc;
}

static int reduce_scatter_f32(void *comm, float *to, const float *from, int64_t count, char *why)
{
	const struct comm *c = comm;
	const int rc = meet(c);

	if (rc != MPI_SUCCESS)
		return fail(rc, "MPI_Ibarrier", why);
	if (count > PIECE / c->size)
		return fail(reduce_parts(c, to, from, count), "MPI_Reduce", why);
	return fail(MPI_Reduce_scatter_block(from, to, (int)count, MPI_FLOAT, MPI_SUM, c->mpi),
		    "MPI_Reduce_scatter_block", why);
}

/* One message in pieces that MPI can count. *used: requests that are under way. */
static int begin_message(const struct comm *c, const struct mfk_message *m, MPI_Request *requests,
			 int *used)
{
	int rc = MPI_SUCCESS;

	for (size_t done = 0; done < m->bytes && rc == MPI_SUCCESS; done += PIECE) {
		const size_t left = m->bytes - done;
		const int n = (int)(left < (size_t)PIECE ? left : (size_t)PIECE);
		char *at = (char *)m->data + done;

		rc = m->receive
			     ? MPI_Irecv(at, n, MPI_BYTE, (int)m->peer, 0, c->mpi, &requests[*used])
			     : MPI_Isend(at, n, MPI_BYTE, (int)m->peer, 0, c->mpi,
					 &requests[*used]);
		*used += rc == MPI_SUCCESS;
	}
	return rc;
}

static size_t pieces_of(const struct mfk_message *list, unsigned count)
{
	size_t pieces = 0;

	for (unsigned i = 0; i < count; i++)
		pieces += (list[i].bytes + PIECE - 1) / PIECE;
	return pieces;
}

static int exchange(void *comm, const struct mfk_message *list, unsigned count, char *why)
{
	MPI_Request *requests = calloc(pieces_of(list, count) + 1, sizeof(MPI_Request));
	int used = 0, rc = MPI_SUCCESS, waited;

	if (!requests) {
		snprintf(why, MFK_WHY, "no memory for %u messages", count);
		return -ENOMEM;
	}
	for (unsigned i = 0; i < count && rc == MPI_SUCCESS; i++)
		rc = begin_message(comm, &list[i], requests, &used);
	waited = wait_all(used, requests);
	free(requests);
	return fail(rc == MPI_SUCCESS ? waited : rc, "messages by MPI", why);
}

const struct mfk_mpi_ops mfk_mpi_plugin = {
	.begin = begin,
	.end = end,
	.end_all = end_all,
	.split = split,
	.free = free_comm,
	.size = size_of,
	.rank = rank_of,
	.reduce_f32 = reduce_f32,
	.sum_f64 = sum_f64,
	.gather = gather,
	.reduce_scatter_f32 = reduce_scatter_f32,
	.exchange = exchange,
};
