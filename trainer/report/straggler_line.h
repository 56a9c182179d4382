/*
 * --log-straggler: which rank is the slowest and which the fastest, as Megatron prints it
 * (megatron/core/README_STRAGGLER.md; megatron/core/utils.py: StragglerDetector.report).
 */
#ifndef MFT_TRAINER_REPORT_STRAGGLER_LINE_H
#define MFT_TRAINER_REPORT_STRAGGLER_LINE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "formats/base/buf.h"

/* What a rank has measured, per iteration. What nobody measures is 0, as torch says it of a device
 * without sensors. */
struct mft_straggler_rank {
	double rtt_ms, data_ms; /* the rank's own microbatches; the longest wait for data */
	double watts, celsius, utilization, mhz;
	double tflops; /* per second */
};

/* The line; with minmax > 1 and less than count, two more with so many ranks of the least and the
 * most throughput. all: by rank, count of them. False: there is no memory. */
bool mft_report_straggler(struct mfs_buf *b, time_t now, const struct mft_straggler_rank *all,
			  uint32_t count, int64_t minmax);

#endif
