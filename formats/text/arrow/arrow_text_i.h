/* Inside of the Arrow reader: the values of record batches. */
#ifndef MFS_TEXT_ARROW_TEXT_I_H
#define MFS_TEXT_ARROW_TEXT_I_H

#include "formats/arrow/arrow_ipc.h"
#include "formats/text/arrow/arrow_text.h"

/* ---- arrow_bytes.c ---- */

/* A buffer of a batch. A window of it is in memory. Zero-filled at first. */
struct mfs_arrow_bytes {
	uint64_t offset; /* in the source */
	uint64_t size;	 /* bytes, unpacked */
	bool is_whole;	 /* the window is all of it */
	uint8_t *window;
	size_t room;
	uint64_t *taken;  /* the table's, of which room is a part; NULL: there is no window */
	uint64_t at, len; /* of the window, in the buffer */
};

struct mfs_arrow_table;

/* Sets b to a buffer of a batch; nothing is read unless it is compressed. whole: it is read as a
 * whole when it is first asked for. -EINVAL, -ENOTSUP: it cannot be unpacked. */
int mfs_arrow_bytes_set(struct mfs_arrow_bytes *b, const struct mfs_arrow_table *t,
			const struct mfs_arrow_batch *batch, uint32_t buffer, bool whole,
			struct mfs_error *err);
/* Bytes [at, at + len) of it, until the next call. -EINVAL: the buffer is shorter. */
int mfs_arrow_bytes_get(struct mfs_arrow_bytes *b, const struct mfs_arrow_table *t, uint64_t at,
			uint64_t len, const uint8_t **ret, struct mfs_error *err);
void mfs_arrow_bytes_release(struct mfs_arrow_bytes *b);

/* ---- arrow_values.c ---- */

/* The values that a batch has of a column, or of a part of a nested one. */
struct mfs_arrow_values {
	const struct mfs_arrow_column *column;
	uint64_t rows, nulls;
	struct mfs_arrow_bytes validity, offsets, data; /* offsets: views too */
	struct mfs_arrow_bytes *views;			/* the bytes of views */
	uint32_t view_count;
	struct mfs_arrow_dictionary *dictionary; /* NULL: it has none */
	struct mfs_arrow_values *children;	 /* [column->child_count] */
};

/* The words of a dictionary come in one batch, or further ones add to it. */
struct mfs_arrow_dictionary {
	int64_t id;
	struct mfs_arrow_column words; /* the column that their batches have */
	struct mfs_arrow_values *parts;
	uint64_t *firsts; /* of each part: the number of its first word */
	uint32_t part_count;
};

struct mfs_arrow_table {
	struct mfs_source src;
	struct mfs_arrow *arrow;
	struct mfs_arrow_values *columns; /* that are wanted and there */
	size_t count;
	struct mfs_arrow_dictionary **dictionaries;
	uint32_t dictionary_count;
	const char *column;	      /* that is read, for messages; NULL: none yet */
	struct mfs_arrow_batch batch; /* at hand */
	uint64_t row;		      /* of it, the next one */
	uint64_t windows;	      /* bytes of all windows */
	uint64_t *taken;	      /* windows, which reading changes */
};

/* Returns -EINVAL, with a sentence that names the batch and the column at hand. */
int mfs_arrow_damaged(const struct mfs_arrow_table *t, const char *what, struct mfs_error *err);

/* Whether a column can be read; any: as a table's wants have it. -ENOTSUP: no; -ENOMEM. Fills v,
 * for mfs_arrow_values_set(). */
int mfs_arrow_values_init(struct mfs_arrow_values *v, struct mfs_arrow_table *t,
			  const struct mfs_arrow_column *c, bool any, struct mfs_error *err);
/* Sets v, and what is below it, to a batch. */
int mfs_arrow_values_set(struct mfs_arrow_values *v, const struct mfs_arrow_table *t,
			 const struct mfs_arrow_batch *batch, struct mfs_error *err);
void mfs_arrow_values_release(struct mfs_arrow_values *v);
/* Takes a batch of words. */
int mfs_arrow_dictionary_add(struct mfs_arrow_table *t, const struct mfs_arrow_batch *batch,
			     struct mfs_error *err);
void mfs_arrow_dictionary_free(struct mfs_arrow_dictionary *d);

/* ---- arrow_json.c ---- */

/* Appends a value as JSON. */
int mfs_arrow_json(struct mfs_arrow_values *v, const struct mfs_arrow_table *t, uint64_t row,
		   struct mfs_table_row *to, struct mfs_error *err);

#endif
