/* Private to trainer/model: attention's core (core.c), and the ways in which processes that share a
 * sequence compute it. */
#ifndef MFT_TRAINER_MODEL_ATTENTION_CORE_H
#define MFT_TRAINER_MODEL_ATTENTION_CORE_H

#include "trainer/model/attention/attention_i.h"

struct mft_core_ops {
	/* Asks for scratch, of forward or of backward. */
	void (*plan)(const struct mft_net *net, struct mft_core *core, struct mft_part_plan *p,
		     bool backward);
	/* a: of the tokens and heads that the process has, or some of the sequences; but first_key
	 * are positions of the whole sequence. */
	void (*forward)(const struct mft_net *net, const struct mft_pass *pass,
			const struct mft_core *core, const struct mfk_attention *a);
	void (*backward)(const struct mft_net *net, const struct mft_pass *pass,
			 const struct mft_core *core, const struct mfk_attention *a);
};

extern const struct mft_core_ops mft_core_gather; /* core_gather.c */
extern const struct mft_core_ops mft_core_ring;	  /* core_ring.c */
extern const struct mft_core_ops mft_core_cached; /* core_cached.c */

/* Around a kind that attends with some heads of what neighbours have; core_heads.c. */
int mft_core_heads_check(const struct mft_net *net, enum mft_context_kind way,
			 const struct mfk_attention *shape, struct mfs_error *err);
/* All tokens of neighbours, and some of the heads. */
struct mfk_attention mft_core_heads_shape(const struct mft_net *net, enum mft_context_kind way,
					  const struct mfk_attention *a);
void mft_core_heads_plan(const struct mft_net *net, struct mft_core *core, struct mft_part_plan *p,
			 bool backward);
void mft_core_heads_forward(const struct mft_net *net, const struct mft_pass *pass,
			    const struct mft_core *core, const struct mfk_attention *a);
void mft_core_heads_backward(const struct mft_net *net, const struct mft_pass *pass,
			     const struct mft_core *core, const struct mfk_attention *a);

/* Queries of a piece that this process has, and keys of a piece that they see; core_pieces.c. */
struct mft_pair {
	int64_t sequence;
	int queries;	   /* 0 or 1: which of the two pieces of the sequence */
	bool causal;	   /* keys of the same piece */
	bool first;	   /* of backward: the queries' first pair */
	const void *k, *v; /* the piece's rows */
};
struct mft_pieces {
	const struct mfk_attention *a; /* own queries, [batch, seq]; its keys are not looked at */
	void *work;		       /* of mft_pieces_work_bytes() */
	float *out, *part_lse;	       /* forward: [batch, seq, heads, v_dim], [heads, seq / 2] */
	void *part;		       /* [seq / 2, heads, v_dim] */
	float *dq, *wide; /* backward: [batch, seq, heads, qk_dim], and as much of a piece */
};
/* Whether pieces are what a's queries need: there are no documents, windows or dropout. */
bool mft_pieces_do(const struct mfk_attention *a);
uint64_t mft_pieces_work_bytes(const struct mft_net *net, const struct mfk_attention *a,
			       bool backward);
/* Joins what the queries get of the keys to out and a->lse, which begin with -infinity. */
void mft_pieces_forward(const struct mft_net *net, const struct mft_pass *pass,
			const struct mft_pieces *p, const struct mft_pair *pair);
/* Adds to dq; a->dq holds parts. dk, dv: what the pair gives, in net->io. */
void mft_pieces_backward(const struct mft_net *net, const struct mft_pass *pass,
			 const struct mft_pieces *p, const struct mft_pair *pair, void *dk,
			 void *dv);
/* sum += part, or sum = part; wide is as large as the part. */
void mft_core_add(const struct mft_net *net, const struct mft_pass *pass, float *wide, bool first,
		  float *sum, const void *part, int64_t count);

uint64_t mft_core_work_bytes(const struct mft_net *net, const struct mfk_attention *a,
			     bool backward);
/* The address so many elements, of size bytes, after p; NULL stays NULL. */
static inline void *mft_core_at(const void *p, int64_t elements, size_t size)
{
	return p ? (char *)p + (size_t)elements * size : NULL;
}
/* Scratch that the kind has asked for as number `which` of forward or backward. */
void *mft_core_scratch(const struct mft_net *net, const struct mft_core *core, bool backward,
		       unsigned which);
/* y[r] = x[map[r]] for so many rows, of cols elements; map is one of struct mft_context's. */
void mft_core_rows(const struct mft_net *net, const struct mft_pass *pass, uint64_t map,
		   int64_t rows, int64_t cols, const void *x, void *y);

#endif
