/* What is noted of repositories. Private to facts.c, learn.c and those who keep the notes. */
#ifndef MFS_FS_GATEWAY_REPOS_FACTS_I_H
#define MFS_FS_GATEWAY_REPOS_FACTS_I_H

#include "fs/gateway/repos/facts.h"
#include "fs/gateway/repos/repos_i.h"

void mfs_facts_table_init(struct mfs_facts_table *t);
void mfs_facts_table_release(struct mfs_facts_table *t);
void mfs_facts_note(struct mfs_repos *repos, enum mfs_repo_kind kind, const char *name,
		    const struct mfs_facts *facts);
/* The source of a model, for mfs_roots_drop(). -EAGAIN: it is not open; -ENOENT: there is none. */
int mfs_facts_hold_open(struct mfs_repos *repos, const char *name, struct mfs_shared_root **ret);

#endif
