/* A tree over bins: each node knows the most room that a bin below it has. */
#include "formats/sft/documents.h"

#include <stdlib.h>

static void set_room(uint32_t *tree, uint64_t leaves, uint64_t bin, uint32_t room)
{
	uint64_t at = leaves + bin;

	for (tree[at] = room; at > 1; at /= 2) {
		const uint32_t other = tree[at ^ 1];

		tree[at / 2] = tree[at] > other ? tree[at] : other;
	}
}

static uint64_t first_with(const uint32_t *tree, uint64_t leaves, uint32_t need)
{
	uint64_t at = 1;

	while (at < leaves)
		at = 2 * at + (tree[2 * at] < need);
	return at - leaves;
}

uint64_t mfs_first_fit(const uint32_t *lengths, const uint32_t *order, uint64_t count,
		       uint32_t room, uint32_t *ret)
{
	uint64_t leaves = 1, bins = 0, bin;
	uint32_t *tree;

	while (leaves < count)
		leaves *= 2;
	tree = malloc(2 * leaves * sizeof(*tree));
	if (!tree)
		return 0;
	/* A bin that nothing is in yet has all of its room: the first of them is the next one. */
	for (uint64_t i = 0; i < 2 * leaves; i++)
		tree[i] = room;
	for (uint64_t i = 0; i < count; i++) {
		const uint32_t need = lengths[order[i]];

		bin = first_with(tree, leaves, need);
		ret[order[i]] = (uint32_t)bin;
		bins = bin >= bins ? bin + 1 : bins;
		set_room(tree, leaves, bin, tree[leaves + bin] - need);
	}
	free(tree);
	return bins;
}
