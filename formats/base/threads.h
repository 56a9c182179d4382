/* Threads: one that works for the program next to its own, and one function in several at once. */
#ifndef MFS_BASE_THREADS_H
#define MFS_BASE_THREADS_H

#include <pthread.h>

#define MFS_THREADS_MAX 256

/* How many threads to start: as many as are asked for, or as many as there are processors if that
 * is 0; at least 1, and at most `most`. */
unsigned mfs_threads_count(unsigned asked, unsigned most);

/* Runs work(arg) in so many threads (at most MFS_THREADS_MAX), one of which is the caller's, and
 * returns when all have ended. If the system has no more threads, fewer run, at least the caller's;
 * then it only takes longer. */
void mfs_threads_run(unsigned threads, void *(*work)(void *), void *arg);

/* Starts a thread, which runs run(arg) until the caller joins it with pthread_join(3). Signals are
 * blocked in it, since they are for the program's own threads; those of faults are not (SIGBUS,
 * SIGSEGV, SIGFPE, SIGILL), whatever the caller's mask is. name: how debuggers and ps -L show it,
 * at most 15 characters. -errno: the system has no more threads, or no memory. */
int mfs_thread_start(pthread_t *ret, const char *name, void *(*run)(void *), void *arg);

#endif
