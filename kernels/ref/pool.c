/* Threads that wait for work. The thread that has some shares it with them. */
#include "kernels/ref/ref_i.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Operations follow each other closely: a thread looks for the next so many times before it sleeps.
 */
#define SPINS 4000

struct pool_worker {
	struct mfk_pool *pool;
	unsigned number;
	pthread_t thread;
};

struct mfk_pool {
	pthread_mutex_t busy; /* held by the caller that uses the threads */

	pthread_mutex_t lock; /* of all below */
	pthread_cond_t wake, idle;
	atomic_uint posted; /* counts jobs; read without the lock by who spins */
	atomic_uint active; /* workers inside of run() */
	unsigned asleep;
	bool closing;
	void (*run)(void *arg, unsigned worker); /* NULL: there is no work any more */
	void *arg;

	unsigned threads; /* the caller's too */
	struct pool_worker workers[];
};

static inline void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

/* Returns with the lock. */
static void wait_for_work(struct mfk_pool *p, unsigned seen)
{
	for (int i = 0; i < SPINS && atomic_load_explicit(&p->posted, memory_order_relaxed) == seen;
	     i++)
		relax();
	pthread_mutex_lock(&p->lock);
	p->asleep++;
	while (atomic_load(&p->posted) == seen && !p->closing)
		pthread_cond_wait(&p->wake, &p->lock);
	p->asleep--;
}

static void *worker_main(void *arg)
{
	struct pool_worker *w = arg;
	struct mfk_pool *p = w->pool;
	unsigned seen = 0;
	void (*run)(void *arg, unsigned worker);
	void *run_arg;

	for (;;) {
		wait_for_work(p, seen);
		if (p->closing)
			break;
		seen = atomic_load(&p->posted);
		run = p->run;
		run_arg = p->arg;
		if (run) {
			atomic_fetch_add(&p->active, 1);
			pthread_mutex_unlock(&p->lock);
			run(run_arg, w->number);
			pthread_mutex_lock(&p->lock);
			if (atomic_fetch_sub(&p->active, 1) == 1)
				pthread_cond_signal(&p->idle);
		}
		pthread_mutex_unlock(&p->lock);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

int mfk_pool_new(unsigned threads, struct mfk_pool **ret)
{
	struct mfk_pool *p = calloc(1, sizeof(*p) + threads * sizeof(p->workers[0]));

	if (!p)
		return -ENOMEM;
	pthread_mutex_init(&p->busy, NULL);
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->wake, NULL);
	pthread_cond_init(&p->idle, NULL);
	for (p->threads = 1; p->threads < threads; p->threads++) {
		struct pool_worker *w = &p->workers[p->threads];

		*w = (struct pool_worker){p, p->threads, 0};
		if (pthread_create(&w->thread, NULL, worker_main, w))
			break; /* fewer threads do the same, later */
	}
	*ret = p;
	return 0;
}

void mfk_pool_free(struct mfk_pool *p)
{
	pthread_mutex_lock(&p->lock);
	p->closing = true;
	pthread_cond_broadcast(&p->wake);
	pthread_mutex_unlock(&p->lock);
	for (unsigned i = 1; i < p->threads; i++)
		pthread_join(p->workers[i].thread, NULL);
	pthread_cond_destroy(&p->idle);
	pthread_cond_destroy(&p->wake);
	pthread_mutex_destroy(&p->lock);
	pthread_mutex_destroy(&p->busy);
	free(p);
}

unsigned mfk_pool_threads(const struct mfk_pool *p)
{
	return p->threads;
}

void mfk_pool_run(struct mfk_pool *p, void (*run)(void *arg, unsigned worker), void *arg)
{
	if (p->threads == 1 || pthread_mutex_trylock(&p->busy)) {
		run(arg, 0);
		return;
	}
	pthread_mutex_lock(&p->lock);
	p->run = run;
	p->arg = arg;
	atomic_fetch_add(&p->posted, 1);
	if (p->asleep)
		pthread_cond_broadcast(&p->wake);
	pthread_mutex_unlock(&p->lock);

	run(arg, 0);

	/* Who has not come yet finds nothing to do. */
	for (int i = 0; i < SPINS && atomic_load(&p->active); i++)
		relax();
	pthread_mutex_lock(&p->lock);
	p->run = NULL;
	while (atomic_load(&p->active))
		pthread_cond_wait(&p->idle, &p->lock);
	pthread_mutex_unlock(&p->lock);
	pthread_mutex_unlock(&p->busy);
}
