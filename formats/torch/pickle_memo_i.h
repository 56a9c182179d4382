/*
 * Private to the reader of pickles: the machine's memo, a table from slot numbers to values.
 *
 * Slots that are set while a value is skipped form the gap. The gap takes no memory, and every slot
 * in it reads as discarded.
 */
#ifndef MFS_TORCH_PICKLE_MEMO_I_H
#define MFS_TORCH_PICKLE_MEMO_I_H

#include <errno.h>

#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/torch/pickle_tree_i.h"

#define MFS_MEMO_GAP_NONE UINT64_MAX

struct mfs_memo {
	mfs_value *values; /* of the slots before the gap, then of those after it */
	uint64_t filled;   /* entries of values */
	uint64_t count;	   /* the highest slot that was set, + 1 */
	uint64_t gap_start, gap_len;
};

/* skipping: the slot goes into the gap, if it is past its start. -ENOMEM, or -EEXIST: the slot is
 * in the gap already. */
static inline int mfs_memo_put(struct mfs_memo *m, uint64_t slot, mfs_value v, bool skipping)
{
	uint64_t index = slot;

	if (slot >= m->gap_start && skipping) {
		m->gap_len = mfs_max_u64(m->gap_len, slot + 1 - m->gap_start);
	} else {
		if (slot >= m->gap_start) {
			if (slot - m->gap_start < m->gap_len)
				return -EEXIST;
			index -= m->gap_len;
		}
		while (index >= m->filled) {
			if (mfs_grow(&m->values, m->filled))
				return -ENOMEM;
			m->values[m->filled++] = MFS_VALUE_NONE;
		}
		m->values[index] = v;
	}
	m->count = mfs_max_u64(m->count, slot + 1);
	return 0;
}

/* slot: below m->count. A slot that was left out reads as None. */
static inline mfs_value mfs_memo_get(const struct mfs_memo *m, uint64_t slot)
{
	uint64_t index = slot;

	if (slot >= m->gap_start) {
		if (slot - m->gap_start < m->gap_len)
			return MFS_VALUE_DISCARDED;
		index -= m->gap_len;
	}
	return index < m->filled ? m->values[index] : MFS_VALUE_NONE;
}

#endif
