/* Embeddings, and the gradients of their tables. */
#include <stdlib.h>

#include "tests/kernels/check_i.h"

/* Numbers of tokens, sorted by row and then by number. */
static void sort_tokens(const int32_t *rows, int64_t count, int64_t end, int32_t *order)
{
	int64_t n = 0;

	for (int64_t row = 0; row < end; row++)
		for (int64_t i = 0; i < count; i++)
			if (rows[i] == row)
				order[n++] = (int32_t)i;
}

/* The table in two parts: tokens of the other one have zeros, and no gradient. wte, dwte: the whole
 * tables before backward; dwtes: what the gradient is to be. */
static void divided(struct check *c, struct mfk_embedding a, const double *ys, const double *wte,
		    const double *dwte, const double *dwtes, const int32_t *ids)
{
	const int64_t n = a.cols, vocab = a.vocab;

	a.wpe = a.dwpe = NULL;
	a.all = vocab;
	for (int part = 0; part < 2; part++) {
		struct tensor *y = check_output(c, a.dtype, a.tokens * n), *grad;
		double *here = check_doubles(c, a.tokens * n);

		a.first = part ? vocab / 3 : 0;
		a.vocab = part ? vocab - a.first : vocab / 3;
		for (int64_t i = 0; i < a.tokens * n; i++) {
			const int64_t row = ids[i / n] - a.first;

			here[i] = row >= 0 && row < a.vocab ? ys[i] : 0;
		}
		a.wte = check_values(c, a.dtype, a.vocab * n, wte + a.first * n)->p;
		grad = check_values(c, a.grad, a.vocab * n, dwte + a.first * n);
		a.dwte = grad->p;
		a.y = y->p;
		c->ops->embedding(c->ctx, &a);
		check_equal(c, "y of a part", y, here);
		c->ops->embedding_backward(c->ctx, &a);
		check_near(c, "dwte of a part", grad, dwtes + a.first * n, 1e-6, 1);
	}
}

static void embedding(struct check *c, enum mfk_dtype type, enum mfk_dtype grad, int64_t tokens,
		      int64_t n, bool positions)
{
	const int64_t vocab = 37, most = 21;
	struct mfk_embedding a = {.dtype = type,
				  .grad = grad,
				  .tokens = tokens,
				  .cols = n,
				  .vocab = vocab,
				  .positions_max = most};
	struct tensor *wte = check_input(c, type, vocab * n, 0, 1);
	struct tensor *wpe = check_input(c, type, most * n, 0, 1);
	struct tensor *dy = check_input(c, type, tokens * n, 0, 1);
	struct tensor *dwte = check_input(c, grad, vocab * n, 0, 1);
	struct tensor *dwpe = check_input(c, grad, most * n, 0, 1);
	struct tensor *y = check_output(c, type, tokens * n);
	double *ys = check_doubles(c, tokens * n), *dwtes = check_doubles(c, vocab * n);
	double *dwpes = check_doubles(c, most * n), *before = check_doubles(c, vocab * n);
	int32_t *ids = calloc(4 * (size_t)tokens, 4);
	int32_t *at = ids + tokens, *order = at + tokens, *position_order = order + tokens;

	check_shape(c, "%lld x %lld %s to %s%s", (long long)tokens, (long long)n,
		    check_type_name(type), check_type_name(grad), positions ? ", positions" : "");
	for (int64_t i = 0; i < vocab * n; i++)
		dwtes[i] = before[i] = dwte->x[i];
	for (int64_t i = 0; i < most * n; i++)
		dwpes[i] = dwpe->x[i];
	for (int64_t i = 0; i < tokens; i++) {
		/* Some ids are frequent, and the first and last are there. */
		ids[i] = (int32_t)(i == 0   ? vocab - 1
				   : i == 1 ? 0
					    : check_below(c, 1 + check_below(c, vocab)));
		at[i] = (int32_t)(i % most);
		for (int64_t j = 0; j < n; j++) {
			ys[i * n + j] =
				wte->x[ids[i] * n + j] + (positions ? wpe->x[at[i] * n + j] : 0);
			dwtes[ids[i] * n + j] += dy->x[i * n + j];
			dwpes[at[i] * n + j] += dy->x[i * n + j];
		}
	}
	sort_tokens(ids, tokens, vocab, order);
	sort_tokens(at, tokens, most, position_order);
	a.ids = check_ints(c, ids, tokens);
	a.positions = check_ints(c, at, tokens);
	a.order = check_ints(c, order, tokens);
	a.position_order = check_ints(c, position_order, tokens);
	a.wte = wte->p;
	a.wpe = positions ? wpe->p : NULL;
	a.y = y->p;
	a.dy = dy->p;
	a.dwte = dwte->p;
	a.dwpe = positions ? dwpe->p : NULL;
	if (c->ops->embedding) {
		c->ops->embedding(c->ctx, &a);
		check_near(c, "y", y, ys, 0, 0);
	}
	if (c->ops->embedding_backward) {
		c->ops->embedding_backward(c->ctx, &a);
		check_near(c, "dwte", dwte, dwtes, 1e-6, 1);
		if (positions)
			check_near(c, "dwpe", dwpe, dwpes, 1e-6, 1);
		else
			divided(c, a, ys, wte->x, before, dwtes, ids);
	}
	free(ids);
}

void check_embedding(struct check *c)
{
	for (int t = 0; t < 3; t++)
		for (int positions = 0; positions < 2; positions++) {
			embedding(c, check_types[t], MFK_F32, 1, 1, positions);
			embedding(c, check_types[t], check_types[t], 17, 129, positions);
			embedding(c, check_types[t], MFK_F32, 1003, 64, positions);
			embedding(c, check_types[t], MFK_F32, 70, 2056, positions);
		}
}
