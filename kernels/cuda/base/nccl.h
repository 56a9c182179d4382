/*
 * NCCL as far as it is used here: a table of its functions, which are looked for in the library
 * when a run has several processes, so that one GPU alone needs none of it.
 *
 * Numbers and prototypes are nccl.h's of NCCL 2.28. They are NCCL's binary interface, which has not
 * changed since 2.18; where nccl.h is, the compiler compares them (nccl.c).
 */
#ifndef MFK_CUDA_NCCL_H
#define MFK_CUDA_NCCL_H

#include <cuda_runtime_api.h>
#include <stddef.h>

/* ncclResult_t */
#define MFK_NCCL_SUCCESS     0
#define MFK_NCCL_IN_PROGRESS 7
/* ncclDataType_t */
#define MFK_NCCL_INT8	  0
#define MFK_NCCL_FLOAT16  6
#define MFK_NCCL_FLOAT32  7
#define MFK_NCCL_BFLOAT16 9
/* ncclRedOp_t */
#define MFK_NCCL_SUM 0
#define MFK_NCCL_MAX 2

struct ncclComm;

/* ncclUniqueId */
struct mfk_nccl_id {
	char internal[128];
};

/* Functions that return int return ncclResult_t. */
struct mfk_nccl_ops {
	int (*get_version)(int *version);
	int (*get_unique_id)(struct mfk_nccl_id *id);
	int (*comm_init_rank)(struct ncclComm **comm, int nranks, struct mfk_nccl_id id, int rank);
	/* config NULL: as the original's. No operation of comm may be under way. */
	int (*comm_split)(struct ncclComm *comm, int color, int key, struct ncclComm **ret,
			  void *config);
	int (*comm_destroy)(struct ncclComm *comm);
	int (*comm_abort)(struct ncclComm *comm);
	int (*comm_count)(const struct ncclComm *comm, int *count);
	int (*comm_user_rank)(const struct ncclComm *comm, int *rank);
	int (*comm_get_async_error)(struct ncclComm *comm, int *error);
	const char *(*get_error_string)(int result);
	const char *(*get_last_error)(struct ncclComm *comm);
	int (*all_reduce)(const void *from, void *to, size_t count, int type, int op,
			  struct ncclComm *comm, cudaStream_t stream);
	int (*all_gather)(const void *from, void *to, size_t count, int type, struct ncclComm *comm,
			  cudaStream_t stream);
	int (*reduce_scatter)(const void *from, void *to, size_t count, int type, int op,
			      struct ncclComm *comm, cudaStream_t stream);
	int (*send)(const void *from, size_t count, int type, int peer, struct ncclComm *comm,
		    cudaStream_t stream);
	int (*recv)(void *to, size_t count, int type, int peer, struct ncclComm *comm,
		    cudaStream_t stream);
	int (*group_start)(void);
	int (*group_end)(void);
	/* 2.19: NULL before. */
	int (*mem_alloc)(void **ret, size_t bytes);
	int (*mem_free)(void *p);
	int (*comm_register)(const struct ncclComm *comm, void *p, size_t bytes, void **handle);
	int (*comm_deregister)(const struct ncclComm *comm, void *handle);
};

/* libnccl.so.2, or the file that MCOREFS_NCCL names. It stays loaded. -ENODEV: it cannot be used,
 * and why (of MFK_WHY bytes) says what is missing. */
int mfk_nccl_load(const struct mfk_nccl_ops **ret, char *why);

#endif
