/* Memory for large arrays that are read and written at random. It lies in huge pages where the
 * kernel has them: with small ones, misses of the page tables cost as much as those of the
 * arrays. */
#ifndef MFS_DATASET_GPT_INDEX_MEMORY_H
#define MFS_DATASET_GPT_INDEX_MEMORY_H

#include <stdint.h>

/* Zeroed bytes; NULL if there is no memory. mfs_index_free() takes the same size, and NULL. */
void *mfs_index_alloc(uint64_t size);
void mfs_index_free(void *p, uint64_t size);
/* Gives back the memory after the first `to` bytes. From then on the size is `to`. */
void mfs_index_shrink(void *p, uint64_t size, uint64_t to);

#endif
