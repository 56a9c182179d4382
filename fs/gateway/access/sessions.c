#include "fs/gateway/access/sessions.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "formats/base/bytes.h"
#include "formats/base/str.h"

#define KEY   32
#define NONCE 12
#define TAG   16
#define PLAIN (8 + MFS_TOKEN_SUM) /* when it began, and the token's sum */

/* A text's bytes. */
struct sealed {
	uint8_t nonce[NONCE], data[PLAIN], tag[TAG];
};

_Static_assert(sizeof(struct sealed) * 2 + 1 == MFS_SESSION_SIZE, "the text of a session");

struct ended {
	uint8_t nonce[NONCE];
	int64_t began;
};

struct mfs_sessions {
	uint8_t key[KEY];     /* without secrets */
	pthread_mutex_t lock; /* of the fields below */
	struct ended ended[MFS_SESSIONS_ENDED];
	unsigned ended_count;
	int64_t floor; /* those that began then or before have ended */
};

/* ---- sealing ---- */

static void key_of(const struct mfs_sessions *s, const struct mfs_secret_list *secrets, unsigned i,
		   uint8_t key[KEY])
{
	static const char what[] = "mcorefs sessions";
	const char *secret = secrets ? secrets->list[i] : NULL;
	unsigned len = 0;

	if (secret)
		HMAC(EVP_sha256(), secret, (int)strlen(secret), (const uint8_t *)what, sizeof(what),
		     key, &len);
	else
		memcpy(key, s->key, KEY);
}

static bool seal(const uint8_t key[KEY], const uint8_t plain[PLAIN], struct sealed *ret)
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
	int len;
	const bool ok = ctx && RAND_bytes(ret->nonce, NONCE) == 1 &&
			EVP_EncryptInit_ex(ctx, EVP_aes_256_gcm(), NULL, key, ret->nonce) == 1 &&
			EVP_EncryptUpdate(ctx, ret->data, &len, plain, PLAIN) == 1 &&
			EVP_EncryptFinal_ex(ctx, ret->data + PLAIN, &len) == 1 &&
			EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_GET_TAG, TAG, ret->tag) == 1;

	EVP_CIPHER_CTX_free(ctx);
	return ok;
}

static bool unseal(const uint8_t key[KEY], struct sealed *from, uint8_t plain[PLAIN])
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
	int len;
	const bool ok = ctx &&
			EVP_DecryptInit_ex(ctx, EVP_aes_256_gcm(), NULL, key, from->nonce) == 1 &&
			EVP_DecryptUpdate(ctx, plain, &len, from->data, PLAIN) == 1 &&
			EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_TAG, TAG, from->tag) == 1 &&
			EVP_DecryptFinal_ex(ctx, plain + PLAIN, &len) == 1;

	EVP_CIPHER_CTX_free(ctx);
	return ok;
}

static bool read_text(const char *text, struct sealed *ret)
{
	uint8_t *to = (uint8_t *)ret;

	if (strlen(text) != MFS_SESSION_SIZE - 1)
		return false;
	for (size_t i = 0; i < sizeof(*ret); i++) {
		const int high = mfs_str_digit(text[2 * i]), low = mfs_str_digit(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		to[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

/* ---- sessions ---- */

int mfs_sessions_new(struct mfs_sessions **ret, struct mfs_error *err)
{
	struct mfs_sessions *s = calloc(1, sizeof(*s));

	if (!s)
		return mfs_fail_nomem(err);
	s->floor = INT64_MIN;
	pthread_mutex_init(&s->lock, NULL);
	if (RAND_bytes(s->key, KEY) != 1) {
		mfs_sessions_free(s);
		return mfs_fail(err, -EIO, "there are no random numbers for a key");
	}
	*ret = s;
	return 0;
}

void mfs_sessions_free(struct mfs_sessions *s)
{
	if (!s)
		return;
	OPENSSL_cleanse(s->key, KEY);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

int mfs_session_begin(struct mfs_sessions *s, const struct mfs_secret_list *secrets, int64_t now,
		      const uint8_t sum[MFS_TOKEN_SUM], char ret[MFS_SESSION_SIZE])
{
	uint8_t key[KEY], plain[PLAIN];
	struct sealed sealed;
	bool ok;

	mfs_put_le64(plain, (uint64_t)now);
	memcpy(plain + 8, sum, MFS_TOKEN_SUM);
	key_of(s, secrets, 0, key);
	ok = seal(key, plain, &sealed);
	OPENSSL_cleanse(key, KEY);
	OPENSSL_cleanse(plain, PLAIN);
	if (!ok)
		return -EIO;
	mfs_str_hex(&sealed, sizeof(sealed), ret);
	return 0;
}

static bool has_ended(struct mfs_sessions *s, const uint8_t nonce[NONCE], int64_t began)
{
	bool ended;

	pthread_mutex_lock(&s->lock);
	ended = began <= s->floor;
	for (unsigned i = 0; i < s->ended_count && !ended; i++)
		ended = !memcmp(s->ended[i].nonce, nonce, NONCE);
	pthread_mutex_unlock(&s->lock);
	return ended;
}

/* The session of a text that was sealed here and is not too old. A clock that was set back makes
 * none of the future. */
static bool read_session(const struct mfs_sessions *s, const struct mfs_secret_list *secrets,
			 int64_t now, const char *text, struct sealed *sealed, int64_t *began,
			 uint8_t sum[MFS_TOKEN_SUM])
{
	const unsigned keys = secrets ? secrets->count : 1;
	uint8_t key[KEY], plain[PLAIN];
	bool ok = false;

	if (!read_text(text, sealed))
		return false;
	for (unsigned i = 0; i < keys && !ok; i++) {
		key_of(s, secrets, i, key);
		ok = unseal(key, sealed, plain);
	}
	*began = ok ? (int64_t)mfs_le64(plain) : 0;
	if (ok)
		memcpy(sum, plain + 8, MFS_TOKEN_SUM);
	OPENSSL_cleanse(key, KEY);
	OPENSSL_cleanse(plain, PLAIN);
	return ok && *began <= now && now - *began < MFS_SESSION_SECONDS;
}

bool mfs_session_open(struct mfs_sessions *s, const struct mfs_secret_list *secrets, int64_t now,
		      const char *text, uint8_t ret[MFS_TOKEN_SUM])
{
	struct sealed sealed;
	int64_t began;

	return read_session(s, secrets, now, text, &sealed, &began, ret) &&
	       !has_ended(s, sealed.nonce, began);
}

/* Under the lock. Room for one more: of a session that is too old by now, or of the oldest one,
 * with which all that began before it end. */
static struct ended *make_room(struct mfs_sessions *s, int64_t now)
{
	struct ended *oldest = &s->ended[0];

	if (s->ended_count < MFS_SESSIONS_ENDED)
		return &s->ended[s->ended_count++];
	for (unsigned i = 1; i < s->ended_count; i++)
		if (s->ended[i].began < oldest->began)
			oldest = &s->ended[i];
	if (now - oldest->began < MFS_SESSION_SECONDS)
		s->floor = oldest->began;
	return oldest;
}

void mfs_session_end(struct mfs_sessions *s, const struct mfs_secret_list *secrets, int64_t now,
		     const char *text)
{
	uint8_t sum[MFS_TOKEN_SUM];
	struct sealed sealed;
	struct ended *e;
	int64_t began;

	if (!read_session(s, secrets, now, text, &sealed, &began, sum) ||
	    has_ended(s, sealed.nonce, began))
		return;
	pthread_mutex_lock(&s->lock);
	e = make_room(s, now);
	memcpy(e->nonce, sealed.nonce, NONCE);
	e->began = began;
	pthread_mutex_unlock(&s->lock);
}

bool mfs_cookie_find(const char *header, const char *name, const char **ret, size_t *ret_len)
{
	const size_t name_len = strlen(name);

	for (const char *at = header; at && *at;) {
		const size_t len = strcspn(at, ";");

		if (len > name_len && !strncmp(at, name, name_len) && at[name_len] == '=') {
			*ret = at + name_len + 1;
			*ret_len = len - name_len - 1;
			while (*ret_len && (*ret)[*ret_len - 1] == ' ')
				--*ret_len;
			return true;
		}
		at += len;
		at += strspn(at, "; \t");
	}
	return false;
}
