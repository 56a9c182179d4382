/*
 * The body of a POST to .../paths-info: which files and directories a client asks about. A form
 * (huggingface_hub), or an object of JSON (huggingface.js):
 *
 *   paths=config.json&paths=weights&expand=true
 *   {"paths": ["config.json", "weights"], "expand": true}
 */
#ifndef MFS_FS_GATEWAY_HUB_ASKED_H
#define MFS_FS_GATEWAY_HUB_ASKED_H

#include <stdbool.h>

#include "formats/base/buf.h"
#include "formats/base/error.h"

#define MFS_ASKED_PATHS 10000 /* of one request: each may be looked for in all names */

/* Reads which paths the body of a request asks for, and whether to expand what is known of them.
 * type: the header Content-Type, or NULL. *ret_expand is set before each() is called for a path;
 * paths come in their order. -EINVAL: the body is neither JSON nor a form of paths; -E2BIG: more
 * than MFS_ASKED_PATHS; -ENOMEM. */
int mfs_asked_paths(const char *type, const struct mfs_buf *body, bool *ret_expand,
		    void (*each)(void *arg, const char *path), void *arg, struct mfs_error *err);

#endif
