/* Landlock (landlock(7)): opening and truncating are refused except below certain directories, and
 * signals to other processes. What is open stays open, and stat(2) and readlink(2) are not limited,
 * nor is what calls.c refuses: chmod(2) and the like. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <linux/landlock.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/base/path.h"
#include "formats/delta/delta_base.h"
#include "formats/delta/delta_index.h"
#include "formats/io/beneath.h"
#include "formats/io/fence.h"
#include "formats/remote/mirror.h"
#include "formats/remote/places.h"
#include "fs/cli/option_rows.h"
#include "fs/rights/rights_i.h"

/* Rights that are newer than headers which this is built with (include/uapi/linux/landlock.h). */
#define REFER	  (1ull << 13)
#define TRUNCATE  (1ull << 14)
#define IOCTL_DEV (1ull << 15)
#define SIGNALS	  (1ull << 1)

#define FILE_RIGHTS                                                                                \
	(LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE |                              \
	 LANDLOCK_ACCESS_FS_READ_FILE | TRUNCATE | IOCTL_DEV)
#define FIRST_RIGHTS (LANDLOCK_ACCESS_FS_MAKE_SYM * 2 - 1) /* those of the first version */
#define READING	     (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define WRITING	     ((FIRST_RIGHTS & ~(uint64_t)LANDLOCK_ACCESS_FS_EXECUTE) | REFER | TRUNCATE)
#define LOGGING	     (LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG)
#define DEVICE	     (READING | LANDLOCK_ACCESS_FS_WRITE_FILE | IOCTL_DEV)

/* struct landlock_ruleset_attr as it is today. The kernel takes a longer one than it knows if what
 * it does not know is 0. */
struct attributes {
	uint64_t files, network, scopes;
};

/* Chains that are bases of each other: no chain with more is opened (fs/source/chain.c). */
#define MOST_CHAINS 8

/* What a kernel can refuse, by the version of its Landlock. */
static struct attributes handled(int version)
{
	struct attributes a = {.files = FIRST_RIGHTS};

	if (version >= 2)
		a.files |= REFER;
	if (version >= 3)
		a.files |= TRUNCATE;
	if (version >= 5)
		a.files |= IOCTL_DEV;
	if (version >= 6)
		a.scopes = SIGNALS;
	return a;
}

struct rules {
	int fd;
	uint64_t handled; /* a rule names no other rights */
	unsigned chains;  /* that are bases of each other, above the source in work */
};

/* A path that is not there is none to be opened. */
static int allow(const struct rules *rules, const char *path, uint64_t rights,
		 struct mfs_error *err)
{
	struct landlock_path_beneath_attr rule = {.allowed_access = rights & rules->handled};
	struct stat st;
	int rc = 0;

	rule.parent_fd = open(path, O_PATH | O_CLOEXEC);
	if (rule.parent_fd < 0)
		return errno == ENOENT ? 0 : mfs_fail_errno(err, "%s", path);
	if (!fstat(rule.parent_fd, &st) && !S_ISDIR(st.st_mode))
		rule.allowed_access &= FILE_RIGHTS;
	if (syscall(SYS_landlock_add_rule, rules->fd, LANDLOCK_RULE_PATH_BENEATH, &rule, 0))
		rc = mfs_fail_errno(err, "Landlock: %s", path);
	close(rule.parent_fd);
	return rc;
}

static int allow_above(const struct rules *rules, const char *path, uint64_t rights,
		       struct mfs_error *err)
{
	char place[PATH_MAX];

	if (strlen(path) >= sizeof(place))
		return mfs_fail(err, -ENAMETOOLONG, "%s", path);
	strcpy(place, path);
	return allow(rules, dirname(place), rights, err);
}

/* Allows a file that others replace: the directory where it is named and, if it is a link there,
 * the directory where it lies. certbot's live/HOST/privkey.pem leads to
 * ../../archive/HOST/privkey1.pem, and later to another file of that directory. */
static int allow_replaced(const struct rules *rules, const char *path, struct mfs_error *err)
{
	char real[PATH_MAX];
	int rc = allow_above(rules, path, READING, err);

	if (rc || !realpath(path, real)) /* it need not be there */
		return rc;
	return allow_above(rules, real, READING, err);
}

/* A dataset's prefix is no file: its directory is allowed. A file's directory is allowed too, since
 * a new file may replace it. The links of a snapshot in HuggingFace's cache lead to blobs/, next to
 * snapshots/. */
static int allow_source(const struct rules *rules, const char *path, struct mfs_error *err)
{
	struct stat st;

	char real[PATH_MAX], blobs[PATH_MAX];
	int rc;

	if (!path)
		return 0;
	if (!stat(path, &st) && S_ISDIR(st.st_mode)) {
		rc = allow(rules, path, READING, err);
		if (!rc && realpath(path, real) && mfs_fence_blobs(real, blobs) &&
		    !access(blobs, F_OK))
			rc = allow(rules, blobs, READING, err);
		return rc;
	}
	return allow_above(rules, path, READING, err);
}

/* Others may not let this user in, whom they need not. */
static int allow_place(void *arg, const char *path, struct mfs_error *err)
{
	const int rc = allow(arg, path, READING, err);

	return rc == -EACCES ? 0 : rc;
}

/* The cache links files from one directory to another. It is made now: afterwards it could not. */
static int allow_cache(const struct rules *rules, const char *given, struct mfs_error *err)
{
	char *dir;
	int rc = mfs_mirror_cache(given, &dir, err);

	if (rc)
		return rc;
	rc = mfs_make_path(dir, 0755, 0700);
	if (rc)
		rc = mfs_fail(err, rc, "cannot make the cache %s: %s", dir, strerror(-rc));
	else
		rc = allow(rules, dir, WRITING, err);
	free(dir);
	return rc;
}

static int allow_url(struct rules *rules, const struct mfs_rights_served *served,
		     struct mfs_error *err)
{
	int rc;

	if (!(rules->handled & REFER))
		return mfs_fail(err, -ENOSYS,
				"%s: another machine's files in a sandbox need a kernel from 5.19 "
				"on",
				served->source);
	rc = mfs_remote_places(served->source, allow_place, rules, err);
	return rc ? rc : allow_cache(rules, served->opt->view.cache, err);
}

/* A family's text is read again with the options that name it; they keep it as they were given. */
static int allow_families(const struct rules *rules, const struct mfs_options *opt,
			  struct mfs_error *err)
{
	static const char name[] = "family=";
	const char *at = opt->settings.data, *end = at ? at + opt->settings.len : at;
	int rc = 0;

	for (; at < end && !rc; at += strlen(at) + 1)
		if (!strncmp(at, name, sizeof(name) - 1))
			rc = allow_source(rules, at + sizeof(name) - 1, err);
	return rc;
}

static int allow_one(struct rules *rules, const struct mfs_rights_served *served,
		     struct mfs_error *err);

/* What -o base= names, which holds for the source itself alone, or weight_base.json. */
static int allow_base(struct rules *rules, const struct mfs_rights_served *served, const char *dir,
		      struct mfs_error *err)
{
	struct mfs_rights_served base = {.opt = served->opt};
	struct mfs_delta_base named = {0};
	int rc = 0;

	base.source = rules->chains ? NULL : served->opt->view.base;
	if (!base.source && !mfs_delta_base_read(dir, &named, NULL))
		base.source = named.source;
	if (base.source && rules->chains < MOST_CHAINS) {
		rules->chains++;
		rc = allow_one(rules, &base, err);
		rules->chains--;
	}
	mfs_delta_base_release(&named);
	return rc;
}

/* Bytes of versions are made in the cache, from the base and from all versions, those that will
 * come included. */
static int allow_chain(struct rules *rules, const struct mfs_rights_served *served, bool is_version,
		       struct mfs_error *err)
{
	char *dir = is_version ? mfs_path_parent(served->source) : strdup(served->source);
	int rc = dir ? allow(rules, dir, READING, err) : mfs_fail_nomem(err);

	if (!rc)
		rc = allow_base(rules, served, dir, err);
	free(dir);
	return rc ? rc : allow_cache(rules, served->opt->view.cache, err);
}

static int allow_one(struct rules *rules, const struct mfs_rights_served *served,
		     struct mfs_error *err)
{
	uint32_t only;

	if (served->source && mfs_mirror_is_url(served->source))
		return allow_url(rules, served, err);
	if (served->source && mfs_delta_looks_like_chain(served->source, &only))
		return allow_chain(rules, served, only, err);
	return allow_source(rules, served->source, err);
}

static int allow_served(struct rules *rules, const struct mfs_rights_served *served,
			struct mfs_error *err)
{
	const struct mfs_options *opt = served->opt;
	int rc = allow_families(rules, opt, err);

	if (!rc)
		rc = allow_one(rules, served, err);
	for (size_t i = 0; i < mfs_option_row_count && !rc; i++)
		rc = allow_source(rules, mfs_option_reads(&mfs_option_rows[i], &opt->view), err);
	for (unsigned i = 0; i < opt->data.path_count && !rc; i++)
		rc = allow_source(rules, opt->data.paths[i], err);
	return rc;
}

static int allow_needs(struct rules *rules, const struct mfs_rights_needs *needs,
		       struct mfs_error *err)
{
	const char *const *path;
	int rc = 0;

	for (size_t i = 0; i < needs->served_count && !rc; i++)
		rc = allow_served(rules, &needs->served[i], err);
	for (path = needs->read_again; path && *path && !rc; path++)
		rc = allow_replaced(rules, *path, err);
	for (path = needs->logs; path && *path && !rc; path++)
		rc = allow_above(rules, *path, LOGGING, err);
	return rc;
}

static int allow_all(struct rules *rules, const struct mfs_options *opt,
		     const struct mfs_rights_needs *needs, struct mfs_error *err)
{
	/* The C library loads another one when the first thread is cancelled. */
	static const char *const system[] = {
		"/proc/self",
		"/sys/class/bdi",
		"/sys/devices/virtual/bdi",
		"/lib",
		"/lib64",
		"/usr/lib",
		"/usr/lib64",
		"/etc/ld.so.cache",
		"/etc/localtime",
		"/usr/share/zoneinfo",
	};
	int rc = allow_needs(rules, needs, err);

	if (!rc && opt->data.cache)
		rc = allow(rules, opt->data.cache, WRITING, err);
	if (!rc && opt->metrics_file) /* a new one takes its place each time */
		rc = allow_above(rules, opt->metrics, WRITING, err);
	if (!rc && opt->log) /* a new one is made when this was moved away */
		rc = allow_above(rules, opt->log, LOGGING, err);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(system) && !rc; i++)
		rc = allow(rules, system[i], READING, err);
	/* Threads open it anew, and children of libc get it. */
	if (!rc)
		rc = allow(rules, "/dev/fuse", DEVICE, err);
	return rc ? rc : allow(rules, "/dev/null", DEVICE, err);
}

static int open_rules(struct rules *ret, struct mfs_error *err)
{
	const long version =
		syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	const struct attributes attr = handled((int)version);

	if (version < 0)
		return mfs_fail(err, -ENOSYS, "the kernel has no Landlock: %s", strerror(errno));
	ret->handled = attr.files;
	ret->fd = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
	return ret->fd < 0 ? mfs_fail_errno(err, "Landlock") : 0;
}

int mfs_rights_limit_files(const struct mfs_options *opt, const struct mfs_rights_needs *needs,
			   struct mfs_error *err)
{
	struct rules rules = {0};
	int rc = open_rules(&rules, err);

	if (rc)
		return rc;
	rc = allow_all(&rules, opt, needs, err);
	if (!rc && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		rc = mfs_fail_errno(err, "no_new_privs");
	if (!rc && syscall(SYS_landlock_restrict_self, rules.fd, 0))
		rc = mfs_fail_errno(err, "Landlock");
	close(rules.fd);
	return rc;
}
