/*
 * Who may read bytes that come from several files in several directories: users that may search
 * every one of the directories and read every one of the files. What each inode allows is a rule.
 * Rules are folded into one, and the fold is told as an owner, a group and a mode, because these
 * are all that a file system in FUSE can give the kernel to check (default_permissions).
 *
 * The kernel's rule for one inode (fs/namei.c: acl_permission_check; fs/posix_acl.c:
 * posix_acl_permission): the owner has the owner's bits alone, members of the group have the
 * group's, and everybody else has the others'. With an ACL the group bits of st_mode are its mask,
 * and its entries count. A process with CAP_DAC_OVERRIDE or CAP_DAC_READ_SEARCH passes everywhere,
 * at the sources as at a mount.
 *
 * What is told is never wider than the truth. It may be narrower: nobody knows here which groups a
 * user is in, and an owner, a group and a mode cannot express an ACL. Other guards (NFSv4 ACLs,
 * SELinux) are not looked at.
 */
#ifndef MFS_IO_ACCESS_H
#define MFS_IO_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

/* Classes, as bits: those of one digit of a mode. */
#define MFS_ACCESS_OWNER  4u
#define MFS_ACCESS_GROUP  2u
#define MFS_ACCESS_OTHERS 1u
#define MFS_ACCESS_ALL	  7u

/* What is asked of an inode: those of one digit of a mode as well. */
#define MFS_ACCESS_READ	  4u /* a file's bytes */
#define MFS_ACCESS_WRITE  2u
#define MFS_ACCESS_SEARCH 1u /* a name below a directory */

/* The classes that one inode lets pass, and the user and group that these classes refer to. */
struct mfs_access_rule {
	uid_t uid;
	gid_t gid;
	unsigned bits;
};

/* The rules that keep some user out, each rule once. Zero-filled: every user passes. */
#define MFS_ACCESS_RULES 16
struct mfs_access_fold {
	struct mfs_access_rule rules[MFS_ACCESS_RULES];
	unsigned count;
	bool closed; /* too many rules, or an inode that could not be read: nobody passes */
	bool named;
	/* of the first file: what is told if everybody passes */
	uid_t uid;
	gid_t gid;
};

/* For FUSE: bits of 0444. */
struct mfs_access {
	uid_t uid;
	gid_t gid;
	mode_t mode;
};

/* The rule of an inode for those who want all bits of `want`. acl: its system.posix_acl_access;
 * NULL: it has none. If all entries of the ACL allow it, everybody may; else the owner at most. An
 * ACL that cannot be parsed allows nothing. */
struct mfs_access_rule mfs_access_rule(const struct stat *st, unsigned want, const void *acl,
				       size_t acl_len);

void mfs_access_add(struct mfs_access_fold *fold, const struct mfs_access_rule *rule);
/* Gives a fold the owner and group of a file, unless it has them. */
void mfs_access_name(struct mfs_access_fold *fold, const struct stat *file);
/* Adds the rules of more. */
void mfs_access_merge(struct mfs_access_fold *fold, const struct mfs_access_fold *more);

/* The classes that pass for certain, for a file that belongs to uid and gid. The classes are: uid,
 * whatever groups it is in; the other members of gid, whatever other groups they are in; everybody
 * else. */
unsigned mfs_access_classes(const struct mfs_access_fold *fold, uid_t uid, gid_t gid);
/* The owner and group with which the most classes pass. Owner 0 stands for nobody in particular. */
struct mfs_access mfs_access_told(const struct mfs_access_fold *fold);

/* Read bits of classes: 0444 for all. */
mode_t mfs_access_mode(unsigned classes);
/* Like mfs_access_mode(), for a directory: who may read it may search it. */
mode_t mfs_access_dir_mode(mode_t mode);

#endif
