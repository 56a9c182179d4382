/* Memory of large arrays that are read and written at random: in huge pages where the kernel has them, as
 * otherwise the page tables' misses cost as much as the arrays' own. */
#ifndef MFS_DATASET_GPT_INDEX_MEMORY_H
#define MFS_DATASET_GPT_INDEX_MEMORY_H

#include <stdint.h>

/* Zeroed; NULL if there is not so much. size is in bytes; give the same to free, which takes NULL. */
void *mfs_index_alloc(uint64_t size);
void mfs_index_free(void *p, uint64_t size);
/* Gives back what lies behind the first `to` bytes, which are to be freed then. */
void mfs_index_shrink(void *p, uint64_t size, uint64_t to);

#endif
