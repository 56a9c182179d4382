#include "kernels/cuda/base/nccl.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/kernels.h"

#if __has_include(<nccl.h>)
#include <nccl.h>

_Static_assert((int)ncclSuccess == MFK_NCCL_SUCCESS && (int)ncclInProgress == MFK_NCCL_IN_PROGRESS,
	       "ncclResult_t");
_Static_assert((int)ncclInt8 == MFK_NCCL_INT8 && (int)ncclFloat16 == MFK_NCCL_FLOAT16 &&
		       (int)ncclFloat32 == MFK_NCCL_FLOAT32 &&
		       (int)ncclBfloat16 == MFK_NCCL_BFLOAT16,
	       "ncclDataType_t");
_Static_assert((int)ncclSum == MFK_NCCL_SUM && (int)ncclMax == MFK_NCCL_MAX, "ncclRedOp_t");
_Static_assert(sizeof(ncclUniqueId) == sizeof(struct mfk_nccl_id) &&
		       sizeof(ncclResult_t) == sizeof(int) &&
		       sizeof(ncclDataType_t) == sizeof(int) && sizeof(ncclRedOp_t) == sizeof(int),
	       "sizes of what is passed by value");

/* Never called: its arguments are of the types that the table's functions have. */
__attribute__((unused)) static void compare(ncclComm_t comm, ncclConfig_t *config, int *i,
					    ncclUniqueId *id, const void *from, void *to,
					    cudaStream_t stream)
{
	ncclResult_t async;

	ncclGetVersion(i);
	ncclGetUniqueId(id);
	ncclCommInitRank(&comm, 2, *id, 1);
	ncclCommSplit(comm, 0, 1, &comm, config);
	ncclCommDestroy(comm);
	ncclCommAbort(comm);
	ncclCommCount(comm, i);
	ncclCommUserRank(comm, i);
	ncclCommGetAsyncError(comm, &async);
	ncclAllReduce(from, to, 1, ncclFloat32, ncclSum, comm, stream);
	ncclAllGather(from, to, 1, ncclFloat32, comm, stream);
	ncclReduceScatter(from, to, 1, ncclFloat32, ncclSum, comm, stream);
	ncclSend(from, 1, ncclInt8, 1, comm, stream);
	ncclRecv(to, 1, ncclInt8, 1, comm, stream);
#if NCCL_VERSION_CODE >= 21900
	ncclMemAlloc(&to, 1);
	ncclCommRegister(comm, to, 1, &to);
	ncclCommDeregister(comm, to);
	ncclMemFree(to);
#endif
}
#endif

static struct mfk_nccl_ops nccl;

static const struct {
	const char *name;
	void **to;
	bool needed;
} symbols[] = {
	{"ncclGetVersion", (void **)&nccl.get_version, true},
	{"ncclGetUniqueId", (void **)&nccl.get_unique_id, true},
	{"ncclCommInitRank", (void **)&nccl.comm_init_rank, true},
	{"ncclCommSplit", (void **)&nccl.comm_split, true},
	{"ncclCommDestroy", (void **)&nccl.comm_destroy, true},
	{"ncclCommAbort", (void **)&nccl.comm_abort, true},
	{"ncclCommCount", (void **)&nccl.comm_count, true},
	{"ncclCommUserRank", (void **)&nccl.comm_user_rank, true},
	{"ncclCommGetAsyncError", (void **)&nccl.comm_get_async_error, true},
	{"ncclGetErrorString", (void **)&nccl.get_error_string, true},
	{"ncclGetLastError", (void **)&nccl.get_last_error, true},
	{"ncclAllReduce", (void **)&nccl.all_reduce, true},
	{"ncclAllGather", (void **)&nccl.all_gather, true},
	{"ncclReduceScatter", (void **)&nccl.reduce_scatter, true},
	{"ncclSend", (void **)&nccl.send, true},
	{"ncclRecv", (void **)&nccl.recv, true},
	{"ncclGroupStart", (void **)&nccl.group_start, true},
	{"ncclGroupEnd", (void **)&nccl.group_end, true},
	{"ncclMemAlloc", (void **)&nccl.mem_alloc, false},
	{"ncclMemFree", (void **)&nccl.mem_free, false},
	{"ncclCommRegister", (void **)&nccl.comm_register, false},
	{"ncclCommDeregister", (void **)&nccl.comm_deregister, false},
};

int mfk_nccl_load(const struct mfk_nccl_ops **ret, char *why)
{
	const char *given = getenv("MCOREFS_NCCL");
	const char *file = given && *given ? given : "libnccl.so.2";
	void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		snprintf(why, MFK_WHY, "several GPUs need NCCL (MCOREFS_NCCL names its file): %s",
			 dlerror());
		return -ENODEV;
	}
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		*symbols[i].to = dlsym(library, symbols[i].name);
		if (!*symbols[i].to && symbols[i].needed) {
			snprintf(why, MFK_WHY, "%.120s has no %s: NCCL 2.18 or newer is needed",
				 file, symbols[i].name);
			return -ENODEV;
		}
	}
	*ret = &nccl;
	return 0;
}
