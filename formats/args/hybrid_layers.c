#include "formats/args/hybrid_layers.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "formats/args/megatron_args.h"

#define STAGE_END '|'
#define MTP_BEGIN '/'

static const char all[] = "MG*D+-E";

/* Checks the letters up to the end. */
static int check_letters(const char *pattern, struct mfs_error *err)
{
	for (const char *p = pattern; *p; p++)
		if (*p != STAGE_END && *p != MTP_BEGIN && !strchr(all, *p))
			return mfs_fail(err, -EINVAL,
					"the run's pattern of layers '%.200s' has '%.1s', expected "
					"letters of %s",
					pattern, p, all);
	return 0;
}

static uint32_t count_stages(const char *pattern, size_t len)
{
	uint32_t count = 1;

	for (size_t i = 0; i < len; i++)
		count += pattern[i] == STAGE_END;
	return count;
}

/* main: how many characters of the pattern are the decoder's. */
static int take_main(const char *pattern, size_t main, struct mfs_arena *arena,
		     struct mfs_hybrid_pattern *ret, struct mfs_error *err)
{
	uint32_t *stages, at = 0;
	char *letters = mfs_arena_alloc(arena, main + 1), *to = letters;

	ret->stage_count = count_stages(pattern, main);
	stages = mfs_arena_array(arena, ret->stage_count, sizeof(*stages));
	if (!letters || !stages)
		return mfs_fail_nomem(err);
	for (size_t i = 0; i < main; i++) {
		if (pattern[i] == STAGE_END) {
			at++;
			continue;
		}
		*to++ = pattern[i];
		stages[at]++;
	}
	*to = '\0';
	ret->letters = letters;
	ret->layers = to - letters;
	ret->stages = stages;
	return 0;
}

/* rest: what follows the first "/". Depths are equal, and may all be empty. */
static int take_mtp(const char *pattern, const char *rest, struct mfs_arena *arena,
		    struct mfs_hybrid_pattern *ret, struct mfs_error *err)
{
	const size_t len = strcspn(rest, "/");

	ret->mtp = mfs_arena_strndup(arena, rest, len);
	if (!ret->mtp)
		return mfs_fail_nomem(err);
	for (; rest; rest = rest[len] ? rest + len + 1 : NULL) {
		if (strcspn(rest, "/") != len || strncmp(rest, ret->mtp, len) ||
		    memchr(rest, STAGE_END, len))
			return mfs_fail(err, -EINVAL,
					"the run's pattern of layers '%.200s' has depths of "
					"multi-token prediction that differ, expected the same "
					"letters after each '/'",
					pattern);
		ret->mtp_depths += len > 0;
	}
	return 0;
}

int mfs_hybrid_parse(const char *pattern, struct mfs_arena *arena, struct mfs_hybrid_pattern *ret,
		     struct mfs_error *err)
{
	const size_t main = strcspn(pattern, "/");
	int rc = check_letters(pattern, err);

	*ret = (struct mfs_hybrid_pattern){.mtp = ""};
	if (!rc)
		rc = take_main(pattern, main, arena, ret, err);
	if (!rc && pattern[main])
		rc = take_mtp(pattern, pattern + main + 1, arena, ret, err);
	return rc;
}

bool mfs_hybrid_is_even(const struct mfs_hybrid_pattern *p)
{
	for (uint32_t i = 1; i < p->stage_count; i++)
		if (p->stages[i] != p->stages[0])
			return false;
	return true;
}

static bool is_mixer(char letter)
{
	return letter == MFS_HYBRID_ATTENTION || letter == MFS_HYBRID_MLA ||
	       letter == MFS_HYBRID_DELTA_NET;
}

static bool is_mlp(char letter)
{
	return letter == MFS_HYBRID_MLP || letter == MFS_HYBRID_MOE;
}

/* Megatron has no model with both, and none of its layers is a variant of the other. */
static bool mixes_attention(const char *letters)
{
	return strchr(letters, MFS_HYBRID_ATTENTION) && strchr(letters, MFS_HYBRID_MLA);
}

bool mfs_hybrid_is_blocks(const struct mfs_hybrid_pattern *p)
{
	if (!p->layers || p->layers % 2 || mixes_attention(p->letters))
		return false;
	for (int64_t i = 0; i < p->layers; i += 2)
		if (!is_mixer(p->letters[i]) || !is_mlp(p->letters[i + 1]))
			return false;
	return !p->mtp_depths || !strcmp(p->mtp, p->letters + p->layers - 2);
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

const uint8_t *mfs_hybrid_layers_of(const char *letters, char letter, size_t first, size_t step,
				    struct mfs_arena *arena)
{
	const size_t count = strlen(letters) / step;
	uint8_t *has = mfs_arena_alloc(arena, count);

	for (size_t i = 0; has && i < count; i++)
		has[i] = letters[first + i * step] == letter;
	return has;
}
