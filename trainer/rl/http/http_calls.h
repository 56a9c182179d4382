/* HTTP requests with JSON, many at once: libcurl's multi interface. One thread. */
#ifndef MFT_TRAINER_RL_HTTP_CALLS_H
#define MFT_TRAINER_RL_HTTP_CALLS_H

#include <jansson.h>
#include <stdbool.h>

#include "formats/base/buf.h"
#include "formats/base/error.h"

struct mft_http;

struct mft_http_call {
	char *url;    /* free()d with the call */
	char *body;   /* JSON of a POST, free()d likewise; NULL: a GET */
	long seconds; /* until there is an answer */
	void *arg;    /* the caller's */
	/* of one that has ended: status 0: there was no answer, for the reason in why; reply is
	 * NULL where it was no JSON */
	long status;
	json_t *reply;
	char why[256];

	/* private */
	void *easy, *headers;
	struct mfs_buf bytes;
};

int mft_http_new(struct mft_http **ret, struct mfs_error *err);
/* Calls that have not ended are cut off and freed. */
void mft_http_free(struct mft_http *h); /* NULL: nothing */

/* Sends a call, which is h's until mft_http_wait() gives it back. Takes url and body, also where it
 * fails. */
int mft_http_send(struct mft_http *h, char *url, char *body, long seconds, void *arg,
		  struct mfs_error *err);
/* The next call that has ended, waiting for so many milliseconds at most. *ret NULL: none has. */
int mft_http_wait(struct mft_http *h, int milliseconds, struct mft_http_call **ret,
		  struct mfs_error *err);
void mft_http_call_free(struct mft_http_call *c);

/* True: nobody has answered, or somebody has answered that the server is not there or is busy. */
bool mft_http_is_away(const struct mft_http_call *c);
/* What went wrong with a call that has ended, in a sentence: no answer, or a status and what the
 * answer says of it. */
int mft_http_failure(const struct mft_http_call *c, struct mfs_error *err);

#endif
