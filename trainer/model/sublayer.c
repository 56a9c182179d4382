/*
 * A sublayer, forward and backward: where the residual stream meets a norm, and the part between
 * (net_i.h). Its output and the gradient of its input lie in mfs_branch_now(), the gradient of the
 * stream in mfs_dx_now().
 */
#include "trainer/model/net_i.h"

void *mfs_branch_now(const struct mfs_net *net)
{
	return mfs_net_branch(net, net->chain->now.output);
}

void *mfs_dx_now(const struct mfs_net *net)
{
	return mfs_net_dx(net, net->chain->now.dx);
}

/* ---- the residual stream ---- */

/* The gradient of what a dropout was given; dx itself if there is none. */
const void *mfs_before_dropout(const struct mfs_net *net, const struct mfs_pass *run,
			       uint32_t layer, enum mfs_dropout_site site)
{
	struct mfk_dropout d = mfs_dropout_at(net, run, layer, site);

	if (!mfs_drops(net, run))
		return mfs_dx_now(net);
	d.x = mfs_dx_now(net);
	d.y = mfs_net_at(net, net->chain->dropped);
	mfs_drop(net, run, net->backend->ops->dropout_backward, &d);
	return d.y;
}

/* x = x of before + dropout(its output), and the norm of that: one operation without dropout.
 * before NULL: x is there. */
void mfs_join(const struct mfs_net *net, const struct mfs_pass *run,
	      const struct mfs_sublayer *before, const struct mfs_joint *at)
{
	void *x = mfs_pass_at(net, at->x), *normed = mfs_pass_at(net, at->normed);
	float *stats = mfs_pass_at(net, at->stats);

	if (before && mfs_drops(net, run)) {
		struct mfk_dropout d = mfs_dropout_at(net, run, before->part.layer, before->site);

		d.x = mfs_branch_now(net);
		d.residual = mfs_pass_at(net, before->in.x);
		d.y = x;
		mfs_drop(net, run, net->backend->ops->dropout, &d);
		before = NULL;
	}
	if (before)
		mfs_norm_forward(net, run, &at->norm, net->rows, mfs_branch_now(net),
				 mfs_pass_at(net, before->in.x), x, normed, stats);
	else
		mfs_norm_forward(net, run, &at->norm, net->rows, x, NULL, NULL, normed, stats);
}

/* dx = gradient of dnormed through the norm, + dx of the stream (NULL: the stream ends here). */
void mfs_join_backward(const struct mfs_net *net, const struct mfs_pass *run,
		       const struct mfs_joint *at, const void *dnormed, const void *dstream)
{
	mfs_norm_backward(net, run, &at->norm, net->rows, mfs_pass_at(net, at->x),
			  mfs_pass_at(net, at->stats), dnormed, dstream, mfs_dx_now(net));
}

/* ---- parts, of the stream's rows ---- */

/* y NULL: it is not wanted. */
static void part_forward(const struct mfs_net *net, const struct mfs_pass *run,
			 const struct mfs_part *part, const void *x, void *y)
{
	void *term = y;

	if (part->kind->divided) {
		x = mfs_stream_gather(net, run, MFS_GATHERED_X, x);
		term = y ? mfs_stream_term(net, y) : NULL;
	}
	part->kind->forward(net, run, part, x, term);
	if (part->kind->divided && y)
		mfs_stream_sum(net, run, term, y);
}

static void part_backward(const struct mfs_net *net, const struct mfs_pass *run,
			  const struct mfs_part *part, const void *x, const void *dy, void *dx)
{
	struct mfs_dx_sum sum;
	struct mfs_pass of_part = *run;

	if (!part->kind->divided) {
		part->kind->backward(net, run, part, x, dy, dx);
		return;
	}
	sum = mfs_dx_sum_new(net, dx);
	of_part.dx_sum = &sum;
	dy = mfs_stream_gather(net, run, MFS_GATHERED_DY, dy);
	x = mfs_stream_gather_beside(net, run, MFS_GATHERED_X, x);
	part->kind->backward(net, &of_part, part, x, dy, sum.term);
	mfs_dx_sum_end(net, &of_part);
}

/* ---- both ---- */

void mfs_sublayer_forward(const struct mfs_net *net, const struct mfs_pass *run,
			  const struct mfs_sublayer *before, const struct mfs_sublayer *s,
			  void *output)
{
	mfs_join(net, run, before, &s->in);
	part_forward(net, run, &s->part, mfs_pass_at(net, s->in.normed), output);
}

/* What selective recomputation did not keep. */
void mfs_make_again(const struct mfs_net *net, const struct mfs_pass *run,
		    const struct mfs_sublayer *s)
{
	struct mfs_pass again = *run;

	again.again = true;
	if (s->norm_again)
		mfs_join(net, &again, NULL, &s->in);
	if (s->part_again)
		part_forward(net, &again, &s->part, mfs_pass_at(net, s->in.normed), NULL);
}

void mfs_sublayer_backward(const struct mfs_net *net, const struct mfs_pass *run,
			   const struct mfs_sublayer *s)
{
	const void *doutput = mfs_before_dropout(net, run, s->part.layer, s->site);
	void *dnormed = mfs_branch_now(net);

	part_backward(net, run, &s->part, mfs_pass_at(net, s->in.normed), doutput, dnormed);
	mfs_join_backward(net, run, &s->in, dnormed, mfs_dx_now(net));
}
