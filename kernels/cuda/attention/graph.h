/*
 * A graph of operations for cuDNN: tensors and operations are added one by one; then it is
 * compiled. The first call that fails is kept as a sentence in why, and nothing is done after it.
 * Only cudnn.c includes this.
 */
#ifndef MFK_CUDA_ATTENTION_GRAPH_H
#define MFK_CUDA_ATTENTION_GRAPH_H

#if __has_include(<cudnn.h>)

#include <cudnn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* The functions of cuDNN that are used, without their prefix. */
struct cudnn_api {
	size_t version; /* 91400 for 9.14.0; 0: the library is not there */
	__typeof__(cudnnGetVersion) *GetVersion;
	__typeof__(cudnnGetErrorString) *GetErrorString;
	__typeof__(cudnnGetLastErrorString) *GetLastErrorString;
	__typeof__(cudnnCreate) *Create;
	__typeof__(cudnnSetStream) *SetStream;
	__typeof__(cudnnBackendCreateDescriptor) *BackendCreateDescriptor;
	__typeof__(cudnnBackendDestroyDescriptor) *BackendDestroyDescriptor;
	__typeof__(cudnnBackendSetAttribute) *BackendSetAttribute;
	__typeof__(cudnnBackendGetAttribute) *BackendGetAttribute;
	__typeof__(cudnnBackendFinalize) *BackendFinalize;
	__typeof__(cudnnBackendExecute) *BackendExecute;
};

enum { GRAPH_OBJECTS = 256, GRAPH_OPS = 64 };

struct graph {
	const struct cudnn_api *api;
	cudnnHandle_t handle;
	cudnnDataType_t io;
	int64_t next; /* number of the next virtual tensor */
	int64_t first_virtual;
	cudnnBackendDescriptor_t objects[GRAPH_OBJECTS]; /* all that are to be destroyed */
	cudnnBackendDescriptor_t ops[GRAPH_OPS];
	int objects_count, ops_count;
	char why[MFK_WHY]; /* "": nothing has failed */
};

/* Tensors with numbers from first_virtual on have no memory. */
void graph_init(struct graph *g, const struct cudnn_api *api, cudnnHandle_t handle,
		cudnnDataType_t io, int64_t first_virtual);
void graph_release(struct graph *g);

/* A number for a tensor without memory. */
int64_t graph_virtual(struct graph *g);
/* dims and strides, in elements: 4 each. */
cudnnBackendDescriptor_t graph_tensor(struct graph *g, int64_t id, cudnnDataType_t type,
				      const int64_t *dims, const int64_t *strides);
/* A float that is given by value when the graph runs. */
cudnnBackendDescriptor_t graph_scalar(struct graph *g, int64_t id);

void graph_matmul(struct graph *g, cudnnBackendDescriptor_t a, cudnnBackendDescriptor_t b,
		  cudnnBackendDescriptor_t c);
/* b and t: NULL where the mode takes none. axis: -1, except for GEN_INDEX. */
void graph_pointwise(struct graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t compute,
		     int64_t axis, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
		     cudnnBackendDescriptor_t t, cudnnBackendDescriptor_t y);
/* Over the axes of which y has one element and x more. */
void graph_reduce(struct graph *g, cudnnReduceTensorOp_t op, cudnnBackendDescriptor_t x,
		  cudnnBackendDescriptor_t y);
void graph_reshape(struct graph *g, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y);

/* The first of the heuristic's engines that compiles. The caller destroys it. workspace: bytes.
 * NULL: none does, and g->why says so. */
cudnnBackendDescriptor_t graph_compile(struct graph *g, size_t *workspace);

/* Runs a compiled graph. pointers[i] is the device memory, or for a scalar the host float, of the
 * tensor ids[i]. why, of MFK_WHY bytes, gets a sentence if it fails, unless it holds one
 * already. */
void graph_run(const struct cudnn_api *api, cudnnHandle_t handle, cudaStream_t stream,
	       cudnnBackendDescriptor_t compiled, int count, const int64_t *ids,
	       const void *const *pointers, void *workspace, char *why);

#endif
#endif
