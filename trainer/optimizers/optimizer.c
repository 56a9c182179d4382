#include "trainer/optimizers/optimizer_i.h"

#include <assert.h>

#include "formats/base/str.h"

static const struct mfs_optimizer_kind *const kinds[] = {&mfs_adam, &mfs_sgd};

const struct mfs_optimizer_kind *mfs_optimizer_kind(const char *name)
{
	const size_t count = sizeof(kinds) / sizeof(kinds[0]);
	size_t i = 0;

	while (name && i < count && !mfs_str_is(name, kinds[i]->name))
		i++;
	assert(i < count);
	return kinds[i];
}

unsigned mfs_optimizer_slot(const struct mfs_optimizer_kind *kind, enum mfs_state state)
{
	unsigned slot = MFS_SLOT_KEPT;

	if (state == MFS_STATE_MAIN)
		return MFS_SLOT_MAIN;
	while (slot < MFS_SLOTS && kind->kept[slot - MFS_SLOT_KEPT].type &&
	       kind->kept[slot - MFS_SLOT_KEPT].state != state)
		slot++;
	return slot < MFS_SLOTS && kind->kept[slot - MFS_SLOT_KEPT].type ? slot : MFS_SLOTS;
}

double mfs_optimizer_mup(const struct mfs_train_config *c)
{
	const double width = c->model.mup.on ? c->model.mup.width : 1;

	return mfs_optimizer_kind(c->optimizer)->mup_of_vectors ? width : 1 / width;
}
