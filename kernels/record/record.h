/*
 * A backend that computes nothing and writes down what it was asked to do: a run's work on a device
 * that is not here.
 *
 * Device and host memory are address space. What is copied between them is, up to MFK_RECORD_COPIED
 * bytes, since that is what steers the host; all the rest stays zero. Tokens go to experts evenly.
 * A group's other processes do what this one does, with the same values.
 */
#ifndef MFK_RECORD_RECORD_H
#define MFK_RECORD_RECORD_H

#include "kernels/kernels.h"

#define MFK_RECORD_COPIED (1u << 20)

enum mfk_work_kind {
	MFK_WORK_GEMM, /* m, n, k, of each of groups */
	MFK_WORK_ATTENTION,
	MFK_WORK_ATTENTION_BACKWARD,
	MFK_WORK_MEMORY, /* as fast as memory is */
	MFK_WORK_HOST,	 /* a copy between the host and the device */
	MFK_WORK_ALL_REDUCE,
	MFK_WORK_ALL_GATHER,
	MFK_WORK_REDUCE_SCATTER,
	MFK_WORK_EXCHANGE,
	MFK_WORK_RECORD, /* an event is recorded, or waited for by a stream */
	MFK_WORK_WAIT,
	MFK_WORK_SYNC, /* the host waits for a stream, or for an event */
	MFK_WORK_EVENT_SYNC,
	MFK_WORK_MEETING, /* the host waits for all of a group */
	MFK_WORK_KINDS,
};

struct mfk_work {
	enum mfk_work_kind kind;
	enum mfk_dtype dtype;
	unsigned stream;  /* 0, 1, ... in the order in which contexts were made */
	const char *name; /* of the operation: "norm_backward" */
	int64_t m, n, k, groups;
	int64_t qk_dim, v_dim; /* attention */
	double flops;
	/* Memory: read and written. Groups: of the larger of both buffers, all parts of it.
	 * Exchange: the greater of what is sent to others and received from them. */
	uint64_t bytes;
	/* products: bytes of these that the product adds to, so that they are read and written */
	uint64_t added;
	unsigned event;
	const struct mfk_comm *comm; /* of groups */
	/* Exchange: those of record's messages */
	unsigned first_message, messages;
};

struct mfk_record_message {
	bool receive;
	unsigned peer;
	uint64_t bytes;
};

struct mfk_record {
	struct mfk_work *list;
	uint64_t count;
	struct mfk_record_message *messages;
	uint64_t message_count;
	bool out_of_memory; /* the lists end early */
};

extern const struct mfk_backend mfk_recorder;

/* What the device was asked since the last call, or since the beginning; the caller releases it. */
void mfk_record_take(struct mfk_device *d, struct mfk_record *ret);
void mfk_record_release(struct mfk_record *r);

/* Sets the rank and size of a group, which split() cannot know. Call it before the group's first
 * operation. */
void mfk_record_group(struct mfk_comm *g, unsigned rank, unsigned size);

#endif
