#include "trainer/simulate/timeline.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/grow.h"

/* When the messages from one stage to another begin at one of its ends. */
struct starts {
	double *list;
	uint64_t count;
};

struct stage {
	const struct mft_timeline_stage *of;
	uint64_t next; /* in the record */
	double *streams, *events;
	double host;
	unsigned passes; /* the stream that has products */
	double late;	 /* late by parallel communication; they make up for it as they go on */
	bool began;	 /* the next one has told when it can begin */
	double start;	 /* that */

	uint64_t *taken; /* [2][stages]: messages that are done, to and from each */
	uint64_t met[MFT_TIMELINE_GROUPS]; /* operations of the group that are done */
	struct mft_timeline time;
};

struct run {
	const struct mft_machine *m;
	struct stage *stages;
	uint32_t count;
	unsigned free;
	struct starts *sent, *received; /* [from][to] */
	struct starts *meetings;	/* [stage][group] */
	struct mfs_error *err;
};

/* ---- what is there ---- */

static unsigned group_of(const struct stage *s, const struct mfk_work *w)
{
	unsigned g = 0;

	while (g < MFT_TIMELINE_GROUPS && (!w->comm || s->of->groups[g].comm != w->comm))
		g++;
	return g;
}

static int push(struct starts *s, double start, struct mfs_error *err)
{
	if (mfs_grow(&s->list, s->count))
		return mfs_fail_nomem(err);
	s->list[s->count++] = start;
	return 0;
}

/* The stages that meet in a group. */
static bool takes_part(const struct run *r, const struct mft_timeline_group *g, uint32_t stage)
{
	return !g->ends_only || stage == 0 || stage + 1 == r->count;
}

/* ---- one operation ---- */

static double duration(const struct run *r, const struct stage *s, const struct mfk_work *w,
		       unsigned group)
{
	if (group == MFT_TIMELINE_GROUPS)
		return mft_machine_time(r->m, w, NULL);
	return group == r->free ? 0 : mft_machine_time(r->m, w, &s->of->groups[group].machine);
}

static void count_time(struct stage *s, const struct mfk_work *w, unsigned group, double seconds)
{
	if (group < MFT_TIMELINE_GROUPS)
		s->time.groups[group] += seconds;
	else if (w->kind == MFK_WORK_GEMM)
		s->time.products += seconds;
	else if (w->kind == MFK_WORK_MEMORY)
		s->time.memory += seconds;
	else if (w->kind == MFK_WORK_HOST)
		s->time.host += seconds;
	else
		s->time.attention += seconds;
}

static bool is_of_passes(const struct stage *s, const struct mfk_work *w, unsigned group)
{
	return group == MFT_TIMELINE_GROUPS && w->kind != MFK_WORK_HOST && w->stream == s->passes;
}

/* What an operation of the passes takes longer. While there is communication, busy_link of a second
 * is lost and the rest is not. */
static double slower(const struct run *r, struct stage *s, double seconds)
{
	const double lost = fmin(s->late, seconds * r->m->busy_link / (1 - r->m->busy_link));

	s->late -= lost;
	return lost;
}

static void communicates(const struct run *r, struct stage *s, const struct mfk_work *w,
			 double seconds)
{
	if (w->kind != MFK_WORK_MEETING && w->stream != s->passes)
		s->late += r->m->busy_link * seconds;
}

/* Passes that wait until then lose nothing meanwhile. */
static void wait_until(const struct run *r, struct stage *s, unsigned stream, double then)
{
	const double waits = fmax(0, then - s->streams[stream]);

	s->streams[stream] += waits;
	if (stream == s->passes)
		s->late = fmax(0, s->late - r->m->busy_link * waits);
}

/* When an operation can begin as far as its own process knows. */
static double can_begin(const struct stage *s, const struct mfk_work *w)
{
	return w->kind == MFK_WORK_MEETING ? s->host : fmax(s->host, s->streams[w->stream]);
}

static void end(struct stage *s, const struct mfk_work *w, double at)
{
	if (w->kind == MFK_WORK_MEETING)
		s->host = at;
	else
		s->streams[w->stream] = at;
	s->next++;
	s->began = false;
}

/* What says when, and takes no time. False: the operation is another one. */
static bool orders(const struct run *r, struct stage *s, const struct mfk_work *w)
{
	switch (w->kind) {
	case MFK_WORK_RECORD:
		s->events[w->event] = fmax(s->host, s->streams[w->stream]);
		break;
	case MFK_WORK_WAIT:
		wait_until(r, s, w->stream, s->events[w->event]);
		break;
	case MFK_WORK_SYNC:
		s->host = fmax(s->host, s->streams[w->stream]);
		break;
	case MFK_WORK_EVENT_SYNC:
		s->host = fmax(s->host, s->events[w->event]);
		break;
	default:
		return false;
	}
	s->next++;
	return true;
}

/* ---- between stages ---- */

static struct starts *way(const struct run *r, bool sent, uint32_t from, uint32_t to)
{
	return &(sent ? r->sent : r->received)[from * r->count + to];
}

static int begin_exchange(const struct run *r, uint32_t me, const struct mfk_work *w)
{
	const struct stage *s = &r->stages[me];
	int rc = 0;

	for (unsigned i = 0; i < w->messages && !rc; i++) {
		const struct mfk_record_message *x = &s->of->record->messages[w->first_message + i];

		rc = push(x->receive ? way(r, false, x->peer, me) : way(r, true, me, x->peer),
			  s->start, r->err);
	}
	return rc;
}

/* The latest begin of any of its messages' other ends; NAN: one has not begun. */
static double others_begin(const struct run *r, uint32_t me, const struct mfk_work *w)
{
	struct stage *s = &r->stages[me];
	double latest = s->start;

	for (unsigned i = 0; i < w->messages; i++) {
		const struct mfk_record_message *x = &s->of->record->messages[w->first_message + i];
		const struct starts *other =
			x->receive ? way(r, true, x->peer, me) : way(r, false, me, x->peer);
		uint64_t number = s->taken[x->receive * r->count + x->peer];

		for (unsigned k = 0; k < i; k++) {
			const struct mfk_record_message *y =
				&s->of->record->messages[w->first_message + k];

			number += y->receive == x->receive && y->peer == x->peer;
		}
		if (number >= other->count)
			return NAN;
		latest = fmax(latest, other->list[number]);
	}
	return latest;
}

static void take_messages(const struct run *r, struct stage *s, const struct mfk_work *w)
{
	for (unsigned i = 0; i < w->messages; i++) {
		const struct mfk_record_message *x = &s->of->record->messages[w->first_message + i];

		s->taken[x->receive * r->count + x->peer]++;
	}
}

/* The latest begin of the stages of a group; NAN: one has not begun. */
static double all_begin(const struct run *r, const struct stage *s, unsigned group)
{
	double latest = 0;

	for (uint32_t i = 0; i < r->count; i++) {
		const struct starts *of = &r->meetings[i * MFT_TIMELINE_GROUPS + group];

		if (!takes_part(r, &s->of->groups[group], i))
			continue;
		if (s->met[group] >= of->count)
			return NAN;
		latest = fmax(latest, of->list[s->met[group]]);
	}
	return latest;
}

/* *moved: the operation is done. */
static int across(struct run *r, uint32_t me, const struct mfk_work *w, unsigned group, bool *moved)
{
	struct stage *s = &r->stages[me];
	const bool exchanges = w->kind == MFK_WORK_EXCHANGE;
	double seconds = duration(r, s, w, group), from;
	int rc = 0;

	if (!s->began) {
		s->start = can_begin(s, w);
		s->began = true;
		rc = exchanges ? begin_exchange(r, me, w)
			       : push(&r->meetings[me * MFT_TIMELINE_GROUPS + group], s->start,
				      r->err);
	}
	if (rc)
		return rc;
	from = exchanges ? others_begin(r, me, w) : all_begin(r, s, group);
	*moved = !isnan(from);
	if (!*moved)
		return 0;
	if (exchanges)
		take_messages(r, s, w);
	else
		s->met[group]++;
	count_time(s, w, group, seconds);
	communicates(r, s, w, seconds);
	end(s, w, from + seconds);
	return 0;
}

/* ---- all stages ---- */

/* Goes on with a stage until it has to wait for another. *moved: it did something. */
static int go_on(struct run *r, uint32_t me, bool *moved)
{
	struct stage *s = &r->stages[me];
	bool goes = true;
	int rc = 0;

	while (goes && !rc && s->next < s->of->record->count) {
		const struct mfk_work *w = &s->of->record->list[s->next];
		const unsigned group = group_of(s, w);

		if (orders(r, s, w))
			continue;
		if (group < MFT_TIMELINE_GROUPS && s->of->groups[group].stages) {
			rc = across(r, me, w, group, &goes);
		} else {
			double seconds = duration(r, s, w, group);

			count_time(s, w, group, seconds);
			if (group < MFT_TIMELINE_GROUPS)
				communicates(r, s, w, seconds);
			else if (is_of_passes(s, w, group))
				seconds += slower(r, s, seconds);
			end(s, w, can_begin(s, w) + seconds);
		}
		*moved |= goes;
	}
	return rc;
}

static int go_all(struct run *r)
{
	bool moved = true, done = false;
	int rc = 0;

	while (moved && !done && !rc) {
		moved = false;
		done = true;
		for (uint32_t i = 0; i < r->count && !rc; i++) {
			rc = go_on(r, i, &moved);
			done &= r->stages[i].next == r->stages[i].of->record->count;
		}
	}
	if (!rc && !done)
		rc = mfs_fail(r->err, -EDEADLK,
			      "the stages of the pipeline wait for each other for ever");
	return rc;
}

static unsigned streams_of(const struct mfk_record *record)
{
	unsigned most = 0;

	for (uint64_t i = 0; i < record->count; i++)
		if (record->list[i].stream >= most)
			most = record->list[i].stream + 1;
	return most;
}

static unsigned events_of(const struct mfk_record *record)
{
	unsigned most = 0;

	for (uint64_t i = 0; i < record->count; i++)
		if (record->list[i].event >= most)
			most = record->list[i].event + 1;
	return most;
}

static unsigned passes_of(const struct mfk_record *record)
{
	for (uint64_t i = 0; i < record->count; i++)
		if (record->list[i].kind == MFK_WORK_GEMM)
			return record->list[i].stream;
	return 0;
}

/* Checks that operations of a group come one after the other. A group's processes do not agree on
 * an order if several streams have them. What the host sends in a group has no stream. */
static int check_streams(const struct run *r, const struct stage *s)
{
	const struct mfk_record *record = s->of->record;
	const struct mfk_work *first[MFT_TIMELINE_GROUPS] = {NULL};

	for (uint64_t i = 0; i < record->count; i++) {
		const struct mfk_work *w = &record->list[i];
		const unsigned group = group_of(s, w);

		if (group == MFT_TIMELINE_GROUPS || w->kind == MFK_WORK_MEETING)
			continue;
		if (first[group] && first[group]->stream != w->stream)
			return mfs_fail(r->err, -EINVAL,
					"a group's operations are in two streams: %s in %u, and %s "
					"in %u",
					first[group]->name, first[group]->stream, w->name,
					w->stream);
		first[group] = w;
	}
	return 0;
}

static int stage_init(struct run *r, struct stage *s, const struct mft_timeline_stage *of)
{
	s->of = of;
	s->passes = passes_of(of->record);
	s->streams = calloc(streams_of(of->record) + 1, sizeof(*s->streams));
	s->events = calloc(events_of(of->record) + 1, sizeof(*s->events));
	s->taken = calloc(2 * (size_t)r->count, sizeof(*s->taken));
	if (of->record->out_of_memory || !s->streams || !s->events || !s->taken)
		return mfs_fail_nomem(r->err);
	return check_streams(r, s);
}

static double stage_end(const struct stage *s)
{
	double last = s->host;

	for (unsigned i = 0; i < streams_of(s->of->record); i++)
		last = fmax(last, s->streams[i]);
	return last;
}

static void result(const struct run *r, struct mft_timeline *ret)
{
	double most = -1, step = 0;

	for (uint32_t i = 0; i < r->count; i++) {
		const struct mft_timeline *t = &r->stages[i].time;
		const double busy = t->products + t->attention + t->memory;

		step = fmax(step, stage_end(&r->stages[i]));
		if (busy > most) {
			most = busy;
			*ret = *t;
		}
	}
	ret->step = step;
}

static void release(struct run *r)
{
	const size_t ways = (size_t)r->count * r->count;

	for (uint32_t i = 0; i < r->count && r->stages; i++) {
		free(r->stages[i].streams);
		free(r->stages[i].events);
		free(r->stages[i].taken);
	}
	for (size_t i = 0; i < ways && r->sent && r->received; i++) {
		free(r->sent[i].list);
		free(r->received[i].list);
	}
	for (size_t i = 0; i < (size_t)r->count * MFT_TIMELINE_GROUPS && r->meetings; i++)
		free(r->meetings[i].list);
	free(r->stages);
	free(r->sent);
	free(r->received);
	free(r->meetings);
}

int mft_timeline_run(const struct mft_machine *m, const struct mft_timeline_stage *stages,
		     uint32_t count, unsigned free, struct mft_timeline *ret, struct mfs_error *err)
{
	const size_t ways = (size_t)count * count;
	struct run r = {.m = m,
			.count = count,
			.free = free,
			.stages = calloc(count, sizeof(*r.stages)),
			.sent = calloc(ways, sizeof(*r.sent)),
			.received = calloc(ways, sizeof(*r.received)),
			.meetings =
				calloc((size_t)count * MFT_TIMELINE_GROUPS, sizeof(*r.meetings)),
			.err = err};
	int rc = r.stages && r.sent && r.received && r.meetings ? 0 : mfs_fail_nomem(err);

	for (uint32_t i = 0; i < count && !rc; i++)
		rc = stage_init(&r, &r.stages[i], &stages[i]);
	if (!rc)
		rc = go_all(&r);
	if (!rc)
		result(&r, ret);
	release(&r);
	return rc;
}
