#include "formats/tokenizer/models/bpe_model.h"

#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/token_ids.h"
#include "formats/tokenizer/unicode/utf8.h"

#define QUICK	0x200 /* characters below it are found in a table; byte-level ones are */
#define SHORT	24    /* up to so many symbols the least rank is looked for in all pairs */
#define NO_RANK UINT32_MAX

struct merge {
	uint32_t left, right, rank;
	uint32_t result; /* MFS_NO_ID: nothing is here */
};

struct bpe {
	struct mfs_word_model base;
	struct mfs_bpe_options options;
	struct merge *merges; /* a hash table */
	uint32_t mask, merge_count, next_rank;
	uint64_t seed;
	uint32_t quick[QUICK]; /* ids of characters that have no prefix and no suffix */
	uint32_t bytes[256];   /* ids of "<0x00>" to "<0xFF>", or of the bytes themselves */
};

/* ---- merges ---- */

/* Who writes merges cannot know which of them have one place. */
static uint32_t place_of(const struct bpe *m, uint32_t left, uint32_t right)
{
	uint64_t mixed = (((uint64_t)left << 32 | right) ^ m->seed) * 0x9e3779b97f4a7c15u;

	mixed = (mixed ^ mixed >> 32) * 0xd6e8feb86659fd93u;
	return (uint32_t)(mixed >> 32) & m->mask;
}

static const struct merge *find_merge(const struct bpe *m, uint32_t left, uint32_t right)
{
	uint32_t i = place_of(m, left, right);

	for (; m->merges[i].result != MFS_NO_ID; i = (i + 1) & m->mask)
		if (m->merges[i].left == left && m->merges[i].right == right)
			return &m->merges[i];
	return NULL;
}

static void put_merge(struct bpe *m, const struct merge *merge)
{
	uint32_t i = place_of(m, merge->left, merge->right);

	while (m->merges[i].result != MFS_NO_ID &&
	       (m->merges[i].left != merge->left || m->merges[i].right != merge->right))
		i = (i + 1) & m->mask;
	m->merge_count += m->merges[i].result == MFS_NO_ID;
	m->merges[i] = *merge;
}

static int grow_merges(struct bpe *m)
{
	const uint32_t old = m->merges ? m->mask + 1 : 0, room = old ? old * 2 : 64;
	struct merge *from = m->merges, *merges = malloc(room * sizeof(*merges));

	if (!merges)
		return -ENOMEM;
	for (uint32_t i = 0; i < room; i++)
		merges[i].result = MFS_NO_ID;
	m->merges = merges;
	m->mask = room - 1;
	m->merge_count = 0;
	for (uint32_t i = 0; i < old; i++)
		if (from[i].result != MFS_NO_ID)
			put_merge(m, &from[i]);
	free(from);
	return 0;
}

int mfs_bpe_model_merge_into(struct mfs_word_model *model, uint32_t left, uint32_t right,
			     uint32_t rank, uint32_t result, struct mfs_error *err)
{
	struct bpe *m = (struct bpe *)model;
	const struct merge merge = {left, right, rank, result};

	if ((m->merge_count + 1) * 2 > m->mask && grow_merges(m))
		return mfs_fail_nomem(err);
	put_merge(m, &merge);
	return 0;
}

int mfs_bpe_model_merge(struct mfs_word_model *model, uint32_t left, uint32_t right,
			struct mfs_error *err)
{
	struct bpe *m = (struct bpe *)model;
	const struct mfs_token *a = &model->tokens->at[left], *b = &model->tokens->at[right];
	const size_t prefix = m->options.prefix ? strlen(m->options.prefix) : 0;
	struct mfs_buf joined = {0};
	uint32_t result = MFS_NO_ID;

	if (b->len >= prefix) {
		mfs_buf_add(&joined, a->text, a->len);
		mfs_buf_add(&joined, b->text + prefix, b->len - prefix);
		if (joined.failed)
			return mfs_fail_nomem(err);
		result = mfs_token_table_find(model->tokens, joined.data ? joined.data : "",
					      joined.len);
		mfs_buf_release(&joined);
	}
	if (result == MFS_NO_ID)
		return mfs_fail(err, -EINVAL, "merge %u makes no token of \"%.*s\" and \"%.*s\"",
				m->next_rank, (int)(a->len < 60 ? a->len : 60), a->text,
				(int)(b->len < 60 ? b->len : 60), b->text);
	return mfs_bpe_model_merge_into(model, left, right, m->next_rank++, result, err);
}

/* ---- a word's symbols ---- */

struct symbol {
	uint32_t id;
	uint32_t rank;	     /* of the merge with the next one; NO_RANK: there is none */
	uint32_t result;     /* of that merge */
	uint32_t prev, next; /* places; UINT32_MAX: none */
};

struct word {
	const struct bpe *model;
	struct mfs_word_scratch *scratch;
	struct symbol *at;
	uint32_t count;
	uint32_t unk; /* how many unknown characters have not become a symbol */
	struct mfs_error *err;
	int rc;
};

static void add_symbol(struct word *w, uint32_t id)
{
	w->at[w->count++].id = id;
}

/* tokenizers adds an unknown token when the next known one comes, which is later than the tokens of
 * a fallback to bytes. */
static void add_unknown(struct word *w)
{
	if (w->unk)
		add_symbol(w, w->model->options.unk);
	w->unk = 0;
}

static bool add_bytes(struct word *w, const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (w->model->bytes[(uint8_t)text[i]] == MFS_NO_ID)
			return false;
	for (size_t i = 0; i < len; i++)
		add_symbol(w, w->model->bytes[(uint8_t)text[i]]);
	return true;
}

static void add_part(struct word *w, uint32_t id, const char *text, size_t len)
{
	const struct mfs_bpe_options *o = &w->model->options;

	if (id != MFS_NO_ID) {
		add_unknown(w);
		add_symbol(w, id);
		return;
	}
	if (o->byte_fallback && add_bytes(w, text, len))
		return;
	if (o->no_unk && !w->rc)
		w->rc = mfs_fail(w->err, -ENODATA,
				 "the model has no token for \"%.*s\", and its unk_token is not in "
				 "the vocabulary",
				 (int)(len < 60 ? len : 60), text);
	if (o->unk == MFS_NO_ID)
		return;
	if (!o->fuse_unk)
		add_unknown(w);
	w->unk++;
}

/* A character with the prefix and the suffix that it has at its place. */
static void add_marked(struct word *w, const char *text, size_t len, bool first, bool last)
{
	const struct mfs_bpe_options *o = &w->model->options;
	struct mfs_buf *b = &w->scratch->bytes;

	b->len = 0;
	if (!first && o->prefix)
		mfs_buf_adds(b, o->prefix);
	mfs_buf_add(b, text, len);
	if (last && o->suffix)
		mfs_buf_adds(b, o->suffix);
	if (!b->failed)
		add_part(w, mfs_token_table_find(w->model->base.tokens, b->data, b->len), b->data,
			 b->len);
}

static void add_plain(struct word *w, const char *text, size_t len)
{
	size_t size;
	const uint32_t c = mfs_utf8_get(text, &size);

	add_part(w,
		 c < QUICK ? w->model->quick[c]
			   : mfs_token_table_find(w->model->base.tokens, text, len),
		 text, len);
}

static void split_bytes(struct word *w, const char *word, size_t len)
{
	for (size_t i = 0; i < len; i++)
		add_part(w, w->model->bytes[(uint8_t)word[i]], word + i, 1);
	add_unknown(w);
}

static void split_characters(struct word *w, const char *word, size_t len)
{
	const bool marked = w->model->options.prefix || w->model->options.suffix;
	size_t size;

	for (size_t i = 0; i < len; i += size) {
		size = mfs_utf8_size(word[i]);
		if (marked)
			add_marked(w, word + i, size, !i, i + size == len);
		else
			add_plain(w, word + i, size);
	}
	add_unknown(w);
}

/* ---- merging ---- */

static void rate(struct word *w, uint32_t i)
{
	struct symbol *s = &w->at[i];
	const struct merge *merge =
		s->next == UINT32_MAX ? NULL : find_merge(w->model, s->id, w->at[s->next].id);

	s->rank = merge ? merge->rank : NO_RANK;
	s->result = merge ? merge->result : MFS_NO_ID;
}

static void link_symbols(struct word *w)
{
	for (uint32_t i = 0; i < w->count; i++) {
		w->at[i].prev = i - 1; /* UINT32_MAX of the first */
		w->at[i].next = i + 1 < w->count ? i + 1 : UINT32_MAX;
	}
	for (uint32_t i = 0; i < w->count; i++)
		rate(w, i);
}

static void merge_at(struct word *w, uint32_t i)
{
	struct symbol *s = &w->at[i], *next = &w->at[s->next];

	s->id = s->result;
	s->next = next->next;
	next->rank = NO_RANK;
	next->id = MFS_NO_ID;
	if (s->next != UINT32_MAX)
		w->at[s->next].prev = i;
	rate(w, i);
	if (s->prev != UINT32_MAX)
		rate(w, s->prev);
}

/* Words are short mostly: each round looks at all pairs. */
static void merge_short(struct word *w)
{
	for (;;) {
		uint32_t best = UINT32_MAX, rank = NO_RANK;

		for (uint32_t i = 0; i != UINT32_MAX; i = w->at[i].next)
			if (w->at[i].rank < rank) {
				rank = w->at[i].rank;
				best = i;
			}
		if (best == UINT32_MAX)
			return;
		merge_at(w, best);
	}
}

/* The queue of a long word's pairs, by rank and then by place. A pair that has changed since is
 * passed over. */
struct queue {
	uint64_t *at; /* [count]: rank << 32 | place, a heap from 1 */
	uint32_t count;
};

static void push(struct queue *q, uint64_t item)
{
	uint32_t i = ++q->count;

	for (; i > 1 && q->at[i / 2] > item; i /= 2)
		q->at[i] = q->at[i / 2];
	q->at[i] = item;
}

static uint64_t pop(struct queue *q)
{
	const uint64_t top = q->at[1], last = q->at[q->count--];
	uint32_t i = 1;

	while (2 * i <= q->count) {
		uint32_t child = 2 * i;

		child += child < q->count && q->at[child + 1] < q->at[child];
		if (q->at[child] >= last)
			break;
		q->at[i] = q->at[child];
		i = child;
	}
	q->at[i] = last;
	return top;
}

static void push_pair(struct queue *q, const struct word *w, uint32_t i)
{
	if (i != UINT32_MAX && w->at[i].rank != NO_RANK)
		push(q, (uint64_t)w->at[i].rank << 32 | i);
}

static int merge_long(struct word *w)
{
	/* each merge adds at most two to the first ones */
	struct queue q = {mfs_word_scratch_room(&w->scratch->heap, &w->scratch->heap_size,
						((size_t)w->count * 3 + 2) * sizeof(*q.at)),
			  0};

	if (!q.at)
		return -ENOMEM;
	for (uint32_t i = 0; i < w->count; i++)
		push_pair(&q, w, i);
	while (q.count) {
		const uint64_t top = pop(&q);
		const uint32_t i = (uint32_t)top;

		if (w->at[i].rank != top >> 32)
			continue;
		merge_at(w, i);
		push_pair(&q, w, i);
		push_pair(&q, w, w->at[i].prev);
	}
	return 0;
}

static int append(const struct word *w, struct mfs_token_ids *ids, struct mfs_error *err)
{
	if (mfs_token_ids_room(ids, w->count, err))
		return -ENOMEM;
	for (uint32_t i = 0; i != UINT32_MAX; i = w->at[i].next)
		ids->at[ids->count++] = w->at[i].id;
	return 0;
}

static int encode(const struct mfs_word_model *model, struct mfs_word_scratch *scratch,
		  const char *word, size_t len, struct mfs_token_ids *ids, struct mfs_error *err)
{
	const struct bpe *m = (const struct bpe *)model;
	struct word w = {.model = m, .scratch = scratch, .err = err};
	const size_t marks = (m->options.prefix ? strlen(m->options.prefix) : 0) +
			     (m->options.suffix ? strlen(m->options.suffix) : 0);
	int rc = 0;

	if (m->options.ignore_merges) {
		w.unk = mfs_token_table_find(model->tokens, word, len);
		if (w.unk != MFS_NO_ID)
			return mfs_token_ids_append(ids, &w.unk, 1, err);
		w.unk = 0;
	}
	if (len > INT32_MAX / (4 * (marks + 1)))
		return mfs_fail(err, -ENOTSUP, "a word of %zu bytes is too long", len);
	w.at = mfs_word_scratch_room(&scratch->items, &scratch->items_size,
				     (len * (marks + 1) + 1) * sizeof(*w.at));
	if (!w.at)
		return mfs_fail_nomem(err);
	if (m->options.from_bytes)
		split_bytes(&w, word, len);
	else
		split_characters(&w, word, len);
	if (scratch->bytes.failed)
		return mfs_fail_nomem(err);
	if (w.rc || !w.count)
		return w.rc;
	link_symbols(&w);
	if (w.count <= SHORT)
		merge_short(&w);
	else
		rc = merge_long(&w) ? mfs_fail_nomem(err) : 0;
	return rc ? rc : append(&w, ids, err);
}

/* ---- the model ---- */

static void free_model(struct mfs_word_model *model)
{
	struct bpe *m = (struct bpe *)model;

	free(m->merges);
	free(m);
}

static const struct mfs_word_model_ops ops = {.encode = encode, .free = free_model};

static void find_characters(struct bpe *m)
{
	char text[8];

	for (uint32_t c = 0; c < QUICK; c++)
		m->quick[c] = mfs_token_table_find(m->base.tokens, text, mfs_utf8_put(c, text));
	mfs_token_find_bytes(m->base.tokens, m->bytes);
	for (unsigned i = 0; i < 256 && m->options.from_bytes; i++) {
		const char one = (char)i;

		m->bytes[i] = mfs_token_table_find(m->base.tokens, &one, 1);
	}
}

int mfs_bpe_model_new(const struct mfs_token_table *tokens, const struct mfs_bpe_options *options,
		      struct mfs_word_model **ret, struct mfs_error *err)
{
	struct bpe *m = calloc(1, sizeof(*m));

	if (m)
		m->seed = mfs_token_seed();
	if (!m || grow_merges(m)) {
		free(m);
		return mfs_fail_nomem(err);
	}
	m->base = (struct mfs_word_model){&ops, tokens};
	m->options = *options;
	find_characters(m);
	*ret = &m->base;
	return 0;
}
