/* The inside of the Hub's protocol. Private to hub*.c. */
#ifndef MFS_FS_GATEWAY_HUB_HUB_I_H
#define MFS_FS_GATEWAY_HUB_HUB_I_H

#include <jansson.h>

#include "formats/base/str.h"
#include "fs/cli/json.h"
#include "fs/gateway/call/reply.h"

/* Answers with JSON, and owns it. */
void mfs_hub_json(struct mfs_reply *a, unsigned status, json_t *o);
/* Sets o[key] = value, or appends a value to a list. Both take the value over. If there is no
 * memory for it the reply becomes an error: a client would take the rest for all. */
void mfs_hub_put(struct mfs_reply *a, json_t *o, const char *key, json_t *value);
void mfs_hub_append(struct mfs_reply *a, json_t *list, json_t *value);
void mfs_hub_error(struct mfs_reply *a, unsigned status, const char *code, const char *sentence);

/* Whether a request has a signed address (hub_signed.c). */
bool mfs_hub_is_signed(const struct mfs_call *c);
/* Whether it is signed for that file of a commit, and holds. Else the call is answered. */
bool mfs_hub_check_signed(struct mfs_call *c, enum mfs_repo_kind kind, const char *name,
			  const char *commit, const char *file);
/* The signed address of a file at the data node. The caller frees it. NULL: no memory. */
char *mfs_hub_signed(const struct mfs_call *c, enum mfs_repo_kind kind, const char *name,
		     const char *commit, const char *file);

/* Holds a revision that the client may read; revision NULL: main. False: the call is answered. */
bool mfs_hub_hold(struct mfs_call *c, enum mfs_repo_kind kind, const char *name,
		  const char *revision, struct mfs_revision *ret);

/* "2026-01-31T12:00:00.000Z" */
json_t *mfs_hub_date(int64_t ns);
/* Adds the fields that a repository has wherever it is named. */
void mfs_hub_name(struct mfs_reply *a, json_t *o, const char *name);

/* A part of a list (hub_page.c), as the query asks for it. */
struct mfs_hub_page {
	uint64_t first, most; /* entries before it, and in it */
	uint64_t seen;
};
/* usual: how many entries without a limit; 0: all. False: the call is answered. */
bool mfs_hub_page_begin(struct mfs_call *c, uint64_t usual, struct mfs_hub_page *ret);
/* Counts the next entry. True: it is in this part. */
bool mfs_hub_page_takes(struct mfs_hub_page *p);
/* True if an entry has been counted that comes after this part. */
bool mfs_hub_page_is_full(const struct mfs_hub_page *p);
/* Adds the address of the next part, if there is one. commit: replaces the revision in that
 * address, so that all parts are of one commit; NULL: the list has no revision. */
void mfs_hub_page_end(struct mfs_call *c, const struct mfs_hub_page *p, const char *commit);

/* Answers about a revision (hub_info.c, hub_list.c). rest: the path after the revision; "":
 * none. */
void mfs_hub_info(struct mfs_call *c, const struct mfs_revision *r, const char *name,
		  const char *rest);
void mfs_hub_tree(struct mfs_call *c, const struct mfs_revision *r, const char *name,
		  const char *rest);
void mfs_hub_paths(struct mfs_call *c, const struct mfs_revision *r, const char *name,
		   const char *rest);
void mfs_hub_refs(struct mfs_call *c, const struct mfs_revision *r, const char *name,
		  const char *rest);
void mfs_hub_commits(struct mfs_call *c, const struct mfs_revision *r, const char *name,
		     const char *rest);
/* A token for Xet storage, where no file of this gateway lies. */
void mfs_hub_xet_token(struct mfs_call *c, const struct mfs_revision *r, const char *name,
		       const char *rest);
/* The name of the client's token. */
void mfs_hub_whoami(struct mfs_call *c);
/* The repositories that the client may read. */
void mfs_hub_list(struct mfs_call *c, enum mfs_repo_kind kind);

#endif
