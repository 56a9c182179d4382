/*
 * check_comm cpu | cuda | fake PLUGIN: groups of processes against their definitions
 * (kernels/kernels.h: mfk_comm_ops). Started several times, by mpirun or torchrun; cuda needs a GPU
 * for each process, of the process's number on its host or all MFK_DEVICE; fake is CUDA's backend
 * without a GPU (fake_gpu.c). Exit status 77: there are too few GPUs, and the last line says so.
 *
 * Each process knows what all of them begin with, so each computes what must come out.
 */
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "formats/base/array.h"
#include "kernels/ref/cpu.h"
#include "tests/kernels/check_i.h"
#include "tests/kernels/check_kernels.h"
#include "trainer/parallel/parallel.h"

/* Processes of a world. */
#define MOST 16

/* A group, and the numbers in the world of its processes, by rank. */
struct group {
	struct mfk_comm *comm;
	unsigned rank, size, members[MOST];
};

struct run {
	struct check c;
	const struct mfk_comm_ops *ops;
	const struct group *g; /* that is checked */
	uint64_t seed, number; /* of the operation: inputs depend on both */
	bool exact;	       /* sums of 16-bit types are rounded once */
};

/* ---- what all begin with ---- */

/* Values of one process, in [-1, 1). */
static double *values_of(struct run *r, unsigned member, enum mfk_dtype type, int64_t count)
{
	struct check own = {.random = r->seed + r->number * 1000003 + member * 7919};
	double *x = check_doubles(&r->c, count);

	for (int64_t i = 0; i < count; i++)
		x[i] = check_round(type, 2 * check_uniform(&own) - 1);
	return x;
}

/* Of all processes of the group, by rank. */
static void all_values(struct run *r, enum mfk_dtype type, int64_t count, double *ret[MOST])
{
	r->number++;
	for (unsigned i = 0; i < r->g->size; i++)
		ret[i] = values_of(r, r->g->members[i], type, count);
}

static unsigned char byte_of(const struct run *r, unsigned from, unsigned to, unsigned n, size_t i)
{
	uint64_t z = (r->seed + r->number * 31 + from * 7 + to * 3 + n) * 0x9e3779b97f4a7c15 + i;

	z = (z ^ z >> 29) * 0xbf58476d1ce4e5b9;
	return (unsigned char)(z >> 56);
}

/* A failure ends the run: operations after it may wait for good. */
static void describe(struct run *r, const char *name, const char *what, int64_t count)
{
	if (r->c.failures)
		r->ops->end_all(1);
	r->c.name = name;
	check_shape(&r->c, "%lld of %s, rank %u of %u, seed %llu", (long long)count, what,
		    r->g->rank, r->g->size, (unsigned long long)r->seed);
}

/* ---- comparisons ---- */

static void host(struct run *r, int rc, const char *why)
{
	if (rc)
		check_failed(&r->c, "%s (%d)", why, rc);
}

static void sync_ctx(struct run *r, struct mfk_ctx *ctx)
{
	char why[MFK_WHY] = "";

	host(r, r->c.backend->device->sync(ctx, why), why);
}

/* What has been fetched since the hash was 0 has the same bits in all processes. */
static void same_in_all(struct run *r)
{
	uint64_t all[MOST] = {0};
	char why[MFK_WHY] = "";

	host(r, r->ops->host_gather(r->g->comm, all, &r->c.hash, sizeof(all[0]), why), why);
	for (unsigned i = 1; i < r->g->size; i++)
		if (all[i] != all[0])
			check_failed(&r->c, "ranks 0 and %u have other bits", i);
}

/* Half a unit of a type's last place, of 1. */
static double unit_of(enum mfk_dtype type)
{
	return type == MFK_F32 ? 0x1p-24 : type == MFK_BF16 ? 0x1p-8 : 0x1p-11;
}

/* Sums, of which each addition may be rounded: the last rounding is check_near()'s own. */
static void check_sums_of(struct run *r, struct tensor *t, double *const x[MOST], int64_t first)
{
	double *want = check_doubles(&r->c, t->count);

	for (int64_t i = 0; i < t->count; i++) {
		float sum = (float)x[0][first + i];

		want[i] = x[0][first + i];
		for (unsigned m = 1; m < r->g->size; m++) {
			want[i] += x[m][first + i];
			sum += (float)x[m][first + i];
		}
		if (r->exact && t->type != MFK_F32)
			want[i] = check_round(t->type, sum);
	}
	if (r->exact && t->type != MFK_F32)
		check_equal(&r->c, "sum", t, want);
	else
		check_near(&r->c, "sum", t, want,
			   r->g->size > 2 ? (r->g->size - 2) * unit_of(t->type) : 0, r->g->size);
}

/* ---- operations ---- */

static void check_sum(struct run *r, enum mfk_dtype type, int64_t count)
{
	double *x[MOST];
	struct tensor *once, *twice;
	uint64_t hash;

	all_values(r, type, count, x);
	describe(r, "all_reduce sum", check_type_name(type), count);
	once = check_values(&r->c, type, count, x[r->g->rank]);
	twice = check_values(&r->c, type, count, x[r->g->rank]);
	r->ops->all_reduce(r->c.ctx, r->g->comm, MFK_SUM, type, once->p, count);
	r->ops->all_reduce(r->c.ctx, r->g->comm, MFK_SUM, type, twice->p, count);
	r->c.hash = 0;
	check_sums_of(r, once, x, 0);
	same_in_all(r);
	hash = r->c.hash;
	r->c.hash = 0;
	check_fetch(&r->c, twice);
	if (r->c.hash != hash)
		check_failed(&r->c, "the second sum has other bits than the first");
}

static void check_max(struct run *r, enum mfk_dtype type, int64_t count)
{
	double *x[MOST], *want = check_doubles(&r->c, count);
	struct tensor *t;

	all_values(r, type, count, x);
	describe(r, "all_reduce max", check_type_name(type), count);
	for (int64_t i = 0; i < count; i++) {
		want[i] = x[0][i];
		for (unsigned m = 1; m < r->g->size; m++)
			want[i] = fmax(want[i], x[m][i]);
	}
	t = check_values(&r->c, type, count, x[r->g->rank]);
	r->ops->all_reduce(r->c.ctx, r->g->comm, MFK_MAX, type, t->p, count);
	check_equal(&r->c, "max", t, want);
}

static void check_all_gather(struct run *r, enum mfk_dtype type, int64_t count, bool in_place)
{
	double *x[MOST], *want = check_doubles(&r->c, count * r->g->size);
	struct tensor *to = check_output(&r->c, type, count * r->g->size), *from;
	void *own = (char *)to->p + (size_t)(r->g->rank * count) * mfk_dtype_size(type);

	all_values(r, type, count, x);
	describe(r, in_place ? "all_gather in place" : "all_gather", check_type_name(type), count);
	for (unsigned m = 0; m < r->g->size; m++)
		memcpy(want + m * count, x[m], (size_t)count * sizeof(*want));
	from = check_values(&r->c, type, count, x[r->g->rank]);
	if (in_place)
		r->c.backend->device->copy(r->c.ctx, own, from->p,
					   (size_t)count * mfk_dtype_size(type));
	r->ops->all_gather(r->c.ctx, r->g->comm, type, to->p, in_place ? own : from->p, count);
	check_equal(&r->c, "gathered", to, want);
	check_equal(&r->c, "from", from, x[r->g->rank]);
}

static void check_reduce_scatter(struct run *r, enum mfk_dtype type, int64_t count, bool in_place)
{
	const int64_t first = r->g->rank * count;
	double *x[MOST];
	struct tensor *to = check_output(&r->c, type, count), *from;
	void *own;

	all_values(r, type, count * r->g->size, x);
	describe(r, in_place ? "reduce_scatter in place" : "reduce_scatter", check_type_name(type),
		 count);
	from = check_values(&r->c, type, count * r->g->size, x[r->g->rank]);
	own = (char *)from->p + (size_t)first * mfk_dtype_size(type);
	r->ops->reduce_scatter(r->c.ctx, r->g->comm, type, in_place ? own : to->p, from->p, count);
	if (in_place)
		r->c.backend->device->copy(r->c.ctx, to->p, own,
					   (size_t)count * mfk_dtype_size(type));
	check_sums_of(r, to, x, first);
	check_fetch(&r->c, from); /* its guards */
}

/* ---- messages ---- */

#define MESSAGES 2 /* from each process to each other one, and to itself */

static size_t size_of(unsigned from, unsigned to, unsigned n)
{
	static const size_t sizes[] = {4096, 1, 70001, 0, 3, 300007, 64};

	return sizes[(from * 3 + to * 5 + n) % 7];
}

/* A process's messages to the others or from them, one after the other in device memory. */
struct mail {
	char *host, *device;
	size_t bytes;
};

/* ring: to the next process alone. */
static bool is_sent(const struct run *r, unsigned from, unsigned to, bool ring)
{
	return !ring || to == (from + 1) % r->g->size;
}

static struct mail mail_new(struct run *r, bool receive, bool ring, struct mfk_message *list,
			    unsigned *count)
{
	struct mail m = {0};
	size_t at = 0;

	for (int pass = 0; pass < 2; pass++) {
		for (unsigned peer = 0; peer < r->g->size; peer++) {
			const unsigned from = receive ? peer : r->g->rank;
			const unsigned to = receive ? r->g->rank : peer;

			for (unsigned n = 0; n < MESSAGES && is_sent(r, from, to, ring); n++) {
				const size_t bytes = size_of(from, to, n);

				if (!pass) {
					m.bytes += bytes;
					continue;
				}
				list[(*count)++] =
					(struct mfk_message){receive, peer, m.device + at, bytes};
				for (size_t i = 0; i < bytes; i++)
					m.host[at + i] = (char)byte_of(r, from, to, n, i);
				at += bytes;
			}
		}
		if (!pass) {
			m.host = malloc(m.bytes + 1);
			m.device = r->c.backend->device->alloc(r->c.device, m.bytes + 1);
		}
		if (!m.host || !m.device)
			exit(1);
	}
	return m;
}

static void mail_free(struct run *r, struct mail *m)
{
	r->c.backend->device->free(r->c.device, m->device);
	free(m->host);
}

static void check_exchange(struct run *r, bool ring)
{
	const struct mfk_device_ops *d = r->c.backend->device;
	struct mfk_message list[2 * MESSAGES * MOST];
	unsigned count = 0;
	struct mail in, out;
	char *found;

	r->number++;
	describe(r, ring ? "exchange in a ring" : "exchange", "bytes", 0);
	/* Who lists what first does not matter. */
	if (r->g->rank % 2)
		in = mail_new(r, true, ring, list, &count);
	out = mail_new(r, false, ring, list, &count);
	if (r->g->rank % 2 == 0)
		in = mail_new(r, true, ring, list, &count);
	found = malloc(in.bytes + 1);
	if (!found)
		exit(1);
	d->copy_in(r->c.ctx, out.device, out.host, out.bytes);
	d->zero(r->c.ctx, in.device, in.bytes + 1);
	r->ops->exchange(r->c.ctx, r->g->comm, list, count);
	d->copy_out(r->c.ctx, found, in.device, in.bytes + 1);
	sync_ctx(r, r->c.ctx);
	if (memcmp(found, in.host, in.bytes))
		check_failed(&r->c, "other bytes than were sent");
	if (found[in.bytes])
		check_failed(&r->c, "the byte behind the last message has changed");
	free(found);
	mail_free(r, &in);
	mail_free(r, &out);
}

/* ---- host memory ---- */

static void check_host(struct run *r, unsigned count)
{
	double sums[64], want[64] = {0}, *x[MOST];
	unsigned char from[61], to[MOST * 61];
	char why[MFK_WHY] = "";

	all_values(r, MFK_F32, count, x);
	describe(r, "host_sum", "doubles", count);
	for (unsigned i = 0; i < count; i++) {
		sums[i] = x[r->g->rank][i];
		for (unsigned m = 0; m < r->g->size; m++)
			want[i] += x[m][i];
	}
	host(r, r->ops->host_sum(r->g->comm, sums, count, why), why);
	for (unsigned i = 0; i < count; i++)
		if (fabs(sums[i] - want[i]) > 1e-14 * r->g->size)
			check_failed(&r->c, "sum %u is %.17g instead of %.17g", i, sums[i],
				     want[i]);
	describe(r, "host_gather", "bytes", sizeof(from));
	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = byte_of(r, r->g->members[r->g->rank], 0, 0, i);
	host(r, r->ops->host_gather(r->g->comm, to, from, sizeof(from), why), why);
	for (size_t i = 0; i < sizeof(from) * r->g->size; i++)
		if (to[i] != byte_of(r, r->g->members[i / sizeof(from)], 0, 0, i % sizeof(from)))
			check_failed(&r->c, "byte %zu is not rank %zu's", i, i / sizeof(from));
}

/* Host values are sent while operations of two contexts are under way: of the group, and of the
 * world. */
static void check_queued(struct run *r, const struct group *world, struct mfk_ctx *other)
{
	enum { COUNT = 100003, TIMES = 6 };
	struct mfk_ctx *own = r->c.ctx;
	struct tensor *a, *b;
	double *x[MOST], *want;
	char why[MFK_WHY] = "";

	all_values(r, MFK_F32, COUNT, x);
	describe(r, "queued", "fp32", COUNT);
	a = check_values(&r->c, MFK_F32, COUNT, x[r->g->rank]);
	want = check_doubles(&r->c, COUNT);
	for (int i = 0; i < COUNT; i++)
		want[i] = 1;
	b = check_values(&r->c, MFK_F32, COUNT, want);
	for (int i = 0; i < TIMES; i++) {
		double sum = 1;

		r->ops->all_reduce(own, r->g->comm, MFK_MAX, MFK_F32, a->p, COUNT);
		r->ops->all_reduce(other, world->comm, MFK_SUM, MFK_F32, b->p, COUNT);
		host(r, r->ops->host_sum(r->g->comm, &sum, 1, why), why);
		if (sum != r->g->size)
			check_failed(&r->c, "%u processes are %.17g", r->g->size, sum);
	}
	for (int i = 0; i < COUNT; i++) {
		want[i] = pow(world->size, TIMES);
		for (unsigned m = 0; m < r->g->size; m++)
			x[0][i] = fmax(x[0][i], x[m][i]);
	}
	sync_ctx(r, other);
	check_equal(&r->c, "max", a, x[0]);
	check_equal(&r->c, "sum", b, want);
}

/* ---- groups ---- */

/* The ranks of a group are in the order of keys. */
static void check_members(struct run *r)
{
	unsigned found[MOST] = {0};
	char why[MFK_WHY] = "";

	describe(r, "split", "processes", r->g->size);
	host(r,
	     r->ops->host_gather(r->g->comm, found, &r->g->members[r->g->rank], sizeof(found[0]),
				 why),
	     why);
	for (unsigned i = 0; i < r->g->size; i++)
		if (found[i] != r->g->members[i])
			check_failed(&r->c, "rank %u is process %u instead of %u", i, found[i],
				     r->g->members[i]);
}

static void check_type(struct run *r, enum mfk_dtype type)
{
	static const int64_t counts[] = {1, 7, 64, 4099};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(counts); i++) {
		check_sum(r, type, counts[i]);
		check_max(r, type, counts[i]);
		for (int in_place = 0; in_place < 2; in_place++) {
			check_all_gather(r, type, counts[i], in_place);
			check_reduce_scatter(r, type, counts[i], in_place);
		}
		check_free(&r->c);
	}
}

static void check_group(struct run *r, const struct group *g, const struct group *world,
			struct mfk_ctx *other)
{
	r->g = g;
	check_members(r);
	for (int i = 0; i < 3; i++)
		check_type(r, check_types[i]);
	if (g == world) {
		/* more than is added up in one go */
		check_sum(r, MFK_BF16, (1 << 20) + 5);
		check_free(&r->c);
		check_reduce_scatter(r, MFK_BF16, (1 << 20) / g->size + 3, false);
		check_free(&r->c);
	}
	check_exchange(r, false);
	check_exchange(r, true);
	check_host(r, 1);
	check_host(r, 64);
	check_queued(r, world, other);
	check_free(&r->c);
}

/* Processes of from whose color, by rank, is this one's; the last of them has rank 0. */
static struct group split(struct run *r, const struct group *from, unsigned (*color)(unsigned rank))
{
	struct group g = {0};
	char why[MFK_WHY] = "";

	for (unsigned i = from->size; i-- > 0;) {
		if (color(i) != color(from->rank))
			continue;
		if (i == from->rank)
			g.rank = g.size;
		g.members[g.size++] = from->members[i];
	}
	r->g = from;
	describe(r, "split", "processes", from->size);
	if (r->ops->split(from->comm, color(from->rank), from->size - from->rank, &g.comm, why)) {
		check_failed(&r->c, "%s", why);
		exit(1);
	}
	return g;
}

static unsigned odd_or_even(unsigned rank)
{
	return rank % 2;
}

static unsigned by_pairs(unsigned rank)
{
	return rank / 2;
}

static unsigned alone(unsigned rank)
{
	return rank;
}

static void check_world(struct run *r, const struct group *world, struct mfk_ctx *other)
{
	struct group halves = split(r, world, odd_or_even);
	struct group pairs = split(r, world, by_pairs);
	struct group of_half = split(r, &halves, by_pairs);
	struct group one = split(r, world, alone);
	const struct group *const all[] = {world, &halves, &pairs, &of_half, &one};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(all); i++)
		check_group(r, all[i], world, other);
	for (size_t i = MFS_ARRAY_SIZE(all); i-- > 1;)
		r->ops->free(all[i]->comm);
}

/* ---- the run ---- */

/* The same seed in all processes, and the sum of their failures. */
static int check(struct run *r, const struct mft_parallel *p, struct mfk_ctx *other)
{
	const struct mft_group_place *place = &p->group[MFT_GROUP_WORLD];
	struct group world = {place->comm, place->rank, place->size, {0}};
	const char *given = getenv("MFK_SEED");
	double failures, seed = place->rank ? 0 : given ? atof(given) : (double)time(NULL);
	char why[MFK_WHY] = "";

	for (unsigned i = 0; i < world.size; i++)
		world.members[i] = i;
	r->g = &world;
	host(r, r->ops->host_sum(world.comm, &seed, 1, why), why);
	r->seed = (uint64_t)seed;
	/* Here its calls of CUDA are checked without a GPU, too. */
	r->c.name = "stamp";
	check_stamp(&r->c);
	check_free(&r->c);
	check_world(r, &world, other);
	failures = r->c.failures;
	r->g = &world;
	host(r, r->ops->host_sum(world.comm, &failures, 1, why), why);
	if (!place->rank)
		printf("groups: %s, %s, %u processes: %s\n", r->c.backend->name, r->ops->name,
		       world.size, failures > 0 ? "FAILED" : "ok");
	return failures > 0;
}

static int load(const char *name, const char *plugin, const struct mfk_backend **ret, char *why)
{
	void *library;

	*ret = &mfk_cpu;
	if (strcmp(name, "cpu") == 0)
		return mfk_mpi_load(plugin, why);
	if (strcmp(name, "cuda") == 0)
		return mfk_cuda_load(plugin, ret, why);
	library = dlopen(plugin, RTLD_NOW);
	*ret = library ? dlsym(library, "mfk_cuda_backend") : NULL;
	if (!*ret)
		snprintf(why, MFK_WHY, "%s", dlerror());
	return *ret ? 0 : -ENOENT;
}

static int device_of(const struct mft_launch *launch)
{
	const char *given = getenv("MFK_DEVICE");

	return given ? atoi(given) : (int)launch->local_rank;
}

static int with_device(struct run *r, const struct mft_launch *launch, struct mft_parallel *p)
{
	const struct mfk_device_ops *d = r->c.backend->device;
	struct mfs_error err = {0};
	struct mfk_ctx *other;
	char why[MFK_WHY];
	int rc = d->ctx_new(r->c.device, false, &r->c.ctx, why);

	if (!rc)
		rc = d->ctx_new(r->c.device, true, &other, why);
	if (rc) {
		fprintf(stderr, "check_comm: %s\n", why);
		return 1;
	}
	if (mft_parallel_open(p, r->c.backend, r->c.device, 600, &err)) {
		fprintf(stderr, "check_comm: rank %u: %s\n", launch->rank, err.msg);
		return 1;
	}
	r->ops = p->ops;
	r->exact = strcmp(p->ops->name, "MPI") == 0;
	rc = check(r, p, other);
	d->ctx_free(other);
	d->ctx_free(r->c.ctx);
	if (mft_parallel_close(p, &err)) {
		fprintf(stderr, "check_comm: rank %u: %s\n", launch->rank, err.msg);
		return 1;
	}
	return rc;
}

int main(int argc, char **argv)
{
	struct mft_parallel_sizes sizes = {1, 1, 1, 1, 1, 1, 1, 0, 0};
	struct mft_launch launch;
	struct mft_parallel parallel;
	struct mfs_error err = {0};
	struct run r = {.seed = 0};
	char why[MFK_WHY];
	int rc;

	if (argc != 3 ||
	    (strcmp(argv[1], "cpu") && strcmp(argv[1], "cuda") && strcmp(argv[1], "fake"))) {
		fprintf(stderr, "usage: mpirun -n N check_comm cpu | cuda | fake PLUGIN\n");
		return 2;
	}
	if (mft_launch_find(&launch, &err) || launch.size < 2 || launch.size > MOST) {
		fprintf(stderr, "check_comm: expected 2 to %d processes, found %u %s\n", MOST,
			launch.size, err.msg);
		return 2;
	}
	rc = load(argv[1], argv[2], &r.c.backend, why);
	if (!rc)
		rc = r.c.backend->device->open(r.c.backend == &mfk_cpu ? 0 : device_of(&launch), 1,
					       &r.c.device, why);
	if (rc) {
		printf("%s: %s\n", rc == -ENODEV ? "skipped" : "check_comm", why);
		return rc == -ENODEV ? 77 : 1;
	}
	sizes.dp = sizes.edp = launch.size;
	mft_parallel_places(&launch, &sizes, &parallel);
	rc = with_device(&r, &launch, &parallel);
	r.c.backend->device->close(r.c.device);
	return rc;
}
