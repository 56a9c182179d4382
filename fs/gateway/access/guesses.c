#include "fs/gateway/access/guesses.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fs/gateway/access/proxies.h"

#define SECOND INT64_C(1000000000)
#define MINUTE (MFS_GUESSES_SECONDS * SECOND)

struct guesser {
	uint8_t address[16];
	unsigned wrong; /* 0: nobody's place */
	int64_t began;
};

struct mfs_guesses {
	pthread_mutex_t lock;
	struct guesser list[MFS_GUESSES_ADDRESSES];
};

int mfs_guesses_new(struct mfs_guesses **ret, struct mfs_error *err)
{
	struct mfs_guesses *g = calloc(1, sizeof(*g));

	*ret = g;
	if (!g)
		return mfs_fail_nomem(err);
	pthread_mutex_init(&g->lock, NULL);
	return 0;
}

void mfs_guesses_free(struct mfs_guesses *g)
{
	if (!g)
		return;
	pthread_mutex_destroy(&g->lock);
	free(g);
}

static bool counts(const struct guesser *at, int64_t now)
{
	return at->wrong && now - at->began < MINUTE;
}

/* A client's place; NULL: it has none that counts. */
static struct guesser *find(struct mfs_guesses *g, const uint8_t address[16], int64_t now)
{
	for (unsigned i = 0; i < MFS_GUESSES_ADDRESSES; i++)
		if (counts(&g->list[i], now) && !memcmp(g->list[i].address, address, 16))
			return &g->list[i];
	return NULL;
}

/* The place of one that does not count any more, else of the one that began first. */
static struct guesser *make_place(struct mfs_guesses *g, int64_t now)
{
	struct guesser *first = &g->list[0];

	for (unsigned i = 0; i < MFS_GUESSES_ADDRESSES; i++) {
		struct guesser *at = &g->list[i];

		if (!counts(at, now))
			return at;
		if (at->began < first->began)
			first = at;
	}
	return first;
}

unsigned mfs_guesses_wait(struct mfs_guesses *g, const char *client, int64_t now)
{
	uint8_t address[16];
	struct guesser *at;
	int64_t left = 0;

	mfs_proxies_network(client, address);
	pthread_mutex_lock(&g->lock);
	at = find(g, address, now);
	if (at && at->wrong >= MFS_GUESSES_WRONG)
		left = at->began + MINUTE - now;
	pthread_mutex_unlock(&g->lock);
	return (unsigned)((left + SECOND - 1) / SECOND);
}

void mfs_guesses_wrong(struct mfs_guesses *g, const char *client, int64_t now)
{
	uint8_t address[16];
	struct guesser *at;

	mfs_proxies_network(client, address);
	pthread_mutex_lock(&g->lock);
	at = find(g, address, now);
	if (!at) {
		at = make_place(g, now);
		*at = (struct guesser){.began = now};
		memcpy(at->address, address, sizeof(at->address));
	}
	at->wrong += at->wrong < MFS_GUESSES_WRONG;
	pthread_mutex_unlock(&g->lock);
}
