/*
 * Unigrams: the way through a text whose pieces have the greatest sum of scores (unigram_model.cc:
 * EncodeOptimized()). SentencePiece adds floats from the text's begin, so what a word becomes may
 * depend, by rounding, on all that stands before it. A word that comes again is looked up only if
 * its best way was better than the next best by more than rounding can be.
 */
#include "formats/tokenizer/spm/spm_i.h"

#include <math.h>
#include <stdlib.h>

#define RESET 100000.0f /* kScoreResetThreshold */

/* What is known of a word's ways, without the score before the word. */
struct margin {
	float total;  /* of the best way */
	float gap;    /* to the next best, less what rounding may have added to it */
	float low;    /* the least best score at any of its characters */
	uint32_t odd; /* 1: it has positive scores or unknown characters */
};

#define MARGIN_IDS (sizeof(struct margin) / sizeof(uint32_t)) /* its size, in ids */

/* More than rounding can make of a difference of two ways' scores: each of at most count additions
 * errs by 2^-24 of its result. */
static float rounding(float base, const struct margin *m, size_t count)
{
	return (float)count * 0x1p-22f * (fabsf(base) + fabsf(m->total) + m->gap);
}

static void offer(struct mfs_spm_node *node, float score, uint32_t start, uint32_t id)
{
	if (node->start == UINT32_MAX || score > node->score) {
		node->second = node->start == UINT32_MAX ? -INFINITY : node->score;
		node->score = score;
		node->start = start;
		node->id = id;
	} else if (score > node->second) {
		node->second = score;
	}
}

/* Offers the pieces that begin at start to the places where they end. Returns the last of those. */
static uint32_t offer_pieces(const struct mfs_spm *spm, struct mfs_spm_node *nodes,
			     const char *text, uint32_t start, uint32_t len, uint32_t *odd)
{
	const uint32_t size = (uint32_t)mfs_spm_char(text + start, len - start);
	const float before = nodes[start].score;
	bool single = false;
	uint32_t node = 0, last = start;

	for (uint32_t i = start; i < len;) {
		int32_t id;

		if (!mfs_double_array_step(&spm->pieces, &node, (uint8_t)text[i++]))
			break;
		id = spm->pieces.units[node].value;
		if (id < 0)
			continue;
		*odd |= spm->scores[id] > 0;
		offer(&nodes[i], spm->scores[id] + before, start, (uint32_t)id);
		single |= i - start == size;
		last = i;
	}
	if (single)
		return last;
	*odd = 1;
	offer(&nodes[start + size], spm->unk_score + before, start, MFS_SPM_UNKNOWN);
	return last > start + size ? last : start + size;
}

static void reset(struct mfs_spm_node *nodes, uint32_t start, uint32_t frontier)
{
	const float offset = nodes[start].score;

	for (uint32_t i = start; i <= frontier; i++)
		if (i == start || nodes[i].start != UINT32_MAX) {
			nodes[i].score -= offset;
			nodes[i].second -= offset;
		}
}

static void walk(const struct mfs_spm *spm, struct mfs_spm_scratch *s, const char *text,
		 uint32_t len, struct margin *m)
{
	struct mfs_spm_node *nodes = s->nodes;
	uint32_t frontier = 0;

	for (uint32_t i = 0; i <= len; i++)
		nodes[i] = (struct mfs_spm_node){.start = UINT32_MAX, .second = -INFINITY};
	nodes[0].score = s->base;
	for (uint32_t start = 0; start < len;
	     start += (uint32_t)mfs_spm_char(text + start, len - start)) {
		uint32_t last;

		if (nodes[start].score < -RESET || nodes[start].score > RESET) {
			reset(nodes, start, frontier > start ? frontier : start);
			m->odd = 1;
		}
		m->low = fminf(m->low, nodes[start].score - s->base);
		last = offer_pieces(spm, nodes, text, start, len, &m->odd);
		frontier = last > frontier ? last : frontier;
	}
	m->total = nodes[len].score - s->base;
}

/* Turns the way back from the end into the way from the begin: each node's start becomes the place
 * where the piece after it ends. Returns the number of pieces. */
static size_t turn(struct mfs_spm_node *nodes, uint32_t len, struct margin *m)
{
	uint32_t end = len, after = len, after_id = 0;
	size_t count = 0;

	m->gap = INFINITY;
	while (end) {
		const struct mfs_spm_node node = nodes[end];

		m->gap = fminf(m->gap, node.score - node.second);
		nodes[end].start = after;
		nodes[end].id = after_id;
		after = end;
		after_id = node.id;
		end = node.start;
		count++;
	}
	nodes[0].start = after;
	nodes[0].id = after_id;
	if (m->gap > 1000.0f)
		m->gap = 1000.0f;
	return count;
}

static int emit(const struct mfs_spm *spm, struct mfs_spm_scratch *s, const char *text,
		uint32_t len, struct mfs_token_ids *ids)
{
	int rc = 0;

	for (uint32_t at = 0; at < len && !rc;) {
		const struct mfs_spm_node *node = &s->nodes[at];

		rc = mfs_spm_emit(spm, s, node->id, text + at, node->start - at, ids);
		at = node->start;
	}
	return rc;
}

static int solve(const struct mfs_spm *spm, struct mfs_spm_scratch *s, const char *word, size_t len,
		 struct mfs_token_ids *ids, struct margin *m)
{
	int rc;

	if (len >= UINT32_MAX / 2)
		return -EFBIG;
	if (!mfs_spm_room(&s->nodes, &s->node_room, len + 1, sizeof(*s->nodes)))
		return -ENOMEM;
	walk(spm, s, word, (uint32_t)len, m);
	turn(s->nodes, (uint32_t)len, m);
	rc = emit(spm, s, word, (uint32_t)len, ids);
	m->gap -= rounding(s->base, m, len);
	s->base = s->nodes[len].score;
	return rc;
}

/* What is kept of a word. */
struct kept {
	struct margin margin;
	uint32_t ids[MFS_WORD_CACHE_LONGEST];
};

/* Whether the word's best way is the best after s->base, too, and no score is reset in it. */
static bool holds(const struct mfs_spm_scratch *s, const struct margin *m, size_t len)
{
	return m->gap > rounding(s->base, m, len) && s->base + m->low > -0.99f * RESET &&
	       s->base < 0.99f * RESET;
}

static int copy(const struct mfs_spm *spm, struct mfs_spm_scratch *s, const uint32_t *kept,
		size_t count, struct mfs_token_ids *ids)
{
	int rc = 0;

	for (size_t i = 0; i < count && !rc; i++) {
		s->base = spm->scores[kept[i]] + s->base;
		rc = mfs_spm_emit(spm, s, kept[i], NULL, 0, ids);
	}
	return rc;
}

static void keep(struct mfs_spm_scratch *s, const char *word, size_t len, uint64_t hash,
		 const struct margin *m, const uint32_t *ids, size_t count)
{
	struct kept kept = {.margin = *m};

	memcpy(kept.ids, ids, count * sizeof(*ids));
	mfs_word_cache_add(&s->cache, word, len, hash, (const uint32_t *)&kept, MARGIN_IDS + count);
}

int mfs_spm_unigram(const struct mfs_spm *spm, struct mfs_spm_scratch *s, const char *word,
		    size_t len, struct mfs_token_ids *ids)
{
	const size_t before = ids->count;
	struct margin m = {0};
	const uint32_t *kept;
	uint64_t hash;
	size_t count;
	int rc;

	if (len > MFS_WORD_CACHE_LONGEST || !spm->only_penalties || !spm->any_cut)
		return solve(spm, s, word, len, ids, &m);
	hash = mfs_token_hash(word, len);
	kept = mfs_word_cache_find(&s->cache, word, len, hash, &count);
	if (kept)
		memcpy(&m, kept, sizeof(m));
	if (kept && holds(s, &m, len))
		return copy(spm, s, kept + MARGIN_IDS, count - MARGIN_IDS, ids);
	m = (struct margin){0};
	rc = solve(spm, s, word, len, ids, &m);
	if (!rc && !kept && !m.odd && m.gap > 0)
		keep(s, word, len, hash, &m, ids->at + before, ids->count - before);
	return rc;
}
