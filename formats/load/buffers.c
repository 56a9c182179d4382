/*
 * Memory for what is on its way. To pin memory for a GPU takes about as long as to load through it,
 * so the last one stays pinned, for the next load. The first load does not wait for all of it: a
 * thread pins its first slot when that was read, and the others when it needs a second one. By then
 * reading has brought in the first one's pages, in all threads at once.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "formats/load/box_load_i.h"

#define HUGE_PAGE	(2u << 20)
#define MPOL_PREFERRED_ 1 /* linux/mempolicy.h */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mfs_load_buffers kept;
static pid_t kept_by; /* a child of fork() has the address, and not the memory that a GPU knows */

enum { FIRST = 1, OTHERS = 2 };

static void free_buffers(struct mfs_load_buffers *b)
{
	if (!b->memory)
		return;
	for (unsigned i = 0; i < b->parts; i++) {
		if (b->pinned[i] & FIRST)
			mfs_cuda_unpin(b->cuda, mfs_load_buffers_part(b, i));
		if (b->pinned[i] & OTHERS)
			mfs_cuda_unpin(b->cuda, mfs_load_buffers_part(b, i) + b->slot);
	}
	munmap(b->memory, b->parts * b->part);
	b->memory = NULL;
}

/* For what b is to be. */
static bool take_kept(struct mfs_load_buffers *b)
{
	bool found;

	pthread_mutex_lock(&lock);
	found = kept.memory && kept.parts >= b->parts && kept.part == b->part &&
		kept.slot == b->slot && kept.cuda == b->cuda && kept_by == getpid();
	if (found) {
		*b = kept;
		kept.memory = NULL;
	}
	pthread_mutex_unlock(&lock);
	return found;
}

/* Best effort: memory next to the GPU. */
static void prefer_node(const struct mfs_load_buffers *b, int node)
{
	unsigned long nodes[16] = {0};

	if (node < 0 || node >= (int)(sizeof(nodes) * 8))
		return;
	nodes[(unsigned)node / (sizeof(*nodes) * 8)] = 1ul << (unsigned)node % (sizeof(*nodes) * 8);
	syscall(SYS_mbind, b->memory, b->parts * b->part, MPOL_PREFERRED_, nodes, sizeof(nodes) * 8,
		0);
}

int mfs_load_buffers_take(struct mfs_load_buffers *b, unsigned parts, unsigned slots, size_t slot,
			  struct mfs_cuda *cuda, struct mfs_error *err)
{
	const size_t part = (slots * slot + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;

	*b = (struct mfs_load_buffers){.part = part, .slot = slot, .parts = parts, .cuda = cuda};
	if (take_kept(b))
		return 0;
	b->memory = mmap(NULL, parts * part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0);
	if (b->memory == MAP_FAILED) {
		b->memory = NULL;
		return mfs_fail_nomem(err);
	}
	madvise(b->memory, parts * part, MADV_HUGEPAGE);
	madvise(b->memory, parts * part, MADV_DONTFORK);
	if (cuda)
		prefer_node(b, mfs_cuda_node(cuda));
	return 0;
}

int mfs_load_buffers_pin(struct mfs_load_buffers *b, unsigned number, unsigned slot,
			 struct mfs_error *err)
{
	uint8_t *part = mfs_load_buffers_part(b, number);
	const uint8_t which = slot ? OTHERS : FIRST;
	int rc;

	if (b->pinned[number] & which)
		return 0;
	rc = slot ? mfs_cuda_pin(b->cuda, part + b->slot, b->part - b->slot, err)
		  : mfs_cuda_pin(b->cuda, part, b->slot, err);
	if (!rc)
		b->pinned[number] |= which;
	return rc;
}

void mfs_load_buffers_give(struct mfs_load_buffers *b)
{
	struct mfs_load_buffers before = *b;

	if (!b->memory)
		return;
	if (b->cuda) {
		pthread_mutex_lock(&lock);
		before = kept;
		if (kept_by != getpid())
			before.memory = NULL;
		kept = *b;
		kept_by = getpid();
		pthread_mutex_unlock(&lock);
	}
	free_buffers(&before);
	b->memory = NULL;
}

void mfs_load_forget(void)
{
	struct mfs_load_buffers before;

	pthread_mutex_lock(&lock);
	before = kept;
	if (kept_by != getpid())
		before.memory = NULL;
	kept.memory = NULL;
	pthread_mutex_unlock(&lock);
	free_buffers(&before);
}
