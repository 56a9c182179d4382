/*
 * The layers of each model chunk, where they are no equal shares: --pipeline-model-parallel-layout,
 * --account-for-embedding-in-pipeline-split and --account-for-loss-in-pipeline-split.
 *
 * Sources: megatron/core/transformer/: pipeline_parallel_layer_layout.py, transformer_block.py:
 * get_num_layers_to_build; megatron/training/arguments.py: validate_args.
 */
#include <ctype.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/buf.h"
#include "trainer/config/settle/settle_i.h"

#define MOST_ITEMS (1 << 20) /* of a layout that is written out */

static const enum mft_dest layout_flag = PIPELINE_MODEL_PARALLEL_LAYOUT;
static const enum mft_dest accounts[] = {ACCOUNT_FOR_EMBEDDING_IN_PIPELINE_SPLIT,
					 ACCOUNT_FOR_LOSS_IN_PIPELINE_SPLIT};
/* What else says how layers are divided. */
static const enum mft_dest others[] = {
	NUM_LAYERS_PER_VIRTUAL_PIPELINE_STAGE, NUM_VIRTUAL_STAGES_PER_PIPELINE_RANK,
	DECODER_FIRST_PIPELINE_NUM_LAYERS, DECODER_LAST_PIPELINE_NUM_LAYERS};

static int bad(struct settle *s, const char *why)
{
	return mfs_fail(s->err, -EINVAL, "--pipeline-model-parallel-layout: %s, found '%.200s'",
			why, text(s, layout_flag));
}

/* ---- the text ---- */

/* Reads the number after "*", and moves *at past it; SIZE_MAX: it is larger than anything may
 * be. */
static size_t read_times(const char **at)
{
	size_t times = 0;

	while (isdigit((unsigned char)**at)) {
		times = times > MOST_ITEMS ? SIZE_MAX : times * 10 + (size_t)(*(*at)++ - '0');
		if (times == SIZE_MAX)
			break;
	}
	return times;
}

static bool is_times(const char *at)
{
	return *at == '*' && isdigit((unsigned char)at[1]);
}

/* Adds text so many times. False: there are too many. */
static bool repeat(struct mfs_buf *to, const char *text, size_t len, size_t times)
{
	if (len && times > (MOST_ITEMS - to->len) / len)
		return false;
	while (times-- > 0)
		mfs_buf_add(to, text, len);
	return true;
}

/* "(tt|)*3" is "tt|tt|tt|"; pairs are not inside each other. */
static bool unroll_groups(const char *at, struct mfs_buf *to)
{
	while (*at) {
		const char *end = *at == '(' ? strchr(at, ')') : NULL, *begin = at + 1;

		if (!end || end == begin || !is_times(end + 1)) {
			if (*at != ',' && !repeat(to, at, 1, 1))
				return false;
			at++;
			continue;
		}
		at = end + 2;
		if (!repeat(to, begin, (size_t)(end - begin), read_times(&at)))
			return false;
	}
	return true;
}

/* "t*3" is "ttt". */
static bool unroll_items(const char *at, struct mfs_buf *to)
{
	while (*at) {
		const char *item = at++;
		size_t times = 1;

		if (is_times(at)) {
			at++;
			times = read_times(&at);
		}
		if (!repeat(to, item, 1, times))
			return false;
	}
	return true;
}

/* The layout without multiplications; commas mean nothing. */
static int unroll(struct settle *s, struct mfs_buf *ret)
{
	struct mfs_buf groups = {0};
	bool fits = unroll_groups(text(s, layout_flag), &groups);

	mfs_buf_add(&groups, "", 1);
	if (fits && !groups.failed)
		fits = unroll_items(groups.data, ret);
	mfs_buf_add(ret, "", 1);
	ret->failed |= groups.failed;
	mfs_buf_release(&groups);
	if (ret->failed)
		return mfs_fail_nomem(s->err);
	return fits ? 0 : bad(s, "expected fewer layers");
}

/* ---- what it says ---- */

struct stages {
	uint32_t *layers; /* [count], by model chunk */
	uint32_t count;
	int64_t all,
		ahead; /* layers; those of multi-token prediction, which are on the last stage */
};

/* gpt_layer_specs.py: get_gpt_mtp_block_spec; pipeline_parallel_layer_layout.py:
 * validate_layer_layout. */
static int check_ahead(struct settle *s, int64_t found)
{
	const int64_t wanted = has(s, MTP_NUM_LAYERS) ? number(s, MTP_NUM_LAYERS) : 0;

	if (found == wanted)
		return 0;
	return mfs_fail(s->err, -EINVAL,
			"--pipeline-model-parallel-layout: expected %lld m, as many as "
			"--mtp-num-layers has, found %lld",
			(long long)wanted, (long long)found);
}

static int count_layers(struct settle *s, const char *items, struct stages *st)
{
	const size_t len = strlen(items);

	for (size_t i = 0; i < len; i++) {
		const char c = items[i];

		if (st->ahead && c != 'm' && c != 'L')
			return bad(s, "expected each m before L, in the last model chunk");
		if (c == 't')
			st->layers[st->count]++, st->all++;
		else if (c == '|')
			st->count++;
		else if (c == 'm')
			st->ahead++;
		else if (c != 'E' && c != 'L')
			return bad(s, "expected E, t, m, L and |, t*3 and (tt|)*3");
		else if ((c == 'E') != (i == 0) || (c == 'L') != (i + 1 == len))
			return bad(s, "expected one E, at the beginning, and one L, at the end");
	}
	st->count++;
	if (len < 2 || items[0] != 'E' || items[len - 1] != 'L')
		return bad(s, "expected one E, at the beginning, and one L, at the end");
	return check_ahead(s, st->ahead);
}

/* Each process has something: the embedding, the head, or a layer. */
static int check_stages(struct settle *s, const struct stages *st, uint32_t pp)
{
	for (uint32_t stage = 1; stage + 1 < pp; stage++) {
		uint32_t layers = 0;

		for (uint32_t i = stage; i < st->count; i += pp)
			layers += st->layers[i];
		if (!layers)
			return mfs_fail(s->err, -EINVAL,
					"--pipeline-model-parallel-layout: stage %u has no layers",
					stage);
	}
	return 0;
}

static int settle_stages(struct settle *s, const char *items)
{
	const int64_t pp = number(s, PIPELINE_MODEL_PARALLEL_SIZE);
	const int64_t layers = number(s, NUM_LAYERS);
	struct stages st = {
		.layers = mfs_arena_array(&s->c->arena, strlen(items) + 1, sizeof(*st.layers))};
	int r = st.layers ? count_layers(s, items, &st) : mfs_fail_nomem(s->err);

	if (r)
		return r;
	if (st.count % pp)
		return mfs_fail(s->err, -EINVAL,
				"--pipeline-model-parallel-layout: expected a multiple of "
				"--pipeline-model-parallel-size %lld model chunks, found %u",
				(long long)pp, st.count);
	if (st.all != layers)
		return mfs_fail(s->err, -EINVAL,
				"--pipeline-model-parallel-layout: expected --num-layers %lld "
				"times t, found %lld",
				(long long)layers, (long long)st.all);
	r = check_stages(s, &st, (uint32_t)pp);
	if (r)
		return r;
	mft_flag_set_number(s->v, name_of(VIRTUAL_PIPELINE_MODEL_PARALLEL_SIZE), st.count / pp);
	s->c->chunk_layers = st.layers;
	return 0;
}

static int read_layout(struct settle *s)
{
	struct mfs_buf items = {0};
	char a[MFT_FLAG_SPELLING];
	int r = 0;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(others) && !r; i++)
		r = exclude(s, layout_flag, others[i]);
	for (int i = 0; i < 2 && !r; i++)
		if (is(s, accounts[i]))
			r = mfs_fail(s->err, -EINVAL,
				     "--pipeline-model-parallel-layout and %s exclude each other",
				     flag(accounts[i], a));
	if (!r)
		r = unroll(s, &items);
	if (!r)
		r = settle_stages(s, items.data);
	mfs_buf_release(&items);
	return r;
}

int mft_settle_layout(struct settle *s)
{
	s->c->chunk_layers = NULL;
	return has(s, layout_flag) ? read_layout(s) : 0;
}

/* ---- the embedding and the loss as layers ---- */

int mft_settle_accounts(struct settle *s)
{
	const int64_t pp = number(s, PIPELINE_MODEL_PARALLEL_SIZE);
	const int64_t vpp = has(s, VIRTUAL_PIPELINE_MODEL_PARALLEL_SIZE)
				    ? number(s, VIRTUAL_PIPELINE_MODEL_PARALLEL_SIZE)
				    : 1;
	const int64_t chunks = pp * vpp,
		      items = number(s, NUM_LAYERS) + is(s, accounts[0]) + is(s, accounts[1]);
	char a[MFT_FLAG_SPELLING], b[MFT_FLAG_SPELLING];
	uint32_t *layers;

	if (pp == 1 || (!is(s, accounts[0]) && !is(s, accounts[1])))
		return 0;
	for (int i = 0; i < 2; i++)
		for (int k = 2; k < 4; k++)
			if (is(s, accounts[i]) && has(s, others[k]))
				return mfs_fail(s->err, -EINVAL, "%s and %s exclude each other",
						flag(accounts[i], a), flag(others[k], b));
	if (items % chunks || chunks > MOST_ITEMS)
		return mfs_fail(s->err, -EINVAL,
				"%s: expected layers, with what counts as one, that can be divided "
				"among %lld model chunks; found %lld",
				flag(accounts[!is(s, accounts[0])], a), (long long)chunks,
				(long long)items);
	layers = mfs_arena_array(&s->c->arena, (size_t)chunks, sizeof(*layers));
	if (!layers)
		return mfs_fail_nomem(s->err);
	for (int64_t i = 0; i < chunks; i++)
		layers[i] = (uint32_t)(items / chunks);
	layers[0] -= is(s, accounts[0]);
	layers[chunks - 1] -= is(s, accounts[1]);
	s->c->chunk_layers = layers;
	return 0;
}
