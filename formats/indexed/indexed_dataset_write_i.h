/* Private to the writer of indexed datasets: its files while they grow. */
#ifndef MFS_INDEXED_INDEXED_DATASET_WRITE_I_H
#define MFS_INDEXED_INDEXED_DATASET_WRITE_I_H

#include <stddef.h>

#include "formats/indexed/indexed_dataset_write.h"

/* The files that grow on disk. All but the .bin become the .idx when all is known. The lengths
 * are opened first: that file exists from the start to the end, so it is the one that a process
 * locks. */
enum mfs_indexed_stream { STREAM_LENGTHS, STREAM_BIN, STREAM_DOCUMENTS, STREAM_MODES, STREAMS };

#define STREAM_BUFFER (1u << 20)

struct mfs_indexed_out {
	int fd;	       /* -1: closed */
	uint64_t size; /* bytes, those in the buffer too */
	uint8_t *buffer;
	size_t buffered;
	uint64_t started; /* bytes whose way to the disk has begun */
};

struct mfs_indexed_counts {
	uint64_t bytes; /* of .bin */
	uint64_t sequences, documents;
};

struct mfs_indexed_writer {
	char *prefix, *base; /* base: its last part, within prefix */
	int dirfd;
	struct mfs_indexed_writer_config config;
	uint8_t code;
	unsigned token_size;
	struct mfs_indexed_out out[STREAMS];
	uint64_t sequences;		 /* ended */
	uint64_t length;		 /* tokens of the sequence at hand */
	struct mfs_indexed_counts ended; /* at the last end of a document */
	char note[MFS_INDEXED_NOTE];
};

static inline bool mfs_indexed_in_use(const struct mfs_indexed_writer *w, enum mfs_indexed_stream s)
{
	return s != STREAM_MODES || w->config.multimodal;
}

/* Files by the suffix that makes their names. Sentences about them. */
const char *mfs_indexed_suffix(enum mfs_indexed_stream s);
int mfs_indexed_name(const struct mfs_indexed_writer *w, const char *suffix, char *ret, size_t size,
		     struct mfs_error *err);
int mfs_indexed_failed(const struct mfs_indexed_writer *w, int rc, const char *what,
		       const char *suffix, struct mfs_error *err);
/* *ret: whether there is such a name. */
int mfs_indexed_exists(const struct mfs_indexed_writer *w, const char *suffix, bool *ret,
		       struct mfs_error *err);
/* Durable on return. */
int mfs_indexed_rename(const struct mfs_indexed_writer *w, const char *from, const char *to,
		       struct mfs_error *err);
/* Durable once the directory is. A file that does not exist is not an error. */
int mfs_indexed_remove(const struct mfs_indexed_writer *w, const char *suffix,
		       struct mfs_error *err);
int mfs_indexed_sync_dir(const struct mfs_indexed_writer *w, struct mfs_error *err);
/* Removes everything but the .bin and the .idx, when both are there. Durable on return. */
int mfs_indexed_remove_parts(const struct mfs_indexed_writer *w, struct mfs_error *err);

/* The journal: w->ended and a note. *ret_found is false if there is none. */
int mfs_indexed_journal_load(struct mfs_indexed_writer *w, bool *ret_found, struct mfs_error *err);
int mfs_indexed_journal_save(struct mfs_indexed_writer *w, const char *note, struct mfs_error *err);

#endif
