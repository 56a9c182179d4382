#include "trainer/base/host_memory.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/bytes.h"

/* One version of cgroups: where its files are, and what they are called. */
struct hierarchy {
	const char *mount, *limit, *usage, *cache;
};

static const struct hierarchy v1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
				    "memory.usage_in_bytes", "total_inactive_file"};
static const struct hierarchy v2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
				    "inactive_file"};

/* Reads the number after a name at the beginning of a line; without a name the file's only
 * number. */
static bool read_number(const char *path, const char *name, uint64_t *ret)
{
	const size_t length = name ? strlen(name) : 0;
	FILE *f = fopen(path, "re");
	bool found = false;
	char line[256];

	while (f && !found && fgets(line, sizeof(line), f))
		found = (!name || (!strncmp(line, name, length) && strchr(": \t", line[length]) &&
				   line[length])) &&
			sscanf(line + length + (name ? 1 : 0), "%" SCNu64, ret) == 1;
	if (f)
		fclose(f);
	return found;
}

static bool of_cgroup(const char *dir, const char *file, const char *name, uint64_t *ret)
{
	char path[PATH_MAX];

	return (size_t)snprintf(path, sizeof(path), "%s/%s", dir, file) < sizeof(path) &&
	       read_number(path, name, ret);
}

/* What a cgroup leaves; without a limit ("max" is no number) that is everything. */
static uint64_t left_in(const struct hierarchy *h, const char *dir)
{
	uint64_t limit, usage, cache = 0;

	if (!of_cgroup(dir, h->limit, NULL, &limit) || !of_cgroup(dir, h->usage, NULL, &usage))
		return UINT64_MAX;
	of_cgroup(dir, "memory.stat", h->cache, &cache);
	usage -= mfs_min_u64(cache, usage);
	return limit - mfs_min_u64(usage, limit);
}

/* Of a cgroup and those above it. In a container the mount shows the container's own as the root,
 * whatever the path says. */
static uint64_t left_up(const char *root, const struct hierarchy *h, const char *cgroup)
{
	char path[PATH_MAX];
	uint64_t left = UINT64_MAX;
	size_t mount;
	char *slash;

	if ((size_t)snprintf(path, sizeof(path), "%s%s%s", root, h->mount, cgroup) >= sizeof(path))
		return left;
	mount = strlen(root) + strlen(h->mount);
	for (;;) {
		left = mfs_min_u64(left, left_in(h, path));
		slash = strrchr(path, '/');
		if (strlen(path) <= mount || !slash)
			return left;
		*slash = '\0';
	}
}

/* A line is "0::/path" of version 2, or "9:memory:/path" of version 1, which may name several. */
static uint64_t left_in_all(const char *root)
{
	char path[PATH_MAX], line[PATH_MAX];
	uint64_t left = UINT64_MAX;
	FILE *f;

	if ((size_t)snprintf(path, sizeof(path), "%s/proc/self/cgroup", root) >= sizeof(path))
		return left;
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		char *controllers = strchr(line, ':');
		char *cgroup = controllers ? strchr(controllers + 1, ':') : NULL;

		if (!cgroup)
			continue;
		*cgroup++ = '\0';
		cgroup[strcspn(cgroup, "\n")] = '\0';
		if (!controllers[1])
			left = mfs_min_u64(left, left_up(root, &v2, cgroup));
		else if (strstr(controllers, "memory"))
			left = mfs_min_u64(left, left_up(root, &v1, cgroup));
	}
	if (f)
		fclose(f);
	return left;
}

uint64_t mft_host_memory_free(const char *root)
{
	char path[PATH_MAX];
	uint64_t kib = 0;

	if ((size_t)snprintf(path, sizeof(path), "%s/proc/meminfo", root) >= sizeof(path) ||
	    !read_number(path, "MemAvailable", &kib))
		return 0;
	return mfs_min_u64(kib * 1024, left_in_all(root));
}
