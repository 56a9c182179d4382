/* What mountinfo says of a mount: fs/daemon/mountpoint.h. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "fs/daemon/mountpoint.h"

static const char mountinfo[] =
	"22 1 254:0 / / rw,relatime - ext4 /dev/root rw\n"
	"36 22 0:32 / /mnt/a\\040place\\134with\\011signs ro,nosuid,nodev,relatime shared:5 "
	"master:7 - "
	"fuse.mcorefs /runs/a\\040-\\040b ro,user_id=0,group_id=0,allow_other\n"
	"360 22 0:33 / /mnt/auto rw,relatime - autofs /etc/auto.direct rw,fd=5,pgrp=77\n"
	"37 22 0:34 / /broken rw no hyphen\n"
	"38 22 0:35 / /last ro - fuse.mcorefs /runs/last ro";

START_TEST(entries_of_mountinfo_are_read)
{
	struct mfs_mount_entry e;

	ck_assert_int_eq(mfs_mount_entry_parse(mountinfo, 36, &e), 0);
	ck_assert_str_eq(e.place, "/mnt/a place\\with\tsigns");
	ck_assert_int_eq(e.id, 36);
	ck_assert_str_eq(e.flags, "ro,nosuid,nodev,relatime");
	ck_assert_str_eq(e.type, MFS_MOUNT_TYPE);
	ck_assert_str_eq(e.source, "/runs/a - b");
	ck_assert_str_eq(e.options, "ro,user_id=0,group_id=0,allow_other");
	mfs_mount_entry_release(&e);
	ck_assert_ptr_null(e.place);
	ck_assert_int_eq(mfs_mount_entry_parse(mountinfo, 360, &e), 0);
	ck_assert_str_eq(e.type, "autofs");
	mfs_mount_entry_release(&e);
	ck_assert_int_eq(mfs_mount_entry_parse(mountinfo, 38, &e), 0);
	ck_assert_str_eq(e.options, "ro");
	mfs_mount_entry_release(&e);
	ck_assert_int_eq(mfs_mount_entry_parse(mountinfo, 3, &e), -ENOENT);
	ck_assert_int_eq(mfs_mount_entry_parse(mountinfo, 37, &e), -EINVAL);
	ck_assert_int_eq(mfs_mount_entry_parse("", 1, &e), -ENOENT);
	ck_assert_int_eq(mfs_mount_entry_parse("1", 1, &e), -EINVAL);
}
END_TEST

START_TEST(all_entries)
{
	struct mfs_mount_entry *all;
	struct mfs_error err;
	size_t count, roots = 0;

	unit_ok(mfs_mount_entries(&all, &count, &err), &err);
	for (size_t i = 0; i < count; i++)
		if (!strcmp(all[i].place, "/proc") && all[i].id == mfs_mountpoint_id("/proc"))
			roots++;
	ck_assert_uint_eq(roots, 1);
	mfs_mount_entries_free(all, count);
	ck_assert_int_eq(mfs_mountpoint_id("/proc/none"), -ENOENT);
}
END_TEST

START_TEST(a_mount_point_is_an_absolute_path)
{
	char place[PATH_MAX];
	struct mfs_error err;

	unit_ok(mfs_mountpoint_resolve("/proc///", place, &err), &err);
	ck_assert_str_eq(place, "/proc");
	unit_ok(mfs_mountpoint_resolve("/", place, &err), &err);
	ck_assert_str_eq(place, "/");
	unit_fails(mfs_mountpoint_resolve("/proc/none", place, &err), &err, -ENOENT, "No such");
}
END_TEST

START_TEST(mounts_of_others_stay)
{
	struct mfs_mount_entry e;
	struct mfs_error err;
	const char *dir = unit_tmpdir();

	unit_ok(mfs_mountpoint_find("/proc", &e, &err), &err);
	ck_assert_str_eq(e.type, "proc");
	mfs_mount_entry_release(&e);
	ck_assert(!mfs_mountpoint_is_dead("/proc"));
	unit_ok(mfs_mountpoint_clear("/proc", &err), &err); /* not ours: it stays */
	unit_ok(mfs_mountpoint_find("/proc", &e, &err), &err);
	mfs_mount_entry_release(&e);

	ck_assert_int_eq(mfs_mountpoint_find(dir, &e, &err), -ENOENT);
	unit_ok(mfs_mountpoint_clear(dir, &err), &err);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("mountpoint");

	unit_case(s, "mountinfo", entries_of_mountinfo_are_read);
	unit_case(s, "all", all_entries);
	unit_case(s, "resolve", a_mount_point_is_an_absolute_path);
	unit_case(s, "places", mounts_of_others_stay);
	return s;
}
