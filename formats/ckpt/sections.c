#include "formats/ckpt/sections.h"

#include <string.h>

#include "formats/base/array.h"
#include "formats/base/str.h"

/* Sizes of sections: numbers of a gated delta net's keys and values, and its value heads; of a
 * Mamba-2 mixer's channels and of B, and its heads. */
enum rows { KEYS, VALUES, VALUE_HEADS, CHANNELS, STATES, HEADS };

struct section {
	const char *suffix;
	enum rows rows;
};

/* In the order of in_proj. A convolution has some of them. */
static const struct section delta_net[] = {{".query", KEYS},	   {".key", KEYS},
					   {".value", VALUES},	   {".z", VALUES},
					   {".beta", VALUE_HEADS}, {".alpha", VALUE_HEADS}};
static const struct section mamba[] = {
	{".z", CHANNELS}, {".x", CHANNELS}, {".B", STATES}, {".C", STATES}, {".dt", HEADS}};

static const struct sectioned {
	const char *tensor;
	const struct section *sections;
	unsigned count;
} tensors[] = {
	{"self_attention.in_proj.weight", delta_net, 6},
	{"self_attention.conv1d.weight", delta_net, 3},
	{"mixer.in_proj.weight", mamba, 5},
	{"mixer.conv1d.weight", mamba + 1, 3},
	{"mixer.conv1d.bias", mamba + 1, 3},
};

#define COUNT MFS_ARRAY_SIZE(tensors)

/* NULL: its rows are one matrix. */
static const struct sectioned *find(const char *canonical)
{
	for (size_t i = 0; i < COUNT; i++)
		if (mfs_str_ends(canonical, tensors[i].tensor))
			return &tensors[i];
	return NULL;
}

static uint64_t times(int64_t a, int64_t b)
{
	return a > 0 && b > 0 ? (uint64_t)a * (uint64_t)b : 0; /* both are at most 2^31 */
}

static uint64_t rows_of(const struct mfs_megatron_args *a, enum rows rows)
{
	switch (rows) {
	case KEYS:
		return times(a->linear_num_key_heads, a->linear_key_head_dim);
	case VALUES:
		return times(a->linear_num_value_heads, a->linear_value_head_dim);
	case VALUE_HEADS:
		return times(a->linear_num_value_heads, 1);
	case CHANNELS:
		return times(a->mamba_num_heads, a->mamba_head_dim);
	case STATES:
		return times(a->mamba_num_groups, a->mamba_state_dim);
	case HEADS:
		return times(a->mamba_num_heads, 1);
	}
	return 0;
}

unsigned mfs_sections(const struct mfs_megatron_args *a, const char *canonical,
		      uint64_t ret[MFS_SECTIONS_MAX])
{
	const struct sectioned *t = find(canonical);

	for (unsigned i = 0; t && i < t->count; i++)
		ret[i] = rows_of(a, t->sections[i].rows);
	return t ? t->count : 0;
}

const char *mfs_section_suffix(const char *canonical, unsigned section)
{
	return find(canonical)->sections[section].suffix;
}

uint8_t mfs_section_take(char *rest)
{
	char *end = strrchr(rest, '.');
	const struct sectioned *t;

	if (!end)
		return 0;
	*end = '\0';
	t = find(rest);
	*end = '.';
	for (unsigned i = 0; t && i < t->count; i++) {
		if (strcmp(end, t->sections[i].suffix))
			continue;
		*end = '\0';
		return (uint8_t)(i + 1);
	}
	return 0;
}
