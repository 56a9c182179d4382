/* Inside of the Parquet view: row groups and the column chunks in them. */
#ifndef MFS_DATASET_FILES_PARQUET_IMAGE_I_H
#define MFS_DATASET_FILES_PARQUET_IMAGE_I_H

#include <stdatomic.h>

#include "formats/base/buf.h"
#include "formats/dataset/files/elements.h"
#include "formats/dataset/files/parquet_image.h"
#include "formats/arrow/parquet_write.h"

/* A column: the tokens, which is number 0, or one of the rows' own. */
struct column {
	const struct mfs_rows *rows;
	size_t number;
	enum mfs_dtype dtype;
	unsigned width;		    /* of a stored value */
	struct mfs_elements values; /* by tokens, or by rows */
	uint64_t full;		    /* bytes of a page without empty rows */
};

/* Where pages of texts begin in their column chunk, and where the last one ends. */
struct text_places {
	uint64_t pages;
	uint64_t at[];
};

/* Where a page begins: in the column chunk, and at which entry, which is a token or an empty
 * row. */
struct page_start {
	uint64_t at, row, token;
};

/* What a pass over the starts of a row group's rows has found. */
struct group_index {
	uint64_t empties;	  /* rows */
	uint64_t size;		  /* bytes of the pages of tokens */
	struct text_places *text; /* NULL: there is no such column */
	uint64_t pages;		  /* 0 if there is no empty row: then places are computed */
	struct page_start places[];
};

struct group {
	uint64_t first, end;		     /* rows */
	uint64_t token, tokens;		     /* before it, in it */
	uint64_t offset;		     /* in its file */
	uint64_t text;			     /* bytes of its texts, with their lengths */
	bool bad;			     /* its rows cannot be read */
	_Atomic(struct group_index *) index; /* NULL until it is first needed */
};

struct parquet_file {
	struct mfs_parquet_image *view;
	size_t first, end; /* groups */
	uint64_t size;
	uint64_t footer_room;		  /* bytes at its end, which the footer does not fill */
	_Atomic(struct mfs_buf *) footer; /* NULL until it is first read */
};

struct mfs_parquet_image {
	const struct mfs_rows *rows;
	struct mfs_parquet_config config; /* nothing in it is 0 */
	struct column *columns;
	struct mfs_parquet_column *schema; /* of the columns */
	size_t column_count;		   /* with the texts, which are the last one */
	uint64_t text_rows;		   /* of a page of texts; 0: there are none */
	struct group *groups;
	size_t group_count;
	struct parquet_file *files;
	uint32_t file_count;
};

/* Bytes that a column chunk has room for: a multiple of MFS_PARQUET_ALIGN. */
uint64_t mfs_parquet_room(const struct mfs_parquet_image *v, const struct group *g, size_t column);
/* What is known of a group's empty rows, found out on first use. -EIO: starts contradict each
 * other. */
int mfs_parquet_index(const struct mfs_parquet_image *v, struct group *g,
		      const struct group_index **ret, struct mfs_error *err);
/* Bytes and entries of a column chunk. */
void mfs_parquet_measure(const struct mfs_parquet_image *v, const struct group *g,
			 const struct group_index *index, size_t column,
			 struct mfs_parquet_column_chunk *ret);
/* Bytes [off, off+len) of the room of a column chunk. */
int mfs_parquet_read_chunk(const struct mfs_parquet_image *v, struct group *g, size_t column,
			   uint64_t off, uint8_t *buf, size_t len, struct mfs_error *err);
/* Bytes of a page of a column whose rows are not empty. */
uint64_t mfs_parquet_page_size(const struct column *c, uint64_t entries);
void mfs_parquet_free_index(struct group_index *x); /* NULL: nothing */
/* What a page takes at most in addition to its values and a bit for each entry: header, lengths,
 * varints. */
#define MFS_PARQUET_PAGE_EXTRA (MFS_PARQUET_PAGE_HEADER + 2 * 4 + 16)

/* All of a row group's column chunks. */
uint64_t mfs_parquet_group_size(const struct mfs_parquet_image *v, const struct group *g);

/* Of a struct parquet_file. */
extern const struct mfs_computed_ops mfs_parquet_file_computed;
void mfs_parquet_free_footer(struct mfs_buf *b);

/* ---- parquet_column_text.c ---- */

/* Decides how many rows a page of texts has: about MFS_PARQUET_TEXT_PAGE bytes. */
#define MFS_PARQUET_TEXT_PAGE (1u << 20)
int mfs_parquet_text_rows(struct mfs_parquet_image *v, struct mfs_error *err);
/* Whether the column is that of texts. */
static inline bool mfs_parquet_is_text(const struct mfs_parquet_image *v, size_t column)
{
	return v->text_rows && column + 1 == v->column_count;
}
/* Bytes of a group's texts, with their lengths. */
int mfs_parquet_text_size(const struct mfs_parquet_image *v, const struct group *g, uint64_t *ret,
			  struct mfs_error *err);
uint64_t mfs_parquet_text_room(const struct mfs_parquet_image *v, const struct group *g);
/* The caller frees *ret. -ENOTSUP: a page would be too large. */
int mfs_parquet_text_places(const struct mfs_parquet_image *v, const struct group *g,
			    struct text_places **ret, struct mfs_error *err);
/* Bytes [off, off+len) of the pages. */
int mfs_parquet_read_text(const struct mfs_parquet_image *v, const struct group *g,
			  const struct text_places *places, uint64_t off, uint8_t *buf, size_t len,
			  struct mfs_error *err);

/* ---- parquet_levels.c ---- */

/* Going through the entries of a row group: the next one is `token`, in `row`, or `row` if that is
 * empty. */
#define MFS_PARQUET_STARTS 1024

struct entries {
	const struct mfs_rows *rows;
	uint64_t row, token;
	uint64_t end, token_end;	     /* of the group */
	uint64_t starts_first, starts_count; /* of those at hand */
	uint64_t starts[MFS_PARQUET_STARTS + 1];
};

/* The levels of count entries. */
struct levels {
	uint8_t *repetition;	   /* a bit each, (count + 7) / 8 bytes; the caller's */
	struct mfs_buf definition; /* runs; to be released */
	uint64_t values;	   /* of the entries that are tokens */
};

void mfs_parquet_entries(struct entries *e, const struct mfs_rows *rows, const struct group *g,
			 uint64_t row, uint64_t token);
/* Takes the levels of the next count entries. -EIO: there are not as many, or starts contradict
 * each other. */
int mfs_parquet_levels(struct entries *e, uint64_t count, struct levels *ret,
		       struct mfs_error *err);

#endif
