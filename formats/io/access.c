#include "formats/io/access.h"

#include "formats/base/bytes.h"

/* ---- rules ---- */

/* The value of system.posix_acl_access (include/uapi/linux/posix_acl_xattr.h): a version, then
 * entries of a tag, bits of rwx and a user's or group's number, all little-endian. */
#define ACL_VERSION   2
#define ACL_HEADER    4
#define ACL_ENTRY     8
#define ACL_USER_OBJ  0x01
#define ACL_USER      0x02
#define ACL_GROUP_OBJ 0x04
#define ACL_GROUP     0x08
#define ACL_MASK      0x10
#define ACL_OTHER     0x20

static bool is_acl(const uint8_t *acl, size_t len)
{
	return len >= ACL_HEADER && (len - ACL_HEADER) % ACL_ENTRY == 0 &&
	       mfs_le32(acl) == ACL_VERSION;
}

static unsigned mask_of(const uint8_t *acl, size_t len)
{
	for (size_t at = ACL_HEADER; at < len; at += ACL_ENTRY)
		if (mfs_le16(acl + at) == ACL_MASK)
			return mfs_le16(acl + at + 2);
	return 7;
}

/* Whether every entry but the owner's allows all of want. */
static bool all_entries_allow(const uint8_t *acl, size_t len, unsigned want)
{
	const unsigned mask = mask_of(acl, len);

	for (size_t at = ACL_HEADER; at < len; at += ACL_ENTRY) {
		unsigned bits = mfs_le16(acl + at + 2);

		switch (mfs_le16(acl + at)) {
		case ACL_USER_OBJ:
		case ACL_MASK:
			continue;
		case ACL_USER:
		case ACL_GROUP_OBJ:
		case ACL_GROUP:
			bits &= mask;
			break;
		case ACL_OTHER:
			break;
		default:
			return false;
		}
		if ((bits & want) != want)
			return false;
	}
	return true;
}

struct mfs_access_rule mfs_access_rule(const struct stat *st, unsigned want, const void *acl,
				       size_t acl_len)
{
	struct mfs_access_rule r = {.uid = st->st_uid, .gid = st->st_gid};

	if ((st->st_mode >> 6 & want) == want)
		r.bits |= MFS_ACCESS_OWNER;
	if (acl) {
		if (is_acl(acl, acl_len) && all_entries_allow(acl, acl_len, want))
			r.bits |= MFS_ACCESS_GROUP | MFS_ACCESS_OTHERS;
		return r;
	}
	if ((st->st_mode >> 3 & want) == want)
		r.bits |= MFS_ACCESS_GROUP;
	if ((st->st_mode & want) == want)
		r.bits |= MFS_ACCESS_OTHERS;
	return r;
}

/* ---- the fold ---- */

void mfs_access_add(struct mfs_access_fold *fold, const struct mfs_access_rule *rule)
{
	if (rule->bits == MFS_ACCESS_ALL)
		return;
	for (unsigned i = 0; i < fold->count; i++) {
		struct mfs_access_rule *r = &fold->rules[i];

		if (r->uid == rule->uid && r->gid == rule->gid) {
			r->bits &= rule->bits;
			return;
		}
	}
	if (fold->count == MFS_ACCESS_RULES)
		fold->closed = true;
	else
		fold->rules[fold->count++] = *rule;
}

void mfs_access_name(struct mfs_access_fold *fold, const struct stat *file)
{
	if (fold->named)
		return;
	fold->named = true;
	fold->uid = file->st_uid;
	fold->gid = file->st_gid;
}

void mfs_access_merge(struct mfs_access_fold *fold, const struct mfs_access_fold *more)
{
	for (unsigned i = 0; i < more->count; i++)
		mfs_access_add(fold, &more->rules[i]);
	fold->closed |= more->closed;
	if (!fold->named && more->named) {
		fold->named = true;
		fold->uid = more->uid;
		fold->gid = more->gid;
	}
}

/* Somebody of whom is not known whether he is in the rule's group. */
static bool passes_either_way(const struct mfs_access_rule *r)
{
	return r->bits & MFS_ACCESS_GROUP && r->bits & MFS_ACCESS_OTHERS;
}

static unsigned classes_of(const struct mfs_access_rule *r, uid_t uid, gid_t gid)
{
	const bool own = r->uid == uid, known = r->gid == gid, either = passes_either_way(r);
	/* The rule's owner may be any of those who are not uid. */
	const bool stranger = own || r->bits & MFS_ACCESS_OWNER;
	unsigned classes = 0;

	if (own ? r->bits & MFS_ACCESS_OWNER : either)
		classes |= MFS_ACCESS_OWNER;
	if (stranger && (known ? r->bits & MFS_ACCESS_GROUP : either))
		classes |= MFS_ACCESS_GROUP;
	if (stranger && (known ? r->bits & MFS_ACCESS_OTHERS : either))
		classes |= MFS_ACCESS_OTHERS;
	return classes;
}

unsigned mfs_access_classes(const struct mfs_access_fold *fold, uid_t uid, gid_t gid)
{
	unsigned classes = fold->closed ? 0 : MFS_ACCESS_ALL;

	for (unsigned i = 0; i < fold->count; i++)
		classes &= classes_of(&fold->rules[i], uid, gid);
	return classes;
}

/* The order is: everybody else, then the members of a group, then a single user. An owner who may
 * not read is kept out whatever others may, so nobody in particular is better. */
static unsigned worth(unsigned classes, uid_t uid)
{
	const unsigned owner = uid == 0 ? 1 : classes & MFS_ACCESS_OWNER ? 2 : 0;

	return (classes & MFS_ACCESS_OTHERS) * 8 + (classes & MFS_ACCESS_GROUP) * 2 + owner;
}

struct best {
	struct mfs_access access;
	unsigned worth;
	bool any;
};

static void try_one(const struct mfs_access_fold *fold, uid_t uid, gid_t gid, struct best *best)
{
	const unsigned classes = mfs_access_classes(fold, uid, gid), value = worth(classes, uid);

	if (best->any && value <= best->worth)
		return;
	best->any = true;
	best->worth = value;
	best->access = (struct mfs_access){uid, gid, mfs_access_mode(classes)};
}

static void try_groups(const struct mfs_access_fold *fold, uid_t uid, struct best *best)
{
	try_one(fold, uid, fold->gid, best);
	for (unsigned i = 0; i < fold->count; i++)
		try_one(fold, uid, fold->rules[i].gid, best);
}

struct mfs_access mfs_access_told(const struct mfs_access_fold *fold)
{
	struct best best = {.any = false};

	try_groups(fold, fold->uid, &best);
	for (unsigned i = 0; i < fold->count; i++)
		try_groups(fold, fold->rules[i].uid, &best);
	try_groups(fold, 0, &best);
	return best.access;
}

mode_t mfs_access_mode(unsigned classes)
{
	return (classes & MFS_ACCESS_OWNER ? 0400 : 0) | (classes & MFS_ACCESS_GROUP ? 0040 : 0) |
	       (classes & MFS_ACCESS_OTHERS ? 0004 : 0);
}

mode_t mfs_access_dir_mode(mode_t mode)
{
	return (mode & 0444) | (mode & 0444) >> 2;
}
