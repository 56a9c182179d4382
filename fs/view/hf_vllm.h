/*
 * Private to fs/view/hf.c: a model as vLLM's workers hold it, for load_format="sharded_state"
 * (vllm/model_executor/model_loader/sharded_state_loader.py). Worker r of N reads
 * "model-rank-r-part-0.safetensors": its part of each parameter, after vLLM has put queries, keys
 * and values into one, and gates and ups. How a worker cuts is written in
 * vllm/model_executor/layers/linear.py and vocab_parallel_embedding.py.
 */
#ifndef MFS_FS_VIEW_HF_VLLM_H
#define MFS_FS_VIEW_HF_VLLM_H

#include <stdint.h>

#include "formats/base/error.h"

struct mfs_ckpt;
struct mfs_family;
struct mfs_model;
struct mfs_view;

struct mfs_hf_vllm;

/* -ENOTSUP: it is not known how vLLM holds models of the family. */
int mfs_hf_vllm_possible(const struct mfs_ckpt *ckpt, const struct mfs_family *family,
			 struct mfs_error *err);
/* Parses "tpN". -ENOENT: spec has another form; -EINVAL: the model cannot be cut so. */
int mfs_hf_vllm_parse(const struct mfs_ckpt *ckpt, const char *spec, uint32_t *ret_tp,
		      struct mfs_error *err);

/* Adds the files of all workers to a view. They point into *ret, which the caller frees after
 * them, also if this fails. */
int mfs_hf_vllm_add(struct mfs_view *v, const struct mfs_model *model, uint32_t tp,
		    struct mfs_hf_vllm **ret, struct mfs_error *err);
void mfs_hf_vllm_free(struct mfs_hf_vllm *vllm);

#endif
