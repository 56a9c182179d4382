/* Revisions of repositories: mfs_repos_hold() and what it holds. */
#include <limits.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/base/str.h"
#include "formats/base/version.h"
#include "formats/io/fence.h"
#include "fs/data/data.h"
#include "fs/gateway/repos/facts_i.h"
#include "fs/source/root.h"
#include "fs/view/keeper.h"
#include "fs/view/view.h"
#include "fs/view/views.h"

/* ---- commits and entity tags ---- */

static void digest(const char *text, size_t len, char ret[MFS_COMMIT_SIZE])
{
	uint8_t sum[EVP_MAX_MD_SIZE];
	unsigned sum_len = 0;

	EVP_Digest(text, len, sum, &sum_len, EVP_sha256(), NULL);
	mfs_str_hex(sum, MFS_COMMIT_CHARS / 2, ret);
}

/* The first digits of a commit follow from names and options alone, so an unknown commit is told
 * from others without opening an iteration, and a known one opens its own. */
#define PLACE_CHARS 16

static void make_place(const char *iteration, const char *name, const char *options,
		       char ret[PLACE_CHARS + 1])
{
	static const uint8_t key[16] = "mcorefs commits"; /* of all gateways */
	char text[1024];
	int len = snprintf(text, sizeof(text), "mcorefs %s\n%s\n%s\n%s", MFS_VERSION,
			   iteration ? iteration : "", name, options);
	const size_t kept = (size_t)len < sizeof(text) ? (size_t)len : sizeof(text) - 1;

	snprintf(ret, PLACE_CHARS + 1, "%016llx", (unsigned long long)mfs_siphash(text, kept, key));
}

static void make_commit(const struct mfs_view *view, const char *iteration, const char *name,
			const char *options, char ret[MFS_COMMIT_SIZE])
{
	char text[64], sum[MFS_COMMIT_SIZE];
	int len;

	make_place(iteration, name, options, ret);
	len = snprintf(text, sizeof(text), "%s\n%016llx", ret, (unsigned long long)view->identity);
	digest(text, (size_t)len, sum);
	snprintf(ret + PLACE_CHARS, MFS_COMMIT_SIZE - PLACE_CHARS, "%.*s",
		 MFS_COMMIT_CHARS - PLACE_CHARS, sum);
}

void mfs_revision_etag(const struct mfs_revision *r, const char *file, char ret[MFS_COMMIT_SIZE])
{
	char text[PATH_MAX + MFS_COMMIT_SIZE + 2];
	int len = snprintf(text, sizeof(text), "%s\n%s", r->commit, file);

	digest(text, (size_t)len < sizeof(text) ? (size_t)len : sizeof(text) - 1, ret);
}

/* ---- names ---- */

/* A name cut into repository and view: "org/model__megatron.torch.tp2-pp1". */
struct asked {
	char repo[MFS_REPO_NAME];
	char view[MFS_REPO_NAME];
};

static bool cut_name(const char *name, enum mfs_repo_kind kind, struct asked *ret)
{
	const char *sep = NULL;

	for (const char *at = name; (at = strstr(at, "__")); at++)
		sep = at;
	if (!mfs_repo_name_ok(name) || sep == name)
		return false;
	snprintf(ret->repo, sizeof(ret->repo), "%.*s", (int)(sep ? sep - name : MFS_REPO_NAME),
		 name);
	snprintf(ret->view, sizeof(ret->view), "%s",
		 sep			  ? sep + 2
		 : kind == MFS_REPO_MODEL ? MFS_VIEW_DEFAULT
					  : "parquet");
	for (char *c = ret->view; *c; c++)
		if (*c == '.')
			*c = '/';
	return mfs_repo_name_ok(ret->repo);
}

static int absent(enum mfs_absent_kind what, enum mfs_absent_kind *ret_absent,
		  struct mfs_error *err)
{
	*ret_absent = what;
	if (err)
		err->code = -ENOENT;
	return -ENOENT;
}

/* ---- revisions ---- */

static struct mfs_served *served(const struct mfs_revision *r)
{
	return r->shared->attached;
}

/* Files that options name are read again when they have changed. */
static int check_options(struct mfs_revision *r, struct mfs_error *err)
{
	const struct mfs_view_options *options = r->shared->options;
	char digest[MFS_COMMIT_SIZE];
	uint64_t stamp;
	int rc;

	if (!mfs_options_have_files(options))
		return 0;
	stamp = mfs_options_stamp(options);
	if (stamp && stamp == atomic_load(&served(r)->stamp))
		return 0;
	rc = mfs_options_digest(options, digest, err);
	if (rc)
		return rc;
	if (!strcmp(digest, served(r)->digest)) {
		atomic_store(&served(r)->stamp, stamp);
		return 0;
	}
	mfs_roots_stale(r->repos->roots, r->shared);
	return mfs_fail(err, -ESTALE, "a file that an option names has changed");
}

/* Opens the view of an iteration or a dataset. */
static int hold_view(struct mfs_revision *r, struct mfs_error *err)
{
	struct mfs_view *opened;
	int rc = check_options(r, err);

	if (!rc)
		rc = mfs_views_hold(r->views, r->view_name, &r->held, &opened, err);
	if (rc)
		return rc;
	r->view = opened;
	make_commit(opened, r->iteration, r->view_name, served(r)->digest, r->commit);
	if (r->of)
		mfs_served_note(served(r), r);
	return 0;
}

static void set_iteration(struct mfs_revision *r, struct mfs_iteration *it)
{
	r->of = it;
	r->views = mfs_iteration_views(it);
	r->iteration = mfs_root_has_iterations(r->shared->root) ? mfs_iteration_name(it) : NULL;
}

int mfs_revision_open(struct mfs_revision *r, struct mfs_iteration *it, struct mfs_error *err)
{
	set_iteration(r, it);
	return hold_view(r, err);
}

static bool is_commit(const char *revision)
{
	return strlen(revision) == MFS_COMMIT_CHARS &&
	       strspn(revision, "0123456789abcdef") == MFS_COMMIT_CHARS;
}

static bool is_number(const char *revision)
{
	return *revision && strlen(revision) < 16 &&
	       strspn(revision, "0123456789") == strlen(revision);
}

/* "iter_0000040", "40", "release"; of verl "global_step_40". */
static struct mfs_iteration *find_named(const struct mfs_root_snapshot *s, const char *revision)
{
	char names[2][32];

	snprintf(names[0], sizeof(names[0]), "%.31s", revision);
	snprintf(names[1], sizeof(names[1]), "%.31s", revision);
	if (is_number(revision)) {
		snprintf(names[0], sizeof(names[0]), "iter_%07lld", atoll(revision));
		snprintf(names[1], sizeof(names[1]), "global_step_%lld", atoll(revision));
	}
	for (uint32_t i = 0; i < s->count; i++)
		for (unsigned k = 0; k < 2; k++)
			if (!strcmp(mfs_iteration_name(s->iterations[i]), names[k]))
				return s->iterations[i];
	return NULL;
}

/* Whether a commit can be of that iteration, by its first digits. */
static bool may_have(struct mfs_revision *r, struct mfs_iteration *it, const char *commit)
{
	char place[PLACE_CHARS + 1];

	set_iteration(r, it);
	make_place(r->iteration, r->view_name, served(r)->digest, place);
	return !mfs_iteration_reason(it) && !strncmp(place, commit, PLACE_CHARS);
}

/* -ENOENT: none has it. An iteration that was deleted, or cannot be opened however often one tries,
 * has no commit; others fail with their own errors. */
static int find_commit(struct mfs_revision *r, const struct mfs_root_snapshot *s,
		       const char *commit, struct mfs_error *err)
{
	for (uint32_t i = s->count; i--;) {
		int rc;

		if (!may_have(r, s->iterations[i], commit))
			continue;
		rc = hold_view(r, err);
		if (!rc && !strcmp(r->commit, commit))
			return 0;
		if (rc && rc != -ENOENT && !mfs_keeper_lasts(rc))
			return rc;
		mfs_keeper_drop(r->held);
		r->held = NULL;
	}
	return -ENOENT;
}

static int hold_model(struct mfs_revision *r, const struct asked *a, const char *revision,
		      enum mfs_absent_kind *ret_absent, struct mfs_error *err)
{
	const struct mfs_root_snapshot *s = mfs_root_snapshot(r->shared->root);
	struct mfs_iteration *it = NULL;

	if (is_commit(revision)) {
		const int rc = find_commit(r, s, revision, err);

		if (rc != -ENOENT)
			return rc;
		mfs_error_set(err, -ENOENT, "%s has no commit %s: its files have changed since",
			      a->repo, revision);
		return absent(MFS_ABSENT_REVISION, ret_absent, err);
	}
	if (!strcmp(revision, "main") || !strcmp(revision, "latest")) {
		it = s->latest;
		if (!it)
			mfs_error_set(err, -ENOENT, "%s: %s", a->repo, s->latest_reason);
	} else {
		it = find_named(s, revision);
		if (!it)
			mfs_error_set(err, -ENOENT, "%s has no iteration '%s'", a->repo, revision);
		else if (mfs_iteration_reason(it))
			mfs_error_set(err, -ENOENT, "%s of %s is not complete: %s", revision,
				      a->repo, mfs_iteration_reason(it));
	}
	if (!it || mfs_iteration_reason(it))
		return absent(MFS_ABSENT_REVISION, ret_absent, err);
	return mfs_revision_open(r, it, err);
}

/* By its name among repositories; "": the only one. */
static struct mfs_dataset *find_dataset(const struct mfs_data *data, const char *name)
{
	if (data && !*name)
		return mfs_data_count(data) == 1 ? mfs_data_at(data, 0) : NULL;
	for (uint32_t i = 0; data && i < mfs_data_count(data); i++) {
		char *part = mfs_repo_part(mfs_dataset_name(mfs_data_at(data, i)));
		const bool found = mfs_str_is(part, name);

		free(part);
		if (found)
			return mfs_data_at(data, i);
	}
	return NULL;
}

struct mfs_dataset *mfs_revision_dataset(const struct mfs_revision *r)
{
	const struct mfs_data *data = mfs_root_data(r->shared->root);

	for (uint32_t i = 0; data && i < mfs_data_count(data); i++)
		if (mfs_dataset_views(mfs_data_at(data, i)) == r->views)
			return mfs_data_at(data, i);
	return NULL;
}

static int hold_dataset(struct mfs_revision *r, const struct asked *a, const char *dataset,
			const char *revision, enum mfs_absent_kind *ret_absent,
			struct mfs_error *err)
{
	struct mfs_dataset *d = find_dataset(mfs_root_data(r->shared->root), dataset);
	int rc;

	if (!d) {
		mfs_error_set(err, -ENOENT, "there is no dataset %s", a->repo);
		return absent(MFS_ABSENT_REPO, ret_absent, err);
	}
	r->views = mfs_dataset_views(d);
	rc = hold_view(r, err);
	if (rc || !strcmp(revision, "main") || !strcmp(revision, r->commit))
		return rc;
	mfs_error_set(err, -ENOENT, "dataset %s has no revision '%s'", a->repo, revision);
	return absent(MFS_ABSENT_REVISION, ret_absent, err);
}

/* Whether a name or its layout is impossible. Damaged files fail with the same codes. */
static bool no_such_view(const struct mfs_revision *r, const struct asked *a)
{
	struct mfs_error err;
	const int rc = r->views ? mfs_views_check(r->views, a->view, &err) : 0;

	return rc == -ENOENT || rc == -EINVAL;
}

/* A view that the source cannot have is no repository. */
static int explain(int rc, const struct mfs_revision *r, const struct asked *a,
		   enum mfs_absent_kind *ret_absent, struct mfs_error *err)
{
	if (*ret_absent != MFS_ABSENT_NONE)
		return rc;
	if (rc == -ENOTSUP || rc == -ENODATA)
		return absent(MFS_ABSENT_REPO, ret_absent, err);
	if ((rc != -ENOENT && rc != -EINVAL) || !no_such_view(r, a))
		return rc;
	if (rc == -ENOENT)
		mfs_error_set(err, rc, "%s has no view '%s'", a->repo, a->view);
	return absent(MFS_ABSENT_REPO, ret_absent, err);
}

/* Iterations are looked at again; an HF directory and datasets are opened again. */
static bool looks_again(const struct mfs_revision *r)
{
	return r->of && mfs_root_has_iterations(r->shared->root);
}

/* -ENOENT: there is no source, or what is there is none. */
static int find_root(struct mfs_repos *repos, enum mfs_repo_kind kind, const struct asked *a,
		     struct mfs_shared_root **ret, const char **ret_dataset, struct mfs_error *err)
{
	const struct mfs_repo_source *source;
	char path[PATH_MAX];
	int rc =
		mfs_repos_find(repos, kind, a->repo, &source, path, sizeof(path), ret_dataset, err);

	if (!rc)
		rc = mfs_roots_hold(repos->roots, path, source->options, ret, err);
	if (!rc && !mfs_fence_allows(path, mfs_root_source((*ret)->root))) {
		/* A link took the directory's place before it was opened. */
		mfs_roots_stale(repos->roots, *ret);
		mfs_roots_drop(repos->roots, *ret);
		*ret = NULL;
		rc = mfs_fail(err, -ENOLINK, "'%s': %s", path, mfs_errno_text(ENOLINK));
	}
	if (rc == -ENODATA || rc == -ENOTDIR || rc == -ENOTSUP)
		err->code = rc = -ENOENT;
	return rc;
}

int mfs_repos_hold(struct mfs_repos *repos, enum mfs_repo_kind kind, const char *name,
		   const char *revision, struct mfs_revision *ret, enum mfs_absent_kind *ret_absent,
		   struct mfs_error *err)
{
	struct mfs_error refresh;
	const char *dataset;
	struct asked a;
	int rc;

	*ret = (struct mfs_revision){.repos = repos};
	*ret_absent = MFS_ABSENT_NONE;
	if (!cut_name(name, kind, &a)) {
		mfs_error_set(err, -ENOENT, "'%.100s' is no name of a repository", name);
		return absent(MFS_ABSENT_REPO, ret_absent, err);
	}
	memcpy(ret->view_name, a.view, sizeof(ret->view_name));
	rc = find_root(repos, kind, &a, &ret->shared, &dataset, err);
	if (rc == -ENOENT)
		return absent(MFS_ABSENT_REPO, ret_absent, err);
	if (rc)
		return rc;
	mfs_repos_share(repos);
	mfs_root_refresh(ret->shared->root, false, &refresh); /* else what was there stays */
	if (kind == MFS_REPO_MODEL && !mfs_root_has_model(ret->shared->root))
		rc = mfs_fail(err, -ENODATA, "%s is no model", a.repo);
	else if (kind == MFS_REPO_MODEL)
		rc = hold_model(ret, &a, revision, ret_absent, err);
	else
		rc = hold_dataset(ret, &a, dataset, revision, ret_absent, err);
	if (!rc)
		return 0;
	rc = explain(rc, ret, &a, ret_absent, err);
	if (rc == -ESTALE && !looks_again(ret))
		mfs_roots_stale(repos->roots, ret->shared);
	mfs_revision_drop(ret);
	return rc;
}

void mfs_revision_drop(struct mfs_revision *r)
{
	mfs_keeper_drop(r->held);
	if (r->shared) {
		mfs_roots_drop(r->repos->roots, r->shared);
		mfs_repos_free(r->repos);
	}
	*r = (struct mfs_revision){0};
}

void mfs_revision_suspect(const struct mfs_revision *r)
{
	if (looks_again(r)) {
		mfs_iteration_suspect(r->of);
		if (r->held) /* a file that an option names is none of the iteration's */
			mfs_keeper_renew(r->held);
		mfs_open_set_close_idle(&r->views->open);
	} else {
		mfs_roots_stale(r->repos->roots, r->shared);
	}
}

static int each_iteration(struct mfs_root *root, int (*each)(void *arg, const char *iteration),
			  void *arg)
{
	const struct mfs_root_snapshot *s = mfs_root_snapshot(root);
	int rc = 0;

	for (uint32_t i = s->count; i-- && !rc;)
		if (!mfs_iteration_reason(s->iterations[i]) && mfs_root_has_iterations(root))
			rc = each(arg, mfs_iteration_name(s->iterations[i]));
	return rc;
}

int mfs_repos_each_iteration(struct mfs_repos *repos, enum mfs_repo_kind kind, const char *name,
			     int (*each)(void *arg, const char *iteration), void *arg,
			     struct mfs_error *err)
{
	struct mfs_shared_root *shared;
	struct mfs_error refresh;
	const char *dataset;
	struct asked a;
	int rc;

	if (!cut_name(name, kind, &a))
		return mfs_fail(err, -ENOENT, "'%.100s' is no name of a repository", name);
	rc = find_root(repos, kind, &a, &shared, &dataset, err);
	if (rc)
		return rc;
	mfs_root_refresh(shared->root, false, &refresh); /* else what was there stays */
	if (kind == MFS_REPO_MODEL)
		rc = each_iteration(shared->root, each, arg);
	mfs_roots_drop(repos->roots, shared);
	return rc;
}

int mfs_repos_each_known(struct mfs_repos *repos, const char *name,
			 int (*each)(void *arg, const char *iteration), void *arg)
{
	struct mfs_shared_root *shared;
	int rc = mfs_facts_hold_open(repos, name, &shared);

	if (rc)
		return rc;
	rc = each_iteration(shared->root, each, arg);
	mfs_roots_drop(repos->roots, shared);
	return rc;
}

int mfs_repos_source(struct mfs_repos *repos, enum mfs_repo_kind kind, const char *name, char *path,
		     size_t size)
{
	const struct mfs_repo_source *source;
	const char *dataset;
	struct mfs_error err;

	return mfs_repos_find(repos, kind, name, &source, path, size, &dataset, &err);
}

struct mfs_repos_state mfs_repos_state(struct mfs_repos *repos)
{
	struct mfs_repos_state s;

	mfs_roots_count(repos->roots, &s.open, &s.users);
	return s;
}
