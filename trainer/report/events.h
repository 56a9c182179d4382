/*
 * Event files, which TensorBoard reads: TFRecords of Event messages with scalars.
 *
 * Sources: tensorboard/compat/proto/event.proto, summary.proto (fields and numbers);
 * tensorboard/summary/writer/record_writer.py (framing, masked CRC-32C); torch/utils/tensorboard
 * (names of files; add_scalar's simple_value).
 */
#ifndef MFT_TRAINER_REPORT_EVENTS_H
#define MFT_TRAINER_REPORT_EVENTS_H

#include <stdint.h>

#include "formats/base/error.h"

struct mft_events;

/* Opens a new file in dir, and makes dir if it does not exist. -errno. */
int mft_events_open(const char *dir, struct mft_events **ret, struct mfs_error *err);
void mft_events_close(struct mft_events *e);
const char *mft_events_path(const struct mft_events *e);

/* Kept in memory until the next flush. */
void mft_events_scalar(struct mft_events *e, const char *tag, double value, uint64_t step);
/* Like mft_events_scalar(), twice: tag by iteration, and "TAG vs samples" by consumed samples. */
void mft_events_both(struct mft_events *e, const char *tag, double value, uint64_t iteration,
		     uint64_t samples);
/* Writes the records that are kept in memory. -errno: they are lost, and the file ends with whole
 * records. */
int mft_events_flush(struct mft_events *e, struct mfs_error *err);

#endif
