#include "trainer/optimizers/optimizer_i.h"

#include <assert.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/str.h"

#define DIST "dist_"

static const struct mft_optimizer_kind *const kinds[] = {
#define KIND(name, states) &mft_##name,
	MFS_OPTIMIZERS(KIND)
#undef KIND
};

static bool is_dist(const char *name)
{
	return name && !strncmp(name, DIST, strlen(DIST));
}

const struct mft_optimizer_kind *mft_optimizer_kind(const char *name)
{
	const size_t count = MFS_ARRAY_SIZE(kinds);
	size_t i = 0;

	name += is_dist(name) ? strlen(DIST) : 0;
	while (name && i < count && !mfs_str_is(name, kinds[i]->name))
		i++;
	assert(i < count);
	return kinds[i];
}

bool mft_optimizer_is_layer_wise(const struct mft_train_config *c)
{
	return is_dist(c->optimizer);
}

const struct mft_optimizer_kind *mft_optimizer_of(const struct mft_optimizer_kind *kind,
						  const char *name, unsigned ndim)
{
	return !kind->takes || kind->takes(name, ndim) ? kind : kind->others;
}

bool mft_optimizer_keeps(const struct mft_optimizer_kind *kind, unsigned slot)
{
	return slot == MFT_SLOT_MAIN || kind->kept[slot - MFT_SLOT_KEPT].type;
}

enum mfs_dtype mft_optimizer_type(const struct mft_optimizer_kind *kind,
				  const struct mft_train_config *c, unsigned slot)
{
	for (; kind; kind = kind->others)
		if (mft_optimizer_keeps(kind, slot))
			return kind->kept[slot - MFT_SLOT_KEPT].type(c);
	return MFS_DTYPE_NONE;
}

bool mft_optimizer_counts(const struct mft_optimizer_kind *kind)
{
	while (kind && !kind->counts_updates)
		kind = kind->others;
	return kind;
}

unsigned mft_optimizer_slot(const struct mft_optimizer_kind *kind, enum mfs_state state)
{
	if (state == MFS_STATE_MAIN)
		return MFT_SLOT_MAIN;
	for (; kind; kind = kind->others)
		for (unsigned slot = MFT_SLOT_KEPT; slot < MFT_SLOTS; slot++)
			if (mft_optimizer_keeps(kind, slot) &&
			    kind->kept[slot - MFT_SLOT_KEPT].state == state)
				return slot;
	return MFT_SLOTS;
}

double mft_optimizer_mup(const struct mft_train_config *c)
{
	const double width = c->model.mup.on ? c->model.mup.width : 1;

	return mft_optimizer_kind(c->optimizer)->mup_of_vectors ? width : 1 / width;
}
