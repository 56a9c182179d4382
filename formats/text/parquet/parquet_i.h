/* Inside of the Parquet reader (apache/parquet-format: parquet.thrift, Encodings.md). */
#ifndef MFS_TEXT_PARQUET_I_H
#define MFS_TEXT_PARQUET_I_H

#include "formats/base/arena.h"
#include "formats/text/parquet/parquet_runs.h"
#include "formats/text/parquet/parquet_text.h"
#include "formats/text/parquet/thrift.h"

#define MFS_PQ_PAGE_MAX (1u << 30) /* bytes, unpacked */

/* Type: those that are read here. */
enum mfs_pq_type { MFS_PQ_BOOLEAN, MFS_PQ_INT32, MFS_PQ_INT64, MFS_PQ_BYTE_ARRAY = 6 };

enum mfs_pq_encoding {
	MFS_PQ_PLAIN = 0,
	MFS_PQ_PLAIN_DICTIONARY = 2,
	MFS_PQ_RLE = 3, /* of booleans */
	MFS_PQ_DELTA_LENGTH = 6,
	MFS_PQ_RLE_DICTIONARY = 8,
};

enum mfs_pq_page_type {
	MFS_PQ_DATA_PAGE,
	MFS_PQ_INDEX_PAGE,
	MFS_PQ_DICTIONARY_PAGE,
	MFS_PQ_DATA_PAGE_V2,
};

/* Bytes of a page. */
struct mfs_pq_slice {
	const uint8_t *at;
	size_t len;
};

/* Bytes that grow only. */
struct mfs_pq_room {
	uint8_t *at;
	size_t size;
};

/* Where a column lies in a row group. */
struct mfs_pq_chunk {
	uint64_t offset, size, values;
	int codec;
	bool there;
};

/* A page's header. */
struct mfs_pq_page {
	int64_t type, size, packed, values, encoding, levels, repetitions;
	bool is_packed;
	uint64_t header; /* bytes of it */
};

/* A leaf of the schema, below a column that is wanted, or that one itself. */
struct mfs_pq_column {
	const char *name; /* of the column */
	uint32_t leaf;	  /* its number among all leaves, which are the columns of a row group */
	int type;	  /* enum mfs_pq_type */
	bool is_unsigned;
	uint32_t def_max, rep_max;
	struct mfs_pq_chunk *chunks; /* one for each row group */
	uint64_t at, end;	     /* the chunk at hand, in the file */
	uint64_t values;	     /* of it that are still to come */
	int codec;
	uint64_t page_values; /* of the page at hand that are still to come */
	bool has_levels;      /* def and rep are those of the next value */
	uint32_t def, rep;
	struct mfs_pq_room packed, page, dictionary;
	struct mfs_pq_slice *words; /* of the dictionary */
	uint32_t word_count;
	struct mfs_pq_runs rep_levels, def_levels;
	struct mfs_pq_runs numbers; /* of words, or booleans */
	int encoding;
	const uint8_t *next, *page_end; /* PLAIN and DELTA_LENGTH: values to come */
	uint32_t *lengths;		/* of DELTA_LENGTH */
	uint64_t length_count, length_at;
};

/* An element of the schema. */
struct mfs_pq_node {
	char *name;
	bool optional, repeated;
	bool is_list;		   /* its one child repeats the elements */
	bool has_wrapped_elements; /* and they are the one child of that */
	uint32_t def, rep;	   /* the levels of a value that is there, or goes on with a list */
	size_t first_leaf, leaf_end; /* columns of the table */
	struct mfs_pq_node *children;
	uint32_t child_count;
};

struct mfs_pq_table {
	struct mfs_source src;
	struct mfs_arena arena;	   /* nodes */
	struct mfs_pq_node *roots; /* as wanted; those without a name are not there */
	size_t root_count;
	struct mfs_pq_column *columns; /* the leaves below roots */
	size_t count;
	uint64_t *group_rows;
	uint32_t group_count, group; /* group: the next one */
	uint64_t rows;		     /* of the group at hand that are still to come */
	uint64_t taken;		     /* bytes of all rooms */
};

/* Returns -EINVAL, with a sentence. */
int mfs_pq_damaged(const struct mfs_pq_table *t, const char *what, struct mfs_error *err);
/* Reads bytes of the file. */
int mfs_pq_read(const struct mfs_pq_table *t, uint64_t offset, void *to, size_t len,
		struct mfs_error *err);
/* Makes a room larger, if it is smaller. -ENOTSUP: all rooms of the table would be too large. */
int mfs_pq_room(struct mfs_pq_table *t, struct mfs_pq_room *r, size_t size, struct mfs_error *err);

/* Fills t. -ENODATA: there is no such column. */
int mfs_pq_footer_read(struct mfs_pq_table *t, const struct mfs_table_want *want,
		       struct mfs_error *err);
/* The schema, whose list of elements is next. */
int mfs_pq_schema_read(struct mfs_pq_table *t, const struct mfs_table_want *want,
		       struct mfs_thrift *f, enum mfs_thrift_type type, struct mfs_error *err);

/* Reads the header at c->at, and goes on to what comes after it. */
int mfs_pq_page_header(struct mfs_pq_table *t, struct mfs_pq_column *c, struct mfs_pq_page *p,
		       struct mfs_error *err);
/* Reads a page into *to, unpacked. */
int mfs_pq_page_load(struct mfs_pq_table *t, struct mfs_pq_column *c, const struct mfs_pq_page *p,
		     struct mfs_pq_room *to, struct mfs_error *err);
int mfs_pq_dictionary_load(struct mfs_pq_table *t, struct mfs_pq_column *c,
			   const struct mfs_pq_page *p, struct mfs_error *err);
/* A value of a column as PLAIN has it, but no boolean; moves *at on. False: it goes beyond the
 * end. */
bool mfs_pq_plain(const struct mfs_pq_column *c, const uint8_t **at, const uint8_t *end,
		  struct mfs_pq_slice *ret);

/* Reads the lengths of a page of DELTA_LENGTH into c; r ends where they end. */
bool mfs_pq_lengths_read(struct mfs_pq_column *c, struct mfs_pq_runs *r);

/* Makes c->def and c->rep those of the next value. At the end of the row group c->has_levels is
 * false, and they are 0. */
int mfs_pq_peek(struct mfs_pq_table *t, struct mfs_pq_column *c, struct mfs_error *err);
/* The next value of a column; ret->at is NULL where it is not there up to the leaf. A boolean is a
 * byte. */
int mfs_pq_take(struct mfs_pq_table *t, struct mfs_pq_column *c, struct mfs_pq_slice *ret,
		struct mfs_error *err);

/* Appends the next row's value of a root as JSON. */
int mfs_pq_json(struct mfs_pq_table *t, const struct mfs_pq_node *root, struct mfs_table_row *to,
		struct mfs_error *err);

#endif
