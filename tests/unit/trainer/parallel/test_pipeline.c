/*
 * Schedules of pipelines: trainer/parallel/pipeline.h. All stages of a pipeline are run side by
 * side on numbers that stand for what the passes compute, and exchanges in parallel with the
 * passes: at once, as late as the passes allow, or by chance. An exchange is over when every
 * message of it has met its other end: whatever waits for ever, arrives in the wrong order, or lies
 * where something else is still needed, shows.
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <string.h>

#include "trainer/parallel/pipeline.h"

static struct mfs_error err;

static uint64_t draw(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

#define MOST_STAGES 8
#define MOST_PLACES 512

/* What stands somewhere: the stream of a microbatch before a chunk (of all), or its gradient. */
struct content {
	bool there, gradient;
	uint32_t chunk;
	uint64_t microbatch;
};

struct stage {
	struct mft_pipeline p;
	uint64_t at;	       /* step */
	uint64_t at_exchange;  /* step that is under way or comes next; its number */
	uint64_t done, waited; /* exchanges */
	struct content slot[MOST_PLACES], batch[MOST_PLACES], grad[MOST_PLACES];
	struct content output[MFT_PIPELINE_OUTPUTS]; /* there: until it is sent */
	uint64_t next_backward
		[MOST_PLACES]; /* of each chunk: gradients are added up in this order */
	uint32_t met;	       /* messages of the exchange */
};

static struct stage stages[MOST_STAGES];
static struct mft_pipeline_shape shape;

static void expect(const struct content *c, bool gradient, uint32_t chunk, uint64_t microbatch)
{
	ck_assert(c->there && c->gradient == gradient);
	ck_assert_uint_eq(c->chunk, chunk);
	ck_assert_uint_eq(c->microbatch, microbatch);
}

static void run_forward(uint32_t s, const struct mft_pipeline_step *step)
{
	const uint32_t chunk = step->chunk * shape.stages + s;
	struct stage *st = &stages[s];
	struct content *slot = &st->slot[step->slot];

	if (chunk == 0 || shape.stages == 1)
		*slot = (struct content){true, false, chunk, step->microbatch};
	expect(slot, false, chunk, step->microbatch);
	if (shape.stages > 1 && chunk + 1 < shape.stages * shape.chunks)
		st->output[step->output] =
			(struct content){true, false, chunk + 1, step->microbatch};
	slot->there = shape.backward;
}

/* The gradient of the chunk's output becomes that of its input, in the same buffer. */
static void run_backward(uint32_t s, const struct mft_pipeline_step *step)
{
	const uint32_t chunk = step->chunk * shape.stages + s;
	struct stage *st = &stages[s];
	struct content *grad = &st->grad[step->grad];

	if (chunk + 1 == shape.stages * shape.chunks) {
		ck_assert(!grad->there);
		*grad = (struct content){true, true, chunk + 1, step->microbatch};
	}
	expect(grad, true, chunk + 1, step->microbatch);
	expect(&st->slot[step->slot], false, chunk, step->microbatch);
	st->slot[step->slot].there = false;
	ck_assert_uint_eq(st->next_backward[step->chunk]++, step->microbatch);
	grad->chunk = chunk;
	grad->there = chunk != 0;
}

static void run_pass(uint32_t s, const struct mft_pipeline_step *step)
{
	struct stage *st = &stages[s];

	ck_assert_uint_lt(step->slot, st->p.slots);
	ck_assert_uint_lt(step->batch, st->p.batches);
	if (step->first)
		st->batch[step->batch] = (struct content){true, false, 0, step->microbatch};
	expect(&st->batch[step->batch], false, 0, step->microbatch);
	ck_assert_uint_lt(step->output, MFT_PIPELINE_OUTPUTS);
	ck_assert(!st->output[step->output].there); /* every pass writes there */
	if (step->kind == MFT_PIPELINE_FORWARD)
		run_forward(s, step);
	else
		run_backward(s, step);
}

/* Moves what one message carries. */
static void deliver(uint32_t from, const struct mft_pipeline_message *m, uint32_t to,
		    const struct mft_pipeline_message *n)
{
	struct content *source =
		m->gradient ? &stages[from].grad[m->at] : &stages[from].output[m->at];
	struct content *target = n->gradient ? &stages[to].grad[n->at] : &stages[to].slot[n->at];

	ck_assert(m->gradient == n->gradient);
	ck_assert_uint_lt(n->at, n->gradient ? stages[to].p.grads : stages[to].p.slots);
	ck_assert(source->there && !target->there);
	*target = *source;
	source->there = false;
}

/* The exchange that a stage is in; NULL: its passes have not come to one. */
static const struct mft_pipeline_step *exchange_of(struct stage *st)
{
	while (st->at_exchange < st->at &&
	       st->p.steps[st->at_exchange].kind != MFT_PIPELINE_EXCHANGE)
		st->at_exchange++;
	return st->at_exchange < st->at ? &st->p.steps[st->at_exchange] : NULL;
}

/* The message at the other end that would be met now; NULL: its process is not there yet. Messages
 * between two processes are met in their order, and an exchange has one each way at most. */
static const struct mft_pipeline_message *other_end(uint32_t s,
						    const struct mft_pipeline_message *m)
{
	struct stage *o = &stages[m->stage];
	const struct mft_pipeline_step *step = exchange_of(o);

	for (uint32_t i = 0; step && i < step->message_count; i++)
		if (step->message[i].stage == s && step->message[i].receive != m->receive &&
		    !(o->met & 1u << i))
			return &step->message[i];
	return NULL;
}

static bool run_exchange(uint32_t s)
{
	struct stage *st = &stages[s];
	const struct mft_pipeline_step *step = exchange_of(st);
	bool moved = false;

	for (uint32_t i = 0; step && i < step->message_count; i++) {
		const struct mft_pipeline_message *m = &step->message[i], *n;

		if (m->receive || st->met & 1u << i || !(n = other_end(s, m)))
			continue;
		deliver(s, m, m->stage, n);
		st->met |= 1u << i;
		stages[m->stage].met |= 1u << (n - exchange_of(&stages[m->stage])->message);
		moved = true;
	}
	if (!step || st->met + 1 != 1u << step->message_count)
		return moved;
	ck_assert_uint_eq(step->number, st->done);
	st->met = 0;
	st->at_exchange++;
	st->done++;
	return true;
}

/* A pass, or where an exchange begins. */
static bool run_step(uint32_t s)
{
	struct stage *st = &stages[s];
	const struct mft_pipeline_step *step = &st->p.steps[st->at];

	if (st->at == st->p.count)
		return false;
	if (step->kind == MFT_PIPELINE_EXCHANGE) {
		ck_assert_uint_lt(step->number - st->waited, st->p.exchanges);
	} else if (step->after > st->done) {
		return false;
	} else {
		if (step->after) {
			ck_assert_uint_gt(step->after, st->waited);
			st->waited = step->after;
		}
		run_pass(s, step);
	}
	st->at++;
	return true;
}

static void make(void)
{
	memset(stages, 0, sizeof(stages));
	for (uint32_t s = 0; s < shape.stages; s++) {
		unit_ok(mft_pipeline_new(&shape, s, &stages[s].p, &err), &err);
		ck_assert_uint_le(stages[s].p.slots, MOST_PLACES);
	}
}

static void release(void)
{
	for (uint32_t s = 0; s < shape.stages; s++)
		mft_pipeline_release(&stages[s].p);
}

enum { AT_ONCE, LATE, BY_CHANCE };

/* Something of a stage; when: of exchanges. */
static bool run_one(uint32_t s, int when, uint64_t *seed)
{
	const bool first = when == AT_ONCE || (when == BY_CHANCE && draw(seed) % 2);

	return first ? run_exchange(s) || run_step(s) : run_step(s);
}

/* In an order of stages that turns, so that none is always the first. */
static void run_all(int when, uint64_t *seed)
{
	bool moves = true;

	while (moves) {
		const uint32_t from = (uint32_t)(draw(seed) % shape.stages);

		moves = false;
		for (uint32_t i = 0; i < shape.stages; i++)
			moves |= run_one((from + i) % shape.stages, when, seed);
		for (uint32_t i = 0; i < shape.stages && !moves; i++)
			moves = run_exchange((from + i) % shape.stages);
	}
	for (uint32_t s = 0; s < shape.stages; s++) {
		ck_assert_msg(stages[s].at == stages[s].p.count,
			      "stage %u of %u waits in step %zu: %u chunks, %zu microbatches, "
			      "groups of %u",
			      s, shape.stages, (size_t)stages[s].at, shape.chunks,
			      (size_t)shape.microbatches, shape.group);
		ck_assert_ptr_null(exchange_of(&stages[s]));
		for (uint32_t c = 0; c < shape.chunks && shape.backward; c++)
			ck_assert_uint_eq(stages[s].next_backward[c], shape.microbatches);
	}
}

/* Sizes that Megatron allows: groups of at least as many microbatches as there are stages, also the
 * last one. */
static void draw_shape(uint64_t *seed)
{
	shape.stages = 1 + (uint32_t)(draw(seed) % MOST_STAGES);
	shape.chunks = shape.stages == 1 ? 1 : 1 + (uint32_t)(draw(seed) % 4);
	shape.group = shape.stages + (uint32_t)(draw(seed) % 3 * (draw(seed) % 3));
	shape.microbatches = 1 + draw(seed) % 20;
	shape.backward = draw(seed) % 4 != 0;
	if (shape.chunks > 1) {
		shape.microbatches += shape.group - 1;
		if (shape.microbatches % shape.group < shape.stages)
			shape.microbatches -= shape.microbatches % shape.group;
	}
}

START_TEST(messages_meet)
{
	uint64_t seed = (uint64_t)_i + 1;

	for (int i = 0; i < 200; i++) {
		draw_shape(&seed);
		make();
		run_all(i % 3, &seed);
		release();
	}
}
END_TEST

/* As Megatron has them: a microbatch for each stage that is still to come, and this one. */
START_TEST(activations_in_flight)
{
	for (uint32_t n = 1; n <= MOST_STAGES; n++)
		for (uint64_t count = 1; count <= 20; count++) {
			shape = (struct mft_pipeline_shape){n, 1, n, count, true};
			make();
			for (uint32_t s = 0; s < n; s++) {
				const uint32_t most = n - s < count ? n - s : (uint32_t)count;

				ck_assert_uint_eq(stages[s].p.slots, most);
				ck_assert_uint_eq(stages[s].p.batches, most);
				ck_assert_uint_le(stages[s].p.grads, 2);
			}
			release();
		}
}
END_TEST

/* Interleaved: Megatron's warm-up and one more, and what has arrived before its turn. */
START_TEST(activations_interleaved)
{
	for (uint32_t n = 2; n <= MOST_STAGES; n++)
		for (uint32_t chunks = 2; chunks <= 4; chunks++)
			for (uint64_t rounds = 1; rounds <= 6; rounds++) {
				shape = (struct mft_pipeline_shape){n, chunks, n, n * rounds, true};
				make();
				for (uint32_t s = 0; s < n; s++) {
					const uint64_t all = n * rounds * chunks;
					const uint64_t megatron =
						2 * (n - s - 1) + (chunks - 1) * n + 1;

					ck_assert_uint_ge(stages[s].p.slots,
							  megatron < all ? megatron : all);
					ck_assert_msg(stages[s].p.slots <= megatron + 1 &&
							      stages[s].p.slots <= all,
						      "stage %u of %u, %u chunks, %zu: %u", s, n,
						      chunks, (size_t)(n * rounds),
						      stages[s].p.slots);
				}
				release();
			}
}
END_TEST

/* A plan for the largest batch of a run serves the smaller ones. */
START_TEST(more_microbatches_need_no_less)
{
	for (uint32_t n = 1; n <= 5; n++)
		for (uint32_t chunks = 1; chunks <= (n > 1 ? 3u : 1u); chunks++) {
			struct mft_pipeline before[MOST_STAGES] = {0};

			for (uint64_t rounds = 1; rounds <= 8; rounds++) {
				shape = (struct mft_pipeline_shape){n, chunks, n, n * rounds, true};
				make();
				for (uint32_t s = 0; s < n; s++) {
					ck_assert_uint_ge(stages[s].p.slots, before[s].slots);
					ck_assert_uint_ge(stages[s].p.batches, before[s].batches);
					ck_assert_uint_ge(stages[s].p.grads, before[s].grads);
					ck_assert_uint_ge(stages[s].p.exchanges,
							  before[s].exchanges);
					before[s] = stages[s].p;
				}
				release();
			}
		}
}
END_TEST

/* The first stage of two, with two chunks and four microbatches, as Megatron's documentation draws
 * it: forward of chunk and microbatch, backward in small letters. */
START_TEST(interleaved_order)
{
	static const char *const want[] = {"A0A1B0B1A2b0A3b1B2a0B3a1b2b3a2a3",
					   "A0A1B0b0B1b1A2a0A3a1B2b2B3b3a2a3"};
	char found[64];

	shape = (struct mft_pipeline_shape){2, 2, 2, 4, true};
	make();
	for (uint32_t s = 0; s < 2; s++) {
		size_t n = 0;

		for (uint64_t i = 0; i < stages[s].p.count; i++) {
			const struct mft_pipeline_step *step = &stages[s].p.steps[i];

			if (step->kind == MFT_PIPELINE_EXCHANGE)
				continue;
			found[n++] = (char)((step->kind == MFT_PIPELINE_FORWARD ? 'A' : 'a') +
					    (int)step->chunk);
			found[n++] = (char)('0' + (int)step->microbatch);
		}
		found[n] = 0;
		ck_assert_str_eq(found, want[s]);
	}
	release();
}
END_TEST

/* Groups that are smaller than the number of stages wait for themselves. */
START_TEST(groups_smaller_than_the_stages_are_refused)
{
	struct mft_pipeline p;

	shape = (struct mft_pipeline_shape){4, 2, 1, 4, true};
	unit_fails(mft_pipeline_new(&shape, 0, &p, &err), &err, -EINVAL,
		   "4 microbatches in groups of 1 cannot go through 4 stages of 2 model chunks");
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("pipeline");
	TCase *c = tcase_create("schedules");

	tcase_add_loop_test(c, messages_meet, 0, 10);
	tcase_add_test(c, activations_in_flight);
	tcase_add_test(c, activations_interleaved);
	tcase_add_test(c, more_microbatches_need_no_less);
	tcase_add_test(c, interleaved_order);
	tcase_add_test(c, groups_smaller_than_the_stages_are_refused);
	suite_add_tcase(s, c);
	return s;
}
