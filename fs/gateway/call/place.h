/* Where a path of plain files leads: [datasets/]ORG/NAME[/REVISION[/FILE]]. */
#ifndef MFS_FS_GATEWAY_CALL_PLACE_H
#define MFS_FS_GATEWAY_CALL_PLACE_H

#include "fs/gateway/repos/repos.h"
#include "fs/http/url.h"

struct mfs_call_place {
	enum mfs_repo_kind kind;
	char name[MFS_REPO_NAME];
	const char *revision; /* NULL: the path ends before it */
	const char *file;     /* "": the path ends before it */
};

/* Reads the path from its part number first on. False: there is no ORG/NAME. Texts are in the
 * URL. */
bool mfs_place_find(const struct mfs_url *url, unsigned first, struct mfs_call_place *ret);

#endif
