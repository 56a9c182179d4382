/*
 * MPI as the CPU backend sees it: a table of functions in a plugin. So a machine without MPI needs
 * no MPI library, and a process that computes alone does not start it.
 *
 * All functions that return int return 0 or -errno; why, of MFK_WHY bytes, gets a sentence.
 */
#ifndef MFK_MPI_H
#define MFK_MPI_H

#include <stdint.h>

#include "kernels/kernels.h"

struct mfk_mpi_ops {
	/* Once a process. */
	int (*begin)(struct mfk_world *ret, char *why);
	void (*end)(void);
	void (*end_all)(int code);
	/* A communicator; from NULL: of all processes. */
	int (*split)(void *from, unsigned color, unsigned key, void **ret, char *why);
	void (*free)(void *comm);
	unsigned (*size)(void *comm);
	unsigned (*rank)(void *comm);
	int (*reduce_f32)(void *comm, enum mfk_reduce op, float *data, int64_t count, char *why);
	int (*sum_f64)(void *comm, double *data, int64_t count, char *why);
	/* to: [size][bytes], by rank; from may be its own part of to */
	int (*gather)(void *comm, void *to, const void *from, int64_t bytes, char *why);
	/* to: the sum of this rank's parts of from [size][count], and nowhere in from */
	int (*reduce_scatter_f32)(void *comm, float *to, const float *from, int64_t count,
				  char *why);
	int (*exchange)(void *comm, const struct mfk_message *list, unsigned count, char *why);
};

/* The plugin's one symbol. */
extern const struct mfk_mpi_ops mfk_mpi_plugin __attribute__((visibility("default")));

#endif
