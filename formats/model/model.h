/*
 * A checkpoint as a model of a HuggingFace family: its HF tensors, and where each comes from. A
 * family is a set of tables (families/family.h). No code names a family.
 */
#ifndef MFS_MODEL_MODEL_H
#define MFS_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/ckpt/ckpt.h"
#include "formats/ckpt/target.h"
#include "formats/model/families/family.h"
#include "formats/model/vocab.h"

struct mfs_model;

/* One tensor of the HF model. */
struct mfs_hf_target {
	struct mfs_target base;
	const struct mfs_model *model;
	const struct mfs_family_tensor *row; /* the rule */
	const struct mfs_global_tensor *src; /* what it is made of; of stacked experts the first */
	int32_t layer, expert;		     /* in HF's numbering; -1: none */
	uint32_t unit; /* 0: before the layers; then each layer, MTP layers last; then after them */
};

struct mfs_model {
	struct mfs_ckpt *ckpt;
	const struct mfs_family *family;
	const char *architecture, *model_type; /* the family's, or what the weights came with */
	mfs_features features;
	struct mfs_vocab vocab;
	enum mfs_dtype dtype; /* of most elements */
	uint64_t parameters;  /* elements of all targets, tied head counted once */
	uint64_t bytes;
	struct mfs_hf_target *targets; /* ordered by unit */
	uint32_t target_count;
	const char **warnings;
	uint32_t warning_count;
	struct mfs_arena arena;
};

/*
 * arch: a family's name, or NULL to derive it from the arguments; with it, class and model_type are
 * the family's own. vocab: the decision of vocab.h; NULL: decided here, as if a person had given no
 * option. -ENOTSUP: no family fits, or a tensor is left over, which the message names; -ENODATA: a
 * tensor is missing, which it names; -EINVAL: a shape disagrees with the arguments (tensor,
 * expected and found shape).
 */
int mfs_model_new(struct mfs_ckpt *ckpt, const char *arch, const struct mfs_vocab *vocab,
		  struct mfs_model **ret, struct mfs_error *err);
void mfs_model_free(struct mfs_model *model);

/* Adds a sentence to warnings while a view is being built. -ENOMEM. */
int mfs_model_warn(struct mfs_model *model, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

const char *mfs_model_family(const struct mfs_model *model);	   /* "llama" */
const char *mfs_model_architecture(const struct mfs_model *model); /* "LlamaForCausalLM" */

/* Sets ndim, shape and bytes of a target whose other members are set. vocab: rows that are shown.
 * -EINVAL: the size overflows. */
int mfs_hf_target_shape(struct mfs_hf_target *t, uint64_t vocab, struct mfs_error *err);

/* The boxes of one of the stacked experts, whose tensor is src; of another target expert is 0. */
int mfs_hf_target_expert_boxes(const struct mfs_hf_target *t, int32_t expert,
			       const struct mfs_global_tensor *src, mfs_emit_box emit, void *arg);

/* The name that t would have if its row's were as. Returns the length, as snprintf() does. */
size_t mfs_hf_target_name_as(const struct mfs_hf_target *t, const char *as, char *text,
			     size_t size);

/* HF's names ("model.layers.3.self_attn.q_proj.weight"), by the family's rules. */
extern const struct mfs_target_ops mfs_hf_target_ops;

#endif
