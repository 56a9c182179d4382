/* Who asks S3: an access key is the NAME of a line of the tokens, its secret is the TOKEN. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "formats/net/sigv4_verify.h"
#include "fs/gateway/s3/s3_i.h"

static const char *get_header(const void *arg, const char *name)
{
	return mfs_request_header(arg, name);
}

static void refuse(struct mfs_call *c, int rc, const struct mfs_error *err)
{
	switch (rc) {
	case -ETIME:
		mfs_s3_error(c, 403, "RequestTimeTooSkewed", err->msg);
		break;
	case -EKEYREJECTED:
		mfs_s3_error(c, 403, "SignatureDoesNotMatch", err->msg);
		break;
	case -EINVAL:
	case -EKEYEXPIRED:
		mfs_s3_error(c, 403, "AccessDenied", err->msg);
		break;
	default:
		mfs_s3_error(c, 503, "ServiceUnavailable", err->msg);
		break;
	}
}

/* Several lines may have one name: any of their secrets will do. */
static bool try_rules(struct mfs_call *c, const struct mfs_sigv4_claim *claim,
		      struct mfs_grant *grant)
{
	const struct mfs_request *q = c->request;
	const struct mfs_sigv4_arrived arrived = {
		q->method_name, mfs_url_without_authority(q->target), get_header, q};
	const char *secret;
	struct mfs_error err;
	bool sums = false;
	int rc = 0;

	for (int i = -1; (i = mfs_rules_secret(grant->rules, claim->access, i, &secret)) >= 0;) {
		if (!secret) {
			sums = true;
			continue;
		}
		rc = mfs_sigv4_verify(claim, &arrived, secret, time(NULL), &err);
		if (!rc) {
			grant->rule = i;
			grant->known = true;
			snprintf(c->reply->who, sizeof(c->reply->who), "%s", claim->access);
			return true;
		}
	}
	if (rc)
		refuse(c, rc, &err);
	else
		mfs_s3_error(c, 403, "InvalidAccessKeyId",
			     sums ? "the gateway has only a sum of this key's secret"
				  : "no line of the gateway's tokens has this name");
	return false;
}

/* Reads what the client says of itself. */
static bool parse(struct mfs_call *c, const char *authorization, const char *query,
		  struct mfs_sigv4_claim *ret)
{
	const char *code =
		query ? "AuthorizationQueryParametersError" : "AuthorizationHeaderMalformed";
	struct mfs_error err;
	int rc = query ? mfs_sigv4_claim_parse_query(query, ret, &err)
		       : mfs_sigv4_claim_parse(authorization, ret, &err);

	if (rc == -EINVAL) {
		mfs_s3_error(c, 400, code, err.msg);
	} else if (rc) {
		mfs_s3_error(c, 503, "ServiceUnavailable", err.msg);
	} else if (strcmp(ret->service, "s3") != 0) {
		mfs_sigv4_claim_release(ret);
		mfs_s3_error(c, 400, code, "Credential is of another service than s3");
	} else {
		return true;
	}
	return false;
}

bool mfs_s3_identify(struct mfs_call *c, struct mfs_grant *grant)
{
	const char *authorization = mfs_request_header(c->request, "Authorization");
	const char *query = strchr(c->request->target, '?');
	const bool presigned = query && mfs_sigv4_is_presigned(query + 1);
	struct mfs_sigv4_claim claim;
	bool known;

	if (!grant->rules) /* no secrets here */
		return true;
	if (mfs_url_query(&c->request->url, "AWSAccessKeyId")) {
		mfs_s3_error(c, 400, "InvalidRequest",
			     "the address is signed by version 2: version 4 is needed (s3v4)");
		return false;
	}
	if (!authorization && !presigned) /* one who does not sign */
		return true;
	grant->sent = true;
	if (authorization && presigned) {
		mfs_s3_error(c, 400, "InvalidArgument",
			     "the query is signed, and there is Authorization: one is allowed");
		return false;
	}
	if (!parse(c, authorization, presigned ? query + 1 : NULL, &claim))
		return false;
	known = try_rules(c, &claim, grant);
	mfs_sigv4_claim_release(&claim);
	return known;
}
