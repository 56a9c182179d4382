/*
 * Groups of processes on GPUs: NCCL for what is on the device, the host net for what is not.
 *
 * Host values do not go through NCCL. A process may say them while operations of other streams are
 * under way, and waits for nothing of the GPU's then.
 *
 * NCCL's calls are the run's one thread's, in the same order in all processes of a group. What goes
 * wrong in another process shows in mfk_cuda_wait(), which all waiting for the GPU goes through.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/cuda/base/context.h"
#include "kernels/cuda/base/cuda_dtypes.h"
#include "kernels/cuda/base/nccl.h"

struct mfk_comm {
	struct ncclComm *nccl;
	struct mfk_device *device;
	struct mfk_host_group host; /* its number, rank and size */
	struct mfk_comm *next;
};

static const struct mfk_nccl_ops *nccl;
static struct mfk_host_net_ops *net;
static unsigned world_rank;
static uint32_t opened; /* groups that this process has been in */

/* Those that are open, and what one of them has met. Threads that wait look at them. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mfk_comm *all;
static char failure[MFK_WHY]; /* "": none */

/* ---- errors ---- */

static int refuse(int rc, const char *what, struct mfk_comm *g, char *why)
{
	const char *last;

	if (rc == MFK_NCCL_SUCCESS)
		return 0;
	last = nccl->get_last_error(g ? g->nccl : NULL);
	if (last && *last)
		snprintf(why, MFK_WHY, "%s: %s (%.150s)", what, nccl->get_error_string(rc), last);
	else
		snprintf(why, MFK_WHY, "%s: %s", what, nccl->get_error_string(rc));
	return -EIO;
}

static void check(struct mfk_ctx *c, int rc, const char *what, struct mfk_comm *g)
{
	char why[MFK_WHY];

	if (refuse(rc, what, g, why))
		mfk_cuda_fail(c, -EIO, "%s", why);
}

/* ---- waiting ---- */

static void pause_ns(long ns)
{
	const struct timespec t = {.tv_nsec = ns};

	nanosleep(&t, NULL);
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* What NCCL's own threads and kernels have met. lock is held. */
static int look_at_nccl(char *why)
{
	for (struct mfk_comm *g = all; g; g = g->next) {
		int met = MFK_NCCL_SUCCESS;
		int rc = nccl->comm_get_async_error(g->nccl, &met);

		if (rc == MFK_NCCL_SUCCESS && met != MFK_NCCL_IN_PROGRESS)
			rc = met;
		if (refuse(rc, "NCCL", g, why))
			return -EIO;
	}
	return 0;
}

/* Which process has ended is a better reason than what NCCL has met then: it may come a moment
 * later. */
static int look(char *why)
{
	char met[MFK_WHY];
	int rc = 0;

	pthread_mutex_lock(&lock);
	if (!failure[0]) {
		rc = net->look(net, met);
		if (!rc)
			rc = look_at_nccl(met);
		for (int i = 0; i < 20 && rc && !net->look(net, met); i++)
			pause_ns(100000000);
		if (rc)
			snprintf(failure, sizeof(failure), "%s", met);
	}
	if (failure[0])
		rc = -EIO;
	snprintf(why, MFK_WHY, "%s", failure);
	pthread_mutex_unlock(&lock);
	return rc;
}

static bool is_alone(void)
{
	bool alone;

	pthread_mutex_lock(&lock);
	alone = !all;
	pthread_mutex_unlock(&lock);
	return alone;
}

/* Asks often at first, as who waits is usually at the end of a step; looks at the others ten times
 * a second. */
int mfk_cuda_wait(cudaError_t (*wait)(void *of), cudaError_t (*ask)(void *of), void *of,
		  cudaError_t *ret, char *why)
{
	const int64_t began = now_ns();
	int64_t looked = began;

	if (is_alone()) {
		*ret = wait(of);
		return 0;
	}
	for (;;) {
		const int64_t now = now_ns();

		*ret = ask(of);
		if (*ret != cudaErrorNotReady)
			return 0;
		if (now - looked > 100000000) {
			if (look(why))
				return -EIO;
			looked = now_ns();
		}
		if (now - began > 1000000)
			pause_ns(20000);
	}
}

/* ---- the world ---- */

/* What all processes tell each other of theirs. */
struct card {
	unsigned char uuid[16];
	char bus[16], host[64];
	char nccl_host[64]; /* NCCL_HOSTID: what NCCL takes for the host instead */
	bool has_id;
	struct mfk_nccl_id id; /* rank 0's counts */
	char why[MFK_WHY];     /* why it cannot begin */
};

static int fill_card(const struct mfk_device *d, const struct mfk_world *w, struct card *ret)
{
	struct cudaDeviceProp p;
	cudaError_t rc = cudaGetDeviceProperties(&p, d->index);

	const char *given = getenv("NCCL_HOSTID");

	gethostname(ret->host, sizeof(ret->host) - 1);
	snprintf(ret->nccl_host, sizeof(ret->nccl_host), "%s", given ? given : "");
	if (rc == cudaSuccess)
		rc = cudaDeviceGetPCIBusId(ret->bus, sizeof(ret->bus), d->index);
	if (rc != cudaSuccess) {
		cudaGetLastError();
		snprintf(ret->why, sizeof(ret->why), "the GPU cannot be asked what it is: %s",
			 cudaGetErrorString(rc));
		return -EIO;
	}
	memcpy(ret->uuid, &p.uuid, sizeof(ret->uuid));
	if (mfk_nccl_load(&nccl, ret->why))
		return -ENODEV;
	return w->rank ? 0
		       : refuse(nccl->get_unique_id(&ret->id), "ncclGetUniqueId", NULL, ret->why);
}

/*
 * NCCL would wait for good. Processes that are hosts of their own to it may share a GPU: they talk
 * through the network. It is slow, and how groups are tested where there is one GPU.
 */
static bool share_a_gpu(const struct card *a, const struct card *b)
{
	return !memcmp(a->uuid, b->uuid, sizeof(a->uuid)) && !strcmp(a->nccl_host, b->nccl_host);
}

static int check_gpus(const struct card *cards, unsigned size, char *why)
{
	for (unsigned i = 0; i < size; i++)
		for (unsigned j = 0; j < i; j++)
			if (share_a_gpu(&cards[i], &cards[j])) {
				snprintf(why, MFK_WHY,
					 "ranks %u and %u have one GPU, %s on %.48s; each process "
					 "needs one of its own (--device, CUDA_VISIBLE_DEVICES)",
					 j, i, cards[i].bus, cards[i].host);
				return -EINVAL;
			}
	return 0;
}

/* All processes know of each other's failure, so none waits. */
static int meet(struct mfk_device *d, const struct mfk_world *w, struct card *cards,
		struct card *own, char *why)
{
	const struct mfk_host_group world = {.rank = w->rank, .size = w->size};
	const int mine = fill_card(d, w, own);
	int rc = w->net->gather(w->net, &world, cards, own, sizeof(*own), why);

	if (mine)
		snprintf(why, MFK_WHY, "%.250s", own->why);
	if (rc || mine)
		return mine ? mine : rc;
	for (unsigned i = 0; i < w->size; i++)
		if (cards[i].why[0]) {
			snprintf(why, MFK_WHY, "rank %u on %.48s cannot begin: %.150s", i,
				 cards[i].host, cards[i].why);
			return -ECANCELED;
		}
	return check_gpus(cards, w->size, why);
}

static int comm_new(struct mfk_device *d, struct mfk_comm **ret, char *why)
{
	*ret = calloc(1, sizeof(**ret));
	if (*ret) {
		(*ret)->device = d;
		return 0;
	}
	snprintf(why, MFK_WHY, "no memory for a group");
	return -ENOMEM;
}

/* rc: of what has made it. NCCL must number its processes as the host net does. */
static int comm_made(struct mfk_comm *g, int rc, struct mfk_comm **ret, char *why)
{
	int rank = -1, size = -1;

	if (!rc)
		rc = refuse(nccl->comm_user_rank(g->nccl, &rank), "ncclCommUserRank", g, why);
	if (!rc)
		rc = refuse(nccl->comm_count(g->nccl, &size), "ncclCommCount", g, why);
	if (!rc && (rank != (int)g->host.rank || size != (int)g->host.size)) {
		snprintf(why, MFK_WHY, "NCCL says rank %d of %d, expected %u of %u", rank, size,
			 g->host.rank, g->host.size);
		rc = -EIO;
	}
	if (rc) {
		free(g);
		return rc;
	}
	pthread_mutex_lock(&lock);
	g->next = all;
	all = g;
	pthread_mutex_unlock(&lock);
	*ret = g;
	return 0;
}

static int comm_world(struct mfk_device *d, const struct mfk_world *w, struct mfk_comm **ret,
		      char *why)
{
	struct card *cards = calloc(w->size + 1, sizeof(*cards));
	struct mfk_comm *g = NULL;
	int rc;

	if (!cards) {
		snprintf(why, MFK_WHY, "no memory for a group");
		return -ENOMEM;
	}
	rc = meet(d, w, cards, &cards[w->size], why);
	if (!rc)
		rc = comm_new(d, &g, why);
	if (!rc) {
		net = w->net;
		world_rank = w->rank;
		g->host = (struct mfk_host_group){.rank = w->rank, .size = w->size};
		cudaSetDevice(d->index);
		rc = refuse(nccl->comm_init_rank(&g->nccl, (int)w->size, cards[0].id, (int)w->rank),
			    "ncclCommInitRank", NULL, why);
		rc = comm_made(g, rc, ret, why);
	}
	free(cards);
	return rc;
}

/* ---- memory that NCCL reads and writes in place ---- */

struct registered {
	struct ncclComm *comm;
	void *handle;
};

struct block {
	void *p;
	struct block *next;
	unsigned count;
	struct registered in[]; /* groups that were open when it was allocated */
};

static struct block *blocks; /* of the run's one thread, as NCCL's calls are */

static unsigned count_open(void)
{
	unsigned count = 0;

	pthread_mutex_lock(&lock);
	for (const struct mfk_comm *g = all; g; g = g->next)
		count++;
	pthread_mutex_unlock(&lock);
	return count;
}

/* A group that does not take it copies, as ever. */
static void register_block(struct block *b, size_t bytes)
{
	for (const struct mfk_comm *g = all; g; g = g->next) {
		struct registered *r = &b->in[b->count];

		r->comm = g->nccl;
		if (nccl->comm_register(g->nccl, b->p, bytes, &r->handle) == MFK_NCCL_SUCCESS)
			b->count++;
	}
}

void *mfk_cuda_comm_alloc(size_t bytes)
{
	const unsigned open = count_open();
	struct block *b;

	if (!open || !nccl->mem_alloc || !nccl->mem_free || !nccl->comm_register ||
	    !nccl->comm_deregister)
		return NULL;
	b = calloc(1, sizeof(*b) + open * sizeof(b->in[0]));
	if (!b)
		return NULL;
	if (nccl->mem_alloc(&b->p, bytes) != MFK_NCCL_SUCCESS) {
		cudaGetLastError();
		free(b);
		return NULL;
	}
	register_block(b, bytes);
	b->next = blocks;
	blocks = b;
	return b->p;
}

static bool is_open(const struct ncclComm *comm)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	for (const struct mfk_comm *g = all; g; g = g->next)
		found |= g->nccl == comm;
	pthread_mutex_unlock(&lock);
	return found;
}

bool mfk_cuda_comm_dealloc(void *p)
{
	struct block **at = &blocks, *b;

	while (*at && (*at)->p != p)
		at = &(*at)->next;
	b = *at;
	if (!b)
		return false;
	*at = b->next;
	for (unsigned i = 0; i < b->count; i++)
		if (!failure[0] && is_open(b->in[i].comm))
			nccl->comm_deregister(b->in[i].comm, b->in[i].handle);
	nccl->mem_free(p);
	free(b);
	return true;
}

/* ---- parts of a group ---- */

/* What a process says when a group is divided. */
struct part {
	unsigned color, key, world_rank;
	uint32_t opened;
};

static bool comes_before(const struct part *list, unsigned i, unsigned than)
{
	return list[i].key < list[than].key || (list[i].key == list[than].key && i < than);
}

/* The group of list[own]: its number is that of how many its first process has been in. */
static struct mfk_host_group part_of(const struct part *list, unsigned size, unsigned own)
{
	struct mfk_host_group ret = {0};
	unsigned first = own;

	for (unsigned i = 0; i < size; i++) {
		if (list[i].color != list[own].color)
			continue;
		ret.size++;
		ret.rank += comes_before(list, i, own);
		if (comes_before(list, i, first))
			first = i;
	}
	ret.id = ((uint64_t)list[first].world_rank + 1) << 32 | list[first].opened;
	return ret;
}

static int gather_parts(struct mfk_comm *from, unsigned color, unsigned key,
			struct mfk_host_group *ret, char *why)
{
	const struct part own = {color, key, world_rank, opened++};
	struct part *list = calloc(from->host.size, sizeof(*list));
	int rc;

	if (!list) {
		snprintf(why, MFK_WHY, "no memory for a group");
		return -ENOMEM;
	}
	rc = net->gather(net, &from->host, list, &own, sizeof(own), why);
	if (!rc)
		*ret = part_of(list, from->host.size, from->host.rank);
	free(list);
	return rc;
}

static int comm_split(struct mfk_comm *from, unsigned color, unsigned key, struct mfk_comm **ret,
		      char *why)
{
	struct mfk_comm *g;
	int rc = comm_new(from->device, &g, why);

	if (rc)
		return rc;
	rc = gather_parts(from, color, key, &g->host, why);
	if (rc) {
		free(g);
		return rc;
	}
	cudaSetDevice(from->device->index);
	rc = refuse(nccl->comm_split(from->nccl, (int)color, (int)key, &g->nccl, NULL),
		    "ncclCommSplit", from, why);
	return comm_made(g, rc, ret, why);
}

/* All processes free theirs in the same order. After a failure nobody is waited for. */
static void comm_free(struct mfk_comm *g)
{
	pthread_mutex_lock(&lock);
	for (struct mfk_comm **at = &all; *at; at = &(*at)->next)
		if (*at == g) {
			*at = g->next;
			break;
		}
	pthread_mutex_unlock(&lock);
	cudaSetDevice(g->device->index);
	if (failure[0])
		nccl->comm_abort(g->nccl);
	else
		nccl->comm_destroy(g->nccl);
	free(g);
}

/* The driver ends what the GPU computes for a process with the process. */
static void comm_end_all(int code)
{
	net->end_all(net, code);
}

/* ---- operations ---- */

static void comm_all_reduce(struct mfk_ctx *c, struct mfk_comm *g, enum mfk_reduce op,
			    enum mfk_dtype dtype, void *data, int64_t count)
{
	if (mfk_cuda_begin(c))
		check(c,
		      nccl->all_reduce(data, data, (size_t)count, mfk_cuda_dtype(dtype)->nccl,
				       op == MFK_MAX ? MFK_NCCL_MAX : MFK_NCCL_SUM, g->nccl,
				       c->stream),
		      "ncclAllReduce", g);
}

static void comm_all_gather(struct mfk_ctx *c, struct mfk_comm *g, enum mfk_dtype dtype, void *to,
			    const void *from, int64_t count)
{
	if (mfk_cuda_begin(c))
		check(c,
		      nccl->all_gather(from, to, (size_t)count, mfk_cuda_dtype(dtype)->nccl,
				       g->nccl, c->stream),
		      "ncclAllGather", g);
}

static void comm_reduce_scatter(struct mfk_ctx *c, struct mfk_comm *g, enum mfk_dtype dtype,
				void *to, void *from, int64_t count)
{
	if (mfk_cuda_begin(c))
		check(c,
		      nccl->reduce_scatter(from, to, (size_t)count, mfk_cuda_dtype(dtype)->nccl,
					   MFK_NCCL_SUM, g->nccl, c->stream),
		      "ncclReduceScatter", g);
}

/* ---- messages ---- */

/* The next message to this process itself, or from it. NULL: there is none. */
static const struct mfk_message *next_own(const struct mfk_comm *g, const struct mfk_message *list,
					  unsigned count, bool receive, unsigned *at)
{
	while (*at < count) {
		const struct mfk_message *m = &list[(*at)++];

		if (m->peer == g->host.rank && m->receive == receive)
			return m;
	}
	return NULL;
}

static void copy_own(struct mfk_ctx *c, const struct mfk_comm *g, const struct mfk_message *list,
		     unsigned count)
{
	const struct mfk_message *to, *from;
	unsigned next_to = 0, next_from = 0;

	for (;;) {
		to = next_own(g, list, count, true, &next_to);
		from = next_own(g, list, count, false, &next_from);
		if (!to && !from)
			return;
		if (!to || !from || to->bytes != from->bytes) {
			mfk_cuda_fail(c, -EINVAL,
				      "a process sends itself other messages than it receives");
			return;
		}
		if (to->bytes &&
		    !mfk_cuda_check(c,
				    cudaMemcpyAsync(to->data, from->data, to->bytes,
						    cudaMemcpyDeviceToDevice, c->stream),
				    "a message to itself"))
			return;
	}
}

/* In one NCCL group all messages go on at once. It is ended whatever has happened in it. */
static void comm_exchange(struct mfk_ctx *c, struct mfk_comm *g, const struct mfk_message *list,
			  unsigned count)
{
	int rc = MFK_NCCL_SUCCESS, ended;

	if (!mfk_cuda_begin(c))
		return;
	copy_own(c, g, list, count);
	check(c, nccl->group_start(), "ncclGroupStart", g);
	if (c->rc)
		return;
	for (unsigned i = 0; i < count && rc == MFK_NCCL_SUCCESS; i++) {
		const struct mfk_message *m = &list[i];

		if (m->peer == g->host.rank || !m->bytes)
			continue;
		rc = m->receive ? nccl->recv(m->data, m->bytes, MFK_NCCL_INT8, (int)m->peer,
					     g->nccl, c->stream)
				: nccl->send(m->data, m->bytes, MFK_NCCL_INT8, (int)m->peer,
					     g->nccl, c->stream);
	}
	ended = nccl->group_end();
	check(c, rc == MFK_NCCL_SUCCESS ? ended : rc, "messages by NCCL", g);
}

/* ---- host memory ---- */

static int comm_host_sum(struct mfk_comm *g, double *values, unsigned count, char *why)
{
	return net->sum(net, &g->host, values, count, why);
}

static int comm_host_gather(struct mfk_comm *g, void *to, const void *from, size_t bytes, char *why)
{
	return net->gather(net, &g->host, to, from, bytes, why);
}

const struct mfk_comm_ops mfk_cuda_comm = {
	.name = "NCCL",
	.wants_host_net = true,
	.world = comm_world,
	.split = comm_split,
	.free = comm_free,
	.end_all = comm_end_all,
	.all_reduce = comm_all_reduce,
	.all_gather = comm_all_gather,
	.reduce_scatter = comm_reduce_scatter,
	.exchange = comm_exchange,
	.host_sum = comm_host_sum,
	.host_gather = comm_host_gather,
};
