/* Keys by which tokens choose all experts alike. */
#include <math.h>
#include <string.h>

#include "kernels/ref/ref_i.h"

/* A group of tokens. Keys are e^logit until the end. */
struct group {
	const struct mfk_sinkhorn *a;
	int64_t number, tokens, block;
	float *d0, *d1, *sums; /* [tokens], [experts], [blocks][experts] */
};

/* The number of a group's token j among all. */
static int64_t token_of(const struct group *g, int64_t j)
{
	const struct mfk_sinkhorn *a = g->a;
	const int64_t position = g->number * (a->length / a->groups) + j / a->sequences;

	return j % a->sequences * a->length + position;
}

static float *key_of(const struct group *g, int64_t j)
{
	return g->a->key + token_of(g, j) * g->a->experts;
}

static void begin_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct group *g = arg;
	const int64_t n = g->a->experts;

	for (int64_t j = begin; j < end; j++) {
		const float *logits =
			mfk_load(g->a->dtype, g->a->logits, token_of(g, j) * n, n, scratch);
		float *key = key_of(g, j);

		for (int64_t e = 0; e < n; e++)
			key[e] = expf(logits[e]);
	}
}

/* d0 of a block of tokens, and its part of the sums for d1. */
static void turn_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct group *g = arg;
	const int64_t n = g->a->experts;
	float *sums = g->sums + begin / g->block * n;

	(void)scratch;
	memset(sums, 0, (size_t)n * sizeof(*sums));
	for (int64_t j = begin; j < end; j++) {
		const float *key = key_of(g, j);
		float sum = 0;

		for (int64_t e = 0; e < n; e++)
			sum += g->d1[e] * key[e];
		g->d0[j] = 1 / (float)g->tokens / (sum + MFK_SINKHORN_EPS);
		for (int64_t e = 0; e < n; e++)
			sums[e] += g->d0[j] * key[e];
	}
}

/* Returns the mean of d1's changes. */
static float turn_experts(const struct group *g)
{
	const int64_t n = g->a->experts, blocks = (g->tokens + g->block - 1) / g->block;
	float change = 0;

	for (int64_t e = 0; e < n; e++) {
		float sum = 0, d1;

		for (int64_t b = 0; b < blocks; b++)
			sum += g->sums[b * n + e];
		d1 = 1 / (float)n / (sum + MFK_SINKHORN_EPS);
		change += fabsf(g->d1[e] - d1);
		g->d1[e] = d1;
	}
	return change / (float)n;
}

static void end_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct group *g = arg;

	(void)scratch;
	for (int64_t j = begin; j < end; j++) {
		float *key = key_of(g, j);

		for (int64_t e = 0; e < g->a->experts; e++)
			key[e] = g->d1[e] * key[e] * g->d0[j];
	}
}

static void find_keys(struct mfk_ctx *c, const struct group *g)
{
	float change = INFINITY;

	for (int64_t e = 0; e < g->a->experts; e++)
		g->d1[e] = 1;
	mfk_parallel(c, g->tokens, g->block, (size_t)g->a->experts, begin_part, g);
	for (int i = 0; i < MFK_SINKHORN_TURNS && change > MFK_SINKHORN_TOLERANCE; i++) {
		mfk_parallel(c, g->tokens, g->block, 0, turn_part, g);
		change = turn_experts(g);
	}
	mfk_parallel(c, g->tokens, g->block, 0, end_part, g);
}

void mfk_ref_sinkhorn(struct mfk_ctx *c, const struct mfk_sinkhorn *a)
{
	struct group g = {.a = a, .tokens = a->sequences * a->length / a->groups};
	int64_t blocks;

	if (g.tokens <= 0)
		return;
	g.block = mfk_block_rows(g.tokens, a->experts);
	blocks = (g.tokens + g.block - 1) / g.block;
	g.d0 = mfk_sums(c, (size_t)(g.tokens + (blocks + 1) * a->experts) * sizeof(float));
	if (!g.d0)
		return;
	g.d1 = g.d0 + g.tokens;
	g.sums = g.d1 + a->experts;
	for (; g.number < a->groups; g.number++)
		find_keys(c, &g);
}
