#include "fs/sums/signature.h"

#include <errno.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "formats/io/slurp.h"

#define MAX_KEY	      (64u << 10)
#define MAX_SIGNATURE (64u << 10)

static int read_key(const char *path, bool private, EVP_PKEY **ret, struct mfs_error *err)
{
	void *pem;
	size_t len;
	BIO *bio;
	int rc = mfs_slurp(path, MAX_KEY, &pem, &len, err);

	if (rc)
		return rc;
	bio = BIO_new_mem_buf(pem, (int)len);
	if (bio)
		*ret = private ? PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL)
			       : PEM_read_bio_PUBKEY(bio, NULL, NULL, NULL);
	BIO_free(bio);
	OPENSSL_cleanse(pem, len);
	free(pem);
	return *ret ? 0
		    : mfs_fail(err, -EINVAL, "'%s' is no %s key (PEM)", path,
			       private ? "private" : "public");
}

/* The digest that a key of this kind signs. NULL: the text itself. */
static int digest_of(const EVP_PKEY *key, const EVP_MD **ret, const char *path,
		     struct mfs_error *err)
{
	switch (EVP_PKEY_get_base_id(key)) {
	case EVP_PKEY_ED25519:
	case EVP_PKEY_ED448:
		*ret = NULL;
		return 0;
	case EVP_PKEY_RSA:
	case EVP_PKEY_EC:
		*ret = EVP_sha256();
		return 0;
	default:
		return mfs_fail(err, -ENOTSUP, "'%s' is neither an Ed25519, Ed448, RSA nor EC key",
				path);
	}
}

static bool is_signed(EVP_PKEY *key, const EVP_MD *md, const void *signature, size_t signature_len,
		      const void *text, size_t len)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	const bool ok = ctx && EVP_DigestVerifyInit(ctx, NULL, md, NULL, key) == 1 &&
			EVP_DigestVerify(ctx, signature, signature_len, text, len) == 1;

	EVP_MD_CTX_free(ctx);
	return ok;
}

int mfs_signature_check(const void *text, size_t len, const char *name, const char *key,
			const char *signature, struct mfs_error *err)
{
	const EVP_MD *md = NULL;
	EVP_PKEY *pkey = NULL;
	size_t signature_len;
	void *bytes = NULL;
	int rc = read_key(key, false, &pkey, err);

	if (!rc)
		rc = digest_of(pkey, &md, key, err);
	if (!rc)
		rc = mfs_slurp(signature, MAX_SIGNATURE, &bytes, &signature_len, err);
	if (!rc && !is_signed(pkey, md, bytes, signature_len, text, len))
		rc = mfs_fail(err, -EINVAL, "'%s' is not a signature of '%s' by the key '%s'",
			      signature, name, key);
	EVP_PKEY_free(pkey);
	free(bytes);
	return rc;
}

int mfs_signature_key(const char *path, EVP_PKEY **ret, struct mfs_error *err)
{
	const EVP_MD *md;
	EVP_PKEY *key = NULL;
	int rc = read_key(path, true, &key, err);

	if (!rc)
		rc = digest_of(key, &md, path, err);
	if (rc)
		EVP_PKEY_free(key);
	else
		*ret = key;
	return rc;
}

int mfs_signature_make(const void *text, size_t len, EVP_PKEY *key, void **ret, size_t *ret_len,
		       struct mfs_error *err)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	const size_t most = (size_t)EVP_PKEY_get_size(key);
	uint8_t *bytes = malloc(most + 1);
	const EVP_MD *md;
	int rc = ctx && bytes ? digest_of(key, &md, "the key", err) : mfs_fail_nomem(err);

	*ret_len = most;
	if (!rc && (EVP_DigestSignInit(ctx, NULL, md, NULL, key) != 1 ||
		    EVP_DigestSign(ctx, bytes, ret_len, text, len) != 1))
		rc = mfs_fail(err, -EIO, "libcrypto does not sign with this key");
	EVP_MD_CTX_free(ctx);
	if (rc)
		free(bytes);
	else
		*ret = bytes;
	return rc;
}
