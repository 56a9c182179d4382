#include "fs/gateway/call/place.h"

#include <stdio.h>
#include <string.h>

bool mfs_place_find(const struct mfs_url *url, unsigned first, struct mfs_call_place *ret)
{
	const bool data = url->count > first && !strcmp(url->parts[first], "datasets");
	const unsigned at = first + data;

	*ret = (struct mfs_call_place){.kind = data ? MFS_REPO_DATASET : MFS_REPO_MODEL,
				       .file = ""};
	if (url->count < at + 2 ||
	    (size_t)snprintf(ret->name, sizeof(ret->name), "%s/%s", url->parts[at],
			     url->parts[at + 1]) >= sizeof(ret->name))
		return false;
	if (url->count > at + 2)
		ret->revision = url->parts[at + 2];
	ret->file = mfs_url_rest(url, at + 3);
	return true;
}
