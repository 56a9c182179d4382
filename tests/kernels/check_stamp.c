/* Stamps: two of them, with something between, are apart by at least as long as that takes, and by
 * no more than passes on the host meanwhile. */
#include <time.h>

#include "tests/kernels/check_i.h"

#define PAUSE 30000000 /* ns */

static int64_t host_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void sync_ctx(struct check *c)
{
	char why[MFK_WHY];

	if (c->backend->device->sync(c->ctx, why))
		check_failed(c, "%s", why);
}

/* Clocks of a GPU and of the host may differ by a hundredth. */
static void apart(struct check *c, int64_t ns, int64_t least, int64_t most)
{
	if (ns < least - least / 100 || ns > most + most / 100)
		check_failed(c, "%lld ns between two stamps, expected %lld to %lld", (long long)ns,
			     (long long)least, (long long)most);
}

static void pause_between(struct check *c, int64_t *at)
{
	const struct timespec pause = {.tv_nsec = PAUSE};
	const int64_t before = host_ns();

	check_shape(c, "a pause");
	c->backend->device->stamp(c->ctx, &at[0]);
	sync_ctx(c);
	nanosleep(&pause, NULL);
	c->backend->device->stamp(c->ctx, &at[1]);
	sync_ctx(c);
	apart(c, at[1] - at[0], PAUSE, host_ns() - before);
}

static void work_between(struct check *c, int64_t *at)
{
	const int64_t count = 1 << 16, before = host_ns();
	struct tensor *x = check_output(c, MFK_F32, count);

	check_shape(c, "operations");
	for (int i = 0; i < 8; i++) {
		c->backend->device->stamp(c->ctx, &at[i]);
		c->backend->device->zero(c->ctx, x->p, (size_t)count * sizeof(float));
	}
	sync_ctx(c);
	for (int i = 1; i < 8; i++)
		apart(c, at[i] - at[i - 1], 0, host_ns() - before);
}

void check_stamp(struct check *c)
{
	const struct mfk_device_ops *device = c->backend->device;
	const size_t bytes = 8 * sizeof(int64_t);
	int64_t *at = device->host_alloc(c->device, bytes);

	if (!at) {
		check_failed(c, "no pinned memory");
		return;
	}
	pause_between(c, at);
	work_between(c, at);
	device->host_free(c->device, at, bytes);
}
