/*
 * The losses of runs, and the flags that they have: the one list of both. What is computed of each
 * is a file in trainer/model/loss (loss.h).
 */
#ifndef MFT_TRAINER_CONFIG_LOSS_LIST_H
#define MFT_TRAINER_CONFIG_LOSS_LIST_H

/*
 * LOSS(NAME): mft_loss_NAME. A run has the first one that takes it. A row each for its flags
 * follows:
 *
 * FLAG(KIND, TYPE, DEST, INITIAL, HELP): a flag of ours (flags_ours.c) that fills the field DEST of
 * struct mft_train_config, which has this type. KIND as in flags_i.h; DEST in capitals is its name
 * in C, too (dests.h).
 */
#define MFT_LOSSES(LOSS, FLAG) LOSS(cross_entropy)

/* Of a list of two kinds of rows, the other ones. */
#define MFT_LOSSES_NOT(...)

#endif
