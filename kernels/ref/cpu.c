/* The table of the CPU backend. */
#include "kernels/ref/cpu.h"

#include "kernels/ref/ref_i.h"

static const struct mfk_ops ops = {
#define OP(name) .name = mfk_ref_##name,
	MFK_OPS(OP)
#undef OP
};

#define OP(name) +1
_Static_assert(sizeof(struct mfk_ops) == (MFK_OPS(OP)) * sizeof(void (*)(void)),
	       "an operation that MFK_OPS does not name");
#undef OP

const struct mfk_backend mfk_cpu = {"cpu", &mfk_ref_device, &ops, &mfk_ref_comm};
