#include "formats/tokenizer/byte_trie.h"

#include <stdlib.h>

#include "formats/tokenizer/token_table.h"

#define NODES_MAX (1u << 23) /* so that a node and a byte fit 32 bits */

static uint32_t slot_of(const struct mfs_byte_trie *t, uint32_t from)
{
	uint32_t i = mfs_byte_trie_slot(t, from);

	while (t->edges[i].from != UINT32_MAX)
		i = (i + 1) & t->mask;
	return i;
}

/* Doubles the nodes and the table of edges, which has four places for each. */
static int grow(struct mfs_byte_trie *t)
{
	const uint32_t room = t->node_room ? t->node_room * 2 : 64, old = t->node_room * 4;
	struct mfs_trie_edge *from = t->edges, *edges = malloc((size_t)room * 4 * sizeof(*edges));
	uint32_t *values = realloc(t->values, room * sizeof(*values));

	if (values)
		t->values = values;
	if (!values || !edges) {
		free(edges);
		return -ENOMEM;
	}
	t->edges = edges;
	t->seed = mfs_token_seed();
	t->mask = room * 4 - 1;
	t->node_room = room;
	for (uint32_t i = 0; i < room * 4; i++)
		edges[i].from = UINT32_MAX;
	for (uint32_t i = 0; i < old; i++)
		if (from[i].from != UINT32_MAX)
			edges[slot_of(t, from[i].from)] = from[i];
	free(from);
	return 0;
}

static int add_node(struct mfs_byte_trie *t, uint32_t *ret, struct mfs_error *err)
{
	if (t->node_count == NODES_MAX)
		return mfs_fail(err, -ENOTSUP, "the tokens have too many bytes");
	if (t->node_count == t->node_room && grow(t))
		return mfs_fail_nomem(err);
	*ret = t->node_count++;
	t->values[*ret] = UINT32_MAX;
	return 0;
}

int mfs_byte_trie_add(struct mfs_byte_trie *t, const char *text, size_t len, uint32_t value,
		      struct mfs_error *err)
{
	uint32_t node = 0, next;
	int rc = t->node_count ? 0 : add_node(t, &node, err);

	for (size_t i = 0; i < len && !rc; i++) {
		const uint8_t byte = (uint8_t)text[i];

		next = mfs_byte_trie_next(t, node, byte);
		if (!next) {
			rc = add_node(t, &next, err);
			if (rc)
				return rc;
			if (node)
				t->edges[slot_of(t, node << 8 | byte)] =
					(struct mfs_trie_edge){node << 8 | byte, next};
			else
				t->firsts[byte] = next;
		}
		node = next;
	}
	if (!rc)
		t->values[node] = value;
	return rc;
}

void mfs_byte_trie_release(struct mfs_byte_trie *t)
{
	free(t->values);
	free(t->edges);
	*t = (struct mfs_byte_trie){0};
}
