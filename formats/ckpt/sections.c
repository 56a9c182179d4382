#include "formats/ckpt/sections.h"

#include <string.h>

#include "formats/base/str.h"

/* Of a gated delta net, in the order of in_proj. Its convolution has the first three. */
static const char *const suffixes[MFS_SECTIONS_MAX] = {".query", ".key",  ".value",
						       ".z",	 ".beta", ".alpha"};
#define CONVOLVED 3

static const struct {
	const char *tensor;
	unsigned sections;
} delta_net[] = {
	{"self_attention.in_proj.weight", MFS_SECTIONS_MAX},
	{"self_attention.conv1d.weight", CONVOLVED},
};

/* How many sections of a gated delta net the tensor has; 0: it is another one. */
static unsigned count_of(const char *canonical)
{
	for (size_t i = 0; i < sizeof(delta_net) / sizeof(delta_net[0]); i++)
		if (mfs_str_ends(canonical, delta_net[i].tensor))
			return delta_net[i].sections;
	return 0;
}

static uint64_t times(int64_t a, int64_t b)
{
	return a > 0 && b > 0 ? (uint64_t)a * (uint64_t)b : 0; /* both are at most 2^31 */
}

unsigned mfs_sections(const struct mfs_megatron_args *a, const char *canonical,
		      uint64_t ret[MFS_SECTIONS_MAX])
{
	ret[0] = ret[1] = times(a->linear_num_key_heads, a->linear_key_head_dim);
	ret[2] = ret[3] = times(a->linear_num_value_heads, a->linear_value_head_dim);
	ret[4] = ret[5] = times(a->linear_num_value_heads, 1);
	return count_of(canonical);
}

const char *mfs_section_suffix(unsigned section)
{
	return suffixes[section];
}

uint8_t mfs_section_take(char *rest)
{
	for (uint8_t i = 0; i < MFS_SECTIONS_MAX; i++) {
		char *end = rest + strlen(rest) - strlen(suffixes[i]);

		if (!mfs_str_ends(rest, suffixes[i]))
			continue;
		*end = '\0';
		if (i < count_of(rest))
			return i + 1;
		*end = '.';
	}
	return 0;
}
