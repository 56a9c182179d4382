#include "fs/gateway/call/accept.h"

#include <string.h>
#include <strings.h>

/* Whether the parameters of an entry, up to its end, have the weight 0, "0.0", ... */
static bool is_refused(const char *at, const char *end)
{
	for (; at < end; at++) {
		if (*at != ';')
			continue;
		at += 1 + strspn(at + 1, " \t");
		if (end - at > 2 && !strncasecmp(at, "q=0", 3))
			return strspn(at + 3, ".0 \t") >= (size_t)(end - at - 3);
	}
	return false;
}

bool mfs_accept_names(const char *accept, const char *type)
{
	const size_t len = strlen(type);

	for (const char *at = accept; at && *at;) {
		const char *end;

		at += strspn(at, ", \t");
		end = at + strcspn(at, ",");
		if (!strncasecmp(at, type, len) && (at + len == end || strchr("; \t", at[len])))
			return !is_refused(at + len, end);
		at = end;
	}
	return false;
}
