#include "trainer/rl/http/http_calls.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST (UINT64_C(256) << 20) /* bytes of an answer */
#define CONNECT 10L		      /* seconds */

struct mft_http {
	CURLM *multi;
	struct mft_http_call **list; /* that are under way */
	size_t count, room;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static CURLcode init_result;

static void init(void)
{
	init_result = curl_global_init(CURL_GLOBAL_DEFAULT);
}

int mft_http_new(struct mft_http **ret, struct mfs_error *err)
{
	struct mft_http *h = calloc(1, sizeof(*h));

	pthread_once(&once, init);
	if (h && !init_result)
		h->multi = curl_multi_init();
	if (h && h->multi) {
		*ret = h;
		return 0;
	}
	free(h);
	return mfs_fail_nomem(err);
}

/* ---- one call ---- */

void mft_http_call_free(struct mft_http_call *c)
{
	if (!c)
		return;
	curl_easy_cleanup(c->easy);
	curl_slist_free_all(c->headers);
	mfs_buf_release(&c->bytes);
	json_decref(c->reply);
	free(c->url);
	free(c->body);
	free(c);
}

static size_t take(char *bytes, size_t one, size_t count, void *arg)
{
	struct mft_http_call *c = arg;

	if ((uint64_t)c->bytes.len + count * one > LARGEST)
		return 0;
	mfs_buf_add(&c->bytes, bytes, count * one);
	return c->bytes.failed ? 0 : count * one;
}

/* A server of the run's own: no proxy, no redirect. */
static int set_up(struct mft_http_call *c)
{
	CURL *e = curl_easy_init();

	c->easy = e;
	c->headers = curl_slist_append(NULL, "Content-Type: application/json");
	if (!e || !c->headers)
		return -ENOMEM;
	curl_easy_setopt(e, CURLOPT_URL, c->url);
	curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(e, CURLOPT_ERRORBUFFER, c->why);
	curl_easy_setopt(e, CURLOPT_USERAGENT, "mcorefs-train");
	curl_easy_setopt(e, CURLOPT_PROXY, "");
	curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(e, CURLOPT_HTTPHEADER, c->headers);
	curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT, CONNECT);
	curl_easy_setopt(e, CURLOPT_TIMEOUT, c->seconds);
	curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, take);
	curl_easy_setopt(e, CURLOPT_WRITEDATA, c);
	curl_easy_setopt(e, CURLOPT_PRIVATE, c);
	if (c->body) {
		curl_easy_setopt(e, CURLOPT_POSTFIELDS, c->body);
		curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(c->body));
	}
	return 0;
}

static int make_room(struct mft_http *h)
{
	const size_t room = h->room ? 2 * h->room : 64;
	struct mft_http_call **list;

	if (h->count < h->room)
		return 0;
	list = realloc(h->list, room * sizeof(struct mft_http_call *));
	if (!list)
		return -ENOMEM;
	h->list = list;
	h->room = room;
	return 0;
}

int mft_http_send(struct mft_http *h, char *url, char *body, long seconds, void *arg,
		  struct mfs_error *err)
{
	struct mft_http_call *c = calloc(1, sizeof(*c));

	if (!c) {
		free(url);
		free(body);
		return mfs_fail_nomem(err);
	}
	*c = (struct mft_http_call){.url = url, .body = body, .seconds = seconds, .arg = arg};
	if (!url || set_up(c) || make_room(h) || curl_multi_add_handle(h->multi, c->easy)) {
		mft_http_call_free(c);
		return mfs_fail_nomem(err);
	}
	h->list[h->count++] = c;
	return 0;
}

/* ---- those that have ended ---- */

static void end(struct mft_http *h, struct mft_http_call *c, CURLcode code)
{
	curl_multi_remove_handle(h->multi, c->easy);
	for (size_t i = 0; i < h->count; i++)
		if (h->list[i] == c)
			h->list[i--] = h->list[--h->count];
	if (!code)
		curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &c->status);
	else if (!c->why[0])
		snprintf(c->why, sizeof(c->why), "%s", curl_easy_strerror(code));
	if (!code && c->bytes.len)
		c->reply = json_loadb(c->bytes.data, c->bytes.len, JSON_DECODE_ANY, NULL);
}

static struct mft_http_call *take_ended(struct mft_http *h)
{
	struct mft_http_call *c = NULL;
	CURLMsg *m;
	int left;

	while (!c && (m = curl_multi_info_read(h->multi, &left)))
		if (m->msg == CURLMSG_DONE) {
			const CURLcode code = m->data.result;

			curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &c);
			end(h, c, code);
		}
	return c;
}

int mft_http_wait(struct mft_http *h, int milliseconds, struct mft_http_call **ret,
		  struct mfs_error *err)
{
	int running;
	CURLMcode code = curl_multi_perform(h->multi, &running);

	*ret = code ? NULL : take_ended(h);
	if (*ret || (!code && !running))
		return 0;
	if (!code)
		code = curl_multi_poll(h->multi, NULL, 0, milliseconds, NULL);
	if (!code)
		code = curl_multi_perform(h->multi, &running);
	if (code)
		return mfs_fail(err, -EIO, "libcurl: %s", curl_multi_strerror(code));
	*ret = take_ended(h);
	return 0;
}

bool mft_http_is_away(const struct mft_http_call *c)
{
	return !c->status || c->status == 429 || (c->status >= 502 && c->status <= 504);
}

int mft_http_failure(const struct mft_http_call *c, struct mfs_error *err)
{
	const char *text = c->bytes.data ? c->bytes.data : "";

	if (!c->status)
		return mfs_fail(err, -EIO, "%s: %s", c->url, c->why);
	return mfs_fail(err, mft_http_is_away(c) ? -EIO : -EPROTO, "%s: HTTP %ld: %.200s", c->url,
			c->status, text);
}

void mft_http_free(struct mft_http *h)
{
	if (!h)
		return;
	while (h->count) {
		struct mft_http_call *c = h->list[--h->count];

		curl_multi_remove_handle(h->multi, c->easy);
		mft_http_call_free(c);
	}
	curl_multi_cleanup(h->multi);
	free(h->list);
	free(h);
}
