/*
 * The optimizer's state in the host's memory: --optimizer-cpu-offload.
 *
 * Main parameters and moments of what is owned below params->offloaded lie on the host. An update
 * streams their gradients down in pieces, steps with the CPU backend, and streams the new
 * weights up. Two pieces are under way: while the CPU computes one, the gradients of the next and
 * the weights of the last are copied. The device keeps weights and gradients alone.
 *
 * Source: megatron/core/optimizer/cpu_offloading/hybrid_optimizer.py: HybridDeviceOptimizer, with
 * --overlap-cpu-optimizer-d2h-h2d. Megatron's state on the host is fp32; here it has the types that
 * --use-precision-aware-optimizer gives it.
 */
#ifndef MFT_TRAINER_OPTIM_OFFLOAD_H
#define MFT_TRAINER_OPTIM_OFFLOAD_H

#include <stdint.h>

#include "formats/base/error.h"
#include "kernels/kernels.h"
#include "trainer/config/config.h"
#include "trainer/params/memory.h"
#include "trainer/params/params.h"

struct mft_offload;

/* Adds the host's memory to the plan. With a backend it is allocated, zeroed, and put into
 * params->host. Borrows everything. */
int mft_offload_new(const struct mft_train_config *config, struct mft_params *params,
		    struct mft_memory *memory, const struct mfk_backend *backend,
		    struct mfk_device *device, struct mft_offload **ret, struct mfs_error *err);
void mft_offload_free(struct mft_offload *o);

/* No more elements are added in one go. */
#define MFT_OFFLOAD_PIECE (UINT64_C(4) << 20)

/* The context that gradients come down in: a fence before an update is its operation. */
struct mfk_ctx *mft_offload_ctx(struct mft_offload *o);
/*
 * Updates elements from first on, all of them offloaded. piece has no pointers. The gradients are
 * complete, and the weights used by no one. Returns when the piece before is computed.
 */
int mft_offload_add(struct mft_offload *o, const struct mft_update_piece *piece, uint64_t first,
		    struct mfs_error *err);
/* Waits for all pieces, weights on the device included. */
int mft_offload_finish(struct mft_offload *o, struct mfs_error *err);

/* Adds mfk_ops.sum_squares() of main parameters that are owned neighbours on the host. */
int mft_offload_sum_squares(struct mft_offload *o, uint64_t first, uint64_t count, double sums[2],
			    struct mfs_error *err);

#endif
