/* What all pages have: a head, the way up, who has signed in, an end. Neither a script nor anything
 * from elsewhere is in them, and the policy in their headers forbids both. */
#ifndef MFS_FS_GATEWAY_WEB_PAGE_H
#define MFS_FS_GATEWAY_WEB_PAGE_H

#include <stdbool.h>

#include "fs/gateway/call/call.h"
#include "fs/gateway/repos/facts.h"
#include "fs/gateway/web/html.h"

#define MFS_STYLE_PATH	       "style.css"
#define MFS_DOCUMENTATION_PATH "documentation.txt"

/* The texts of style.css and docs/GATEWAY.md, which the Makefile makes of these files. */
extern const char mfs_web_style[], mfs_web_documentation[];

/* A place above this page. */
struct mfs_crumb {
	const char *href, *name;
};
#define MFS_CRUMBS 64

/* Begins a page with status 200. crumbs: from the top to the place above this page, whose own name
 * follows them; count 0: it has no way up. */
void mfs_page_begin(struct mfs_call *c, const char *title, const struct mfs_crumb *crumbs,
		    unsigned count);
void mfs_page_end(struct mfs_call *c);

/* The headers of all that a browser may show. Others may not show it in a frame. */
void mfs_page_headers(struct mfs_reply *a);

/* The address of a repository's page, "/lab/llama" or "/datasets/lab/tales", and of what is below
 * it in /files/: more, NULL: nothing. */
void mfs_page_add_repo(struct mfs_buf *b, enum mfs_repo_kind kind, const char *name);
void mfs_page_add_files(struct mfs_buf *b, enum mfs_repo_kind kind, const char *name,
			const char *more);
/* "2026-08-22 14:03", of the universal time; nothing for 0. */
void mfs_page_add_time(struct mfs_buf *b, int64_t ns);

/* "TP 2, PP 4, EP 8"; nothing for an HF directory. */
void mfs_page_add_layout(struct mfs_buf *b, const struct mfs_facts *f);
/* A form that asks for a token and goes on at a path (sign.c). */
void mfs_sign_in_form(struct mfs_call *c, const char *next);

#endif
