/*
 * What a repository is, for people: of a model its family, size, layout and views, of a dataset its
 * rows and tokens. Facts are learnt when the newest iteration is opened for somebody, and noted by
 * the repository's name until another one is. So a list of all repositories opens none.
 */
#ifndef MFS_FS_GATEWAY_REPOS_FACTS_H
#define MFS_FS_GATEWAY_REPOS_FACTS_H

#include <stdbool.h>
#include <stdint.h>

#include "fs/gateway/repos/repos.h"
#include "fs/view/kind.h"

#define MFS_FACT_TEXT	 64
#define MFS_FACT_REASON	 256
#define MFS_FACTS_NOTED	 4096 /* repositories; of more, all are forgotten */
#define MFS_FACT_LAYOUTS 8    /* of a directory of layouts that are named */

enum mfs_fact { MFS_FACT_UNKNOWN, MFS_FACT_NO, MFS_FACT_YES };

/* A view, or a directory of them. */
struct mfs_view_fact {
	const struct mfs_view_kind *kind;
	bool is_measured;
	uint64_t bytes; /* of its files */
	uint32_t files;
};

/* Zeros and "": not known, or there is none. */
struct mfs_facts {
	char commit[MFS_COMMIT_SIZE]; /* of the default view; "": it cannot be opened */
	char why[MFS_FACT_REASON];    /* then the reason */
	char iteration[MFS_FACT_TEXT];
	char format[MFS_FACT_TEXT];
	int64_t saved_ns;
	uint64_t source_bytes, bytes; /* of the files on disk, and of the default view's */
	uint32_t source_files;
	struct mfs_view_fact views[MFS_VIEW_KINDS];
	unsigned view_count;

	/* of a model */
	char family[MFS_FACT_TEXT], architecture[MFS_FACT_TEXT];
	const char *dtype; /* static */
	uint64_t parameters;
	int64_t layers, hidden, heads, experts, experts_used, context; /* MFS_ABSENT */
	uint64_t vocabulary;
	uint32_t tp, pp, vpp, ep, etp; /* 0: an HF directory, which has none */
	bool has_tokenizer;
	enum mfs_fact optimizer;

	/* of a dataset */
	uint64_t rows, tokens;
	bool is_blend; /* which has samples and no rows */
};

/* What is noted of a repository, without a look at its files. False: nothing. Any thread may call
 * this and the functions below. */
bool mfs_repos_facts(struct mfs_repos *repos, enum mfs_repo_kind kind, const char *name,
		     struct mfs_facts *ret);
/*
 * Opens the newest iteration, unless it is open, and learns what it is. Views are opened to measure
 * them until the monotonic clock is at until_ns; the next call goes on. name: without "__VIEW".
 * Errors are those of mfs_repos_hold(), and are noted if they would come again.
 */
int mfs_repos_learn(struct mfs_repos *repos, enum mfs_repo_kind kind, const char *name,
		    int64_t until_ns, struct mfs_facts *ret, enum mfs_absent_kind *ret_absent,
		    struct mfs_error *err);

/* Whether the source of a model is open: then there is one, whatever can be shown of it. */
bool mfs_repos_is_open(struct mfs_repos *repos, enum mfs_repo_kind kind, const char *name);

/* What names and times alone say of a checkpoint that is not open: the iteration of its tracker
 * ("": none), and when that was written (0: not known). */
struct mfs_glance {
	char iteration[MFS_FACT_TEXT];
	int64_t saved_ns;
};
/* Fills *ret, and opens nothing. -ENOENT: there is no such repository; -errno. */
int mfs_repos_glance(struct mfs_repos *repos, const char *name, struct mfs_glance *ret);

/* An iteration as it lies there. */
struct mfs_saved {
	const char *name, *reason; /* why it is not shown; NULL: it is complete */
	int64_t mtime_ns;
	int64_t number; /* -1: it has none */
	bool is_latest;
};
/* Calls each for the iterations of a source that is open, the newest first, until it returns
 * non-zero; returns that. -EAGAIN: it is not open; -ENOENT. */
int mfs_repos_each_saved(struct mfs_repos *repos, const char *name,
			 int (*each)(void *arg, const struct mfs_saved *s), void *arg);
/* The layouts that a directory of views lists, by their names. The same errors. */
int mfs_repos_each_layout(struct mfs_repos *repos, const char *name,
			  const struct mfs_view_kind *kind,
			  void (*each)(void *arg, const char *spec), void *arg);

#define MFS_FACT_TOKENS 1024 /* of a row, that are shown */

/* A row of a dataset. */
struct mfs_row_fact {
	uint64_t rows, row;	  /* of the dataset; which of these */
	uint64_t tokens;	  /* of the row */
	uint64_t shown;		  /* of these, from the first one on */
	bool is_text;		  /* there is a tokenizer; else they are ids, in decimal */
	struct mfs_error why_ids; /* code 0: they are text, or no tokenizer was given */
};
struct mfs_buf;
/* Appends the first tokens of a row of a dataset; of the last row, if there is none of that number.
 * Errors are those of mfs_repos_hold() and mfs_dataset_show_row(). */
int mfs_repos_show_row(struct mfs_repos *repos, const char *name, uint64_t row,
		       struct mfs_buf *text, struct mfs_row_fact *ret, struct mfs_error *err);

struct mfs_curve;
/* The training loss of a source that is open, by files that lie next to its iterations
 * (formats/run/losses.h). They are read again when they change, at most once in a while. The caller
 * releases *ret. note: the fault of one of them; "": there is none. -EAGAIN: the source is not
 * open, or a URL; -ENOMEM. */
int mfs_repos_losses(struct mfs_repos *repos, const char *name, struct mfs_curve *ret,
		     char note[MFS_FACT_REASON]);

#endif
