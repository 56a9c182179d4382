/* What several inodes let pass, told as one owner, group and mode: formats/io/access.h, against the
 * kernel's rule. */
#include "tests/unit/unit.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "formats/io/access.h"

#define IDS	4	   /* users and groups, 0 among them, which has no privilege here */
#define SETS	(1 << IDS) /* of groups */
#define ENTRIES 8

static unsigned seed = 1;

static unsigned draw(unsigned below)
{
	seed = seed * 1103515245u + 12345u;
	return (seed >> 16) % below;
}

/* ---- the model: fs/namei.c acl_permission_check, fs/posix_acl.c posix_acl_permission ---- */

enum { USER_OBJ = 1, USER = 2, GROUP_OBJ = 4, GROUP = 8, MASK = 16, OTHER = 32 };

struct entry {
	unsigned tag, bits, id;
};

struct inode {
	struct stat st;
	unsigned want;
	struct entry acl[ENTRIES];
	unsigned entries; /* 0: no ACL */
};

struct subject {
	unsigned uid, groups; /* groups: as bits */
};

static bool has(unsigned bits, unsigned want)
{
	return (bits & want) == want;
}

static unsigned mask_of(const struct inode *n)
{
	for (unsigned i = 0; i < n->entries; i++)
		if (n->acl[i].tag == MASK)
			return n->acl[i].bits;
	return 7;
}

static bool acl_permits(const struct inode *n, const struct subject *s)
{
	const unsigned mask = mask_of(n);
	bool found = false;

	for (unsigned i = 0; i < n->entries; i++)
		if (n->acl[i].tag == USER && n->acl[i].id == s->uid)
			return has(n->acl[i].bits & mask, n->want);
	for (unsigned i = 0; i < n->entries; i++) {
		const struct entry *e = &n->acl[i];
		unsigned id = e->tag == GROUP_OBJ ? n->st.st_gid : e->id;

		if ((e->tag != GROUP_OBJ && e->tag != GROUP) || !(s->groups >> id & 1))
			continue;
		if (has(e->bits, n->want))
			return has(mask, n->want);
		found = true;
	}
	return !found && has(n->st.st_mode & 7, n->want);
}

static bool permits(const struct inode *n, const struct subject *s)
{
	const mode_t mode = n->st.st_mode;

	if (s->uid == n->st.st_uid)
		return has(mode >> 6 & 7, n->want);
	if (n->entries && mode & 0070)
		return acl_permits(n, s);
	return has((s->groups >> n->st.st_gid & 1 ? mode >> 3 : mode) & 7, n->want);
}

static bool all_permit(const struct inode *chain, unsigned count, const struct subject *s)
{
	for (unsigned i = 0; i < count; i++)
		if (!permits(&chain[i], s))
			return false;
	return true;
}

/* What the kernel lets pass by what FUSE tells it. */
static bool told_permits(const struct mfs_access *told, const struct subject *s)
{
	if (s->uid == told->uid)
		return told->mode & 0400;
	return told->mode & (s->groups >> told->gid & 1 ? 0040 : 0004);
}

/* ---- random chains ---- */

static void add_entry(struct inode *n, unsigned tag, unsigned bits, unsigned id)
{
	n->acl[n->entries++] = (struct entry){tag, bits, id};
}

/* Bits that are often all there. */
static unsigned draw_bits(void)
{
	return draw(3) ? 7 : draw(8);
}

static void draw_acl(struct inode *n)
{
	const unsigned users = draw(3), groups = draw(3), mask = draw_bits(), other = draw_bits();
	const unsigned first_user = draw(IDS), first_group = draw(IDS);

	add_entry(n, USER_OBJ, n->st.st_mode >> 6 & 7, 0);
	for (unsigned i = 0; i < users; i++)
		add_entry(n, USER, draw_bits(), (first_user + i) % IDS);
	add_entry(n, GROUP_OBJ, draw_bits(), 0);
	for (unsigned i = 0; i < groups; i++)
		add_entry(n, GROUP, draw_bits(), (first_group + i) % IDS);
	add_entry(n, MASK, mask, 0);
	add_entry(n, OTHER, other, 0);
	n->st.st_mode = (n->st.st_mode & 0700) | mask << 3 | other;
}

static void draw_inode(struct inode *n, unsigned want, unsigned acls)
{
	static const mode_t usual[] = {0755, 0750, 0700, 0644, 0640, 0600, 0711, 0444, 0440};

	*n = (struct inode){.want = want};
	n->st.st_uid = draw(IDS);
	n->st.st_gid = draw(IDS);
	n->st.st_mode = draw(4) ? usual[draw(9)] | (want == MFS_ACCESS_SEARCH ? draw(2) * 0111 : 0)
				: draw(01000);
	if (acls && !draw(acls))
		draw_acl(n);
}

static unsigned draw_chain(struct inode chain[4], unsigned acls)
{
	const unsigned count = 1 + draw(4);

	for (unsigned i = 0; i < count; i++)
		draw_inode(&chain[i], i + 1 == count ? MFS_ACCESS_READ : MFS_ACCESS_SEARCH, acls);
	return count;
}

static void put16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
}

static size_t encode(const struct inode *n, uint8_t *acl)
{
	memset(acl, 0, 4 + 8 * ENTRIES);
	acl[0] = 2;
	for (unsigned i = 0; i < n->entries; i++) {
		put16(acl + 4 + 8 * i, n->acl[i].tag);
		put16(acl + 6 + 8 * i, n->acl[i].bits);
		put16(acl + 8 + 8 * i, n->acl[i].id);
	}
	return 4 + 8 * (size_t)n->entries;
}

static struct mfs_access_fold fold_of(const struct inode *chain, unsigned count)
{
	struct mfs_access_fold fold = {0};

	for (unsigned i = 0; i < count; i++) {
		uint8_t acl[4 + 8 * ENTRIES];
		size_t len = encode(&chain[i], acl);
		struct mfs_access_rule r = mfs_access_rule(&chain[i].st, chain[i].want,
							   chain[i].entries ? acl : NULL, len);

		mfs_access_add(&fold, &r);
	}
	mfs_access_name(&fold, &chain[count - 1].st);
	return fold;
}

static struct subject subject(unsigned i)
{
	return (struct subject){i / SETS, i % SETS};
}

#define SUBJECTS (IDS * SETS)

START_TEST(never_wider_than_the_truth)
{
	struct inode chain[4];
	unsigned granted = 0;

	for (int round = 0; round < 100000; round++) {
		const unsigned count = draw_chain(chain, round % 2 ? 4 : 0);
		const struct mfs_access_fold fold = fold_of(chain, count);
		const struct mfs_access told = mfs_access_told(&fold);

		for (unsigned i = 0; i < SUBJECTS; i++) {
			const struct subject s = subject(i);

			if (!told_permits(&told, &s))
				continue;
			granted++;
			ck_assert_msg(all_permit(chain, count, &s),
				      "round %d: user %u with groups %x reads", round, s.uid,
				      s.groups);
		}
	}
	ck_assert_uint_gt(granted, 100000);
}
END_TEST

/* Whether owner, group and mode let nobody pass whom the chain does not. */
static bool is_safe(const struct mfs_access *a, const struct inode *chain, unsigned count)
{
	for (unsigned i = 0; i < SUBJECTS; i++) {
		const struct subject s = subject(i);

		if (told_permits(a, &s) && !all_permit(chain, count, &s))
			return false;
	}
	return true;
}

static unsigned passed(const struct mfs_access *a)
{
	unsigned count = 0;

	for (unsigned i = 0; i < SUBJECTS; i++) {
		const struct subject s = subject(i);

		count += told_permits(a, &s);
	}
	return count;
}

/* Whether b lets pass all that a does. */
static bool covers(const struct mfs_access *b, const struct mfs_access *a)
{
	for (unsigned i = 0; i < SUBJECTS; i++) {
		const struct subject s = subject(i);

		if (told_permits(a, &s) && !told_permits(b, &s))
			return false;
	}
	return true;
}

/* Where no ACL stands, no owner, group and mode says more that is true. */
START_TEST(as_wide_as_can_be_told)
{
	struct inode chain[4];

	for (int round = 0; round < 2000; round++) {
		const unsigned count = draw_chain(chain, 0);
		const struct mfs_access_fold fold = fold_of(chain, count);
		const struct mfs_access told = mfs_access_told(&fold);
		const unsigned ours = passed(&told);

		for (unsigned i = 0; i < IDS * IDS * 8; i++) {
			const unsigned bits = i % 8;
			const struct mfs_access other = {i / 8 % IDS, i / 8 / IDS,
							 mfs_access_mode(bits)};

			ck_assert_msg(!is_safe(&other, chain, count) || passed(&other) <= ours ||
					      !covers(&other, &told),
				      "round %d: told %u:%u %o, and %u:%u %o is true as well",
				      round, told.uid, told.gid, told.mode, other.uid, other.gid,
				      other.mode);
		}
	}
}
END_TEST

static struct stat inode_of(uid_t uid, gid_t gid, mode_t mode)
{
	return (struct stat){.st_uid = uid, .st_gid = gid, .st_mode = mode};
}

static void add(struct mfs_access_fold *fold, const struct stat *st, unsigned want)
{
	const struct mfs_access_rule r = mfs_access_rule(st, want, NULL, 0);

	mfs_access_add(fold, &r);
}

static void tells(const struct mfs_access_fold *fold, uid_t uid, gid_t gid, mode_t mode)
{
	const struct mfs_access told = mfs_access_told(fold);

	ck_assert_uint_eq(told.uid, uid);
	ck_assert_uint_eq(told.gid, gid);
	ck_assert_uint_eq(told.mode, mode);
}

/* The cases that people have. */
START_TEST(by_hand)
{
	const struct stat home = inode_of(1000, 100, 0700), shared = inode_of(0, 500, 0750),
			  root = inode_of(0, 0, 0755), file = inode_of(1000, 100, 0644),
			  team = inode_of(1000, 500, 0640), secret = inode_of(0, 0, 0700);
	struct mfs_access_fold fold = {0}, more = {0};

	tells(&fold, 0, 0, 0444);
	add(&fold, &root, MFS_ACCESS_SEARCH);
	add(&fold, &file, MFS_ACCESS_READ);
	mfs_access_name(&fold, &file);
	tells(&fold, 1000, 100, 0444);
	/* A home that nobody else may enter. */
	more = fold;
	add(&more, &home, MFS_ACCESS_SEARCH);
	tells(&more, 1000, 100, 0400);
	/* A directory of root's that nobody else may enter; together with the home, it is root's
	 * own. */
	add(&more, &secret, MFS_ACCESS_SEARCH);
	tells(&more, 0, 100, 0000);
	ck_assert_uint_eq(mfs_access_classes(&more, 1000, 100), 0);
	/* Members of a team through a directory of its own, of whom the owner is perhaps one. */
	fold = (struct mfs_access_fold){0};
	add(&fold, &shared, MFS_ACCESS_SEARCH);
	add(&fold, &team, MFS_ACCESS_READ);
	mfs_access_name(&fold, &team);
	tells(&fold, 0, 500, 0040);
	/* What is put together by two. */
	mfs_access_merge(&more, &fold);
	tells(&more, 0, 100, 0000);
}
END_TEST

START_TEST(more_than_fits)
{
	struct mfs_access_fold fold = {0}, again = {0};

	for (unsigned i = 0; i <= MFS_ACCESS_RULES; i++) {
		const struct stat open = inode_of(i, i, 0755), own = inode_of(7, 7, 0700),
				  other = inode_of(i, i, 0750);

		add(&again, &open, MFS_ACCESS_SEARCH);
		add(&again, &own, MFS_ACCESS_SEARCH);
		add(&fold, &other, MFS_ACCESS_SEARCH);
	}
	ck_assert_uint_eq(again.count, 1);
	ck_assert(!again.closed);
	ck_assert(fold.closed);
	tells(&fold, 0, 0, 0000);
	mfs_access_merge(&again, &fold);
	ck_assert(again.closed);
}
END_TEST

/* Bytes that are no ACL let the owner pass at most. */
START_TEST(acls_that_are_none)
{
	static const uint8_t good[] = {2,   0,	 0, 0, 1,   0,	 6,   0,   255, 255,
				       255, 255, 4, 0, 4,   0,	 255, 255, 255, 255,
				       32,  0,	 4, 0, 255, 255, 255, 255},
			     version[] = {3, 0, 0, 0},
			     tag[] = {2, 0, 0, 0, 64, 0, 7, 0, 0, 0, 0, 0};
	const struct stat st = inode_of(1, 1, 0644);

	ck_assert_uint_eq(mfs_access_rule(&st, 4, good, sizeof(good)).bits, 7);
	ck_assert_uint_eq(mfs_access_rule(&st, 4, good, sizeof(good) - 1).bits, 4);
	ck_assert_uint_eq(mfs_access_rule(&st, 4, good, 0).bits, 4);
	ck_assert_uint_eq(mfs_access_rule(&st, 4, version, sizeof(version)).bits, 4);
	ck_assert_uint_eq(mfs_access_rule(&st, 4, tag, sizeof(tag)).bits, 4);
	ck_assert_uint_eq(mfs_access_rule(&st, 4, NULL, 0).bits, 7);
}
END_TEST

START_TEST(modes_follow_who_may_read)
{
	ck_assert_uint_eq(mfs_access_mode(MFS_ACCESS_ALL), 0444);
	ck_assert_uint_eq(mfs_access_mode(MFS_ACCESS_GROUP), 0040);
	ck_assert_uint_eq(mfs_access_dir_mode(0640), 0550);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("access");
	TCase *c = unit_case(s, "access", never_wider_than_the_truth);

	tcase_add_test(c, as_wide_as_can_be_told);
	tcase_add_test(c, by_hand);
	tcase_add_test(c, more_than_fits);
	tcase_add_test(c, acls_that_are_none);
	tcase_add_test(c, modes_follow_who_may_read);
	return s;
}
