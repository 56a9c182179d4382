#include "trainer/simulate/machine.h"

#include <math.h>
#include <string.h>

/* ---- on one GPU ---- */

/* Rows and columns of a tile of a product. Of groups two multiprocessors have two tiles side by
 * side (kernels/cuda/gemm/gemm_hopper.cu). */
#define TILE_M 128
#define TILE_N 256

static double share_of(const struct mft_machine *m, const char *name)
{
	for (unsigned i = 0; i < m->share_count; i++)
		if (!strcmp(m->shares[i].name, name))
			return m->shares[i].share;
	return m->other_share;
}

/* The part of the multiprocessors' time that tiles fill. Few tiles are divided along k. */
static double filled(const struct mft_machine *m, const struct mfk_work *w)
{
	const double units = w->groups > 1 ? 2 : 1, width = units * TILE_N;
	const double tiles =
		ceil((double)w->m / TILE_M) * ceil((double)w->n / width) * (double)w->groups;
	const double used = (double)w->m * (double)w->n * (double)w->groups / (TILE_M * width);
	const double waves = tiles * units / m->units;

	return used / tiles * (waves < 1 ? 1 : waves / ceil(waves));
}

/* The matrix that a tile is added to is read and written after the tile's last operation, when the
 * multiprocessor has nothing to multiply. What is only written, or read ahead, goes on at the same
 * time as other operations. */
static double product_time(const struct mft_machine *m, const struct mfk_work *w)
{
	const double groups = w->groups > 1 ? m->groups_of_products : 1;
	const double speed = m->products[w->dtype] * groups * filled(m, w);
	const double traffic = (double)(w->bytes - w->added) / m->bandwidth;

	return w->m && w->n ? fmax(w->flops / speed, traffic) + (double)w->added / m->bandwidth : 0;
}

static double attention_time(const struct mft_machine *m, const struct mfk_work *w)
{
	const struct mft_machine_heads *best = &m->heads[0];
	double least = INFINITY;

	for (unsigned i = 0; i < m->head_count; i++) {
		const double apart = fabs((double)w->qk_dim - m->heads[i].qk_dim) +
				     fabs((double)w->v_dim - m->heads[i].v_dim);

		if (apart < least) {
			least = apart;
			best = &m->heads[i];
		}
	}
	return w->flops / (w->kind == MFK_WORK_ATTENTION_BACKWARD ? best->backward : best->forward);
}

/* ---- in groups ---- */

static bool in_one_host(const struct mft_machine_group *g)
{
	return g->on_host >= g->size;
}

/* Of a ring: a host's GPUs share the way out. */
static double ring_bandwidth(const struct mft_machine *m, const struct mft_machine_group *g)
{
	return in_one_host(g) ? m->link : fmin(m->link, m->network * g->on_host);
}

static double latency(const struct mft_machine *m, const struct mft_machine_group *g)
{
	return in_one_host(g) ? m->link_latency : m->network_latency;
}

static double ring_time(const struct mft_machine *m, const struct mfk_work *w,
			const struct mft_machine_group *g)
{
	const double way = (double)(g->size - 1) / g->size;

	return (double)w->bytes * way / ring_bandwidth(m, g) + latency(m, g) * log2(g->size);
}

static double exchange_time(const struct mft_machine *m, const struct mfk_work *w,
			    const struct mft_machine_group *g)
{
	/* Of what goes to all evenly, the part that leaves the host. */
	const double away = g->size > 1 ? (double)(g->size - g->on_host) / (g->size - 1) : 0;
	const double bytes = (double)w->bytes;

	return fmax(bytes * (1 - away) / m->link, bytes * away / m->network) + latency(m, g);
}

double mft_machine_time(const struct mft_machine *m, const struct mfk_work *w,
			const struct mft_machine_group *g)
{
	switch (w->kind) {
	case MFK_WORK_GEMM:
		return m->launch + product_time(m, w);
	case MFK_WORK_ATTENTION:
	case MFK_WORK_ATTENTION_BACKWARD:
		return m->launch + attention_time(m, w);
	case MFK_WORK_MEMORY:
		return m->launch + (double)w->bytes / (m->bandwidth * share_of(m, w->name));
	case MFK_WORK_HOST:
		return m->launch + (double)w->bytes / m->host_bandwidth;
	case MFK_WORK_ALL_REDUCE:
		return 2 * ring_time(m, w, g);
	case MFK_WORK_ALL_GATHER:
	case MFK_WORK_REDUCE_SCATTER:
		return ring_time(m, w, g);
	case MFK_WORK_EXCHANGE:
		return w->bytes ? exchange_time(m, w, g) : 0;
	default:
		return 0;
	}
}
