#include "formats/args/hybrid_layers.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "formats/args/megatron_args.h"

#define STAGE_END '|'
#define MTP_BEGIN '/'

/* Megatron's layers, and those of them that are known here: no gated delta nets, no MLA. */
static const char all[] = "MG*D+-E", known[] = "M*-E";

static int count_letters(const char *pattern, int64_t layers, struct mfs_error *err)
{
	int64_t count = 0;

	for (const char *p = pattern; *p && *p != MTP_BEGIN; p++) {
		if (*p != STAGE_END && !strchr(all, *p))
			return mfs_fail(err, -EINVAL,
					"the run's pattern of layers '%.200s' has '%.1s', expected "
					"letters of %s",
					pattern, p, all);
		count += *p != STAGE_END;
	}
	if (count == layers)
		return 0;
	return mfs_fail(err, -EINVAL,
			"the run's pattern of layers '%.200s' is of %lld layers, expected "
			"num_layers, %lld",
			pattern, (long long)count, (long long)layers);
}

/* True if all stages have as many layers. */
static bool is_even(const char *pattern)
{
	const size_t first = strcspn(pattern, "|");

	while (strcspn(pattern, "|") == first) {
		if (!pattern[first])
			return true;
		pattern += first + 1;
	}
	return false;
}

const char *mfs_hybrid_layers(const char *pattern, int64_t layers, struct mfs_arena *arena,
			      bool *ret_even, int *ret_rc, struct mfs_error *err)
{
	char *letters, *to;

	*ret_even = is_even(pattern);
	*ret_rc = count_letters(pattern, layers, err);
	if (*ret_rc || strspn(pattern, "|M*-E") != strlen(pattern))
		return NULL;
	letters = to = mfs_arena_alloc(arena, (size_t)layers + 1);
	if (!letters) {
		*ret_rc = mfs_fail_nomem(err);
		return NULL;
	}
	for (; *pattern; pattern++)
		if (strchr(known, *pattern))
			*to++ = *pattern;
	*to = '\0';
	return letters;
}

/* Makes each layer of a kind into another one as often as each says: evenly, in turns of so many
 * layers that stay. */
static void allocate(char *letters, int64_t layers, enum mfs_hybrid_kind kind, double each)
{
	double x = each;

	for (int64_t i = 0; i < layers; i++) {
		if (letters[i] != MFS_HYBRID_MAMBA)
			continue;
		if (x < 0.5) {
			letters[i] = (char)kind;
			x += each;
		} else {
			x -= 1;
		}
	}
}

const char *mfs_hybrid_from_ratios(int64_t layers, double attention, double mlp,
				   struct mfs_arena *arena)
{
	/* Python's round() and rint() both round halves to even. */
	const double attentions = rint((double)layers * attention);
	const double mlps = rint((double)layers * mlp);
	const double others = (double)layers - attentions;
	char *letters = mfs_arena_alloc(arena, (size_t)layers + 1);

	if (!letters)
		return NULL;
	memset(letters, MFS_HYBRID_MAMBA, (size_t)layers);
	letters[layers] = '\0';
	allocate(letters, layers, MFS_HYBRID_ATTENTION, others / (attentions + 1));
	if (mlps > 0)
		allocate(letters, layers, MFS_HYBRID_MLP, (others - mlps) / mlps);
	return letters;
}

const uint8_t *mfs_hybrid_moe_layers(const char *letters, struct mfs_arena *arena)
{
	const size_t layers = strlen(letters);
	uint8_t *has = mfs_arena_alloc(arena, layers);

	for (size_t i = 0; has && i < layers; i++)
		has[i] = letters[i] == MFS_HYBRID_MOE;
	return has;
}
