/*
 * A thread that opens repositories before their first client comes: what a configuration names, the
 * newest iteration of each, one after the other, and as many as stay open. What is in a directory
 * of runs is opened when it is asked for.
 */
#ifndef MFS_FS_GATEWAY_REPOS_WARM_H
#define MFS_FS_GATEWAY_REPOS_WARM_H

#include <stdbool.h>

#include "formats/base/error.h"

struct mfs_repos;
struct mfs_warmer;

/* Starts the thread. -errno. */
int mfs_warmer_start(struct mfs_warmer **ret, struct mfs_error *err);
/* Opens what these have, instead of what it has not opened yet of others. What cannot be opened is
 * logged. Any thread. */
void mfs_warmer_give(struct mfs_warmer *w, struct mfs_repos *repos);
/* Ends the thread and frees it. False: it still opens something after so many seconds, and has
 * repositories that must not go. w may be NULL. */
bool mfs_warmer_end(struct mfs_warmer *w, unsigned seconds);

#endif
