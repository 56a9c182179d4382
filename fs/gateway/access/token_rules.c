#define _GNU_SOURCE
#include <ctype.h>
#include <fnmatch.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/arena.h"
#include "formats/base/grow.h"
#include "formats/base/str.h"
#include "fs/gateway/access/tokens.h"

#define SHA256 MFS_TOKEN_SUM

struct rule {
	const char *name;
	bool anonymous;
	uint8_t sum[SHA256]; /* of the token */
	const char *secret;  /* the token itself; NULL: the file has its sum alone, or none */
	const char **patterns;
	uint32_t pattern_count;
};

struct mfs_rules {
	struct mfs_arena arena; /* texts */
	struct rule *list;
	uint32_t count;
};

static bool read_hex(const char *hex, uint8_t sum[SHA256])
{
	if (strlen(hex) != (size_t)2 * SHA256)
		return false;
	for (int i = 0; i < SHA256; i++) {
		const int high = mfs_str_digit(hex[2 * i]), low = mfs_str_digit(hex[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		sum[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

/* Digests have one length, so comparing them says nothing about a token. */
void mfs_token_sum(const char *token, uint8_t sum[SHA256])
{
	unsigned len = 0;

	EVP_Digest(token, strlen(token), sum, &len, EVP_sha256(), NULL);
}

static bool set_token(struct rule *r, const char *token)
{
	r->anonymous = !strcmp(token, "-");
	if (r->anonymous)
		return true;
	if (!strncmp(token, "sha256:", 7))
		return read_hex(token + 7, r->sum);
	mfs_token_sum(token, r->sum);
	r->secret = token;
	return strlen(token) >= 8;
}

static bool is_taken(const struct mfs_rules *rules, const struct rule *r)
{
	for (uint32_t i = 0; i < rules->count; i++)
		if (rules->list[i].anonymous == r->anonymous &&
		    (r->anonymous || !memcmp(rules->list[i].sum, r->sum, SHA256)))
			return true;
	return false;
}

static char *next_word(char **at)
{
	char *word;

	*at += strspn(*at, " \t\r");
	word = *at;
	*at += strcspn(*at, " \t\r");
	if (**at)
		*(*at)++ = '\0';
	return word;
}

static int add_patterns(struct rule *r, char *rest, const char *name, unsigned line,
			struct mfs_error *err)
{
	for (char *word; *(word = next_word(&rest));) {
		if (*word == '!' && !word[1])
			return mfs_fail(err, -EINVAL, "%s:%u: there is nothing after '!'", name,
					line);
		if (mfs_grow(&r->patterns, r->pattern_count))
			return mfs_fail_nomem(err);
		r->patterns[r->pattern_count++] = word;
	}
	return 0;
}

static int add_rule(struct mfs_rules *rules, char *text, const char *name, unsigned line,
		    struct mfs_error *err)
{
	struct rule r = {.name = next_word(&text)};
	const char *token;
	int rc;

	if (!*r.name)
		return 0;
	token = next_word(&text);
	if (!*token || !set_token(&r, token))
		return mfs_fail(err, -EINVAL,
				"%s:%u: expected NAME TOKEN PATTERN..., with a token of 8 or more "
				"characters, sha256:DIGITS, or -",
				name, line);
	if (is_taken(rules, &r))
		return mfs_fail(err, -EINVAL, "%s:%u: another line has that token", name, line);
	if (rules->count == MFS_TOKENS_RULES || mfs_grow(&rules->list, rules->count))
		return mfs_fail(err, rules->count == MFS_TOKENS_RULES ? -EINVAL : -ENOMEM,
				"%s: more than %d rules", name, MFS_TOKENS_RULES);
	rc = add_patterns(&r, text, name, line, err);
	rules->list[rules->count++] = r;
	return rc;
}

static int parse(struct mfs_rules *rules, const char *name, char *text, struct mfs_error *err)
{
	unsigned line = 0;
	int rc = 0;

	for (char *next; text && !rc; text = next) {
		next = strchr(text, '\n');
		if (next)
			*next++ = '\0';
		line++;
		text[strcspn(text, "#")] = '\0';
		rc = add_rule(rules, text, name, line, err);
	}
	return rc;
}

int mfs_rules_parse(const char *name, const char *text, size_t len, struct mfs_rules **ret,
		    struct mfs_error *err)
{
	struct mfs_rules *rules = calloc(1, sizeof(*rules));
	char *copy = rules ? mfs_arena_array(&rules->arena, len + 1, 1) : NULL;
	int rc = 0;

	if (!copy)
		rc = mfs_fail_nomem(err);
	else if (len > MFS_TOKENS_BYTES || memchr(text, 0, len))
		rc = mfs_fail(err, -EINVAL, "%s: it is no text of at most %u bytes", name,
			      MFS_TOKENS_BYTES);
	if (!rc) {
		memcpy(copy, text, len);
		copy[len] = '\0';
		rc = parse(rules, name, copy, err);
	}
	if (rc) {
		mfs_rules_free(rules);
		return rc;
	}
	*ret = rules;
	return 0;
}

void mfs_rules_free(struct mfs_rules *rules)
{
	if (!rules)
		return;
	for (uint32_t i = 0; i < rules->count; i++)
		free(rules->list[i].patterns);
	free(rules->list);
	mfs_arena_release(&rules->arena);
	free(rules);
}

unsigned mfs_rules_count(const struct mfs_rules *rules)
{
	return rules->count;
}

int mfs_rules_find_sum(const struct mfs_rules *rules, const uint8_t *sum)
{
	int found = -1;

	for (uint32_t i = 0; i < rules->count; i++) {
		const struct rule *r = &rules->list[i];

		if (r->anonymous ? !sum : sum && !CRYPTO_memcmp(r->sum, sum, SHA256))
			found = (int)i;
	}
	return found;
}

int mfs_rules_find(const struct mfs_rules *rules, const char *token)
{
	uint8_t sum[SHA256];

	if (token)
		mfs_token_sum(token, sum);
	return mfs_rules_find_sum(rules, token ? sum : NULL);
}

const char *mfs_rules_name(const struct mfs_rules *rules, int rule)
{
	return rule < 0 ? "" : rules->list[rule].name;
}

int mfs_rules_secret(const struct mfs_rules *rules, const char *name, int after, const char **ret)
{
	for (uint32_t i = (uint32_t)(after + 1); i < rules->count; i++) {
		if (rules->list[i].anonymous || strcmp(rules->list[i].name, name) != 0)
			continue;
		*ret = rules->list[i].secret;
		return (int)i;
	}
	return -1;
}

/* '*' of a pattern does not reach over a slash. */
bool mfs_rules_allow(const struct mfs_rules *rules, int rule, const char *what)
{
	const struct rule *r = rule < 0 ? NULL : &rules->list[rule];
	bool allowed = false;

	for (uint32_t i = 0; r && i < r->pattern_count; i++) {
		const bool not_it = *r->patterns[i] == '!';

		if (!fnmatch(r->patterns[i] + not_it, what, FNM_PATHNAME | FNM_NOESCAPE))
			allowed = !not_it;
	}
	return allowed;
}
