/*
 * The parameters of a run, and the flat buffers that hold them.
 *
 * The model is a checkpoint whose tensors lie in memory: params->ckpt has the global tensors that a
 * GPTModel of these arguments has (formats/ckpt/ckpt.h), in no file. So the tables that know
 * Megatron's names, shapes, order, parameter groups and files serve the trainer as they serve the
 * mount.
 *
 * Each buffer holds all parameters one after the other, in the order in which Megatron's modules
 * register them, each at a multiple of MFT_PARAM_ALIGN elements; routed experts lie after the
 * others, where other processes add up their gradients (buckets.h). The same element of every
 * buffer belongs to the same weight: an optimizer step is a walk over ranges. What lies between
 * parameters is zero and stays zero.
 *
 * With the distributed optimizer a process owns some stretches of the buffers. Main parameters and
 * moments have its elements alone, without gaps; weights and gradients have all. With FSDP
 * gradients, or weights and gradients, have its elements alone, too.
 */
#ifndef MFT_TRAINER_PARAMS_PARAMS_H
#define MFT_TRAINER_PARAMS_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/ckpt/ckpt.h"
#include "formats/megatron/rank.h"
#include "trainer/config/config.h"
#include "trainer/optimizers/optimizer.h"
#include "trainer/params/buckets.h"
#include "trainer/params/memory.h"
#include "trainer/params/scales.h"
#include "trainer/parallel/parallel.h"

#define MFT_PARAM_ALIGN 128 /* elements */

/* Parameters that a pass uses together: those of a layer, which has a number, or of no layer. */
#define MFT_UNIT_EMBEDDING (-1)	     /* word embeddings, tied ones too, and positions */
#define MFT_UNIT_HEAD	   INT32_MAX /* the last norm and the head */

struct mft_param {
	const struct mfs_global_tensor *tensor; /* name, layer, expert, shape of the whole */
	struct mfs_rank_tensor part; /* what of it this process has: shape, boxes, whose copy */
	uint64_t start, elements;    /* in the flat buffers, elements */
	uint64_t drawn_from;	     /* number of the whole tensor's first random number */
	uint32_t bucket;	     /* its number */
	int32_t unit;
	bool decays, decoupled; /* weight decay; --decoupled-lr (embedding, head) */
	bool mup;		/* --use-mup gives it a rate of its own, and Adam's eps */
	bool is_expert;
	const struct mft_optimizer_kind *optimizer; /* that updates it */
	/* owned elements before it, of parameters whose optimizer keeps nothing in a slot */
	uint64_t skipped[MFT_SLOTS];
	/* In sums over the whole model: of the processes that have the same, this one counts it
	 * (core/transformer/module.py: param_is_not_shared; core/tensor_parallel/layers.py:
	 * param_is_not_tensor_parallel_duplicate). */
	bool counts;
	double init_std;  /* < 0: no normal numbers */
	float init_value; /* of what is not drawn */
	struct {
		float low, high; /* both 0: no uniform numbers */
		bool logarithm;	 /* of them */
	} init_uniform;
};

/* A buffer of the model: not trained by gradients, fp32 (router.expert_bias). */
struct mft_model_buffer {
	const struct mfs_global_tensor *tensor;
	struct mfs_rank_tensor part;
	uint64_t start, elements; /* in params.buffers */
};

/* What is kept of each owned element: main parameters, or a state of the optimizer. */
struct mft_slot {
	enum mfs_dtype type; /* MFS_DTYPE_NONE: nothing */
	uint64_t elements;   /* of this process, the host's included */
	void *device;	     /* from the run's arena; NULL until it is placed */
	/* --optimizer-cpu-offload: the device has what is owned from params.offloaded on. What is
	 * owned before it lies in the host's memory (trainer/optim/offload.h), which is zeroed. */
	void *host;
};

struct mft_params {
	struct mfs_ckpt *ckpt; /* owned, unless is_other: the whole model */
	bool is_other;	       /* mft_params_of_other() */
	struct mfs_layout layout;
	struct mfs_rank_list *parts; /* owned: what of it this process has */
	struct mft_param *list;	     /* in the order of the flat buffers */
	uint32_t count;
	enum mft_sharding sharding;
	uint64_t elements;	    /* of a flat buffer that has all, alignment included */
	uint64_t parameters;	    /* elements of all parameters */
	struct mft_bucket *buckets; /* all elements, in their order */
	uint32_t bucket_count;
	struct mft_owned *owned; /* what the process updates, in their order */
	uint32_t owned_count;
	uint64_t owned_elements;
	struct mft_model_buffer *buffer_list;
	uint32_t buffer_count;
	uint64_t buffer_elements;
	uint32_t *number; /* by number of ckpt's tensor: see mft_params_number() */
	uint64_t padded_vocab;

	/* Device memory, from the run's arena; NULL until it is placed. */
	void *weights; /* io type; mft_params_weight_elements() */
	void *grads;   /* main_grads_dtype; mft_params_grad_elements() */
	float *buffers;
	enum mfs_dtype weight_type, grad_type;
	/* Of owned elements. An fp32 run has no main parameters: its weights are that. */
	struct mft_slot slot[MFT_SLOTS];
	/* what the host has of the slots: all elements before this one, that of a parameter */
	uint64_t offloaded, offloaded_owned; /* owned: elements before it */
	const struct mft_scales *scales;     /* of the net that trains them; NULL: there are none */
	const struct mft_optimizer_kind *optimizer;
};

/* The parameters that a process has of a model of these arguments, without memory. parallel NULL:
 * it has all. -ENOTSUP names an argument whose model cannot be trained here; -EINVAL: sizes that
 * cannot be, or cannot be divided. */
int mft_params_new(const struct mft_train_config *config, const struct mft_parallel *parallel,
		   struct mft_params **ret, struct mfs_error *err);
/* Those of another process of the run, at its places: what it has where. They share own's ckpt, are
 * freed before own, and nothing is drawn by them. */
int mft_params_of_other(const struct mft_params *own, const struct mft_train_config *config,
			const struct mft_parallel *other, struct mft_params **ret,
			struct mfs_error *err);
void mft_params_free(struct mft_params *p);

/* Where each flat buffer lies in a plan of memory. */
struct mft_flat_places {
	uint64_t weights, grads, slot[MFT_SLOTS], buffers;
};
/* Adds what the device has of them to the plan. */
void mft_params_plan(const struct mft_params *p, struct mft_memory *memory,
		     struct mft_flat_places *ret);
/* Weights and buffers alone, of params that nothing updates: they have no gradients and no slots
 * from now on. */
void mft_params_plan_weights(struct mft_params *p, struct mft_memory *memory,
			     struct mft_flat_places *ret);
/* The plan has memory now, which the caller fills with zeros. */
void mft_params_place(struct mft_params *p, const struct mft_flat_places *places,
		      const struct mft_memory *memory);

/* The number of a tensor in list; from count on, its number in buffer_list plus count. UINT32_MAX:
 * there is none. layer, expert: -1 where the name has none. Layers of "decoder.layers." after the
 * last one are the inner layers of MTP, and so are units. */
uint32_t mft_params_number(const struct mft_params *p, const char *name, int32_t layer,
			   int32_t expert);
/* The parameter of a canonical name (formats/ckpt/names.h), layer and expert; -1: it has no such
 * number. NULL: this process has none. */
const struct mft_param *mft_params_find(const struct mft_params *p, const char *name, int32_t layer,
					int32_t expert);
const struct mft_model_buffer *mft_params_find_buffer(const struct mft_params *p, const char *name,
						      int32_t layer);

/* Size of an axis of what the process has; 1 after the last axis. */
static inline int64_t mft_param_size(const struct mft_param *p, unsigned axis)
{
	return axis < p->part.base.ndim ? (int64_t)p->part.base.shape[axis] : 1;
}

/* True if experts are divided over other processes than dense parameters are: their gradients and
 * their norms are added up in other groups. */
bool mft_experts_are_apart(const struct mft_parallel *parallel);

/* Neighbours of a parameter that are neighbours in the whole tensor, too. */
struct mft_param_run {
	uint64_t first;	      /* element of what the process has */
	uint64_t whole_first; /* of the whole tensor */
	uint64_t count;
};
/* Calls emit for runs that together are elements [first, first + count) of a parameter, in their
 * order. Stops when emit returns non-zero, and returns that. */
int mft_param_runs(const struct mft_param *p, uint64_t first, uint64_t count,
		   int (*emit)(void *arg, const struct mft_param_run *run), void *arg);

/* Owned elements in [*at, end): sets *at to the first one, and returns how many follow each other
 * from there on. 0: there is none. */
uint64_t mft_params_owned(const struct mft_params *p, uint64_t *at, uint64_t end);
/* How many owned elements there are before this one. */
uint64_t mft_params_owned_before(const struct mft_params *p, uint64_t element);

/* Elements of the flat buffers that have owned ones alone, or all. */
uint64_t mft_params_weight_elements(const struct mft_params *p);
uint64_t mft_params_grad_elements(const struct mft_params *p);

/* Where the elements of a parameter's state lie, from first on; at NULL: there is no such state. In
 * a buffer of owned elements first is owned, and the owned elements after it follow. */
struct mft_flat {
	void *at;
	enum mfs_dtype type;
	bool on_host;
};
struct mft_flat mft_params_flat(const struct mft_params *p, enum mfs_state state, uint64_t first);
/* Like mft_params_flat(), of what a slot keeps of them. */
struct mft_flat mft_params_slot(const struct mft_params *p, unsigned slot, uint64_t first);
void *mft_params_grads_at(const struct mft_params *p, uint64_t first);

/* True if FSDP divides a bucket's weights, or gradients, so that they are whole only for a
 * while. */
bool mft_bucket_weights_part(const struct mft_params *p, const struct mft_bucket *b);
bool mft_bucket_grads_part(const struct mft_params *p, const struct mft_bucket *b);
/* Where a parameter's weights, or gradients, lie for a pass: whole. NULL: nobody has gathered
 * them. */
void *mft_param_weights(const struct mft_params *p, const struct mft_param *q);
void *mft_param_grads(const struct mft_params *p, const struct mft_param *q);

#endif
