/*
 * A sublayer, forward and backward: where the residual stream meets a norm, and the part between
 * (net_i.h). Its output and the gradient of its input lie in mft_branch_now(), the gradient of the
 * stream in mft_dx_now().
 */
#include "trainer/base/nvtx_ranges.h"
#include "trainer/model/net_i.h"

void *mft_branch_now(const struct mft_net *net)
{
	return mft_net_branch(net, net->chain->now.output);
}

void *mft_dx_now(const struct mft_net *net)
{
	return mft_net_dx(net, net->chain->now.dx);
}

/* ---- the residual stream ---- */

/* The gradient of what a dropout was given; dx itself if there is none. */
const void *mft_before_dropout(const struct mft_net *net, const struct mft_pass *pass,
			       uint32_t layer, enum mft_dropout_site site)
{
	struct mfk_dropout d = mft_dropout_at(net, pass, layer, site);

	if (!mft_drops(net, pass))
		return mft_dx_now(net);
	d.x = mft_dx_now(net);
	d.y = mft_net_at(net, net->chain->dropped);
	mft_drop(net, pass, net->backend->ops->dropout_backward, &d);
	return d.y;
}

/* x = x of before + dropout(its output), and the norm of that: one operation without dropout.
 * before NULL: x is there. */
void mft_join(const struct mft_net *net, const struct mft_pass *pass,
	      const struct mft_sublayer *before, const struct mft_joint *at)
{
	void *x = mft_pass_at(net, at->x), *normed = mft_pass_at(net, at->normed);
	float *stats = mft_pass_at(net, at->stats);

	if (before && mft_drops(net, pass)) {
		struct mfk_dropout d = mft_dropout_at(net, pass, before->part.layer, before->site);

		d.x = mft_branch_now(net);
		d.residual = mft_pass_at(net, before->in.x);
		d.y = x;
		mft_drop(net, pass, net->backend->ops->dropout, &d);
		before = NULL;
	}
	if (before)
		mft_norm_forward(net, pass, &at->norm, net->rows, mft_branch_now(net),
				 mft_pass_at(net, before->in.x), x, normed, stats);
	else
		mft_norm_forward(net, pass, &at->norm, net->rows, x, NULL, NULL, normed, stats);
}

/* dx = gradient of dnormed through the norm, + dx of the stream (NULL: the stream ends here). */
void mft_join_backward(const struct mft_net *net, const struct mft_pass *pass,
		       const struct mft_joint *at, const void *dnormed, const void *dstream)
{
	mft_norm_backward(net, pass, &at->norm, net->rows, mft_pass_at(net, at->x),
			  mft_pass_at(net, at->stats), dnormed, dstream, mft_dx_now(net));
}

/* ---- parts, of the stream's rows ---- */

/* y NULL: it is not wanted. */
static void part_forward(const struct mft_net *net, const struct mft_pass *pass,
			 const struct mft_part *part, const void *x, void *y)
{
	void *term = y;

	if (part->kind->divided) {
		x = mft_stream_gather(net, pass, MFT_GATHERED_X, x);
		term = y ? mft_stream_term(net, y) : NULL;
	}
	part->kind->forward(net, pass, part, x, term);
	if (part->kind->divided && y)
		mft_stream_sum(net, pass, term, y);
}

static void part_backward(const struct mft_net *net, const struct mft_pass *pass,
			  const struct mft_part *part, const void *x, const void *dy, void *dx)
{
	struct mft_dx_sum sum;
	struct mft_pass of_part = *pass;

	if (!part->kind->divided) {
		part->kind->backward(net, pass, part, x, dy, dx);
		return;
	}
	sum = mft_dx_sum_new(net, dx);
	of_part.dx_sum = &sum;
	dy = mft_stream_gather(net, pass, MFT_GATHERED_DY, dy);
	x = mft_stream_gather_at_side(net, pass, MFT_GATHERED_X, x);
	part->kind->backward(net, &of_part, part, x, dy, sum.term);
	mft_dx_sum_end(net, &of_part);
}

/* ---- both ---- */

void mft_sublayer_forward(const struct mft_net *net, const struct mft_pass *pass,
			  const struct mft_sublayer *before, const struct mft_sublayer *s,
			  void *output)
{
	MFT_RANGE_BEGIN("%s", s->part.kind->name);
	mft_join(net, pass, before, &s->in);
	part_forward(net, pass, &s->part, mft_pass_at(net, s->in.normed), output);
	MFT_RANGE_END();
}

/* What selective recomputation did not keep. */
void mft_make_again(const struct mft_net *net, const struct mft_pass *pass,
		    const struct mft_sublayer *s)
{
	struct mft_pass again = *pass;

	again.again = true;
	MFT_RANGE_BEGIN("%s again", s->part.kind->name);
	if (s->norm_again && (s->part_again || !s->part.keeps_x))
		mft_join(net, &again, NULL, &s->in);
	if (s->part_again)
		part_forward(net, &again, &s->part, mft_pass_at(net, s->in.normed), NULL);
	MFT_RANGE_END();
}

void mft_sublayer_backward(const struct mft_net *net, const struct mft_pass *pass,
			   const struct mft_sublayer *s)
{
	const void *doutput;
	void *dnormed = mft_branch_now(net);

	MFT_RANGE_BEGIN("%s", s->part.kind->name);
	doutput = mft_before_dropout(net, pass, s->part.layer, s->site);
	part_backward(net, pass, &s->part, mft_pass_at(net, s->in.normed), doutput, dnormed);
	mft_join_backward(net, pass, &s->in, dnormed, mft_dx_now(net));
	MFT_RANGE_END();
}
