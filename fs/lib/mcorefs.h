/*
 * libmcorefs: the views of a checkpoint without a mount.
 *
 * A SOURCE is what `mcorefs SOURCE MOUNTPOINT` takes: a checkpoint root, an iteration, a
 * HuggingFace directory, datasets, or the URL of one. A view is one directory that the mount would
 * show ("hf", "iter_0000040/hf-fp8", "vllm/tp4"), with files, and tensors in them. Bytes are the
 * mount's, and are read from the source itself.
 *
 * Any thread may call any function, with these exceptions: an object is not used while or after it
 * is closed, and a view is closed before its source. A child of fork() must not use what its
 * parent has opened; calls fail with -EINVAL there.
 *
 * Functions return 0 or a negative errno, and fill *err, unless it is NULL, with a sentence: which
 * file, which tensor, what was expected and what was found. Nothing is logged, and nothing ends the
 * process. Codes that have a meaning of their own:
 *
 *   -EINVAL    the bytes of a source break its format's rules, or an argument is wrong
 *   -ENOTSUP   legal, but not understood here
 *   -ENODATA   something that must be there is missing
 *   -ENOENT    there is no iteration, view, file or tensor of this name
 *   -ESTALE    a source has changed since it was opened: open it anew
 *   -EIO       a source could not be read, or is shorter than it claims
 *   -ECANCELED the load was cancelled
 *   -ENODEV    there is no CUDA driver, or no such device
 *
 * The library changes one thing of its process: a handler of SIGBUS, which turns a file that is cut
 * short while it is mapped into -EIO. Any other SIGBUS goes to the handler that was there before.
 * A thread that calls a function must not block SIGBUS: the kernel would end the process then.
 *
 * ABI: functions and members that are here stay with their meaning as long as the library's name is
 * libmcorefs.so.0. New functions, and new members in the place of `reserved` ones, which callers
 * set to 0, may come. Structs that the library fills grow only at their ends, within `reserved`.
 */
#ifndef MCOREFS_H
#define MCOREFS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MCOREFS_API __attribute__((visibility("default")))

#define MCOREFS_MAX_DIMS 8

struct mcorefs_error {
	int code; /* the value that was returned */
	char text[764];
};

/* "0.1.0", the release that the library is of. */
MCOREFS_API const char *mcorefs_version(void);

/* ---- sources ---- */

struct mcorefs_source;

/* Opens SOURCE. options: as -o takes them ("ref=DIR,shard_size=2GB"), those of views, datasets and
 * remote sources; NULL: none. Options of mounts are refused with -EINVAL. Nothing but metadata is
 * read. */
MCOREFS_API int mcorefs_open(const char *source, const char *options, struct mcorefs_source **ret,
			     struct mcorefs_error *err);
/* NULL is permitted. Its views must be closed. */
MCOREFS_API void mcorefs_close(struct mcorefs_source *source);
/* Looks again for iterations that have come, at most once a second. */
MCOREFS_API int mcorefs_refresh(struct mcorefs_source *source, struct mcorefs_error *err);

struct mcorefs_iteration {
	const char *name;   /* "iter_0000040"; "" of a HuggingFace directory */
	const char *format; /* "torch_dist", "torch", "hf", ... */
	const char *reason; /* why it cannot be read, as a sentence; NULL: it is complete */
	int is_latest;
	uint64_t reserved[4];
};

/* The iterations of the last look, by number. Calls visit for each until it returns non-zero, and
 * returns that. What *iteration points to stays until the source is closed. */
MCOREFS_API int mcorefs_iterations(struct mcorefs_source *source,
				   int (*visit)(void *arg,
						const struct mcorefs_iteration *iteration),
				   void *arg, struct mcorefs_error *err);

/* The names of views that a listing of the mount would show, of one iteration (NULL: the latest, or
 * of a HuggingFace directory) or of a dataset ("data/NAME"): names for mcorefs_view_open(). There
 * may be more views than are listed ("vllm/tp16"). Of "data": "data/NAME" of each dataset, which is
 * no view but may be asked for in turn. -ENODATA: there is no latest iteration. */
MCOREFS_API int mcorefs_views(struct mcorefs_source *source, const char *of,
			      int (*visit)(void *arg, const char *view), void *arg,
			      struct mcorefs_error *err);

/* ---- views ---- */

struct mcorefs_view;

/* Opens a view by its name: "hf" (of the latest iteration), "iter_0000040/hf", "latest/hf-fp8",
 * "megatron/torch/tp2-pp1", "vllm/tp4", "data/NAME/hf". NULL: "hf". */
MCOREFS_API int mcorefs_view_open(struct mcorefs_source *source, const char *view,
				  struct mcorefs_view **ret, struct mcorefs_error *err);
/* NULL is permitted. Its loads must be freed. */
MCOREFS_API void mcorefs_view_close(struct mcorefs_view *view);
/* Its whole name, with the iteration: "iter_0000040/hf". */
MCOREFS_API const char *mcorefs_view_name(const struct mcorefs_view *view);

/* 16 hexadecimal digits that are other ones if a file of the view has come, gone or changed: by
 * names, sizes, times of modification (of a URL's files, by what tells the server's versions
 * apart), and by what the view makes of them. They are equal on all machines that see the same
 * source, with one release of the library. Commits of a gateway follow from them. */
MCOREFS_API const char *mcorefs_view_identity(const struct mcorefs_view *view);

struct mcorefs_file {
	const char *name; /* its path in the view */
	uint64_t size;	  /* bytes */
	int64_t mtime_ns; /* since the epoch */
	uint64_t reserved[4];
};

MCOREFS_API size_t mcorefs_file_count(const struct mcorefs_view *view);
/* Files are ordered by the bytes of their names. -ENOENT: there are fewer. */
MCOREFS_API int mcorefs_file(const struct mcorefs_view *view, size_t file, struct mcorefs_file *ret,
			     struct mcorefs_error *err);
MCOREFS_API int mcorefs_file_find(const struct mcorefs_view *view, const char *name,
				  size_t *ret_file, struct mcorefs_error *err);

/* Reads bytes [off, off + len) of a file into buf, cut at the file's end. Returns how many, 0
 * beyond the end, or a negative errno; then buf's content is undefined. */
MCOREFS_API ssize_t mcorefs_pread(struct mcorefs_view *view, size_t file, void *buf, size_t len,
				  uint64_t off, struct mcorefs_error *err);

/* ---- tensors ---- */

struct mcorefs_tensor {
	const char *name;
	const char *dtype; /* safetensors' word: "BF16", "F32", "F8_E4M3", "I64", ... */
	unsigned item;	   /* bytes of an element */
	unsigned ndim;
	const uint64_t *shape; /* ndim sizes, in elements; C order */
	uint64_t bytes;
	size_t file;  /* that it is in */
	uint64_t off; /* bytes from the file's start */
	uint64_t reserved[4];
};

/* The tensors of all files, in the order of files, and in each by offset. The first call lists
 * them, and reads headers of files that the source has. Files that are no safetensors have their
 * tensors listed too, where they are made of tensors (Megatron's, torch's, GGUF's of floats). */
MCOREFS_API int mcorefs_tensor_count(struct mcorefs_view *view, size_t *ret,
				     struct mcorefs_error *err);
MCOREFS_API int mcorefs_tensor(struct mcorefs_view *view, size_t tensor, struct mcorefs_tensor *ret,
			       struct mcorefs_error *err);
/* Tensors [first, first + count) at once: ret has room for count. -ENOENT: there are fewer. */
MCOREFS_API int mcorefs_tensors(struct mcorefs_view *view, size_t first, size_t count,
				struct mcorefs_tensor *ret, struct mcorefs_error *err);
/* Which tensors a file has: *ret_count from number *ret_first on. -ENOENT: there are fewer
 * files. */
MCOREFS_API int mcorefs_file_tensors(struct mcorefs_view *view, size_t file, size_t *ret_first,
				     size_t *ret_count, struct mcorefs_error *err);
/* -ENOENT: there is none; the sentence names the nearest. -EEXIST: several files have a tensor of
 * this name (ranks of Megatron's layouts): find it by its number. */
MCOREFS_API int mcorefs_tensor_find(struct mcorefs_view *view, const char *name, size_t *ret_tensor,
				    struct mcorefs_error *err);

/* ---- loads ---- */

/*
 * A box of a tensor, and where it goes. Axis a of the box is [begin[a], end[a]) of the tensor's;
 * begin and end NULL: the whole tensor. Its element (0, ..., 0) is written at `to`, and element i
 * of axis a is strides[a] bytes from the one before; strides NULL: C order without gaps. Strides
 * are not negative, and no two elements of all boxes of a load may share a byte. room: how many
 * bytes from `to` on may be written; -EINVAL if the box needs more.
 */
struct mcorefs_box {
	size_t tensor;
	const uint64_t *begin, *end; /* ndim numbers each, or NULL */
	void *to;
	uint64_t room;		/* bytes */
	const int64_t *strides; /* bytes; ndim numbers, or NULL */
	uint64_t reserved[4];
};

enum mcorefs_direct {
	/* O_DIRECT where the storage is local, the bytes are not cached, and the boxes are larger
	 * than a quarter of the machine's memory; else the page cache keeps them for the next
	 * load */
	MCOREFS_DIRECT_AUTO,
	MCOREFS_DIRECT_NEVER, /* through the page cache: several processes of a host share reads */
	/* Where the file system permits it, if not cached. Stretches of which more than a quarter
	 * is left out, as columns of other ranks, still go through the page cache. */
	MCOREFS_DIRECT_ALWAYS,
};

struct mcorefs_load_options {
	int device;	  /* CUDA's number of the device that `to` is of; -1: host memory */
	unsigned threads; /* 0: as many as pay, at most the processors */
	uint64_t memory;  /* of buffers, in bytes; 0: 128 MiB */
	enum mcorefs_direct direct;
	uint64_t reserved[6];
};

struct mcorefs_load;

/* Buffers that a GPU copies from take long to make, and the last load's stay for the next one. This
 * frees them, for who needs the memory. */
MCOREFS_API void mcorefs_trim(void);

/*
 * Starts to fill boxes, in threads of the library. A few bytes (at most 4 MiB) for the host's
 * memory are read at once instead, in the calling thread, unless options ask for threads, memory or
 * O_DIRECT, or a file of the view is on another machine: it has a URL, or is on a file system of
 * the network or of FUSE. What boxes need of the source's headers is read before this returns, by
 * the calling thread alone if there is one box. The source is read in the order of its files,
 * so boxes are done in any order. boxes is copied, and so are the arrays that it points to;
 * destinations stay the caller's and must not be touched until their box is done. options NULL:
 * host memory, all else 0. Errors of the boxes are found here: -ENOENT, -EINVAL; -ENODEV.
 */
MCOREFS_API int mcorefs_load_start(struct mcorefs_view *view, const struct mcorefs_box *boxes,
				   size_t count, const struct mcorefs_load_options *options,
				   struct mcorefs_load **ret, struct mcorefs_error *err);
/* Waits for the next box that is done, each is told once: *ret is its number in boxes. Of a device,
 * its bytes are there for all streams. Returns 1 if there is one, 0 after the last, -EAGAIN if none
 * came within timeout_ms (-1: waits for ever), or the load's error; boxes that were not told then
 * have undefined content. That no source has changed meanwhile is known only when this has
 * returned 0. */
MCOREFS_API int mcorefs_load_next(struct mcorefs_load *load, int timeout_ms, size_t *ret,
				  struct mcorefs_error *err);
/* Waits for all boxes. */
MCOREFS_API int mcorefs_load_wait(struct mcorefs_load *load, struct mcorefs_error *err);
/* Starts a load, waits for all boxes and frees it. */
MCOREFS_API int mcorefs_load_fill(struct mcorefs_view *view, const struct mcorefs_box *boxes,
				  size_t count, const struct mcorefs_load_options *options,
				  struct mcorefs_error *err);
/* Makes the load end soon, with -ECANCELED. Does not wait. */
MCOREFS_API void mcorefs_load_cancel(struct mcorefs_load *load);

struct mcorefs_load_state {
	uint64_t bytes, done; /* of all boxes; that have arrived */
	uint64_t read;	      /* from files, in bytes: more where a stretch was read whole */
	/* of these: that the page cache had, unless the calling thread has read all; that O_DIRECT
	 * read */
	uint64_t cached, direct;
	uint64_t computed;  /* bytes of boxes that were cast, merged or transposed */
	unsigned threads;   /* 0: the calling thread has read all */
	const char *engine; /* "io_uring" or "pread": how what was not cached is read */
	uint64_t buffers;   /* bytes of memory for what is under way */
	/* GPUDirect Storage: "used" once bytes have come that way; "a read has failed, used until
	 * then"; else words that end in "not used", after the reason that was found last
	 * ("compatibility mode, not used"). NULL: the load is into the host's memory */
	const char *gds;
	uint64_t gds_bytes; /* of direct: that went from the disk to the GPU */
	uint64_t reserved[6];
};

/* At any time. */
MCOREFS_API void mcorefs_load_state(struct mcorefs_load *load, struct mcorefs_load_state *ret);
/* Cancels it if it is not done, waits until nothing is written any more, and frees it. NULL is
 * permitted. */
MCOREFS_API void mcorefs_load_free(struct mcorefs_load *load);

/* ---- extents ---- */

enum mcorefs_extent_kind {
	MCOREFS_EXTENT_SOURCE, /* bytes of a file, as they are there */
	MCOREFS_EXTENT_ZEROS,
	MCOREFS_EXTENT_MEMORY,	 /* bytes that are in no file: a header, config.json */
	MCOREFS_EXTENT_COMPUTED, /* they are cast, merged or transposed: read them */
};

/* rows rows of width bytes each. */
struct mcorefs_extent {
	enum mcorefs_extent_kind kind;
	uint64_t at; /* of the first byte, from the first of the tensor or the range */
	uint64_t rows, width;
	uint64_t step;	  /* bytes from a row to the next in the tensor or the range */
	const char *path; /* of the file; NULL: not of MCOREFS_EXTENT_SOURCE. Until visit returns */
	uint64_t off, row_step; /* in the file, in bytes: of the first row; between rows */
	uint64_t reserved[4];
};

/* Where the bytes of a tensor lie, for programs that read them themselves. Together the extents
 * cover each byte once. Stops as mcorefs_iterations() does. */
MCOREFS_API int mcorefs_extents(struct mcorefs_view *view, size_t tensor,
				int (*visit)(void *arg, const struct mcorefs_extent *extent),
				void *arg, struct mcorefs_error *err);
/* The same of bytes [off, off + len) of a file of the view: of rows of a dataset, for example.
 * -EINVAL: the range goes beyond the file's end. */
MCOREFS_API int mcorefs_file_extents(struct mcorefs_view *view, size_t file, uint64_t off,
				     uint64_t len,
				     int (*visit)(void *arg, const struct mcorefs_extent *extent),
				     void *arg, struct mcorefs_error *err);

#ifdef __cplusplus
}
#endif

#endif
