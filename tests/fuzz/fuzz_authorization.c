/* Input: the header Authorization. The same text is read as a cookie, as Accept, and as a name that
 * a page shows. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "formats/base/buf.h"
#include "fs/gateway/access/authorization.h"
#include "fs/gateway/access/sessions.h"
#include "fs/gateway/call/accept.h"
#include "fs/gateway/web/html.h"

/* Nobody's text is a session. */
static void check_cookie(const char *text)
{
	static struct mfs_sessions *sessions;
	uint8_t sum[MFS_TOKEN_SUM];
	const char *value;
	size_t len;

	if (!sessions)
		fuzz_require(!mfs_sessions_new(&sessions, NULL));
	fuzz_require(!mfs_session_open(sessions, NULL, 0, text, sum));
	if (mfs_cookie_find(text, "mcorefs", &value, &len))
		fuzz_require(value >= text && value + len <= text + strlen(text));
}

/* What is left has no meaning in HTML, and no control character. */
static void check_html(const char *text)
{
	struct mfs_buf b = {0};

	mfs_html_text(&b, text);
	for (size_t i = 0; i < b.len; i++)
		fuzz_require((unsigned char)b.data[i] >= ' ' && !strchr("<>\"'`", b.data[i]));
	mfs_buf_release(&b);
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	char *text = malloc(len + 1), *token;
	int rc;

	if (!text)
		return mfs_fail_nomem(err);
	memcpy(text, bytes, len);
	text[len] = '\0';
	check_cookie(text);
	check_html(text);
	mfs_accept_names(text, "text/html");
	rc = mfs_authorization_token(text, &token);
	fuzz_require(!token || *token);
	if (!rc && !token)
		rc = mfs_fail(err, -EINVAL, "there is no token in it");
	mfs_authorization_forget(token);
	free(text);
	return rc;
}

FUZZ_TARGET
