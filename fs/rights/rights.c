#define _GNU_SOURCE
#include "fs/rights/rights.h"

#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "formats/delta/delta_index.h"
#include "formats/remote/mirror.h"
#include "fs/rights/rights_i.h"

#define PATIENCE_MS 500 /* for threads that are ending */

bool mfs_rights_are_dropped(const struct mfs_options *opt)
{
	return opt->run_as || opt->drop_privileges || opt->sandbox;
}

bool mfs_rights_has_cache(const char *source)
{
	uint32_t only;

	return mfs_mirror_is_url(source) || mfs_delta_looks_like_chain(source, &only);
}

static int find_user(const char *name, struct passwd **ret, struct mfs_error *err)
{
	errno = 0;
	*ret = getpwnam(name);
	if (*ret)
		return 0;
	return mfs_fail(err, -EINVAL, "option 'setuid': there is no user '%s'", name);
}

/* What would have threads before the mount stands, which keep their rights. */
static int check_others(const struct mfs_options *opt, struct mfs_error *err)
{
	if (opt->metrics && !opt->metrics_file)
		return mfs_fail(err, -EINVAL,
				"a mount that gives up rights does not listen: metrics= takes a "
				"file there");
	if (opt->run_as && opt->source && mfs_rights_has_cache(opt->source))
		return mfs_fail(err, -EINVAL,
				"option 'setuid' goes with no %s: the cache would be root's; "
				"mount it as %s",
				mfs_mirror_is_url(opt->source) ? "URL" : "deltas", opt->run_as);
	return 0;
}

static int check_user(const struct mfs_options *opt, struct passwd **ret, struct mfs_error *err)
{
	if (geteuid())
		return mfs_fail(err, -EPERM, "option 'setuid' is for root");
	return find_user(opt->run_as, ret, err);
}

int mfs_rights_check_user(const struct mfs_options *opt, struct mfs_error *err)
{
	struct passwd *user;

	return opt->run_as ? check_user(opt, &user, err) : 0;
}

int mfs_rights_check(const struct mfs_options *opt, struct mfs_error *err)
{
	struct passwd *user;
	int rc = mfs_rights_are_dropped(opt) ? check_others(opt, err) : 0;

	if (rc || !opt->run_as)
		return rc;
	rc = check_user(opt, &user, err);
	if (rc)
		return rc;
	if (user->pw_uid && !opt->allow_other)
		return mfs_fail(err, -EINVAL,
				"option 'setuid' needs allow_other: the mount is root's, and would "
				"not let %s in",
				opt->run_as);
	return 0;
}

/* 0: nobody can say. */
static unsigned count_threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	unsigned count = 0;

	if (!dir)
		return 0;
	for (struct dirent *d; (d = readdir(dir));)
		count += *d->d_name != '.';
	closedir(dir);
	return count;
}

/* pthread_join(3) returns before the kernel is done with a thread. */
static int check_threads(struct mfs_error *err)
{
	unsigned count = count_threads();

	for (int i = 0; i < PATIENCE_MS && count > 1; i++) {
		usleep(1000);
		count = count_threads();
	}
	if (!count)
		return mfs_fail_errno(err, "/proc/self/task");
	return count == 1 ? 0 : mfs_fail(err, -EBUSY, "%u threads would keep their rights", count);
}

static int become(const char *name, struct mfs_error *err)
{
	struct passwd *user;
	int rc = find_user(name, &user, err);

	if (rc)
		return rc;
	if (initgroups(name, user->pw_gid) || setresgid(user->pw_gid, user->pw_gid, user->pw_gid) ||
	    setresuid(user->pw_uid, user->pw_uid, user->pw_uid))
		return mfs_fail_errno(err, "cannot become %s", name);
	return 0;
}

static int get_permitted(uint64_t *ret)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &head, data))
		return -errno;
	*ret = data[0].permitted | (uint64_t)data[1].permitted << 32;
	return 0;
}

/* Keeps those of keep that the process has; others can never be gained again. */
static int keep_capabilities(uint64_t keep, struct mfs_error *err)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {0};
	uint64_t have = 0;

	if (get_permitted(&have))
		return mfs_fail_errno(err, "capabilities");
	keep &= have;
	for (int i = 0; prctl(PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++)
		if (!(keep >> i & 1))
			prctl(PR_CAPBSET_DROP, i, 0, 0, 0); /* not by users, who have none */
	data[0].effective = data[0].permitted = (uint32_t)keep;
	data[1].effective = data[1].permitted = (uint32_t)(keep >> 32);
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capset, &head, data))
		return mfs_fail_errno(err, "capabilities cannot be dropped");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return mfs_fail_errno(err, "no_new_privs");
	return 0;
}

/* dataset_cache gives files to the users who make them. */
static uint64_t needed(const struct mfs_options *opt)
{
	const uint64_t reading = 1ull << CAP_DAC_READ_SEARCH;
	const uint64_t writing = 1ull << CAP_DAC_OVERRIDE | 1ull << CAP_CHOWN | 1ull << CAP_FOWNER |
				 1ull << CAP_SETUID | 1ull << CAP_SETGID;

	if (opt->drop_privileges || opt->run_as)
		return 0;
	return opt->data.cache ? reading | writing : reading;
}

/* Attributes of files that are changed: dataset_cache takes what its users do, and a cache of
 * ranges notes when they were used. */
static struct mfs_rights_changes changes(const struct mfs_options *opt,
					 const struct mfs_rights_needs *needs)
{
	struct mfs_rights_changes c = {.owners = opt->data.cache, .times = opt->data.cache};

	for (size_t i = 0; i < needs->served_count; i++)
		c.times |= needs->served[i].source && mfs_rights_has_cache(needs->served[i].source);
	return c;
}

static int drop(const struct mfs_options *opt, const struct mfs_rights_needs *needs,
		struct mfs_error *err)
{
	int rc = check_threads(err);

	if (!rc && opt->run_as)
		rc = become(opt->run_as, err);
	if (!rc && (opt->drop_privileges || opt->sandbox))
		rc = keep_capabilities(needed(opt), err);
	if (!rc && opt->sandbox)
		rc = mfs_rights_limit_files(opt, needs, err);
	if (!rc && opt->sandbox)
		rc = mfs_rights_limit_calls(changes(opt, needs), err);
	return rc;
}

int mfs_rights_drop_for(const struct mfs_options *opt, const struct mfs_rights_needs *needs,
			struct mfs_error *err)
{
	return drop(opt, needs, err) ? mfs_fail_in(err, "cannot give up rights") : 0;
}

int mfs_rights_drop(const struct mfs_options *opt, const char *source, struct mfs_error *err)
{
	const struct mfs_rights_served served = {opt, source};
	const struct mfs_rights_needs needs = {.served = &served, .served_count = 1};

	return mfs_rights_drop_for(opt, &needs, err);
}
