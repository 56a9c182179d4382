/*
 * Who may read what. A file of tokens has one rule a line:
 *
 *   NAME TOKEN PATTERN...
 *
 * TOKEN is what a client sends (authorization.h), or "sha256:" and the 64 digits of its SHA-256, so
 * that the file holds no secret; "-" is for those who send none. A PATTERN is of names:
 * "org/model", "org/" and a star, "datasets/org/name", "metrics"; "!" before it takes away. S3's
 * clients sign instead: their access key is NAME, and their secret TOKEN itself. A client that
 * sends a token, known or not, may also read what clients without a token may read. '#' begins a
 * comment. The file is read again when it changes; one that is wrong then leaves the rules that
 * there were, and a line in the log.
 */
#ifndef MFS_FS_GATEWAY_ACCESS_TOKENS_H
#define MFS_FS_GATEWAY_ACCESS_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"

struct mfs_tokens;
struct mfs_rules;

#define MFS_TOKENS_BYTES (1u << 20)
#define MFS_TOKENS_RULES 4096

#define MFS_TOKEN_SUM 32 /* bytes of a token's SHA-256, by which rules know it */

void mfs_token_sum(const char *token, uint8_t ret[MFS_TOKEN_SUM]);

/* Parses the text of a file of rules, which is described above. name: the file's, for messages.
 * -EINVAL: a line is not NAME TOKEN RULE...; the message names file and line. */
int mfs_rules_parse(const char *name, const char *text, size_t len, struct mfs_rules **ret,
		    struct mfs_error *err);
void mfs_rules_free(struct mfs_rules *rules);
unsigned mfs_rules_count(const struct mfs_rules *rules);
/* The number of a token's rule; that of "-" for token NULL. -1: it has none. */
int mfs_rules_find(const struct mfs_rules *rules, const char *token);
/* The same of the token that has this sum; NULL: of "-". */
int mfs_rules_find_sum(const struct mfs_rules *rules, const uint8_t *sum);
const char *mfs_rules_name(const struct mfs_rules *rules, int rule);
/* The next rule of that name after rule number `after` (-1: the first one), "-" left out; -1: there
 * is none. *ret: its token; NULL: the file has only the token's sum. */
int mfs_rules_secret(const struct mfs_rules *rules, const char *name, int after, const char **ret);
/* what: "org/model", "datasets/org/name", "metrics". */
bool mfs_rules_allow(const struct mfs_rules *rules, int rule, const char *what);

/* path NULL: everybody may read everything. -EACCES: others may write the file, or read it though
 * it holds tokens themselves. */
int mfs_tokens_open(const char *path, struct mfs_tokens **ret, struct mfs_error *err);
void mfs_tokens_free(struct mfs_tokens *tokens);

/* What a client may do, at the time of its request. */
struct mfs_grant {
	const struct mfs_rules *rules; /* NULL: everything */
	int rule;		       /* -1: nothing */
	bool sent, known;	       /* it has sent a token; one that has a rule */
	bool session;		       /* by a cookie (sessions.h) */
};
/* authorization: the header, or NULL. name: room for the rule's name. The rules live until
 * mfs_grant_drop(). Without memory for it, no token was sent. */
struct mfs_grant mfs_tokens_grant(struct mfs_tokens *tokens, const char *authorization, char *name,
				  size_t name_size);
/* Like mfs_tokens_grant(), of a token's sum. */
struct mfs_grant mfs_tokens_grant_sum(struct mfs_tokens *tokens, const uint8_t sum[MFS_TOKEN_SUM],
				      char *name, size_t name_size);
/* Like mfs_tokens_grant(), for a client that has not identified itself: rule is -1. */
struct mfs_grant mfs_tokens_hold(struct mfs_tokens *tokens);
void mfs_grant_drop(struct mfs_tokens *tokens, struct mfs_grant *grant);
bool mfs_grant_allows(const struct mfs_grant *grant, const char *what);

#endif
