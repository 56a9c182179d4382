/* Private to trainer/ckpt/save*.c: the parts of a save. */
#ifndef MFT_TRAINER_CKPT_SAVE_I_H
#define MFT_TRAINER_CKPT_SAVE_I_H

#include <limits.h>
#include <pthread.h>
#include <sys/types.h>

#include "formats/base/buf.h"
#include "formats/io/beneath.h"
#include "formats/io/io_engine.h"
#include "formats/ckpt/target.h"
#include "formats/megatron/write/dist_boxes.h"
#include "formats/megatron/write/files.h"
#include "trainer/ckpt/save.h"

#define MFT_SAVE_SLOT  (UINT64_C(8) << 20) /* bytes of a pinned buffer */
#define MFT_SAVE_BLOCK 4096u		   /* O_DIRECT: offsets and lengths are multiples of it */
#define MFT_SAVE_DEPTH 16u		   /* writes in flight */
/* Files of a process, at most. They are written side by side, each hashed by its own thread. */
#define MFT_SAVE_LANES 4u

#define MFT_SAVE_DIGEST 65 /* a sum in hexadecimal, with its end */

/* ---- the system (save_system.c) ---- */

/* All that a save asks of the system, so that tests can let each call fail. 0 or -errno. Names are
 * those of an open directory, and no link among them is followed (formats/io/beneath.h). */
struct mft_save_system_ops {
	int (*mkdir)(void *arg, int dirfd, const char *name);
	int (*open_dir)(void *arg, int dirfd, const char *name, int *ret);
	/* A new file in the place of what bears its name; O_DIRECT if it can. path: "a/b" below
	 * dirfd. */
	int (*open)(void *arg, int dirfd, const char *path, int *ret);
	int (*allocate)(void *arg, int fd, uint64_t size);
	int (*truncate)(void *arg, int fd, uint64_t size);
	int (*close)(void *arg, int fd);
	int (*sync_dir)(void *arg, int fd);
	int (*rename)(void *arg, int dirfd, const char *from, const char *to);
	int (*exchange)(void *arg, int dirfd, const char *a, const char *b);
	mfs_unlink_at *remove; /* of a file, a link or an empty directory */
	int (*engine)(void *arg, unsigned depth, struct mfs_io_engine **ret, struct mfs_error *err);
	/* Zeros that O_DIRECT can write, for free(); NULL: there is no memory. */
	void *(*alloc)(void *arg, uint64_t bytes);
	/* SHA-256. end() gives the sum in hexadecimal, and begins anew. free() takes NULL. */
	int (*sum_new)(void *arg, void **ret);
	int (*sum_add)(void *arg, void *sum, const void *bytes, uint64_t length);
	int (*sum_end)(void *arg, void *sum, char ret[MFT_SAVE_DIGEST]);
	void (*sum_free)(void *arg, void *sum);
	void *arg;
};

extern const struct mft_save_system_ops mft_save_system;

int mft_saver_new_with(const struct mft_save_system_ops *system,
		       const struct mft_train_config *config, const struct mft_params *params,
		       const struct mft_parallel *parallel, const struct mfk_backend *backend,
		       struct mfk_device *device, const char *tokenizer_dir, uint64_t ring_bytes,
		       struct mft_saver **ret, struct mfs_error *err);

/* ---- who writes what (save_boxes.c) ---- */

/* A box of a tensor whose elements, in row-major order, are neighbours in a process's memory. */
struct mft_save_box {
	const struct mfs_global_tensor *tensor;
	uint64_t lo[MFS_CKPT_DIMS], size[MFS_CKPT_DIMS]; /* of the tensor */
	uint64_t first, count; /* elements of the flat buffers, or of the model's buffers */
	uint32_t unit;	       /* 0, 1, ...: what is in no layer, and each layer */
	bool is_buffer;
};

struct mft_save_boxes {
	struct mft_save_box *list; /* by unit, and then as they are in memory */
	uint32_t count, units;
};

/* The boxes of weights that a process writes, params being its own; those of the optimizer's states
 * are the same. All processes together write each element once. */
int mft_save_boxes(const struct mft_train_config *config, const struct mft_params *params,
		   const struct mft_parallel *parallel, struct mft_save_boxes *ret,
		   struct mfs_error *err);
void mft_save_boxes_release(struct mft_save_boxes *b);

/* ---- the plan (save_plan.c) ---- */

/* Where bytes of a file come from: memory, or elements of a flat buffer. */
struct mft_save_span {
	uint64_t at, length;	    /* bytes, in the file */
	const unsigned char *bytes; /* NULL: a flat buffer's */
	enum mfs_state state;
	uint64_t first; /* element */
};

struct mft_save_file {
	char name[MFS_CKPT_NAME_SIZE];
	uint64_t size;
	struct mft_save_span *spans;
	uint32_t count;
};

/* What one buffer of the ring holds: a range of a file that begins at a multiple of a slot. */
struct mft_save_fill {
	uint32_t file, span; /* span: the first that touches it */
	bool last;	     /* of its file */
	uint64_t at, length;
};

/* The item of a module's state (ckpt/module_state.h). */
struct mft_save_module {
	uint32_t param;	      /* its weight */
	unsigned char *bytes; /* which spans point to; written anew by each save */
};

/* A file of another process. */
struct mft_save_other {
	uint32_t process, number;
	uint64_t size;
};

/*
 * The large files of a save, which have one layout whatever the iteration: offsets are known before
 * the data. Fills are numbered in the order in which they are copied and written; those of a file
 * have a lane of their own.
 */
struct mft_save_plan {
	struct mft_save_file files[MFT_SAVE_LANES]; /* this process's */
	uint32_t file_count;
	struct mft_save_fill *fills;
	uint32_t fill_count;
	int64_t *last_fill; /* [parameters]: the last that has elements of it; -1: none */
	uint64_t bytes;
	struct mfs_buf rng; /* the item of random states, which spans point into; empty: none */
	struct mfs_dist_boxes *boxes; /* what spans point into, too */
	struct mfs_arena arena;	      /* likewise */
	struct mft_save_module *modules;
	uint32_t module_count;
	uint64_t module_bytes; /* of each item; 0: modules have no states */
	/* of the first process */
	struct mfs_buf metadata;       /* .metadata */
	struct mft_save_other *others; /* by process, and then by number */
	uint32_t other_count;
};

/* parallel: the process's places. buffers: host memory of the size of params->buffers. */
int mft_save_plan(const struct mft_train_config *config, const struct mft_params *params,
		  const struct mft_parallel *parallel, unsigned char *buffers,
		  struct mft_save_plan *ret, struct mfs_error *err);
void mft_save_plan_release(struct mft_save_plan *p);

/* The last fill that has elements [first, first + count) of the flat buffers; -1: none has. */
int64_t mft_save_plan_last(const struct mft_save_plan *p, const struct mft_params *params,
			   uint64_t first, uint64_t count);

/* ---- common.pt (save_common.c) ---- */

int mft_save_common(const struct mft_train_config *config, const struct mft_params *params,
		    const struct mft_progress *progress, struct mfs_buf *out,
		    struct mfs_error *err);

/* ---- random states (save_rng.c) ---- */

/* Appends the item of random states of torch_dist of a process at these places. It has one size,
 * whatever the iteration and the process. */
int mft_save_rng(const struct mft_train_config *config, const struct mft_parallel *parallel,
		 uint64_t iteration, struct mfs_buf *out, struct mfs_error *err);

/* ---- the ring and the files (save_write.c) ---- */

struct mft_save_slot {
	unsigned char *host;
	struct mfk_event *copied;
	struct mfs_io io;
	struct iovec iov;
	uint32_t fill;
	uint64_t length; /* of the fill, up to a block */
	bool direct;	 /* its file was O_DIRECT when the write was submitted */
	bool written, hashed;
	struct mft_save_slot *next; /* free ones */
};

struct mft_save_ring {
	struct mft_save_slot *slots; /* [capacity]; the first count have memory */
	uint32_t capacity, count;
	struct mft_save_slot *free;
};

/* A small file, written after the large ones. */
struct mft_save_small {
	char name[MFS_CKPT_NAME_SIZE]; /* "tokenizer/vocab.json" */
	struct mfs_buf bytes;
};

/* What a process says when its files are written, or are not. */
struct mft_save_report {
	bool failed;
	uint64_t stall_ns;
	char digests[MFT_SAVE_LANES][MFT_SAVE_DIGEST]; /* of its files */
	char host[64];
	char why[640];
};

struct mft_saver {
	const struct mft_train_config *config;
	const struct mft_params *params;
	const struct mfk_backend *backend;
	struct mfk_device *device;
	struct mfk_ctx *ctx; /* of copies, which run after all others */
	struct mfk_event *begun;
	struct mft_save_system_ops system;
	const struct mft_parallel *parallel;
	struct mft_save_plan plan;
	struct mft_save_ring ring;
	struct mft_save_small *tokenizer;
	uint32_t tokenizer_count;
	struct mft_save_home {
		char *dir;   /* NULL: there are no saves of the kind */
		int fd;	     /* of dir, as it was when the run first came here; -1: not yet */
		int lock_fd; /* of MFT_SAVE_LOCK; -1: it is not open */
		bool locked;
	} homes[MFT_SAVE_KINDS];
	unsigned char *buffers; /* the model's as they were at the start; pinned */
	unsigned char *scales;	/* likewise; of params->scales, mft_scales_bytes() */
	char engine[64];	/* "io_uring, O_DIRECT" */
	bool started;		/* the thread */
	bool owns;		/* mft_saver_own() was called; of the first process */

	pthread_t thread;
	pthread_mutex_t lock; /* of what follows; the ring's too while a save is in flight */
	pthread_cond_t changed;
	enum { MFT_SAVER_IDLE, MFT_SAVER_BUSY } state;
	bool quit, ended;
	/* of many processes (save_agree.c) */
	enum { MFT_SAVE_WRITES, MFT_SAVE_WROTE, MFT_SAVE_DONE } stage;
	bool judged;	/* all have reported whether their files are written */
	bool forgotten; /* they could not */
	struct mft_save_report own;
	struct mft_save_report *reports; /* [processes]; while judged */
	uint32_t submitted, completed;	 /* fills whose copies are submitted, and done */
	struct mft_save_slot **slot_of;	 /* [fills]: where a submitted fill is, or was */
	bool released;			 /* nothing more is copied: fences are open */
	uint64_t stall_ns;
	enum mft_save_kind kind;       /* of the save; the thread's while it is busy */
	const char *dir;	       /* likewise: that of its home, for messages */
	int dirfd;		       /* likewise */
	struct mft_progress progress;  /* likewise */
	struct mft_save_result result; /* likewise */
	bool in_flight;		       /* the run's thread's: all processes know it alike */
};

/* Where files are written: an open directory, and its path for messages. */
struct mft_save_place {
	int fd;
	char path[PATH_MAX];
};

/* Writes the large files into a directory and syncs them. digests: [files] SHA-256 in hexadecimal.
 * On failure all that was open is closed, and what was written stays for the caller to remove. */
int mft_save_write(struct mft_saver *s, const struct mft_save_place *to,
		   char (*digests)[MFT_SAVE_DIGEST], struct mfs_io_engine *engine,
		   struct mfs_error *err);
/* Gives bytes [at, at + n) of a file that is being written. */
typedef int mft_save_read(void *arg, uint64_t at, void *to, uint64_t n, struct mfs_error *err);
/* Writes and syncs a file. */
int mft_save_write_stream(struct mft_saver *s, const struct mft_save_place *to, const char *name,
			  uint64_t size, mft_save_read *read, void *arg,
			  struct mfs_io_engine *engine, struct mfs_error *err);
/* Like mft_save_write_stream(), for bytes in memory. */
int mft_save_write_small(struct mft_saver *s, const struct mft_save_place *to, const char *name,
			 const void *bytes, uint64_t length, struct mfs_io_engine *engine,
			 struct mfs_error *err);

/* Gives a slot memory. False: there is no more, or the ring has all it may have. */
bool mft_save_ring_grow(struct mft_saver *s);
void mft_save_ring_release(struct mft_saver *s);

/* The sum of bytes; name: of their file, for the message. */
int mft_save_sum(const struct mft_save_system_ops *sys, const char *name, const void *bytes,
		 uint64_t length, char ret[MFT_SAVE_DIGEST], struct mfs_error *err);

/* ---- where saves go (save_home.c) ---- */

/* The directories of a run's saves. The first process makes, locks and cleans them. */
int mft_save_homes(struct mft_saver *s, struct mfs_error *err);
/* At the start of a save: the directory of its kind, which is the one that it was before. Sets
 * s->dirfd. */
int mft_save_home(struct mft_saver *s, struct mfs_error *err);
void mft_save_homes_release(struct mft_saver *s);

/* ---- what processes agree on (save_agree.c) ---- */

/* The saver's thread: waits until all processes have written, and the run's thread has heard of it.
 * rc: of what this one wrote, with err; digests: [files]. What comes back is the same in all. */
int mft_save_await_others(struct mft_saver *s, int rc, char (*digests)[MFT_SAVE_DIGEST],
			  struct mfs_error *err);
/* The run's thread, of all processes: true when the save in flight has ended; *ret is then known.
 * wait: until it has. */
bool mft_save_agree(struct mft_saver *s, bool wait, struct mft_save_result *ret);

/* ---- legacy `torch` (save_torch.c) ---- */

/* Of a whole torch_dist save in a directory makes a legacy one of the run's layout: writes the
 * ranks' files, and removes what they were made of. *ret_bytes: of these files. */
int mft_save_torch(struct mft_saver *s, const struct mft_save_place *at,
		   struct mfs_io_engine *engine, uint64_t *ret_bytes, struct mfs_error *err);

/* ---- a directory of its own (save_own.c) ---- */

/* Whether an iteration in the directory of s->dirfd is of a saver that had it for itself. */
bool mft_save_is_own(const struct mft_saver *s, uint64_t iteration);

/* ---- a whole save (save_commit.c) ---- */

/* Saves iteration progress.iteration. At any moment either the old checkpoint or the new one
 * exists. */
int mft_save_iteration(struct mft_saver *s, struct mfs_error *err);
/* Removes what saves that did not end have left in the directory of s->dirfd. */
void mft_save_clean(struct mft_saver *s);
/* Numbers of iterations in the directory of s->dirfd, up to the most, latest first: for the caller
 * to free. */
uint64_t *mft_save_iterations(const struct mft_saver *s, uint64_t most, size_t *ret_count);
/* Nobody finds half of it: it loses its name first. Links stay, and what cannot be removed. */
void mft_save_remove_iteration(struct mft_saver *s, uint64_t iteration);

#endif
