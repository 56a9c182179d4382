/*
 * A directory of runs: each directory in it is a SOURCE of its own (fs/source/root.h), whatever
 * comes and goes. They are named without opening any. Names that begin with a dot are of other
 * programs.
 */
#ifndef MFS_FS_SOURCE_RUNS_H
#define MFS_FS_SOURCE_RUNS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/* Calls each for every run, in the order of names, until it returns non-zero; returns that. st: of
 * its directory. -errno: the directory cannot be listed, or does not answer. */
int mfs_runs_each(const char *dir, int (*each)(void *arg, const char *name, const struct stat *st),
		  void *arg);
/* Finds the run of that name in dir. 1: there is one, and path is its path; 0: there is none;
 * -errno: dir cannot be read. */
int mfs_runs_find(const char *dir, const char *name, char *path, size_t size);
/* Whether one of them looks like a SOURCE. Nothing is opened. */
bool mfs_runs_look_like_some(const char *dir);

#endif
