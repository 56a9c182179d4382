/*
 * Detached signatures, as openssl(1) makes them. An Ed25519 or Ed448 key signs the bytes
 * themselves (`openssl pkeyutl -sign -rawin`); an RSA (PKCS#1 v1.5) or EC key signs their SHA-256
 * (`openssl dgst -sha256 -sign`).
 */
#ifndef MFS_FS_SUMS_SIGNATURE_H
#define MFS_FS_SUMS_SIGNATURE_H

#include <openssl/types.h>
#include <stddef.h>

#include "formats/base/error.h"

/* key: the path of a public key as PEM. signature: the path of the signature. -EINVAL: the
 * signature is not that of the text by this key, or one of the files is none; -ENOTSUP: a kind of
 * key that signs in another way. Else -errno. name: of the text, for messages. */
int mfs_signature_check(const void *text, size_t len, const char *name, const char *key,
			const char *signature, struct mfs_error *err);

/* A private key (PEM) that signs; EVP_PKEY_free() frees it. Of one that is encrypted OpenSSL asks
 * the terminal for the passphrase. -EINVAL: none is there; -ENOTSUP: as above; else -errno. */
int mfs_signature_key(const char *path, EVP_PKEY **ret, struct mfs_error *err);
/* Its signature of the text, which openssl(1) verifies. The caller frees *ret. */
int mfs_signature_make(const void *text, size_t len, EVP_PKEY *key, void **ret, size_t *ret_len,
		       struct mfs_error *err);

#endif
