/* The inside of repositories. Private to this folder. */
#ifndef MFS_FS_GATEWAY_REPOS_REPOS_I_H
#define MFS_FS_GATEWAY_REPOS_REPOS_I_H

#include <pthread.h>
#include <stdatomic.h>

#include "formats/run/curve.h"
#include "fs/gateway/repos/facts.h"
#include "fs/gateway/repos/repos.h"
#include "fs/source/roots.h"

struct mfs_fence;

/* SOURCE as it was added. */
struct mfs_repo_source {
	char *org, *name; /* name NULL: each directory of path */
	char *path;
	const struct mfs_view_options *options;
	struct mfs_fence **fences; /* of SOURCE and of what options name (formats/io/fence.h) */
	uint32_t fence_count;
	bool has_model;
	char **datasets; /* names, known from the time when it was added */
	uint32_t dataset_count;
	bool is_dataset; /* nothing else: the one name is that of the source, not the dataset's */
};

/* What is kept with a root as long as it is open (fs/source/roots.h). */
struct mfs_note;
struct mfs_losses_noted {
	pthread_mutex_t lock; /* of the fields below */
	struct mfs_curve curve;
	char note[MFS_FACT_REASON];
	uint64_t stamp; /* of the files that were read */
	int64_t looked; /* monotonic; 0: never */
};
struct mfs_served {
	char digest[MFS_COMMIT_SIZE]; /* of its options when it was opened: mfs_options_digest() */
	_Atomic uint64_t stamp;	      /* of the files when that was their digest last; 0: none */

	pthread_mutex_t listing; /* held while commits of all iterations are found out */
	pthread_mutex_t lock;	 /* of the notes: a table of commits.c */
	struct mfs_note *notes;

	struct mfs_losses_noted losses; /* facts.c */
};

extern const struct mfs_attached_ops mfs_served_ops;

/* facts.c: what is known of repositories, by their names. */
struct mfs_noted;
struct mfs_facts_table {
	pthread_mutex_t lock; /* of the field below */
	struct mfs_noted *first;
};

struct mfs_repos {
	struct mfs_repo_source *sources;
	uint32_t source_count;
	struct mfs_roots *roots;
	struct mfs_facts_table facts;
	unsigned open; /* how many of these stay open without users */
	atomic_uint shares;
	void (*freed)(void *arg); /* NULL: nobody asks */
	void *freed_arg;
};

/* options_digest.c: options that change bytes, with the content of files that they name.
 * -ENOMEM; -errno of reading these. */
int mfs_options_digest(const struct mfs_view_options *o, char ret[MFS_COMMIT_SIZE],
		       struct mfs_error *err);

/* Whether the content of some file counts in the digest. */
bool mfs_options_have_files(const struct mfs_view_options *o);

/* Equal as long as nobody writes the files that options name. 0: one has changed so lately that its
 * times may not show another change. */
uint64_t mfs_options_stamp(const struct mfs_view_options *o);

/* commits.c: its part of what is kept with a root. */
void mfs_served_init(struct mfs_served *s);
void mfs_served_release(struct mfs_served *s);
/* Notes the commit of a revision of an iteration. */
void mfs_served_note(struct mfs_served *s, const struct mfs_revision *r);

/* revision.c: holds the view of an iteration; all but that is set. */
int mfs_revision_open(struct mfs_revision *r, struct mfs_iteration *it, struct mfs_error *err);

/* The dataset of a revision; NULL: it is of a model. */
struct mfs_dataset;
struct mfs_dataset *mfs_revision_dataset(const struct mfs_revision *r);

/* repos.c: finds the source of a name without "__VIEW". path: of the root. dataset: its name
 * there; "": the only one that the root has. -ENOENT: there is none; -errno: it is not known. */
int mfs_repos_find(struct mfs_repos *repos, enum mfs_repo_kind kind, const char *name,
		   const struct mfs_repo_source **ret, char *path, size_t path_size,
		   const char **ret_dataset, struct mfs_error *err);

#endif
