#include "formats/net/signed_url.h"

#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include "formats/base/buf.h"
#include "formats/base/str.h"

/* The file stands last, so that no name can look like two. */
int mfs_signed_url_sign(const char *secret, const struct mfs_signed_url *u,
			char ret[MFS_SIGNED_URL_SIGNATURE], struct mfs_error *err)
{
	uint8_t sum[SHA256_DIGEST_LENGTH];
	struct mfs_buf text = {0};
	unsigned len = 0;
	bool ok;

	mfs_buf_printf(&text, "mcorefs-url-1\n%lld\n%s\n%s\n%s", (long long)u->expires, u->repo,
		       u->commit, u->file);
	ok = !text.failed && HMAC(EVP_sha256(), secret, (int)strlen(secret),
				  (const uint8_t *)text.data, text.len, sum, &len);
	mfs_buf_release(&text);
	if (!ok)
		return mfs_fail_nomem(err);
	mfs_str_hex(sum, sizeof(sum), ret);
	return 0;
}

int mfs_signed_url_verify(const char *secret, const struct mfs_signed_url *u, const char *signature,
			  struct mfs_error *err)
{
	char expected[MFS_SIGNED_URL_SIGNATURE];
	int rc = mfs_signed_url_sign(secret, u, expected, err);

	if (rc)
		return rc;
	if (strlen(signature) != sizeof(expected) - 1 ||
	    CRYPTO_memcmp(signature, expected, sizeof(expected) - 1))
		rc = mfs_fail(err, -EKEYREJECTED, "the signature is not the one of this address");
	return rc;
}

bool mfs_signed_url_time(const char *text, int64_t *ret)
{
	const size_t len = strspn(text, "0123456789");
	int64_t n = 0;

	if (!len || len > 18 || text[len] || (*text == '0' && len > 1))
		return false;
	for (size_t i = 0; i < len; i++)
		n = 10 * n + (text[i] - '0');
	*ret = n;
	return true;
}
