/* Byte-pair encoding by scores: the pair whose piece has the greatest one is merged, of two such
 * pairs the left one (bpe_model.cc: SampleEncode() without a sample). */
#include "formats/tokenizer/spm/spm_i.h"

#include <stdlib.h>

#include "formats/base/grow.h"

#define DEPTH_MAX 100 /* kMaxBpeResegmentDepth */

struct word {
	const struct mfs_spm *spm;
	struct mfs_spm_scratch *s;
	const char *text;
	uint32_t count; /* symbols */
	bool failed;	/* no memory */
};

/* Scores as SymbolPairComparator orders their bits, the greatest first. */
static uint32_t order_of(float score)
{
	uint32_t bits;

	memcpy(&bits, &score, sizeof(bits));
	return bits >> 31 ? bits : ~bits & 0x7fffffff;
}

static bool goes_before(const struct mfs_spm_pair *a, const struct mfs_spm_pair *b)
{
	return a->order < b->order;
}

static void sift_down(struct mfs_spm_scratch *s, size_t i, struct mfs_spm_pair pair)
{
	while (2 * i <= s->heap_count) {
		size_t child = 2 * i;

		child += child < s->heap_count && goes_before(&s->heap[child + 1], &s->heap[child]);
		if (!goes_before(&s->heap[child], &pair))
			break;
		s->heap[i] = s->heap[child];
		i = child;
	}
	s->heap[i] = pair;
}

static void push(struct mfs_spm_scratch *s, struct mfs_spm_pair pair)
{
	size_t i = ++s->heap_count;

	for (; i > 1 && goes_before(&pair, &s->heap[i / 2]); i /= 2)
		s->heap[i] = s->heap[i / 2];
	s->heap[i] = pair;
}

static struct mfs_spm_pair pop(struct mfs_spm_scratch *s)
{
	const struct mfs_spm_pair top = s->heap[1];

	sift_down(s, 1, s->heap[s->heap_count--]);
	return top;
}

/* The node after more bytes; UINT32_MAX: no piece goes on so. */
static uint32_t follow(const struct word *w, uint32_t node, uint32_t from, uint32_t len)
{
	if (node == UINT32_MAX)
		return node;
	for (uint32_t i = from; i < from + len; i++)
		if (!mfs_double_array_step(&w->spm->pieces, &node, (uint8_t)w->text[i]))
			return UINT32_MAX;
	return node;
}

/* The last one of an id holds. */
static void note_split(struct word *w, uint32_t id, const struct mfs_spm_symbol *left,
		       const struct mfs_spm_symbol *right)
{
	struct mfs_spm_scratch *s = w->s;
	const struct mfs_spm_split split = {id, left->from, left->len, right->len};

	if (!s->split_at)
		s->split_at = calloc(w->spm->file.count, sizeof(*s->split_at));
	if (!s->split_at || (!s->split_at[id] && mfs_grow(&s->splits, s->split_count))) {
		w->failed = true;
		return;
	}
	if (!s->split_at[id])
		s->split_at[id] = (uint32_t)++s->split_count;
	s->splits[s->split_at[id] - 1] = split;
}

static void forget_splits(struct mfs_spm_scratch *s)
{
	for (size_t i = 0; i < s->split_count; i++)
		s->split_at[s->splits[i].id] = 0;
	free(s->splits);
	s->splits = NULL;
	s->split_count = 0;
}

static void push_pair(struct word *w, uint32_t left, uint32_t right)
{
	const struct mfs_spm_symbol *a, *b;
	uint32_t node;
	int32_t id;

	if (left == UINT32_MAX || right == UINT32_MAX)
		return;
	a = &w->s->symbols[left];
	b = &w->s->symbols[right];
	if (a->frozen || b->frozen)
		return;
	node = follow(w, a->node, b->from, b->len);
	id = node == UINT32_MAX ? -1 : w->spm->pieces.units[node].value;
	if (id < 0)
		return;
	push(w->s,
	     (struct mfs_spm_pair){(uint64_t)order_of(w->spm->file.pieces[id].score) << 32 | left,
				   right, a->len + b->len});
	if (w->spm->file.pieces[id].type == MFS_PIECE_UNUSED)
		note_split(w, (uint32_t)id, a, b);
}

static void merge(struct word *w, uint32_t left, uint32_t right)
{
	struct mfs_spm_symbol *a = &w->s->symbols[left], *b = &w->s->symbols[right];

	a->node = follow(w, a->node, b->from, b->len);
	a->len += b->len;
	a->next = b->next;
	b->len = 0;
	if (a->next != UINT32_MAX)
		w->s->symbols[a->next].prev = left;
	push_pair(w, a->prev, left);
	push_pair(w, left, a->next);
}

static void merge_all(struct word *w)
{
	struct mfs_spm_scratch *s = w->s;

	for (uint32_t i = 0; i + 1 < w->count; i++)
		push_pair(w, i, i + 1);
	while (s->heap_count) {
		const struct mfs_spm_pair pair = pop(s);
		const uint32_t left = (uint32_t)pair.order;

		/* One of them was merged since. */
		if (!s->symbols[left].len || !s->symbols[pair.right].len ||
		    s->symbols[left].len + s->symbols[pair.right].len != pair.len)
			continue;
		merge(w, left, pair.right);
	}
}

static void split(struct word *w, uint32_t len)
{
	for (uint32_t at = 0; at < len;) {
		const uint32_t user = (uint32_t)mfs_spm_user(w->spm, w->text + at, len - at);
		const uint32_t size = user ? user : (uint32_t)mfs_spm_char(w->text + at, len - at);

		w->s->symbols[w->count] = (struct mfs_spm_symbol){
			.from = at,
			.len = size,
			.node = follow(w, 0, at, size),
			.prev = w->count - 1, /* UINT32_MAX of the first */
			.next = at + size < len ? w->count + 1 : UINT32_MAX,
			.frozen = user,
		};
		w->count++;
		at += size;
	}
}

static const struct mfs_spm_split *find_split(const struct word *w, uint32_t id)
{
	const struct mfs_spm_scratch *s = w->s;

	return s->split_at && s->split_at[id] ? &s->splits[s->split_at[id] - 1] : NULL;
}

/* A piece that is unused falls apart into those that it was merged of. */
static int emit(struct word *w, uint32_t from, uint32_t len, unsigned depth,
		struct mfs_token_ids *ids)
{
	const uint32_t node = follow(w, 0, from, len);
	const int32_t id = node == UINT32_MAX ? -1 : w->spm->pieces.units[node].value;
	const struct mfs_spm_split *parts = NULL;
	int rc;

	if (id >= 0 && depth <= DEPTH_MAX && w->spm->file.pieces[id].type == MFS_PIECE_UNUSED) {
		parts = find_split(w, (uint32_t)id);
		if (!parts)
			return mfs_spm_emit(w->spm, w->s, MFS_SPM_UNKNOWN, w->text + from, len,
					    ids);
	}
	if (!parts)
		return mfs_spm_emit(w->spm, w->s, id < 0 ? MFS_SPM_UNKNOWN : (uint32_t)id,
				    w->text + from, len, ids);
	rc = emit(w, parts->left_from, parts->left_len, depth + 1, ids);
	return rc ? rc
		  : emit(w, parts->left_from + parts->left_len, parts->right_len, depth + 1, ids);
}

static int solve(const struct mfs_spm *spm, struct mfs_spm_scratch *s, const char *text, size_t len,
		 struct mfs_token_ids *ids)
{
	struct word w = {.spm = spm, .s = s, .text = text};
	int rc = 0;

	if (len >= UINT32_MAX / 4)
		return -EFBIG;
	/* each merge adds at most two pairs to the first ones */
	if (!mfs_spm_room(&s->symbols, &s->symbol_room, len, sizeof(*s->symbols)) ||
	    !mfs_spm_room(&s->heap, &s->heap_room, 3 * len + 1, sizeof(*s->heap)))
		return -ENOMEM;
	s->heap_count = 0;
	forget_splits(s);
	split(&w, (uint32_t)len);
	merge_all(&w);
	if (w.failed)
		return -ENOMEM;
	for (uint32_t i = 0; i != UINT32_MAX && !rc; i = s->symbols[i].next)
		rc = emit(&w, s->symbols[i].from, s->symbols[i].len, 0, ids);
	return rc;
}

/* A word that begins with an unknown piece may go on with the run of them before it. */
static int copy(const struct mfs_spm *spm, struct mfs_spm_scratch *s, const uint32_t *kept,
		size_t count, struct mfs_token_ids *ids)
{
	int rc = 0;

	for (size_t i = 0; i < count && !rc; i++)
		rc = mfs_spm_emit(spm, s, kept[i] == spm->unk ? MFS_SPM_UNKNOWN : kept[i], NULL, 0,
				  ids);
	return rc;
}

int mfs_spm_bpe(const struct mfs_spm *spm, struct mfs_spm_scratch *s, const char *word, size_t len,
		struct mfs_token_ids *ids)
{
	const size_t before = ids->count;
	const bool after_unknown = s->after_unknown;
	const uint32_t *kept;
	uint64_t hash;
	size_t count;
	int rc;

	if (len > MFS_WORD_CACHE_LONGEST || !spm->any_cut)
		return solve(spm, s, word, len, ids);
	hash = mfs_token_hash(word, len);
	kept = mfs_word_cache_find(&s->cache, word, len, hash, &count);
	if (kept)
		return copy(spm, s, kept, count, ids);
	rc = solve(spm, s, word, len, ids);
	if (!rc && !after_unknown)
		mfs_word_cache_add(&s->cache, word, len, hash, ids->at + before,
				   ids->count - before);
	return rc;
}
