/* Failures as replies, and in the log. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>

#include "formats/base/clock.h"
#include "formats/base/hash.h"
#include "fs/cli/log.h"
#include "fs/gateway/call/reply.h"

/* For the log: it is the operator's business. */
#define HOW_TO_LINK "; --links DIR lets links lead to DIR"
#define AGAIN	    60000000000ll /* ns after which one sentence is logged again */

/* The access log has the reason of each reply; here a sentence stands once a minute. */
static void log_failure(const char *sentence)
{
	static _Atomic uint64_t last;
	static _Atomic int64_t when;
	const uint64_t hash = mfs_hash(sentence, strlen(sentence));
	const int64_t now = mfs_now_ns();

	if (atomic_exchange(&last, hash) == hash && now - atomic_load(&when) < AGAIN)
		return;
	atomic_store(&when, now);
	mfs_log(LOG_ERR, "%s", sentence);
}

/* The length of a path or URL that begins here, up to where the sentence goes on; 0: neither. */
static size_t place_length(const char *text, char before)
{
	const bool quoted = before == '\'' || before == '"';
	const char quote[] = {before, '\0'};
	const size_t scheme = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789");
	const bool url = scheme && !strncmp(text + scheme, "://", 3);
	size_t len;

	if (!strchr(" '\"(=,", before) || (*text != '/' && !url))
		return 0;
	len = strcspn(text, quoted ? quote : url ? " '\"()," : " '\"(),:;");
	while (!quoted && len && strchr(":;", text[len - 1]))
		len--;
	return len;
}

void mfs_hide_directories(char *text)
{
	char before = ' ', *to = text;

	for (const char *from = text; *from;) {
		const size_t len = place_length(from, before);
		const char *last = len ? memrchr(from, '/', len) : NULL;

		if (last && last + 1 < from + len)
			from = last + 1;
		before = *from;
		*to++ = *from++;
	}
	*to = '\0';
}

void mfs_reply_unlisted(struct mfs_reply *a, int rc)
{
	struct mfs_error err;

	mfs_error_set(&err, rc, "a directory of repositories cannot be listed: %s", strerror(-rc));
	mfs_reply_failure(a, rc, &err);
}

void mfs_reply_failure(struct mfs_reply *a, int rc, const struct mfs_error *err)
{
	const bool passes = rc == -ESTALE || rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE ||
			    rc == -EAGAIN || rc == -ETIMEDOUT;
	char text[sizeof(err->msg)];

	memcpy(text, err->msg, sizeof(text));
	mfs_hide_directories(text);
	mfs_reply_error(a, passes ? 503 : rc == -ENOLINK ? 403 : 500, "%s", text);
	if (passes)
		mfs_reply_header(a, "Retry-After", "1");
	snprintf(text, sizeof(text), "%s%s", err->msg, rc == -ENOLINK ? HOW_TO_LINK : "");
	log_failure(text);
}
