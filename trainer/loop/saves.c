#include <stdio.h>

#include "formats/base/clock.h"
#include "trainer/base/nvtx_ranges.h"
#include "trainer/loop/trainer_i.h"

/* A wait that a person would notice. */
#define LONG_NS INT64_C(10000000)

static void forget(struct mft_saves *s, uint64_t iteration)
{
	uint64_t kept = 0;

	for (uint64_t i = 0; i < s->lost_count; i++)
		if (s->lost[i] != iteration)
			s->lost[kept++] = s->lost[i];
	s->lost_count = kept;
}

/* An iteration that is lost for good, or that is there now. */
static void note(struct mft_trainer *t, const struct mft_save_result *r)
{
	struct mft_saves *s = &t->saves;

	if (t->speaks)
		mft_log_save(t, r);
	s->failed = r->failed;
	forget(s, r->iteration);
	if (!r->failed)
		s->durable = r->iteration;
	else if (s->lost_count < MFT_LOST_SAVES)
		s->lost[s->lost_count++] = r->iteration;
	else
		s->more_lost++;
}

void mft_saves_look(struct mft_trainer *t, bool wait)
{
	struct mft_save_result r;

	if (t->saver && mft_saver_ended(t->saver, wait, &r))
		note(t, &r);
}

/* Two saves at once would need twice the memory, and a save that is left out would be missed: a
 * checkpoint has the number that is looked for. So it waits, which is no time of an iteration. */
static void await_last(struct mft_trainer *t)
{
	const int64_t from = mfs_now_ns();
	int64_t waited;

	mft_saves_look(t, true);
	waited = mfs_now_ns() - from;
	t->window.began_ns += waited;
	if (waited >= LONG_NS && t->speaks)
		mft_log_save_waited(t, (double)waited / 1e9);
}

void mft_saves_begin(struct mft_trainer *t, enum mft_save_kind kind)
{
	struct mfs_error err = {0};

	MFT_RANGE_BEGIN("save");
	await_last(t);
	if (kind == MFT_SAVE_PERSISTENT)
		t->saves.last = t->progress.iteration;
	mft_sync_await(t->sync, t->ctx);
	if (mft_saver_start(t->saver, t->ctx, kind, &t->progress, &err)) {
		struct mft_save_result r = {.iteration = t->progress.iteration, .failed = true};

		snprintf(r.why, sizeof(r.why), "%s", err.msg);
		note(t, &r);
	}
	MFT_RANGE_END();
}

bool mft_saves_end(struct mft_trainer *t)
{
	mft_saves_look(t, true);
	if (t->saves.lost_count && t->speaks)
		mft_log_lost(t);
	return !t->saves.failed;
}
