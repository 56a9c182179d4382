/* Signed addresses of the Hub's files: a gateway that has tokens makes them, and a data node that
 * has the same secret sends the bytes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "formats/net/signed_url.h"
#include "formats/net/uri.h"
#include "fs/gateway/hub/hub_i.h"

#define SECONDS 3600

struct subject {
	char repo[MFS_REPO_NAME + 16];
	struct mfs_signed_url url;
};

static void set_subject(struct subject *s, enum mfs_repo_kind kind, const char *name,
			const char *commit, const char *file, int64_t expires)
{
	snprintf(s->repo, sizeof(s->repo), "%s%s", kind == MFS_REPO_DATASET ? "datasets/" : "",
		 name);
	s->url = (struct mfs_signed_url){s->repo, commit, file, expires};
}

bool mfs_hub_is_signed(const struct mfs_call *c)
{
	return c->gateway->redirects.secrets && mfs_url_query(&c->request->url, "signature");
}

static int verify(const struct mfs_call *c, const struct subject *s, const char *signature,
		  struct mfs_error *err)
{
	struct mfs_secret_list secrets;
	int rc = -EKEYREJECTED;

	mfs_secrets_now(c->gateway->redirects.secrets, &secrets);
	for (unsigned i = 0; i < secrets.count && rc == -EKEYREJECTED; i++)
		rc = mfs_signed_url_verify(secrets.list[i], &s->url, signature, err);
	mfs_secrets_forget(&secrets);
	return rc;
}

bool mfs_hub_check_signed(struct mfs_call *c, enum mfs_repo_kind kind, const char *name,
			  const char *commit, const char *file)
{
	const struct mfs_url *url = &c->request->url;
	const char *expires = mfs_url_query(url, "expires");
	struct subject s;
	struct mfs_error err;
	int64_t until;
	int rc;

	if (!expires || !mfs_signed_url_time(expires, &until)) {
		mfs_hub_error(c->reply, 403, "Forbidden",
			      "the address is signed, but 'expires' is no number of seconds");
		return false;
	}
	set_subject(&s, kind, name, commit, file, until);
	rc = verify(c, &s, mfs_url_query(url, "signature"), &err);
	if (rc == -EKEYREJECTED)
		mfs_hub_error(c->reply, 403, "Forbidden", err.msg);
	else if (rc)
		mfs_reply_failure(c->reply, rc, &err);
	else if (until < time(NULL))
		mfs_hub_error(c->reply, 403, "Forbidden",
			      "the address has expired: ask for the file again");
	else
		snprintf(c->reply->who, sizeof(c->reply->who), "(signed)");
	return c->reply->status == 0;
}

char *mfs_hub_signed(const struct mfs_call *c, enum mfs_repo_kind kind, const char *name,
		     const char *commit, const char *file)
{
	const struct mfs_redirects *to = &c->gateway->redirects;
	const int64_t expires = time(NULL) + (to->seconds ? to->seconds : SECONDS);
	char signature[MFS_SIGNED_URL_SIGNATURE];
	struct mfs_secret_list secrets;
	struct mfs_buf b = {0};
	struct mfs_error err;
	size_t node = strlen(to->node);
	struct subject s;
	int rc;

	set_subject(&s, kind, name, commit, file, expires);
	mfs_secrets_now(to->secrets, &secrets);
	rc = mfs_signed_url_sign(secrets.list[0], &s.url, signature, &err);
	mfs_secrets_forget(&secrets);
	while (node && to->node[node - 1] == '/')
		node--;
	mfs_buf_add(&b, to->node, node);
	mfs_buf_printf(&b, "/%s/resolve/%s/", s.repo, commit);
	mfs_uri_encode(&b, file, strlen(file), true);
	mfs_buf_printf(&b, "?expires=%lld&signature=%s", (long long)expires, signature);
	if (!rc && !b.failed)
		return b.data;
	mfs_buf_release(&b);
	return NULL;
}
