#include "trainer/parallel/parallel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/base/nvtx_ranges.h"
#include "trainer/parallel/exposure.h"
#include "trainer/parallel/hostnet.h"

/* ---- places ---- */

/* cp is two dimensions: a place among neighbours, and which neighbours. Of what numbers processes
 * of data, IN and EXPERT_IN are places in an instance, and INSTANCE is which one. */
enum dim { TP, CP_HEADS, CP_RING, DP, IN, ETP, EP, EDP, EXPERT_IN, INSTANCE, PP, DIMS };

#define CONTEXT (1u << CP_HEADS | 1u << CP_RING)
#define DENSE	(1u << TP | CONTEXT | 1u << DP | 1u << PP)
#define EXPERT	(1u << ETP | 1u << EP | 1u << EDP | 1u << PP)
/* The same processes, by instances. */
#define DENSE_BY_INSTANCE  (1u << TP | 1u << IN | 1u << INSTANCE | 1u << PP)
#define EXPERT_BY_INSTANCE (1u << ETP | 1u << EP | 1u << EXPERT_IN | 1u << INSTANCE | 1u << PP)

/* The dimensions in which a group's processes differ, of those that number a process. */
static const struct {
	unsigned of, differ;
} groups[MFT_GROUP_COUNT] = {
	[MFT_GROUP_WORLD] = {DENSE, DENSE},
	[MFT_GROUP_TENSOR] = {DENSE, 1u << TP},
	[MFT_GROUP_CONTEXT] = {DENSE, CONTEXT},
	[MFT_GROUP_CONTEXT_HEADS] = {DENSE, 1u << CP_HEADS},
	[MFT_GROUP_CONTEXT_RING] = {DENSE, 1u << CP_RING},
	[MFT_GROUP_DATA] = {DENSE, 1u << DP},
	[MFT_GROUP_GRADS] = {DENSE, CONTEXT | 1u << DP},
	[MFT_GROUP_PIPELINE] = {DENSE, 1u << PP},
	[MFT_GROUP_MODEL] = {DENSE, 1u << TP | 1u << PP},
	[MFT_GROUP_EMBEDDING] = {DENSE, 1u << PP},
	[MFT_GROUP_EXPERT] = {EXPERT, 1u << EP},
	[MFT_GROUP_EXPERT_TENSOR] = {EXPERT, 1u << ETP},
	[MFT_GROUP_EXPERT_TOKENS] = {EXPERT, 1u << ETP | 1u << EP},
	[MFT_GROUP_EXPERT_GRADS] = {EXPERT, 1u << EDP},
	[MFT_GROUP_EXPERT_MODEL] = {EXPERT, 1u << ETP | 1u << EP | 1u << PP},
	[MFT_GROUP_INSTANCE] = {DENSE_BY_INSTANCE, 1u << TP | 1u << IN | 1u << PP},
	[MFT_GROUP_INSTANCE_GRADS] = {DENSE_BY_INSTANCE, 1u << IN},
	[MFT_GROUP_INSTANCE_EXPERT_GRADS] = {EXPERT_BY_INSTANCE, 1u << EXPERT_IN},
	[MFT_GROUP_ACROSS_INSTANCES] = {DENSE_BY_INSTANCE, 1u << INSTANCE},
};

static void sizes_of(const struct mft_parallel_sizes *s, uint32_t ret[DIMS])
{
	const uint32_t neighbours = s->neighbours ? s->neighbours : 1;
	const uint32_t instances = s->instances ? s->instances : 1;
	const uint32_t sizes[DIMS] = {[TP] = s->tp,
				      [CP_HEADS] = neighbours,
				      [CP_RING] = s->cp / neighbours,
				      [DP] = s->dp,
				      [PP] = s->pp,
				      [ETP] = s->etp,
				      [EP] = s->ep,
				      [EDP] = s->edp,
				      [IN] = s->cp * s->dp / instances,
				      [EXPERT_IN] = s->edp / instances,
				      [INSTANCE] = instances};

	memcpy(ret, sizes, sizeof(sizes));
}

/* The place in each dimension of a set, of which rank is the number. */
static void places_of(uint32_t rank, unsigned set, const uint32_t size[DIMS], uint32_t ret[DIMS])
{
	for (int d = 0; d < DIMS; d++)
		if (set & 1u << d) {
			ret[d] = rank % size[d];
			rank /= size[d];
		}
}

/* The number of a place in the dimensions of a set alone. *ret_size: how many there are. */
static uint32_t number_of(const uint32_t place[DIMS], unsigned set, const uint32_t size[DIMS],
			  uint32_t *ret_size)
{
	uint32_t number = 0, step = 1;

	for (int d = 0; d < DIMS; d++)
		if (set & 1u << d) {
			number += place[d] * step;
			step *= size[d];
		}
	*ret_size = step;
	return number;
}

void mft_parallel_places(const struct mft_launch *launch, const struct mft_parallel_sizes *sizes,
			 struct mft_parallel *ret)
{
	uint32_t size[DIMS], place[DIMS], cp;

	*ret = (struct mft_parallel){.launch = *launch, .size = *sizes};
	sizes_of(sizes, size);
	places_of(launch->rank, DENSE, size, place);
	places_of(launch->rank, EXPERT, size, place);
	places_of(launch->rank, DENSE_BY_INSTANCE, size, place);
	places_of(launch->rank, EXPERT_BY_INSTANCE, size, place);
	ret->place = (struct mft_parallel_sizes){.tp = place[TP],
						 .cp = number_of(place, CONTEXT, size, &cp),
						 .dp = place[DP],
						 .pp = place[PP],
						 .etp = place[ETP],
						 .ep = place[EP],
						 .edp = place[EDP]};
	for (int g = 0; g < MFT_GROUP_COUNT; g++)
		ret->group[g].rank = number_of(place, groups[g].differ, size, &ret->group[g].size);
	if (sizes->pp > 1)
		ret->group[MFT_GROUP_EMBEDDING] = (struct mft_group_place){
			.rank = mft_is_last_stage(ret),
			.size = mft_is_first_stage(ret) || mft_is_last_stage(ret) ? 2 : 1};
}

void mft_parallel_one(struct mft_parallel *ret)
{
	static const struct mft_launch alone = {.size = 1, .local_size = 1};
	static const struct mft_parallel_sizes sizes = {1, 1, 1, 1, 1, 1, 1, 0, 0};

	mft_parallel_places(&alone, &sizes, ret);
}

enum mft_group mft_parallel_in_instance(const struct mft_parallel *p, enum mft_group g)
{
	if (p->size.instances <= 1)
		return g;
	if (g == MFT_GROUP_WORLD)
		return MFT_GROUP_INSTANCE;
	return g == MFT_GROUP_GRADS ? MFT_GROUP_INSTANCE_GRADS : MFT_GROUP_INSTANCE_EXPERT_GRADS;
}

uint32_t mft_parallel_on_host(const struct mft_parallel *p, enum mft_group g, uint32_t each)
{
	const unsigned agree = groups[g].of & ~groups[g].differ;
	const uint32_t first = p->launch.rank / each * each;
	uint32_t size[DIMS], own[DIMS], other[DIMS], dims, found = 0;

	sizes_of(&p->size, size);
	places_of(p->launch.rank, groups[g].of, size, own);
	for (uint32_t rank = first; rank < first + each && rank < p->launch.size; rank++) {
		places_of(rank, groups[g].of, size, other);
		found += number_of(own, agree, size, &dims) == number_of(other, agree, size, &dims);
	}
	return found;
}

/* ---- life ---- */

static int check(int rc, const char *why, const struct mft_parallel *p, struct mfs_error *err)
{
	return rc ? mfs_fail(err, rc, "%s: %s", p->ops->name, why) : 0;
}

static bool is_wanted(const struct mft_parallel *p, enum mft_group g)
{
	if (g == MFT_GROUP_CONTEXT_HEADS || g == MFT_GROUP_CONTEXT_RING)
		return p->size.neighbours;
	return g < MFT_GROUP_INSTANCE || p->size.instances > 1;
}

/* Processes of one color are a group: those that agree in the other dimensions. All processes take
 * part; between the first and the last stage each is a group of its own. */
static int open_group(struct mft_parallel *p, enum mft_group g, struct mfs_error *err)
{
	const unsigned agree = groups[g].of & ~groups[g].differ;
	struct mft_group_place *place = &p->group[g];
	uint32_t size[DIMS], at[DIMS], colors, color;
	char why[MFK_WHY];

	sizes_of(&p->size, size);
	places_of(p->launch.rank, groups[g].of, size, at);
	color = number_of(at, agree, size, &colors);
	if (colors == p->launch.size || !is_wanted(p, g))
		return 0;
	if (g == MFT_GROUP_EMBEDDING && p->size.pp > 1 && place->size == 1)
		color = colors + p->launch.rank;
	return check(p->ops->split(p->group[MFT_GROUP_WORLD].comm, color, place->rank, &place->comm,
				   why),
		     why, p, err);
}

/* It says itself who has not come. */
static int open_net(struct mft_parallel *p, unsigned seconds, struct mfs_error *err)
{
	struct mft_address at;
	int rc = mft_address_find(&p->launch, &at, err);

	if (rc)
		return rc;
	mft_watch_rest(p->watch, true);
	rc = mft_hostnet_open(&at, &p->launch, seconds, &p->net, err);
	mft_watch_rest(p->watch, false);
	return rc;
}

int mft_parallel_open(struct mft_parallel *p, const struct mfk_backend *backend,
		      struct mfk_device *device, unsigned seconds, struct mfs_error *err)
{
	struct mfk_world world = {.rank = p->launch.rank, .size = p->launch.size};
	char why[MFK_WHY];
	int rc = 0;

	if (p->launch.size == 1)
		return 0;
	p->ops = backend->comm;
	if (p->ops->wants_host_net)
		rc = open_net(p, seconds, err);
	if (rc)
		return rc;
	mft_watch_begin(p->watch, "the start of the groups", NULL);
	world.net = p->net ? mft_hostnet_table(p->net) : NULL;
	rc = check(p->ops->world(device, &world, &p->group[MFT_GROUP_WORLD].comm, why), why, p,
		   err);
	for (int g = MFT_GROUP_WORLD + 1; g < MFT_GROUP_COUNT && !rc; g++)
		rc = open_group(p, (enum mft_group)g, err);
	mft_watch_end(p->watch);
	return rc;
}

int mft_parallel_close(struct mft_parallel *p, struct mfs_error *err)
{
	int rc;

	mft_watch_begin(p->watch, "the end of the groups", NULL);
	for (int g = MFT_GROUP_COUNT; g-- > 0;) {
		if (p->group[g].comm)
			p->ops->free(p->group[g].comm);
		p->group[g].comm = NULL;
	}
	mft_watch_end(p->watch);
	mft_watch_rest(p->watch, true);
	rc = mft_hostnet_close(p->net, err);
	mft_watch_rest(p->watch, false);
	p->net = NULL;
	return rc;
}

void mft_parallel_end_all(const struct mft_parallel *p, int code)
{
	if (p->group[MFT_GROUP_WORLD].comm)
		p->ops->end_all(code);
	else if (p->net)
		mft_hostnet_table(p->net)->end_all(mft_hostnet_table(p->net), code);
}

/* ---- what is sent ---- */

static const char *const names[MFT_GROUP_COUNT] = {
	[MFT_GROUP_WORLD] = "world",
	[MFT_GROUP_TENSOR] = "tp",
	[MFT_GROUP_CONTEXT] = "cp",
	[MFT_GROUP_CONTEXT_HEADS] = "hcp-a2a",
	[MFT_GROUP_CONTEXT_RING] = "hcp-p2p",
	[MFT_GROUP_DATA] = "dp",
	[MFT_GROUP_GRADS] = "dp-cp",
	[MFT_GROUP_PIPELINE] = "pp",
	[MFT_GROUP_MODEL] = "tp-pp",
	[MFT_GROUP_EMBEDDING] = "embd",
	[MFT_GROUP_EXPERT] = "ep",
	[MFT_GROUP_EXPERT_TENSOR] = "expt_tp",
	[MFT_GROUP_EXPERT_TOKENS] = "expt_tp-ep",
	[MFT_GROUP_EXPERT_GRADS] = "expt_dp",
	[MFT_GROUP_EXPERT_MODEL] = "expt_tp-ep-pp",
	[MFT_GROUP_INSTANCE] = "intra_dist_opt",
	[MFT_GROUP_INSTANCE_GRADS] = "intra_dp_cp",
	[MFT_GROUP_INSTANCE_EXPERT_GRADS] = "intra_expt_dp",
	[MFT_GROUP_ACROSS_INSTANCES] = "inter_dist_opt",
};

const char *mft_group_name(enum mft_group g)
{
	return names[g];
}

static bool speaks(const struct mft_parallel *p, enum mft_group g)
{
	return p->group[g].size > 1 && p->group[g].comm;
}

/* False: a group of one, in which there is nothing to send. */
static bool begins(const struct mft_parallel *p, enum mft_group g, const char *what)
{
	if (!speaks(p, g))
		return false;
	mft_watch_begin(p->watch, what, names[g]);
	MFT_RANGE_BEGIN("%s, %s", names[g], what);
	return true;
}

static void ends(const struct mft_parallel *p)
{
	MFT_RANGE_END();
	mft_watch_end(p->watch);
}

/* An operation of so many bytes is about to be submitted, and it is. */
static void submits(const struct mft_parallel *p, enum mft_group g, struct mfk_ctx *c,
		    uint64_t bytes)
{
	if (p->traffic) {
		p->traffic[g].operations++;
		p->traffic[g].bytes += bytes;
	}
	mft_exposure_stops(p->exposure, c, g);
}

static void submitted(const struct mft_parallel *p, struct mfk_ctx *c)
{
	mft_exposure_goes_on(p->exposure, c);
	ends(p);
}

void mft_parallel_all_reduce(const struct mft_parallel *p, enum mft_group g, struct mfk_ctx *c,
			     enum mfk_reduce op, enum mfk_dtype dtype, void *data,
			     uint64_t elements)
{
	if (!begins(p, g, "an all-reduce"))
		return;
	submits(p, g, c, elements * mfk_dtype_size(dtype));
	p->ops->all_reduce(c, p->group[g].comm, op, dtype, data, (int64_t)elements);
	submitted(p, c);
}

void mft_parallel_all_gather(const struct mft_parallel *p, enum mft_group g, struct mfk_ctx *c,
			     enum mfk_dtype dtype, void *to, const void *from, uint64_t elements)
{
	if (!begins(p, g, "an all-gather"))
		return;
	submits(p, g, c, elements * p->group[g].size * mfk_dtype_size(dtype));
	p->ops->all_gather(c, p->group[g].comm, dtype, to, from, (int64_t)elements);
	submitted(p, c);
}

void mft_parallel_reduce_scatter(const struct mft_parallel *p, enum mft_group g, struct mfk_ctx *c,
				 enum mfk_dtype dtype, void *to, void *from, uint64_t elements)
{
	if (!begins(p, g, "a reduce-scatter"))
		return;
	submits(p, g, c, elements * p->group[g].size * mfk_dtype_size(dtype));
	p->ops->reduce_scatter(c, p->group[g].comm, dtype, to, from, (int64_t)elements);
	submitted(p, c);
}

void mft_parallel_exchange(const struct mft_parallel *p, enum mft_group g, struct mfk_ctx *c,
			   const struct mfk_message *list, unsigned messages)
{
	uint64_t sent = 0;

	if (!begins(p, g, "an exchange of messages"))
		return;
	for (unsigned i = 0; i < messages; i++)
		if (!list[i].receive && list[i].peer != p->group[g].rank)
			sent += list[i].bytes;
	submits(p, g, c, sent);
	p->ops->exchange(c, p->group[g].comm, list, messages);
	submitted(p, c);
}

void mft_parallel_wait(const struct mft_parallel *p, enum mft_group g,
		       const struct mfk_device_ops *device, struct mfk_ctx *c,
		       struct mfk_event *event)
{
	if (speaks(p, g))
		mft_exposure_stops(p->exposure, c, g);
	device->event_wait(c, event);
	if (speaks(p, g))
		mft_exposure_goes_on(p->exposure, c);
}

int mft_parallel_sum(const struct mft_parallel *p, enum mft_group g, double *values, unsigned count,
		     struct mfs_error *err)
{
	char why[MFK_WHY];
	int rc;

	if (!begins(p, g, "a sum"))
		return 0;
	rc = p->ops->host_sum(p->group[g].comm, values, count, why);
	ends(p);
	return check(rc, why, p, err);
}

int mft_parallel_gather(const struct mft_parallel *p, enum mft_group g, void *to, const void *from,
			size_t bytes, struct mfs_error *err)
{
	char why[MFK_WHY];
	int rc;

	if (!begins(p, g, "a gather")) {
		memmove(to, from, bytes);
		return 0;
	}
	rc = p->ops->host_gather(p->group[g].comm, to, from, bytes, why);
	ends(p);
	return check(rc, why, p, err);
}

int mft_parallel_first(const struct mft_parallel *p, enum mft_group g, bool mine, uint32_t *ret,
		       struct mfs_error *err)
{
	const uint32_t size = p->group[g].size;
	unsigned char *all = calloc(size, 1), own = mine;
	int rc;

	if (!all)
		return mfs_fail_nomem(err);
	rc = mft_parallel_gather(p, g, all, &own, 1, err);
	*ret = MFT_RANK_NONE;
	for (uint32_t i = size; i-- > 0 && !rc;)
		if (all[i])
			*ret = i;
	free(all);
	return rc;
}

static int sum_on_host(const struct mft_parallel *p, enum mft_group g,
		       const struct mfk_device_ops *device, struct mfk_ctx *c, int32_t *counts,
		       uint32_t count, int32_t *host, double *sums, struct mfs_error *err)
{
	char why[MFK_WHY];
	int rc;

	device->copy_out(c, host, counts, count * sizeof(*host));
	rc = check(device->sync(c, why), why, p, err);
	for (uint32_t i = 0; i < count && !rc; i++)
		sums[i] = host[i];
	if (!rc)
		rc = mft_parallel_sum(p, g, sums, count, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < count; i++)
		host[i] = (int32_t)sums[i];
	device->copy_in(c, counts, host, count * sizeof(*host));
	return check(device->sync(c, why), why, p, err); /* host memory is about to go */
}

int mft_parallel_sum_counts(const struct mft_parallel *p, enum mft_group g,
			    const struct mfk_device_ops *device, struct mfk_ctx *c, int32_t *counts,
			    uint32_t count, struct mfs_error *err)
{
	int32_t *host;
	double *sums;
	int rc;

	if (p->group[g].size == 1)
		return 0;
	host = calloc(count, sizeof(*host));
	sums = calloc(count, sizeof(*sums));
	rc = host && sums ? sum_on_host(p, g, device, c, counts, count, host, sums, err)
			  : mfs_fail_nomem(err);
	free(host);
	free(sums);
	return rc;
}
