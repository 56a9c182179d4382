/* One function in several threads at once. */
#ifndef MFS_BASE_THREADS_H
#define MFS_BASE_THREADS_H

#define MFS_THREADS_MAX 256

/* How many to start: those that are asked for, or (0) as many as there are processors; at least 1,
 * at most `most`. */
unsigned mfs_threads_count(unsigned asked, unsigned most);

/* work(arg) in so many threads (at most MFS_THREADS_MAX), of which the caller's is one; returns
 * when all have ended. Where the system has no more threads there are fewer, and be it one: that
 * only makes it slower. */
void mfs_threads_run(unsigned threads, void *(*work)(void *), void *arg);

#endif
