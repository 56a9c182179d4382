/* --dry-run --suggest-layout: which layouts a model can have on so many machines, and how fast. */
#ifndef MFT_TRAINER_LOOP_LAYOUTS_H
#define MFT_TRAINER_LOOP_LAYOUTS_H

#include "trainer/config/config.h"
#include "trainer/parallel/launch.h"

/* Plans each layout in a process of its own, as many at once as there are processors, and prints
 * the fastest that fit. What the command line says of a layout stays. config is parsed and not
 * settled. Returns an exit code. */
int mft_suggest_layout(struct mft_train_config *config, const struct mft_launch *launch);

#endif
