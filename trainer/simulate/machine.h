/*
 * A kind of machine, as a file describes it (configs/machines), and how long it takes for a piece
 * of work. Times are in seconds.
 *
 *   products      the greater of what its operations take at the speed of large products, less what
 *                 the last wave of tiles leaves idle, and what its memory takes; then what it adds
 *                 to is read and written
 *   attention     its operations at the speed of the size of head that is nearest
 *   memory        its bytes at the operation's share of a copy's bandwidth
 *   all-gather and reduce-scatter of n processes
 *                 (n - 1) / n of all bytes through the slowest link of a ring, and a latency for
 *                 each doubling of n; all-reduce: twice that
 *   exchange      the bytes of the busier direction through the slowest link, and its latency
 *
 * Between hosts a ring goes through the network links of all GPUs that the group has on a host.
 * Source of the two forms: NCCL's tests, doc/PERFORMANCE.md.
 */
#ifndef MFT_TRAINER_SIMULATE_MACHINE_H
#define MFT_TRAINER_SIMULATE_MACHINE_H

#include <stdint.h>

#include "formats/base/error.h"
#include "kernels/record/record.h"

#define MFT_MACHINE_SHARES 32
#define MFT_MACHINE_HEADS  8

struct mft_machine {
	char name[64];
	double memory;			  /* bytes of a GPU */
	double host_memory;		  /* bytes of a host; 0: nobody knows */
	double units;			  /* multiprocessors */
	double products[MFK_DTYPE_COUNT]; /* FLOP/s, by enum mfk_dtype */
	double groups_of_products;
	struct mft_machine_heads {
		double qk_dim, v_dim, forward, backward; /* FLOP/s */
	} heads[MFT_MACHINE_HEADS];
	unsigned head_count;
	double bandwidth, host_bandwidth; /* bytes/s */
	struct mft_machine_share {
		char name[32];
		double share;
	} shares[MFT_MACHINE_SHARES];
	unsigned share_count;
	double other_share, launch;
	unsigned gpus_per_host;
	double link, link_latency, network, network_latency; /* bytes/s, s */
	/* of the time of communication: how much longer work takes that runs at the same time */
	double busy_link;
};

/* bytes: a YAML mapping of the keys of configs/machines/h200.yaml, all of them but host_memory_gib,
 * and of products_tflops those of 8 bits, which may be missing. -EINVAL: it is not,
 * and the message has name and line. */
int mft_machine_parse(const char *name, const void *bytes, size_t len, struct mft_machine *ret,
		      struct mfs_error *err);

/* Who takes part in a group's work. */
struct mft_machine_group {
	uint32_t size;
	uint32_t on_host; /* how many of them this process's host has */
};

/* group: of the kinds that have one. 0 for those that only wait. */
double mft_machine_time(const struct mft_machine *m, const struct mfk_work *w,
			const struct mft_machine_group *group);

#endif
