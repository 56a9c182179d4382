/*
 * Who may read bytes that come from several files, behind several directories: whoever may search
 * every one of the directories and read every one of the files. What each of them lets pass is a
 * rule; rules are folded into one, and the fold is told as an owner, a group and a mode, which are
 * all that a file system in FUSE can give the kernel to check (default_permissions).
 *
 * The kernel's rule for one inode (fs/namei.c: acl_permission_check; fs/posix_acl.c:
 * posix_acl_permission): the owner has the owner's bits, and no others; members of the group have
 * the group's; all others have the others'. Where an ACL stands, st_mode's group bits are its mask,
 * and its entries count. Who holds CAP_DAC_OVERRIDE or CAP_DAC_READ_SEARCH passes everywhere, there
 * as here.
 *
 * What is told is never wider than the truth, and may be narrower: in which groups a user is, is
 * not known, and an ACL has no place in it. Other guards (NFSv4 ACLs, SELinux) are not looked at.
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

/* Which classes one inode lets pass, and whose classes these are. */
struct mfs_access_rule {
	uid_t uid;
	gid_t gid;
	unsigned bits;
};

/* Rules that let somebody not pass, each once. Zero-filled: everybody passes. */
#define MFS_ACCESS_RULES 16
struct mfs_access_fold {
	struct mfs_access_rule rules[MFS_ACCESS_RULES];
	unsigned count;
	bool closed; /* there were more, or one that could not be looked at: nobody passes */
	bool named;
	uid_t uid; /* of the first file, */
	gid_t gid; /* which is whose name a fold that lets all pass has */
};

/* For FUSE: bits of 0444. */
struct mfs_access {
	uid_t uid;
	gid_t gid;
	mode_t mode;
};

/* What an inode says to those who want all of the bits of want. acl: its system.posix_acl_access,
 * NULL without one: if all its entries allow, all may, else the owner at most. One that cannot be
 * parsed allows nothing. */
struct mfs_access_rule mfs_access_rule(const struct stat *st, unsigned want, const void *acl,
				       size_t acl_len);

void mfs_access_add(struct mfs_access_fold *fold, const struct mfs_access_rule *rule);
/* Gives a fold that has none yet the name of a file. */
void mfs_access_name(struct mfs_access_fold *fold, const struct stat *file);
/* All that more asks for as well. */
void mfs_access_merge(struct mfs_access_fold *fold, const struct mfs_access_fold *more);

/* The classes that pass for certain, of a file that belongs to uid and gid: uid, in whatever groups
 * it is; the other members of gid, whoever they are; all others. */
unsigned mfs_access_classes(const struct mfs_access_fold *fold, uid_t uid, gid_t gid);
/* The owner and group with which most pass. Owner 0 stands for nobody in particular. */
struct mfs_access mfs_access_told(const struct mfs_access_fold *fold);

/* Read bits of classes: 0444 for all. */
mode_t mfs_access_mode(unsigned classes);
/* The same for a directory: who may read it may search it. */
mode_t mfs_access_dir_mode(mode_t mode);

#endif
