/* Private to kernels/record. */
#ifndef MFK_RECORD_RECORD_I_H
#define MFK_RECORD_RECORD_I_H

#include "kernels/record/record.h"

struct mfk_device {
	struct mfk_record record;
	unsigned streams, events;
	struct mfk_place {
		void *at; /* NULL: free */
		size_t bytes;
	} * places;
	unsigned place_count;
};

struct mfk_ctx {
	struct mfk_device *device;
	unsigned number;
};

struct mfk_event {
	struct mfk_device *device;
	unsigned number;
};

struct mfk_comm {
	struct mfk_device *device;
	unsigned rank, size;
};

extern const struct mfk_device_ops mfk_record_device_ops;
extern const struct mfk_ops mfk_record_ops;
extern const struct mfk_comm_ops mfk_record_comm_ops;

void mfk_record_add(struct mfk_device *d, const struct mfk_work *w);
void mfk_record_message(struct mfk_device *d, const struct mfk_message *m);

/* Work of a stream. */
static inline void mfk_record_submit(struct mfk_ctx *c, struct mfk_work w)
{
	w.stream = c->number;
	mfk_record_add(c->device, &w);
}

#endif
