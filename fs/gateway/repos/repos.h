/*
 * Repositories, as the HuggingFace Hub has them: what a gateway serves, by names.
 *
 *   org/model                          a checkpoint or an HF directory: its hf view
 *   org/model__megatron.torch.tp4-pp2  another view of it: VIEW after "__", with '.' for '/'
 *   org/name (of datasets)             a dataset: its parquet view; org/name__jsonl, another
 *
 * A revision is an iteration: "main" (the newest complete one), its name ("iter_0000040"), its
 * number ("40"), or its commit. A commit is 40 hexadecimal digits that follow from the release of
 * mcorefs, the view, the options, and the names, sizes and times of the source files. So all
 * gateways over one storage agree on it, and it changes when a source does. The ETag of a file
 * follows from commit and name.
 *
 * Names appear without opening anything. A root is opened when it is asked for; those that nobody
 * uses stay open up to a number, and the one that was used longest ago is closed.
 */
#ifndef MFS_FS_GATEWAY_REPOS_REPOS_H
#define MFS_FS_GATEWAY_REPOS_REPOS_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"

struct mfs_held;
struct mfs_iteration;
struct mfs_repos;
struct mfs_shared_root;
struct mfs_view;
struct mfs_view_options;
struct mfs_views;

enum mfs_repo_kind { MFS_REPO_MODEL, MFS_REPO_DATASET };

#define MFS_REPO_NAME	 97 /* bytes of org/model, NUL included: the Hub's own limit */
#define MFS_REPO_ORG	 "local"
#define MFS_COMMIT_SIZE	 41
#define MFS_COMMIT_CHARS 40

/* open: of mfs_roots_new(). NULL: no memory. */
struct mfs_repos *mfs_repos_new(unsigned open);
/* Drops the caller's share. The last one frees them, and calls what mfs_repos_on_free() says. */
void mfs_repos_free(struct mfs_repos *repos);
/* One more share. A revision that is held has one of its own. Any thread. */
void mfs_repos_share(struct mfs_repos *repos);
/* For what they borrow: options. */
void mfs_repos_on_free(struct mfs_repos *repos, void (*freed)(void *arg), void *arg);

/*
 * Adds SOURCE. name: "org/model"; "org/" and a star: each directory in SOURCE is a repository,
 * whatever comes and goes; NULL: MFS_REPO_ORG and the last part of SOURCE, or of its directories if
 * it is no source itself. Except for these directories it is opened, to see what it is. Its
 * datasets are repositories of the same organisation, by their own names; one that is all of SOURCE
 * has the given name. options are borrowed. -EINVAL: the name is none that clients take; -EEXIST:
 * it is there already; errors of mfs_root_open().
 */
int mfs_repos_add(struct mfs_repos *repos, const char *name, const char *source,
		  const struct mfs_view_options *options, struct mfs_error *err);

/* Calls each for every name, without opening anything, until it returns non-zero; returns that. Of
 * the directories of "org/" and a star, those that look like a checkpoint, or hold one dataset.
 * -errno: a directory cannot be listed. */
int mfs_repos_each(struct mfs_repos *repos, enum mfs_repo_kind kind,
		   int (*each)(void *arg, const char *name), void *arg);
/* True if clients take it: two parts of letters, digits and -._ without "--" and "..". */
bool mfs_repo_name_ok(const char *name);
/* What clients take as the second part of a name, of a name on disk. The caller frees it. NULL: no
 * memory. */
char *mfs_repo_part(const char *name);

/* A revision that is held: its view stays open. */
struct mfs_revision {
	const struct mfs_view *view;
	char commit[MFS_COMMIT_SIZE];
	const char *iteration; /* its name; NULL: it has none */
	char view_name[MFS_REPO_NAME];
	struct mfs_repos *repos;
	struct mfs_shared_root *shared;
	struct mfs_views *views;
	struct mfs_iteration *of; /* NULL: of a dataset */
	struct mfs_held *held;
};

/* What is not there: the answer to a client. */
enum mfs_absent_kind { MFS_ABSENT_NONE, MFS_ABSENT_REPO, MFS_ABSENT_REVISION };

/* Holds a revision. -ENOENT: *ret_absent says what there is not, and err why; -ESTALE and others of
 * mfs_root_open(), mfs_views_hold(). Any thread. */
int mfs_repos_hold(struct mfs_repos *repos, enum mfs_repo_kind kind, const char *name,
		   const char *revision, struct mfs_revision *ret, enum mfs_absent_kind *ret_absent,
		   struct mfs_error *err);
void mfs_revision_drop(struct mfs_revision *r);
/* A reader has met -ESTALE: the next look is thorough, and the next caller that asks for the view
 * gets it opened anew. Call it before mfs_revision_drop(). */
void mfs_revision_suspect(const struct mfs_revision *r);

/* Calls each for the names of the complete iterations, newest first. -ENOENT: there is no such
 * repository. */
int mfs_repos_each_iteration(struct mfs_repos *repos, enum mfs_repo_kind kind, const char *name,
			     int (*each)(void *arg, const char *iteration), void *arg,
			     struct mfs_error *err);

/* Like mfs_repos_each_iteration(), of a source that is open, without a look at its files. -EAGAIN:
 * it is not open. */
int mfs_repos_each_known(struct mfs_repos *repos, const char *name,
			 int (*each)(void *arg, const char *iteration), void *arg);
/* What is asked of a list of commits. */
struct mfs_commits_hooks {
	/* Whether the next one is wanted: others are not opened. */
	bool (*wants)(void *arg);
	/* iteration NULL: it has no name. */
	void (*each)(void *arg, const char *iteration, const char *commit, int64_t mtime_ns);
	void *arg;
};
/* The commits of a revision's view: of its own iteration and those before it, or of all, the newest
 * first. Each iteration is opened once to know it. What is wanted and cannot be opened is left out.
 * -ESTALE: the iteration is no longer shown; errors that may pass. */
int mfs_revision_each_commit(const struct mfs_revision *r, bool all,
			     const struct mfs_commits_hooks *a, struct mfs_error *err);

/* SOURCE of a repository, as it was named. If it is a directory of runs, the run's name follows.
 * -ENOENT; -errno. */
int mfs_repos_source(struct mfs_repos *repos, enum mfs_repo_kind kind, const char *name, char *path,
		     size_t size);

/* The ETag of a file, without quotes: MFS_COMMIT_CHARS digits. */
void mfs_revision_etag(const struct mfs_revision *r, const char *file, char ret[MFS_COMMIT_SIZE]);

struct mfs_cache_stats;
/* What was counted of sources that are URLs. False: none is. */
bool mfs_repos_remote(struct mfs_repos *repos, struct mfs_cache_stats *ret);

struct mfs_repos_state {
	unsigned open, users; /* roots that are open; revisions that are held */
};
struct mfs_repos_state mfs_repos_state(struct mfs_repos *repos);

#endif
