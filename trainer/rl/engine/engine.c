#define _GNU_SOURCE
#include "trainer/rl/engine/engine.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/base/clock.h"
#include "formats/base/str.h"
#include "trainer/rl/engine/engine_i.h"
#include "trainer/rl/http/http_calls.h"

#define SECOND INT64_C(1000000000)
#define REST   (2 * SECOND) /* until an engine that failed is asked again */
#define LOOK   200	    /* ms */
#define PROBE  30L	    /* seconds that it may take to say what it is */
#define BACK   5L	    /* seconds that one which may be back may take to answer */
#define UPDATE 3600L	    /* seconds that new weights may take */
#define RELOAD 1u	    /* the call of an update that reads them, of each kind */

static const struct mft_engine_kind *const kinds[] = {&mft_engine_vllm, &mft_engine_sglang};

struct mft_engines {
	struct mft_engines_config config;
	struct mft_engine *list;
	size_t count;
	struct mft_http *http;
	atomic_bool given_up;
};

void mft_engines_give_up(struct mft_engines *e)
{
	atomic_store(&e->given_up, true);
}

size_t mft_engines_count(const struct mft_engines *e)
{
	return e->count;
}

bool mft_engines_is_out(const struct mft_engines *e, size_t engine)
{
	return atomic_load(&e->list[engine].is_out);
}

/* ---- one call ---- */

static char *url_of(const struct mft_engine *e, const char *path)
{
	size_t len = strlen(e->url);
	char *ret;

	while (len && e->url[len - 1] == '/')
		len--;
	return asprintf(&ret, "%.*s%s", (int)len, e->url, path) < 0 ? NULL : ret;
}

/* The text of a JSON value, which is released. */
static char *text_of(json_t *value)
{
	char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;

	json_decref(value);
	return text;
}

/* body NULL: a GET. */
static int send(struct mft_engines *e, const struct mft_engine *to, const char *path, json_t *body,
		long seconds, void *arg, struct mfs_error *err)
{
	char *text = text_of(body);

	if (body && !text)
		return mfs_fail_nomem(err);
	return mft_http_send(e->http, url_of(to, path), text, seconds, arg, err);
}

static int check(const struct mft_http_call *c, struct mfs_error *err)
{
	return c->status >= 200 && c->status < 300 ? 0 : mft_http_failure(c, err);
}

/* Sends a call, when nothing else is under way, and waits for its answer. */
static int ask(struct mft_engines *e, const struct mft_engine *to, const char *path, json_t *body,
	       long seconds, struct mft_http_call **ret, struct mfs_error *err)
{
	int rc = send(e, to, path, body, seconds, NULL, err);

	*ret = NULL;
	while (!rc && !*ret)
		rc = mft_http_wait(e->http, LOOK, ret, err);
	if (!rc)
		rc = check(*ret, err);
	if (!rc)
		return 0;
	mft_http_call_free(*ret);
	*ret = NULL;
	return rc;
}

/* ---- opening ---- */

static int learn(struct mft_engine *e, const json_t *models, struct mfs_error *err)
{
	const json_t *first = json_array_get(json_object_get(models, "data"), 0);
	const char *owner = json_string_value(json_object_get(first, "owned_by")),
		   *id = json_string_value(json_object_get(first, "id"));

	for (size_t i = 0; i < MFS_ARRAY_SIZE(kinds) && owner; i++)
		if (mfs_str_is(owner, kinds[i]->name))
			e->kind = kinds[i];
	if (!e->kind || !id)
		return mfs_fail(err, -EPROTO,
				"%s: expected a server of vLLM or SGLang; /v1/models names '%s'",
				e->url, owner ? owner : "no owner");
	e->model = strdup(id);
	return e->model ? 0 : mfs_fail_nomem(err);
}

static int probe(struct mft_engines *e, struct mft_engine *to, struct mfs_error *err)
{
	struct mft_http_call *c;
	int rc = ask(e, to, "/v1/models", NULL, PROBE, &c, err);

	if (rc)
		return rc;
	rc = learn(to, c->reply, err);
	mft_http_call_free(c);
	return rc;
}

int mft_engines_open(const struct mft_engines_config *config, struct mft_engines **ret,
		     struct mfs_error *err)
{
	struct mft_engines *e = calloc(1, sizeof(*e));
	int rc;

	if (!e)
		return mfs_fail_nomem(err);
	e->config = *config;
	e->list = calloc(config->count + 1, sizeof(*e->list));
	rc = e->list ? mft_http_new(&e->http, err) : mfs_fail_nomem(err);
	for (; !rc && e->count < config->count; e->count++) {
		e->list[e->count].url = config->urls[e->count];
		rc = probe(e, &e->list[e->count], err);
	}
	if (rc) {
		mft_engines_close(e);
		return rc;
	}
	*ret = e;
	return 0;
}

void mft_engines_close(struct mft_engines *e)
{
	if (!e)
		return;
	mft_http_free(e->http);
	for (size_t i = 0; e->list && i < e->config.count; i++)
		free(e->list[i].model);
	free(e->list);
	free(e);
}

/* ---- requests ---- */

/* What is known of one. */
struct job {
	struct mft_engine *at; /* that works on it; NULL: none */
	unsigned tries;
	bool done;
};

/* Requests, and how far they are. */
struct run {
	struct mft_engines *e;
	const struct mft_request *requests;
	const struct mft_sampling *how;
	struct mft_response *ret;
	struct job *jobs;
	size_t count, done;
	size_t next;	       /* all jobs before it are under way or done */
	int64_t heard;	       /* when the last answer came */
	struct mfs_error *err; /* the last reason why one failed */
};

/* Requests that an engine may have: one, to see whether it is back, where it has failed last. */
static unsigned most_of(const struct run *r, const struct mft_engine *e)
{
	return e->not_before ? 1 : r->e->config.most;
}

/* The engine with the least to do that may be asked. */
static struct mft_engine *choose(const struct run *r)
{
	const int64_t now = mfs_now_ns();
	struct mft_engine *best = NULL;

	for (size_t i = 0; i < r->e->count; i++) {
		struct mft_engine *e = &r->e->list[i];

		if (!atomic_load(&e->is_out) && e->under_way < most_of(r, e) &&
		    e->not_before <= now && (!best || e->under_way < best->under_way))
			best = e;
	}
	return best;
}

static int start(struct run *r, size_t i, struct mft_engine *to)
{
	json_t *body = to->kind->ask(to, &r->requests[i], r->how);
	int rc = body ? 0 : mfs_fail_nomem(r->err);

	if (!rc)
		rc = send(r->e, to, to->kind->path, body, r->e->config.seconds, &r->jobs[i],
			  r->err);
	if (rc)
		return rc;
	r->jobs[i].at = to;
	to->under_way++;
	return 0;
}

/* One that has failed may have been started again, with the weights that it was started with. */
static bool has_weights(const struct run *r, struct mft_engine *e)
{
	struct mft_engines one = {.config = r->e->config};
	struct mft_http_call *c = NULL;
	struct mfs_error why = {0};
	bool ret = false;

	if (!e->version)
		return true; /* it was never told any */
	if (mft_http_new(&one.http, &why))
		return false;
	if (!ask(&one, e, e->kind->version_path, NULL, BACK, &c, &why)) {
		const uint64_t found =
			mft_engine_version(json_object_get(c->reply, "weight_version"));

		ret = found == e->version;
		if (!ret)
			mfs_fail(r->err, -EPROTO,
				 "%s: expected version %llu of the weights, found %llu: it was "
				 "started again, and is left out until it is told of new ones",
				 c->url, (unsigned long long)e->version, (unsigned long long)found);
		mft_http_call_free(c);
	}
	mft_http_free(one.http);
	return ret;
}

/* Gives engines what they have room for, in order. */
static int start_some(struct run *r)
{
	struct mft_engine *to;
	int rc = 0;

	while (r->next < r->count && !rc) {
		if (r->jobs[r->next].done || r->jobs[r->next].at) {
			r->next++;
			continue;
		}
		to = choose(r);
		if (!to)
			break;
		if (to->not_before && !has_weights(r, to)) {
			to->not_before = mfs_now_ns() + REST;
			continue;
		}
		rc = start(r, r->next, to);
	}
	return rc;
}

static int check_answer(const struct run *r, const struct mft_response *a, struct mfs_error *err)
{
	if (a->finish == MFT_FINISH_ABORT)
		return mfs_fail(err, -EPROTO, "the request was aborted");
	if (a->count > r->how->max_tokens)
		return mfs_fail(err, -EPROTO, "expected %u tokens at most, found %u",
				r->how->max_tokens, a->count);
	for (uint32_t t = 0; t < a->count; t++)
		if (a->tokens[t] >= r->e->config.vocab)
			return mfs_fail(err, -EPROTO,
					"token %u is %u: the vocabulary has 0 to %llu", t,
					a->tokens[t], (unsigned long long)r->e->config.vocab - 1);
	return 0;
}

static int take_answer(const struct run *r, const struct mft_engine *from,
		       const struct mft_http_call *c, struct mft_response *ret)
{
	int rc = check(c, r->err);

	if (rc)
		return rc;
	rc = from->kind->answer(from, c->reply, ret, r->err);
	if (!rc)
		rc = check_answer(r, ret, r->err);
	if (!rc)
		return 0;
	mft_response_release(ret);
	return mfs_fail_in(r->err, "%s", c->url);
}

/* It failed: another engine, or the same one later, gets it. What has no answer at all is no
 * request's fault. */
static int put_back(struct run *r, size_t i, struct mft_engine *from, bool answered)
{
	from->not_before = mfs_now_ns() + REST;
	r->next = i < r->next ? i : r->next;
	r->jobs[i].tries += answered;
	if (r->jobs[i].tries < r->e->config.tries)
		return 0;
	mfs_fail_in(r->err, "a request has failed %u times, for the last time so",
		    r->jobs[i].tries);
	return -EIO;
}

static int take_call(struct run *r, struct mft_http_call *c)
{
	struct job *job = c->arg;
	struct mft_engine *from = job->at;
	const size_t i = (size_t)(job - r->jobs);
	const bool answered = !mft_http_is_away(c);
	int rc = take_answer(r, from, c, &r->ret[i]);

	mft_http_call_free(c);
	from->under_way--;
	job->at = NULL;
	if (rc)
		return put_back(r, i, from, answered);
	from->not_before = 0;
	r->heard = mfs_now_ns();
	job->done = true;
	r->done++;
	return 0;
}

/* Nothing is under way, and nobody may be asked yet. */
static int await_engines(const struct run *r)
{
	if (mfs_now_ns() - r->heard > r->e->config.seconds * SECOND)
		return mfs_fail_in(r->err, "no engine answers any more, for the last time so");
	usleep(LOOK * 1000);
	return 0;
}

static bool is_idle(const struct run *r)
{
	for (size_t i = 0; i < r->e->count; i++)
		if (r->e->list[i].under_way)
			return false;
	return true;
}

static int go_on(struct run *r)
{
	struct mft_http_call *c;
	int rc;

	if (atomic_load(&r->e->given_up))
		return mfs_fail(r->err, -ECANCELED, "the requests were given up");
	rc = start_some(r);
	if (rc || r->done == r->count)
		return rc;
	if (is_idle(r))
		return await_engines(r) ? -EIO : 0;
	rc = mft_http_wait(r->e->http, LOOK, &c, r->err);
	return rc || !c ? rc : take_call(r, c);
}

int mft_engines_run(struct mft_engines *e, const struct mft_request *requests, size_t count,
		    const struct mft_sampling *how, struct mft_response *ret, struct mfs_error *err)
{
	struct run r = {.e = e,
			.requests = requests,
			.how = how,
			.ret = ret,
			.jobs = calloc(count + 1, sizeof(*r.jobs)),
			.count = count,
			.heard = mfs_now_ns(),
			.err = err};
	int rc = r.jobs ? 0 : mfs_fail_nomem(err);

	/* One that has failed before this run may be back. */
	for (size_t i = 0; i < e->count; i++)
		e->list[i].not_before = e->list[i].not_before != 0;
	while (!rc && r.done < count)
		rc = go_on(&r);
	free(r.jobs);
	if (!rc)
		return 0;
	/* What is under way belongs to jobs that are gone. */
	mft_http_free(e->http);
	e->http = NULL;
	for (size_t i = 0; i < e->count; i++)
		e->list[i].under_way = 0;
	return mft_http_new(&e->http, NULL) ? mfs_fail_nomem(err) : rc;
}

/* ---- new weights ---- */

static int check_success(const struct mft_engine *e, const struct mft_engine_call *call,
			 const struct mft_http_call *c, struct mfs_error *err)
{
	const json_t *success = json_object_get(c->reply, "success");

	if (!call->must_succeed || !json_is_false(success))
		return 0;
	return mfs_fail(err, -EPROTO, "%s%s: expected success, found %.200s", e->url, call->path,
			c->bytes.data);
}

/* An update, as far as it is. */
struct update {
	struct mft_engines *e;
	const struct mft_engine_weights *w;
	struct mft_engine_update *ret;
	struct mfs_error *err;
};

/* Those that are paused: what is asked from now on is of the new weights. */
static void set_versions(const struct update *u)
{
	for (size_t i = 0; i < u->e->count; i++) {
		if (u->e->list[i].failed)
			continue;
		atomic_store(&u->e->list[i].version, u->w->version);
		if (u->w->also)
			atomic_store(&u->w->also->list[i].version, u->w->version);
	}
}

static void set_out(const struct update *u, size_t i, bool is_out)
{
	atomic_store(&u->e->list[i].is_out, is_out);
	if (u->w->also)
		atomic_store(&u->w->also->list[i].is_out, is_out);
}

/* Others answer in its place. why: a sentence. */
static void leave_out(struct update *u, struct mft_engine *at, const struct mfs_error *why)
{
	const size_t i = (size_t)(at - u->e->list);

	if (!mft_engines_is_out(u->e, i))
		u->ret->why = *why;
	at->failed = true;
	u->ret->out++;
	set_out(u, i, true);
	if (u->ret->out < u->e->count)
		return;
	*u->err = *why;
	mfs_fail_in(u->err, "no engine is left, for the last time so");
}

static bool is_left(const struct update *u)
{
	return u->ret->out < u->e->count;
}

static int send_step(struct update *u, unsigned step, size_t *ret_sent)
{
	int rc = 0;

	*ret_sent = 0;
	for (size_t i = 0; i < u->e->count && !rc; i++) {
		struct mft_engine *to = &u->e->list[i];
		const struct mft_engine_call *call = &to->kind->update[step];

		if (!call->path || to->failed)
			continue;
		rc = send(u->e, to, call->path, call->body(to, u->w), UPDATE, to, u->err);
		*ret_sent += !rc;
	}
	return rc;
}

/* One that was paused would stay so. It does where an answer came that the reload has failed:
 * what it works on would go on with some of the new weights. */
static void leave_out_paused(struct update *u, unsigned step, const struct mft_http_call *c,
			     struct mfs_error *why)
{
	const bool is_mixed = step == RELOAD && c->status;
	struct mft_engine *at = c->arg;

	at->goes_on = step >= RELOAD && !is_mixed;
	if (is_mixed)
		mfs_fail_in(why, "left paused, since its weights may be mixed");
	leave_out(u, at, why);
}

static int take_step(struct update *u, unsigned step, const struct mft_http_call *c)
{
	struct mft_engine *at = c->arg;
	struct mfs_error why = {0};
	int rc = check(c, &why);

	if (rc && mft_http_is_away(c)) {
		leave_out_paused(u, step, c, &why);
		return is_left(u) ? 0 : -EIO;
	}
	if (!rc)
		rc = check_success(at, &at->kind->update[step], c, &why);
	if (rc)
		*u->err = why;
	return rc;
}

/* One call to all engines at once. */
static int call_all(struct update *u, unsigned step)
{
	size_t sent;
	int rc = send_step(u, step, &sent);

	while (sent) {
		struct mft_http_call *c;
		int failed = mft_http_wait(u->e->http, LOOK, &c, u->err);

		if (failed)
			return failed;
		if (!c)
			continue;
		sent--;
		if (!rc)
			rc = take_step(u, step, c);
		mft_http_call_free(c);
	}
	return rc;
}

/* What it says itself. */
static int check_version(struct update *u, struct mft_engine *of)
{
	struct mfs_error why = {0};
	struct mft_http_call *c;
	uint64_t found;
	int rc = ask(u->e, of, of->kind->version_path, NULL, PROBE, &c, &why);

	if (rc == -EIO) {
		leave_out(u, of, &why);
		return is_left(u) ? 0 : rc;
	}
	if (!rc) {
		found = mft_engine_version(json_object_get(c->reply, "weight_version"));
		if (found != u->w->version)
			rc = mfs_fail(&why, -EPROTO,
				      "%s: expected version %llu of the weights, found %llu",
				      c->url, (unsigned long long)u->w->version,
				      (unsigned long long)found);
		mft_http_call_free(c);
	}
	if (rc)
		*u->err = why;
	return rc;
}

static int check_versions(struct update *u)
{
	int rc = 0;

	for (size_t i = 0; i < u->e->count && !rc; i++) {
		if (!u->e->list[i].failed)
			rc = check_version(u, &u->e->list[i]);
		if (!rc && !u->e->list[i].failed)
			set_out(u, i, false);
	}
	return rc;
}

static void go_on_one(struct mft_engines *e, const struct mft_engine *to,
		      const struct mft_engine_weights *w, long seconds)
{
	const struct mft_engine_call *calls = to->kind->update;
	struct mft_http_call *c;
	unsigned last = 0;

	while (last + 1 < MFT_ENGINE_CALLS && calls[last + 1].path)
		last++;
	if (!ask(e, to, calls[last].path, calls[last].body(to, w), seconds, &c, NULL))
		mft_http_call_free(c);
}

/* Those that are paused would stay so. */
static void go_on_all(struct mft_engines *e, const struct mft_engine_weights *w)
{
	for (size_t i = 0; i < e->count; i++)
		go_on_one(e, &e->list[i], w, PROBE);
}

/* Of those that are left out, if they hear it. */
static void go_on_some(struct mft_engines *e, const struct mft_engine_weights *w)
{
	for (size_t i = 0; i < e->count; i++)
		if (e->list[i].goes_on)
			go_on_one(e, &e->list[i], w, BACK);
}

int mft_engines_update(struct mft_engines *e, const struct mft_engine_weights *w,
		       struct mft_engine_update *ret, struct mfs_error *err)
{
	const int64_t from = mfs_now_ns();
	struct mfs_error none;
	struct update u = {e, w, ret, err ? err : &none};
	int rc = 0;

	*ret = (struct mft_engine_update){0};
	for (size_t i = 0; i < e->count; i++)
		e->list[i].failed = e->list[i].goes_on = false;
	for (unsigned step = 0; step < MFT_ENGINE_CALLS && !rc; step++) {
		if (step == RELOAD)
			set_versions(&u);
		rc = call_all(&u, step);
	}
	if (rc)
		go_on_all(e, w);
	ret->paused = (double)(mfs_now_ns() - from) / 1e9;
	if (!rc)
		go_on_some(e, w);
	return rc ? rc : check_versions(&u);
}

int mft_engines_score(struct mft_engines *e, size_t engine, const uint32_t *tokens, uint32_t count,
		      float *ret, struct mfs_error *err)
{
	const struct mft_request r = {tokens, count, 0};
	struct mft_engine *to = &e->list[engine];
	struct mft_http_call *c;
	int rc =
		ask(e, to, to->kind->path, to->kind->ask_score(to, &r), e->config.seconds, &c, err);

	if (rc)
		return rc;
	rc = to->kind->answer_score(c->reply, tokens, count, ret, err);
	mft_http_call_free(c);
	return rc ? mfs_fail_in(err, "%s", to->url) : 0;
}
