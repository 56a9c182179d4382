/*
 * Contexts that run in parallel with the passes and are as late as they may be: communication in
 * one of them runs when another context waits for it, and not before. Otherwise it runs at once on
 * the CPU, and a missing wait does not show.
 *
 * It stands between a net and the CPU's backend. All processes send the same in the same order,
 * late or not.
 */
#ifndef MFS_TESTS_TRAIN_LATE_H
#define MFS_TESTS_TRAIN_LATE_H

#include <string.h>

#include "kernels/ref/cpu.h"
#include "tests/unit/unit.h"
#include "trainer/model/net_i.h"

#define LATE_CONTEXTS 4
#define LATE_EVENTS   64
#define LATE_WORKS    64

#define LATE_MESSAGES 64

enum late_kind { LATE_SUM, LATE_GATHER, LATE_SCATTER, LATE_EXCHANGE };

struct late_work {
	enum late_kind kind;
	struct mfk_comm *group;
	enum mfk_reduce op;
	enum mfk_dtype dtype;
	void *to, *from;
	int64_t count; /* of elements, or of messages */
	struct mfk_message messages[LATE_MESSAGES];
};

/* Works are numbered from 0 on; [done, asked) are still to be done. */
static struct late_context {
	struct mfk_ctx *ctx; /* NULL: none */
	struct late_work works[LATE_WORKS];
	unsigned done, asked;
} late_contexts[LATE_CONTEXTS];

static struct late_event {
	struct mfk_event *event;
	struct late_context *of; /* NULL: of a context that is not late */
	unsigned asked;		 /* when it was recorded */
} late_events[LATE_EVENTS];

static struct mfk_device_ops late_device;
static struct mfk_comm_ops late_comm;
static struct mfk_backend late_backend;
static const struct mfk_comm_ops *late_real;
static unsigned late_count; /* works that did not come at once */

static struct late_context *late_find(const struct mfk_ctx *c)
{
	for (int i = 0; i < LATE_CONTEXTS; i++)
		if (late_contexts[i].ctx == c)
			return &late_contexts[i];
	return NULL;
}

static struct late_event *late_event_of(struct mfk_event *e)
{
	int i = 0;

	while (late_events[i].event && late_events[i].event != e)
		ck_assert_int_lt(++i, LATE_EVENTS);
	late_events[i].event = e;
	return &late_events[i];
}

static void late_do(struct late_context *l, unsigned until)
{
	for (; l->done < until; l->done++) {
		const struct late_work *w = &l->works[l->done % LATE_WORKS];

		if (w->kind == LATE_SUM)
			late_real->all_reduce(l->ctx, w->group, w->op, w->dtype, w->to, w->count);
		else if (w->kind == LATE_GATHER)
			late_real->all_gather(l->ctx, w->group, w->dtype, w->to, w->from, w->count);
		else if (w->kind == LATE_SCATTER)
			late_real->reduce_scatter(l->ctx, w->group, w->dtype, w->to, w->from,
						  w->count);
		else
			late_real->exchange(l->ctx, w->group, w->messages, (unsigned)w->count);
	}
}

/* False: the context is not late. */
static bool late_put(struct mfk_ctx *c, const struct late_work *w)
{
	struct late_context *l = late_find(c);

	if (!l)
		return false;
	ck_assert_uint_lt(l->asked - l->done, LATE_WORKS);
	l->works[l->asked++ % LATE_WORKS] = *w;
	late_count++;
	return true;
}

/* ---- the device ---- */

static int late_ctx_new(struct mfk_device *d, bool background, struct mfk_ctx **ret, char *why)
{
	const int rc = mfk_cpu.device->ctx_new(d, background, ret, why);
	struct late_context *l = late_find(NULL);

	ck_assert_ptr_nonnull(l);
	*l = (struct late_context){.ctx = rc ? NULL : *ret};
	return rc;
}

static void late_ctx_free(struct mfk_ctx *c)
{
	struct late_context *l = late_find(c);

	ck_assert_uint_eq(l->done, l->asked); /* somebody has waited for all of it */
	l->ctx = NULL;
	mfk_cpu.device->ctx_free(c);
}

static void late_event_record(struct mfk_ctx *c, struct mfk_event *e)
{
	struct late_event *event = late_event_of(e);

	event->of = late_find(c);
	event->asked = event->of ? event->of->asked : 0;
	mfk_cpu.device->event_record(c, e);
}

static void late_event_wait(struct mfk_ctx *c, struct mfk_event *e)
{
	const struct late_event *event = late_event_of(e);

	if (event->of && event->of != late_find(c))
		late_do(event->of, event->asked);
	mfk_cpu.device->event_wait(c, e);
}

/* ---- groups ---- */

static void late_all_reduce(struct mfk_ctx *c, struct mfk_comm *g, enum mfk_reduce op,
			    enum mfk_dtype dtype, void *data, int64_t count)
{
	const struct late_work w = {LATE_SUM, g, op, dtype, data, NULL, count, {{0}}};

	if (!late_put(c, &w))
		late_real->all_reduce(c, g, op, dtype, data, count);
}

static void late_all_gather(struct mfk_ctx *c, struct mfk_comm *g, enum mfk_dtype dtype, void *to,
			    const void *from, int64_t count)
{
	const struct late_work w = {LATE_GATHER, g,    MFK_SUM, dtype, to, (void *)(uintptr_t)from,
				    count,	 {{0}}};

	if (!late_put(c, &w))
		late_real->all_gather(c, g, dtype, to, from, count);
}

static void late_reduce_scatter(struct mfk_ctx *c, struct mfk_comm *g, enum mfk_dtype dtype,
				void *to, void *from, int64_t count)
{
	const struct late_work w = {LATE_SCATTER, g, MFK_SUM, dtype, to, from, count, {{0}}};

	if (!late_put(c, &w))
		late_real->reduce_scatter(c, g, dtype, to, from, count);
}

static void late_exchange(struct mfk_ctx *c, struct mfk_comm *g, const struct mfk_message *list,
			  unsigned count)
{
	struct late_work w = {.kind = LATE_EXCHANGE, .group = g, .count = count};

	if (late_find(c)) {
		ck_assert_uint_le(count, LATE_MESSAGES);
		memcpy(w.messages, list, count * sizeof(*list));
	}
	if (!late_put(c, &w))
		late_real->exchange(c, g, list, count);
}

/* Before mft_net_begin(). Contexts of others, that the net did not make, are not late. */
static void late_begin(struct mft_parallel *parallel, struct mft_net *net)
{
	if (!late_real) {
		late_real = parallel->ops;
		late_comm = *late_real;
		late_comm.all_reduce = late_all_reduce;
		late_comm.all_gather = late_all_gather;
		late_comm.reduce_scatter = late_reduce_scatter;
		late_comm.exchange = late_exchange;
		late_device = *mfk_cpu.device;
		late_device.ctx_new = late_ctx_new;
		late_device.ctx_free = late_ctx_free;
		late_device.event_record = late_event_record;
		late_device.event_wait = late_event_wait;
		late_backend = mfk_cpu;
		late_backend.device = &late_device;
	}
	parallel->ops = &late_comm;
	memset(late_events, 0, sizeof(late_events));
	net->parallel = parallel;
	net->backend = &late_backend;
}

#endif
