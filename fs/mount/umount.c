/* `mcorefs umount`. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "formats/base/buf.h"
#include "fs/cli/cmdline.h"
#include "fs/cli/commands.h"
#include "fs/mount/command.h"
#include "fs/daemon/mountpoint.h"
#include "fs/daemon/users.h"

static int check(const char *place, struct mfs_error *err)
{
	struct mfs_mount_entry entry;
	int rc = mfs_mountpoint_find(place, &entry, err);

	if (rc)
		return rc;
	if (strcmp(entry.type, MFS_MOUNT_TYPE))
		rc = mfs_fail(err, -EINVAL, "a mount of %s is there, not one of mcorefs",
			      entry.type);
	mfs_mount_entry_release(&entry);
	return rc;
}

/* "process 12 (python3), process 31 (vllm)": who has a file or directory of the mount open, or
 * stands in it, as far as /proc lets us see. */
static void name_users(const char *place, struct mfs_buf *text)
{
	struct mfs_mount_users users;

	mfs_mount_users_find(place, &users);
	for (unsigned i = 0; i < users.count; i++)
		mfs_buf_printf(text, "%sprocess %d (%s)", i ? ", " : " by ", (int)users.pids[i],
			       users.names[i]);
	if (users.more)
		mfs_buf_printf(text, " and %u more", users.more);
}

static int is_busy(const char *place, int rc, struct mfs_error *err)
{
	struct mfs_buf text = {0};

	name_users(place, &text);
	if (rc == -EPERM && !text.len) /* another user's, perhaps */
		return rc;
	rc = mfs_fail(err, rc,
		      "it is in use%s: end what uses it, or --lazy ends the mount with the last of "
		      "them",
		      text.len && !text.failed ? text.data : "");
	mfs_buf_release(&text);
	return rc;
}

/* A dead mount holds nothing that could be lost: a process that has a file of it open gets errors.
 * A mount is asked only when it is in use: one whose source hangs does not answer. */
static int unmount(const char *dir, bool lazy, struct mfs_error *err)
{
	char place[PATH_MAX];
	int rc = mfs_mountpoint_resolve(dir, place, err);

	if (!rc)
		rc = check(place, err);
	if (rc)
		return rc;
	rc = mfs_mountpoint_detach(place, lazy, err);
	if ((rc == -EBUSY || rc == -EPERM) && !lazy && mfs_mountpoint_is_dead(place))
		rc = mfs_mountpoint_detach(place, true, err);
	return (rc == -EBUSY || rc == -EPERM) && !lazy ? is_busy(place, rc, err) : rc;
}

int mfs_cmd_umount(int argc, char **argv)
{
	bool lazy = false;
	struct mfs_cmdline c = {
		.usage = "umount MOUNTPOINT [--lazy]",
		.help = "Ends a mount, also one whose process was killed; as root, or as the user\n"
			"who mounted it.\n",
		.help_end =
			"  -l, --lazy  also while files are open: it ends with the last of them\n",
		.min = 1,
		.max = 1,
		.switches = {{"lazy", &lazy}},
		.letters = "l",
	};
	struct mfs_error err;
	int code = MFS_EXIT_OK;

	if (!mfs_cmdline_parse(&c, argc, argv, &code))
		return mfs_cmdline_end(&c, code);
	if (unmount(c.arguments[0], lazy, &err)) {
		mfs_command_failed("cannot unmount %s: %s", c.arguments[0], err.msg);
		code = MFS_EXIT_MOUNT;
	}
	return mfs_cmdline_end(&c, code);
}
