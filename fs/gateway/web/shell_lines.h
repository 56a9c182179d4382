/* Lines of a shell that a person copies, with the gateway's own address in them. */
#ifndef MFS_FS_GATEWAY_WEB_SHELL_LINES_H
#define MFS_FS_GATEWAY_WEB_SHELL_LINES_H

#include "fs/gateway/call/call.h"
#include "fs/gateway/repos/facts.h"

/* Adds what reads a repository: the default view by the programs that know it. */
void mfs_page_add_lines(struct mfs_call *c, enum mfs_repo_kind kind, const char *name,
			const struct mfs_facts *f);
/* The line for one view, by its name ("gguf", "megatron/torch/tp2-pp1"). NULL: none is known. */
const char *mfs_line_of_view(const char *view);
/* Adds a line to a page, with three words of it replaced: @A by the gateway's address, @N by the
 * repository's name, @T by what sends a token with curl. */
void mfs_page_add_line(struct mfs_call *c, const char *line, const char *name);

#endif
