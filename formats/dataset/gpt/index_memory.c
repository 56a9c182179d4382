#define _GNU_SOURCE
#include "formats/dataset/gpt/index_memory.h"

#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/base/bytes.h"

#define HUGE_PAGE (2u << 20)

void *mfs_index_alloc(uint64_t size)
{
	void *p;

	if (size > PTRDIFF_MAX)
		return NULL;
	p = mmap(NULL, size ? size : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	if (size >= HUGE_PAGE)
		madvise(p, size, MADV_HUGEPAGE);
	return p;
}

void mfs_index_free(void *p, uint64_t size)
{
	if (p)
		munmap(p, size ? size : 1);
}

void mfs_index_shrink(void *p, uint64_t size, uint64_t to)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), kept = mfs_round_up(to, page);

	if (kept && kept < size)
		munmap((uint8_t *)p + kept, size - kept);
}
