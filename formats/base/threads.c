#include "formats/base/threads.h"

#include <pthread.h>
#include <unistd.h>

unsigned mfs_threads_count(unsigned asked, unsigned most)
{
	const long processors = asked ? (long)asked : sysconf(_SC_NPROCESSORS_ONLN);

	if (processors < 1 || !most)
		return 1;
	return (unsigned long)processors < most ? (unsigned)processors : most;
}

void mfs_threads_run(unsigned threads, void *(*work)(void *), void *arg)
{
	pthread_t others[MFS_THREADS_MAX - 1];
	unsigned n = 0;

	while (n + 1 < threads && n < MFS_THREADS_MAX - 1 &&
	       !pthread_create(&others[n], NULL, work, arg))
		n++;
	work(arg);
	while (n)
		pthread_join(others[--n], NULL);
}
