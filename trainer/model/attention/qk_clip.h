/*
 * --qk-clip (MuonClip, arXiv:2507.20534): after an update the weights of queries and keys of a head
 * become smaller, if its largest score in the step was above --qk-clip-threshold. With eta =
 * threshold / score, queries are multiplied by eta^alpha and keys by eta^(1 - alpha). The rotary
 * keys of latent attention, which all heads share, stay, and the queries' rotary parts are
 * multiplied by eta. A group of heads that shares its keys has the largest score of them.
 *
 * Sources: megatron/core/optimizer/qk_clip.py; transformer/attention.py: clip_qk, _clip_linear_qkv;
 * multi_latent_attention.py: clip_qk, _clip_q_proj_weight, _clip_kv_proj_weight.
 */
#ifndef MFT_TRAINER_MODEL_ATTENTION_QK_CLIP_H
#define MFT_TRAINER_MODEL_ATTENTION_QK_CLIP_H

#include "trainer/model/base/pass.h"
#include "trainer/model/base/state.h"

/* Rows [from, from + rows) of each unit (a group, or a head) of a matrix, of unit_rows. */
struct mft_qk_rows {
	const struct mft_param *param;
	int64_t unit_rows, from, rows;
	double power; /* of eta */
};

#define MFT_QK_ROWS 3

/* Of a layer. */
struct mft_qk_clip {
	int64_t heads, units;
	uint64_t max; /* offset in memory: fp32 [heads], the largest scores of the step */
	struct mft_qk_rows rows[MFT_QK_ROWS]; /* param NULL: no more */
	struct mft_qk_clip *next;	      /* of the net's */
};

/* Asks for memory, and adds a layer's to the net. *ret is NULL without --qk-clip and
 * --log-max-attention-logit, and in a layer of MTP, which Megatron does not look at. */
int mft_qk_clip_add(struct mft_net *net, uint32_t layer, const struct mft_qk_clip *clip,
		    struct mft_qk_clip **ret, struct mfs_error *err);
/* The scores of a microbatch of the step. clip NULL: nothing is done. */
void mft_qk_clip_note(const struct mft_net *net, const struct mft_pass *pass,
		      const struct mft_qk_clip *clip, const struct mfk_attention *a);
/* Before the first microbatch of a step. */
void mft_qk_clip_begin(const struct mft_net *net, struct mfk_ctx *ctx);
/* After the update of a step; see mft_net_clip_qk(). */
int mft_qk_clip(const struct mft_net *net, struct mfk_ctx *ctx, double *ret_max,
		struct mfs_error *err);

#endif
