/*
 * The head: the last norm's output, times the transposed embedding or a matrix of its own, and the
 * loss of that.
 *
 * Logits exist a chunk of rows at a time, in the io type, in scratch. Their gradient takes their
 * place, and is used up before the next chunk. So the head does its backward at once.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/numbers/cast.h"
#include "trainer/model/net_i.h"

#define CHUNK_BYTES (UINT64_C(1) << 30)
#define CHUNK_ROWS  128 /* a chunk has a multiple of so many rows, for the sake of products */
/* A row of logits has a multiple of so many elements, likewise: products are ten times slower where
 * rows do not begin at 16 bytes. */
#define ROW_ELEMENTS 64

/* Equal chunks, each at most CHUNK_BYTES of logits. */
static int64_t chunk_rows(const struct mft_net *net)
{
	const uint64_t row = mft_matrix_bytes(net->io, 1, net->chain->head.linear.ld);
	int64_t most = (int64_t)(CHUNK_BYTES / row) / CHUNK_ROWS * CHUNK_ROWS, chunks, rows;

	if (net->cache.sequences) /* whose rows are few */
		return net->tokens;
	if (most < CHUNK_ROWS)
		most = CHUNK_ROWS;
	if (most >= net->tokens)
		return net->tokens;
	chunks = (net->tokens + most - 1) / most;
	rows = (net->tokens + chunks - 1) / chunks;
	return (rows + CHUNK_ROWS - 1) / CHUNK_ROWS * CHUNK_ROWS;
}

static int find(struct mft_net *net, struct mfs_error *err)
{
	struct mft_head *h = &net->chain->head;
	int r = mft_norm_find(net, "decoder.final_layernorm", -1, &h->in.norm, err);

	if (r)
		return r;
	return mft_linear_find(net, net->args->tied ? "embedding.word_embeddings" : "output_layer",
			       -1, -1, &h->linear, err);
}

int mft_head_plan(struct mft_net *net, struct mft_part_plan *plan, struct mfs_error *err)
{
	struct mft_head *h = &net->chain->head;
	const uint64_t per_token = mft_matrix_bytes(MFK_F32, net->tokens, 1);
	const int r = find(net, err);

	if (r)
		return r;
	mft_linear_replaces(net, &h->linear);
	h->linear.ends_dx = true;
	if (net->rows < net->tokens) {
		mft_net_gradient_is_term(net, h->in.norm.weight);
		mft_net_gradient_is_term(net, h->in.norm.bias);
	}
	net->chain->vocab = h->linear.out;
	h->linear.ld = (net->chain->vocab + ROW_ELEMENTS - 1) / ROW_ELEMENTS * ROW_ELEMENTS;
	h->chunk = chunk_rows(net);
	h->loss = (struct mft_loss){.kind = mft_loss_kind(net->config), .rows = h->chunk};
	mft_part_plan_scratch_anew(plan);
	h->scale = mft_part_plan_scratch(plan, per_token);
	for (unsigned i = 0; i < mft_loss_term_count(h->loss.kind); i++)
		h->terms[i] = mft_part_plan_scratch(plan, per_token);
	h->logits = mft_part_plan_scratch(plan, mft_matrix_bytes(net->io, h->chunk, h->linear.ld));
	if (h->loss.kind->gives_log_probs)
		h->log_probs = mft_memory_for_all(net, per_token);
	return h->loss.kind->plan ? h->loss.kind->plan(net, &h->loss, plan, err) : 0;
}

/* A row of x or of its gradient. */
static void *row_at(const struct mft_net *net, const void *x, int64_t row)
{
	return (char *)(uintptr_t)x + (size_t)(row * net->hidden) * mfk_dtype_size(net->io);
}

static int64_t rows_from(const struct mft_net *net, int64_t row)
{
	return net->tokens - row < net->chain->head.chunk ? net->tokens - row
							  : net->chain->head.chunk;
}

/* muP's multiplier of logits, and of their gradient. */
static void multiply(const struct mft_net *net, const struct mft_pass *pass, void *logits,
		     int64_t rows)
{
	const double by = net->args->mup.output;

	if (net->args->mup.on && by != 1)
		net->backend->ops->scale(pass->ctx, net->io, logits, (float)by,
					 rows * net->chain->head.linear.ld);
}

/* What a token's loss counts: its mask times a number. */
static const float *scale_of_tokens(const struct mft_net *net, const struct mft_pass *pass,
				    float by)
{
	float *scale = mft_net_scratch(net, net->chain->head.scale);

	net->backend->device->copy(pass->ctx, scale, pass->loss_mask,
				   (size_t)net->tokens * sizeof(float));
	net->backend->ops->scale(pass->ctx, MFK_F32, scale, by, net->tokens);
	return scale;
}

static void logits(const struct mft_net *net, const struct mft_pass *pass,
		   const struct mft_loss_chunk *c, const void *x)
{
	const struct mft_head *h = &net->chain->head;

	mft_linear_forward(net, pass, &h->linear, c->rows, row_at(net, x, c->first), c->logits);
	multiply(net, pass, c->logits, c->rows);
}

static void chunk(const struct mft_net *net, const struct mft_pass *pass,
		  const struct mft_loss_chunk *c, const void *x, void *dx)
{
	const struct mft_head *h = &net->chain->head;

	if (c->logits)
		logits(net, pass, c, x);
	h->loss.kind->chunk(net, pass, &h->loss, c);
	if (pass->train)
		multiply(net, pass, c->logits, c->rows);
	if (pass->train)
		mft_linear_backward(net, pass, &h->linear, c->rows, row_at(net, x, c->first),
				    c->logits, row_at(net, dx, c->first));
}

/* Rows from one on; scale: of all tokens. */
static struct mft_loss_chunk chunk_at(const struct mft_net *net, const struct mft_head_loss *loss,
				      int64_t row, const float *scale)
{
	const struct mft_head *h = &net->chain->head;
	struct mft_loss_chunk c = {
		.first = row,
		.rows = rows_from(net, row),
		.cols = net->chain->vocab,
		.ld = h->linear.ld,
		.logits = mft_net_scratch(net, h->logits),
		.scale = scale + row,
		.log_probs = h->loss.kind->gives_log_probs ? mft_pass_at(net, h->log_probs) : NULL,
	};

	for (unsigned i = 0; i < loss->terms; i++)
		c.terms[i] = (float *)mft_net_scratch(net, h->terms[i]) + row;
	return c;
}

/* A first walk through all chunks, where the loss needs one. */
static bool look(const struct mft_net *net, const struct mft_pass *pass,
		 const struct mft_head_loss *loss, const float *scale, const void *x)
{
	const struct mft_head *h = &net->chain->head;
	const struct mft_loss_kind *kind = h->loss.kind;

	if (!kind->looks || !kind->looks(net, pass, &h->loss))
		return false;
	for (int64_t row = 0; row < net->tokens; row += h->chunk) {
		const struct mft_loss_chunk c = chunk_at(net, loss, row, scale);

		logits(net, pass, &c, x);
		kind->look(net, pass, &h->loss, &c);
	}
	return true;
}

/* Losses of x[T, hidden], all processes' rows, and in training the gradient of it: a term of a sum.
 */
static void run_head(const struct mft_net *net, const struct mft_pass *pass,
		     const struct mft_head_loss *loss, const void *x, void *dnormed)
{
	const float *scale = scale_of_tokens(net, pass, loss->grad_scale);
	const float *weight = pass->loss_mask;
	const bool looked = look(net, pass, loss, scale, x);

	for (int64_t row = 0; row < net->tokens; row += net->chain->head.chunk) {
		struct mft_loss_chunk c = chunk_at(net, loss, row, scale);
		struct mft_pass of_chunk = *pass;

		if (looked && !pass->train)
			c.logits = NULL;
		of_chunk.adds = loss->adds || row > 0;
		if (row + net->chain->head.chunk < net->tokens) /* dx has more rows */
			of_chunk.dx_sum = NULL;
		chunk(net, &of_chunk, &c, x, dnormed);
	}
	if (loss->is_mean)
		weight = scale_of_tokens(net, pass, (float)(1 / loss->mean_of));
	for (unsigned i = 0; i < loss->terms; i++)
		net->backend->ops->weighted_sum(pass->ctx,
						mft_net_scratch(net, net->chain->head.terms[i]),
						weight, net->tokens, loss->sums + i);
}

struct mft_head_loss mft_head_loss(const struct mft_net *net, const struct mft_pass *pass)
{
	return (struct mft_head_loss){
		.grad_scale = pass->info->grad_scale,
		.sums = mft_net_sum(net, MFT_SUM_LOSS),
		.terms = mft_loss_term_count(net->chain->head.loss.kind),
		.adds = pass->train && net->chain->mtp.count > 0,
	};
}

void mft_head_forward(const struct mft_net *net, const struct mft_pass *pass,
		      const struct mft_head_loss *loss, const void *normed)
{
	run_head(net, pass, loss, mft_stream_gather(net, pass, MFT_GATHERED_X, normed), NULL);
}

void mft_head_backward(const struct mft_net *net, const struct mft_pass *pass,
		       const struct mft_head_loss *loss, const void *normed)
{
	struct mft_dx_sum sum = mft_dx_sum_new(net, mft_branch_now(net));
	struct mft_pass of_head = *pass;

	of_head.dx_sum = &sum;
	run_head(net, &of_head, loss, mft_stream_gather(net, pass, MFT_GATHERED_X, normed),
		 sum.term);
	mft_dx_sum_end(net, &of_head);
}

const void *mft_head_all_logits(const struct mft_net *net, const struct mft_pass *pass)
{
	const struct mft_head *h = &net->chain->head;
	void *logits = mft_net_scratch(net, h->logits);

	mft_linear_forward(
		net, pass, &h->linear, net->tokens,
		mft_stream_gather(net, pass, MFT_GATHERED_X, mft_pass_at(net, h->in.normed)),
		logits);
	multiply(net, pass, logits, net->tokens);
	return logits;
}

/* ---- logits for people ---- */

/* Widens count elements, whose bytes end where ret's do, from the front. */
static void widen(const struct mft_net *net, const char *from, size_t count, float *ret)
{
	const enum mfs_dtype type = net->params->weight_type;
	const size_t size = mfk_dtype_size(net->io);
	char some[1024];

	for (size_t done = 0, n; done < count; done += n) {
		n = count - done < sizeof(some) / size ? count - done : sizeof(some) / size;
		memcpy(some, from + done * size, n * size);
		mfs_cast(MFS_F32, ret + done, type, some, n);
	}
}

/* Rows of logits, without what lies between them. Narrow ones arrive in the back part of their
 * place. */
static int fetch(const struct mft_net *net, const struct mft_pass *pass, int64_t rows, float *ret,
		 struct mfs_error *err)
{
	const struct mft_head *h = &net->chain->head;
	const size_t size = mfk_dtype_size(net->io), count = (size_t)(rows * net->chain->vocab);
	const size_t row = (size_t)net->chain->vocab * size, step = (size_t)h->linear.ld * size;
	const char *logits = mft_net_scratch(net, h->logits);
	char *to = (char *)ret + count * (sizeof(float) - size);
	char why[MFK_WHY] = "";
	int r;

	for (int64_t i = 0; i < rows; i++)
		net->backend->device->copy_out(pass->ctx, to + (size_t)i * row,
					       logits + (size_t)i * step, row);
	r = net->backend->device->sync(pass->ctx, why);
	if (r)
		return mfs_fail(err, r, "%s", why);
	if (!mfk_is_exact(net->io))
		widen(net, to, count, ret);
	return 0;
}

int mft_head_logits(const struct mft_net *net, const struct mft_pass *pass, const void *x,
		    float *ret, struct mfs_error *err)
{
	const struct mft_head *h = &net->chain->head;

	for (int64_t row = 0; row < net->tokens; row += h->chunk) {
		const int64_t rows = rows_from(net, row);
		int r;

		mft_linear_forward(net, pass, &h->linear, rows, row_at(net, x, row),
				   mft_net_scratch(net, h->logits));
		multiply(net, pass, mft_net_scratch(net, h->logits), rows);
		r = fetch(net, pass, rows, ret + row * net->chain->vocab, err);
		if (r)
			return r;
	}
	return 0;
}
