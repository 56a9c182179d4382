#include "trainer/parallel/pipeline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NEVER UINT64_MAX

/* A pass of a stage, in its order. */
struct pass {
	bool backward;
	uint32_t chunk;
	uint64_t microbatch;
	uint64_t tick;
};

/* A message of the stage that is asked for. */
struct message {
	uint64_t tick;
	struct mft_pipeline_message is;
	uint32_t chunk; /* of the pass here that gives or takes it */
	uint64_t microbatch;
};

/* All stages. */
struct plan {
	struct mft_pipeline_shape shape;
	uint32_t all_chunks;	  /* of all stages */
	uint64_t passes;	  /* of each stage */
	struct pass *pass;	  /* [stages][passes] */
	uint64_t *next;		  /* [stages]: the first one that has no tick yet */
	uint64_t *index[2];	  /* [all_chunks][microbatches]: forward and backward, in a stage */
	struct message *messages; /* of one stage */
	uint64_t message_count;
};

/* ---- the order of passes ---- */

/* Pass number k of its kind (get_schedule_table). */
static struct pass nth(const struct mft_pipeline_shape *s, uint64_t k, bool backward)
{
	const uint64_t first = k / ((uint64_t)s->group * s->chunks) * s->group;
	const uint64_t left = s->microbatches - first;
	const uint64_t size = left < s->group ? left : s->group, in = k - first * s->chunks;
	const uint32_t chunk = (uint32_t)(in / size);

	return (struct pass){.backward = backward,
			     .chunk = backward ? s->chunks - 1 - chunk : chunk,
			     .microbatch = first + in % size,
			     .tick = NEVER};
}

/* Forward passes before the first backward one (get_pp_rank_microbatches). */
static uint64_t warm_up(const struct mft_pipeline_shape *s, uint32_t stage)
{
	const uint64_t all = s->microbatches * s->chunks, later = s->stages - stage - 1;
	const uint64_t count =
		s->chunks == 1 ? later : 2 * later + (uint64_t)(s->chunks - 1) * s->group;

	return !s->backward || count > all ? all : count;
}

static void order(struct plan *p, uint32_t stage)
{
	const struct mft_pipeline_shape *s = &p->shape;
	const uint64_t all = s->microbatches * s->chunks, warm = warm_up(s, stage);
	struct pass *list = p->pass + stage * p->passes;
	uint64_t count = 0;

	for (uint64_t k = 0; k < warm; k++)
		list[count++] = nth(s, k, false);
	for (uint64_t k = 0; s->backward && k < all; k++) {
		if (warm + k < all)
			list[count++] = nth(s, warm + k, false);
		list[count++] = nth(s, k, true);
	}
	for (uint64_t i = 0; i < count; i++)
		p->index[list[i].backward]
			[((uint64_t)list[i].chunk * s->stages + stage) * s->microbatches +
			 list[i].microbatch] = i;
}

/* ---- ticks ---- */

/* The pass of the same microbatch in the chunk before or after a pass's own: the pass whose output
 * it needs (input), or the pass that needs its output. NULL: there is none. */
static const struct pass *neighbour(const struct plan *p, uint32_t stage, const struct pass *of,
				    bool input)
{
	const bool later = of->backward == input;
	const uint32_t at = of->chunk * p->shape.stages + stage;
	uint32_t other;

	if (later ? at + 1 == p->all_chunks : at == 0)
		return NULL;
	other = later ? at + 1 : at - 1;
	return p->pass + other % p->shape.stages * p->passes +
	       p->index[of->backward][other * p->shape.microbatches + of->microbatch];
}

/* Gives ticks to passes of a stage whose inputs have them. False: to none. */
static bool advance(struct plan *p, uint32_t stage)
{
	struct pass *list = p->pass + stage * p->passes;
	const uint64_t before = p->next[stage];

	for (; p->next[stage] < p->passes; p->next[stage]++) {
		const uint64_t i = p->next[stage];
		const struct pass *input = neighbour(p, stage, &list[i], true);
		uint64_t tick = i ? list[i - 1].tick + 1 : 0;

		if (input && input->tick == NEVER)
			break;
		if (input && input->tick >= tick)
			tick = input->tick + 1;
		list[i].tick = tick;
	}
	return p->next[stage] > before;
}

static int set_ticks(struct plan *p, struct mfs_error *err)
{
	bool advances = true;

	while (advances) {
		advances = false;
		for (uint32_t s = 0; s < p->shape.stages; s++)
			advances |= advance(p, s);
	}
	for (uint32_t s = 0; s < p->shape.stages; s++)
		if (p->next[s] < p->passes)
			return mfs_fail(err, -EINVAL,
					"%llu microbatches in groups of %u cannot go through %u "
					"stages of %u model chunks",
					(unsigned long long)p->shape.microbatches, p->shape.group,
					p->shape.stages, p->shape.chunks);
	return 0;
}

/* ---- messages ---- */

/* The tick of the message from one pass to another, which waits for it. */
static uint64_t tick_between(const struct plan *p, const struct pass *from, const struct pass *to)
{
	const uint64_t stage = (uint64_t)(from - p->pass) / p->passes;
	const bool is_last = from == p->pass + (stage + 1) * p->passes - 1;

	return is_last || from[1].tick > to->tick ? to->tick - 1 : from[1].tick - 1;
}

/* The message by which a pass gets its input or gives its output away. */
static void add_message(struct plan *p, uint32_t stage, const struct pass *of, bool receive)
{
	const struct pass *other = neighbour(p, stage, of, receive);

	if (!other)
		return;
	p->messages[p->message_count++] = (struct message){
		.tick = receive ? tick_between(p, other, of) : tick_between(p, of, other),
		.is = {.receive = receive,
		       .gradient = of->backward,
		       .stage = (uint32_t)((uint64_t)(other - p->pass) / p->passes)},
		.chunk = of->chunk,
		.microbatch = of->microbatch,
	};
}

static int compare(const void *a, const void *b)
{
	const struct message *x = a, *y = b;

	if (x->tick != y->tick)
		return (x->tick > y->tick) - (x->tick < y->tick);
	if (x->is.receive != y->is.receive) /* what is sent is in use until all is through */
		return y->is.receive - x->is.receive;
	return y->is.gradient - x->is.gradient;
}

/* What a stage sends and receives, in the order of ticks. A stage alone keeps all for itself. */
static void find_messages(struct plan *p, uint32_t stage)
{
	const struct pass *list = p->pass + stage * p->passes;

	for (uint64_t i = 0; p->shape.stages > 1 && i < p->passes; i++) {
		add_message(p, stage, &list[i], true);
		add_message(p, stage, &list[i], false);
	}
	qsort(p->messages, p->message_count, sizeof(*p->messages), compare);
}

/* ---- places ---- */

/* Numbers that are taken and given back, the least first. */
struct pool {
	bool *taken;
	uint32_t count; /* that were ever taken */
};

static uint32_t take(struct pool *pool)
{
	uint32_t i = 0;

	while (i < pool->count && pool->taken[i])
		i++;
	pool->taken[i] = true;
	pool->count += i == pool->count;
	return i;
}

/* Who has what, while a stage's steps are written down one after the other. */
struct writing {
	const struct plan *p;
	uint32_t stage;
	struct pool slots, batches, grads;
	uint32_t *slot, *grad; /* [chunks][microbatches] */
	uint32_t *batch;       /* [microbatches] */
	uint32_t *left;	       /* [microbatches]: passes of it that are to come in this stage */
	/* By how many exchanges all is done: those that are written, those that are waited for, and
	 * what the next pass of a microbatch needs, what an output or a gradient is sent by. */
	uint64_t exchanges, waited;
	uint64_t *came; /* [chunks][microbatches] */
	uint64_t output_sent[MFT_PIPELINE_OUTPUTS];
	uint64_t *grad_sent; /* [buffers] */
	uint32_t output;     /* of the next pass */
	struct mft_pipeline *ret;
};

static uint64_t place_of(const struct writing *w, uint32_t chunk, uint64_t microbatch)
{
	return chunk * w->p->shape.microbatches + microbatch;
}

static void need(uint64_t *all, uint64_t exchanges)
{
	if (exchanges > *all)
		*all = exchanges;
}

/* A gradient buffer that a pass is going to write to: of those that are free the one that was sent
 * first. If that may still be under way, another one, but no more than there are stages. */
static uint32_t take_grad(struct writing *w)
{
	struct pool *pool = &w->grads;
	uint32_t found = pool->count;

	for (uint32_t i = 0; i < pool->count; i++)
		if (!pool->taken[i] &&
		    (found == pool->count || w->grad_sent[i] < w->grad_sent[found]))
			found = i;
	if (pool->count < w->p->shape.stages && found < pool->count &&
	    w->grad_sent[found] > w->waited)
		found = pool->count;
	pool->taken[found] = true;
	pool->count += found == pool->count;
	return found;
}

/* How many exchanges the pass waits for. own: it writes a gradient that it has not received. */
static uint64_t waits(struct writing *w, uint64_t at, bool receives, bool own)
{
	const uint64_t before = w->waited;

	need(&w->waited, w->output_sent[w->output]);
	if (receives)
		need(&w->waited, w->came[at]);
	if (own)
		need(&w->waited, w->grad_sent[w->grad[at]]);
	return w->waited > before ? w->waited : 0;
}

static void write_pass(struct writing *w, const struct pass *pass)
{
	const struct mft_pipeline_shape *s = &w->p->shape;
	const uint64_t at = place_of(w, pass->chunk, pass->microbatch);
	const uint32_t whole = s->chunks * (s->backward ? 2 : 1);
	const bool alone = s->stages == 1, first = w->left[pass->microbatch] == whole;
	const bool receives = !alone && neighbour(w->p, w->stage, pass, true);
	const bool sends = !alone && neighbour(w->p, w->stage, pass, false);
	struct mft_pipeline_step *step = &w->ret->steps[w->ret->count++];

	if (first)
		w->batch[pass->microbatch] = take(&w->batches);
	if (!receives && !pass->backward)
		w->slot[at] = take(&w->slots);
	if (!receives && pass->backward)
		w->grad[at] = take_grad(w);
	*step = (struct mft_pipeline_step){
		.kind = pass->backward ? MFT_PIPELINE_BACKWARD : MFT_PIPELINE_FORWARD,
		.chunk = pass->chunk,
		.microbatch = pass->microbatch,
		.slot = w->slot[at],
		.batch = w->batch[pass->microbatch],
		.grad = pass->backward ? w->grad[at] : 0,
		.output = w->output,
		.first = first,
		.after = waits(w, at, receives, !receives && pass->backward),
	};
	if (pass->backward || !s->backward)
		w->slots.taken[w->slot[at]] = false;
	if (pass->backward && !sends)
		w->grads.taken[w->grad[at]] = false;
	if (!--w->left[pass->microbatch])
		w->batches.taken[w->batch[pass->microbatch]] = false;
}

/* Where the last exchange brings a pass's input. */
static uint32_t receive_at(struct writing *w, bool gradient, uint64_t at)
{
	w->came[at] = w->exchanges;
	return gradient ? (w->grad[at] = take(&w->grads)) : (w->slot[at] = take(&w->slots));
}

/* Where the last exchange takes a pass's output from. */
static uint32_t send_from(struct writing *w, bool gradient, uint64_t at)
{
	const uint32_t from = gradient ? w->grad[at] : w->output;

	if (gradient) {
		w->grad_sent[from] = w->exchanges;
		w->grads.taken[from] = false;
	} else {
		w->output_sent[from] = w->exchanges;
		w->output = (from + 1) % MFT_PIPELINE_OUTPUTS;
	}
	return from;
}

/* All messages of a tick, from the first on. Returns how many. */
static uint64_t write_exchange(struct writing *w, const struct message *first, uint64_t most)
{
	struct mft_pipeline_step *step = &w->ret->steps[w->ret->count++];
	uint64_t n = 0;

	*step = (struct mft_pipeline_step){.kind = MFT_PIPELINE_EXCHANGE, .number = w->exchanges++};
	for (; n < most && first[n].tick == first->tick; n++) {
		const struct message *m = &first[n];
		const uint64_t at = place_of(w, m->chunk, m->microbatch);
		struct mft_pipeline_message *to = &step->message[step->message_count++];

		*to = m->is;
		if (m->is.receive)
			to->at = receive_at(w, m->is.gradient, at);
		else
			to->at = send_from(w, m->is.gradient, at);
	}
	if (w->exchanges - w->waited > w->ret->exchanges)
		w->ret->exchanges = (uint32_t)(w->exchanges - w->waited);
	return n;
}

static void write_steps(struct writing *w)
{
	const struct plan *p = w->p;
	const struct pass *list = p->pass + w->stage * p->passes;
	uint64_t m = 0;

	for (uint64_t i = 0; i < p->passes; i++) {
		while (m < p->message_count && p->messages[m].tick < list[i].tick)
			m += write_exchange(w, &p->messages[m], p->message_count - m);
		write_pass(w, &list[i]);
	}
	while (m < p->message_count)
		m += write_exchange(w, &p->messages[m], p->message_count - m);
	w->ret->slots = w->slots.count;
	w->ret->batches = w->batches.count;
	w->ret->grads = w->grads.count;
}

static int write_stage(const struct plan *p, uint32_t stage, struct mft_pipeline *ret,
		       struct mfs_error *err)
{
	const uint64_t microbatches = p->shape.microbatches;
	const uint64_t places = p->shape.chunks * microbatches;
	struct writing w = {
		.p = p,
		.stage = stage,
		.slots.taken = calloc(places + 1, sizeof(bool)),
		.batches.taken = calloc(microbatches + 1, sizeof(bool)),
		.grads.taken = calloc(places + 1, sizeof(bool)),
		.slot = calloc(places + 1, sizeof(uint32_t)),
		.grad = calloc(places + 1, sizeof(uint32_t)),
		.batch = calloc(microbatches + 1, sizeof(uint32_t)),
		.left = calloc(microbatches + 1, sizeof(uint32_t)),
		.came = calloc(places + 1, sizeof(uint64_t)),
		.grad_sent = calloc(places + 1, sizeof(uint64_t)),
		.ret = ret,
	};
	int rc = 0;

	ret->steps = calloc(p->passes + p->message_count + 1, sizeof(*ret->steps));
	if (!w.slots.taken || !w.batches.taken || !w.grads.taken || !w.slot || !w.grad ||
	    !w.batch || !w.left || !w.came || !w.grad_sent || !ret->steps)
		rc = mfs_fail_nomem(err);
	for (uint64_t i = 0; !rc && i < microbatches; i++)
		w.left[i] = p->shape.chunks * (p->shape.backward ? 2 : 1);
	if (!rc)
		write_steps(&w);
	free(w.slots.taken);
	free(w.batches.taken);
	free(w.grads.taken);
	free(w.slot);
	free(w.grad);
	free(w.batch);
	free(w.left);
	free(w.came);
	free(w.grad_sent);
	return rc;
}

/* ---- all of it ---- */

static int make(struct plan *p, uint32_t stage, struct mft_pipeline *ret, struct mfs_error *err)
{
	const struct mft_pipeline_shape *s = &p->shape;
	const uint64_t indices = p->all_chunks * s->microbatches + 1;
	int rc;

	p->pass = calloc(s->stages * p->passes + 1, sizeof(*p->pass));
	p->next = calloc(s->stages, sizeof(*p->next));
	p->index[0] = calloc(indices, sizeof(**p->index));
	p->index[1] = calloc(indices, sizeof(**p->index));
	p->messages = calloc(2 * p->passes + 1, sizeof(*p->messages));
	if (!p->pass || !p->next || !p->index[0] || !p->index[1] || !p->messages)
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < s->stages; i++)
		order(p, i);
	rc = set_ticks(p, err);
	if (rc)
		return rc;
	find_messages(p, stage);
	return write_stage(p, stage, ret, err);
}

int mft_pipeline_new(const struct mft_pipeline_shape *shape, uint32_t stage,
		     struct mft_pipeline *ret, struct mfs_error *err)
{
	struct plan p = {
		.shape = *shape,
		.all_chunks = shape->stages * shape->chunks,
		.passes = shape->microbatches * shape->chunks * (shape->backward ? 2 : 1),
	};
	int rc;

	*ret = (struct mft_pipeline){0};
	rc = make(&p, stage, ret, err);
	free(p.pass);
	free(p.next);
	free(p.index[0]);
	free(p.index[1]);
	free(p.messages);
	if (rc)
		mft_pipeline_release(ret);
	return rc;
}

void mft_pipeline_release(struct mft_pipeline *p)
{
	free(p->steps);
	*p = (struct mft_pipeline){0};
}
