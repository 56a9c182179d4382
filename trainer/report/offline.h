/*
 * What Weights & Biases is to be told, as lines of JSON that can be sent later: the first has what
 * wandb.init() takes, each other one what wandb.log() takes.
 *
 *   {"init": {"project": "p", "name": "n", "entity": null, "config": {"num_layers": 2, ...}}}
 *   {"step": 1, "time": 1764200000.5, "log": {"learning-rate": 0.001, "lm loss": 6.9}}
 *
 * What is not finite is a text, "NaN" or "Infinity", as JSON has no numbers for it.
 * Source of the words: wandb/sdk/wandb_init.py, wandb_run.py.
 */
#ifndef MFT_TRAINER_REPORT_OFFLINE_H
#define MFT_TRAINER_REPORT_OFFLINE_H

#include <stdint.h>

#include "formats/base/buf.h"
#include "formats/base/error.h"

struct mft_offline;

/* Opens a new file in dir, or in dir's directory `below` (appended.h). init: the first line's
 * object. -errno. */
int mft_offline_open(const char *dir, const char *below, const struct mfs_buf *init,
		     struct mft_offline **ret, struct mfs_error *err);
void mft_offline_close(struct mft_offline *o);
const char *mft_offline_path(const struct mft_offline *o);

/* Kept in memory until the next flush; values of one step make one line. */
void mft_offline_value(struct mft_offline *o, const char *tag, double value, uint64_t step);
/* Writes the values that are kept. -errno: they are lost, and the file still ends with whole lines.
 * */
int mft_offline_flush(struct mft_offline *o, struct mfs_error *err);

/* Appends a number as JSON has it, or the text that stands for one that is not finite. */
void mft_offline_number(struct mfs_buf *out, double value);

#endif
