/* Inside of the Parquet reader (apache/parquet-format: parquet.thrift, Encodings.md). */
#ifndef MFS_TEXT_PARQUET_I_H
#define MFS_TEXT_PARQUET_I_H

#include "formats/text/parquet/parquet_runs.h"
#include "formats/text/parquet/parquet_text.h"

#define MFS_PQ_PAGE_MAX (1u << 30) /* bytes, unpacked */

enum mfs_pq_encoding {
	MFS_PQ_PLAIN = 0,
	MFS_PQ_PLAIN_DICTIONARY = 2,
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

struct mfs_pq_column {
	const char *name;
	uint32_t leaf; /* its number among the columns of a row group */
	bool optional;
	struct mfs_pq_chunk *chunks; /* one for each row group */
	uint64_t at, end;	     /* the chunk at hand, in the file */
	uint64_t values;	     /* of it that are still to come */
	int codec;
	uint64_t page_values; /* of the page at hand that are still to come */
	struct mfs_pq_room packed, page, dictionary;
	struct mfs_pq_slice *words; /* of the dictionary */
	uint32_t word_count;
	struct mfs_pq_runs levels, numbers; /* numbers: of words, or of DELTA_LENGTH none */
	int encoding;
	const uint8_t *next, *page_end; /* PLAIN and DELTA_LENGTH: values to come */
	uint32_t *lengths;		/* of DELTA_LENGTH */
	uint64_t length_count, length_at;
};

struct mfs_pq_table {
	struct mfs_source src;
	struct mfs_pq_column *columns;
	size_t count;
	uint64_t *group_rows;
	uint32_t group_count, group; /* group: the next one */
	uint64_t rows;		     /* of the group at hand that are still to come */
};

/* Returns -EINVAL, with a sentence. */
int mfs_pq_damaged(const struct mfs_pq_table *t, const char *what, struct mfs_error *err);
/* Reads bytes of the file. */
int mfs_pq_read(const struct mfs_pq_table *t, uint64_t offset, void *to, size_t len,
		struct mfs_error *err);
int mfs_pq_room(struct mfs_pq_room *r, size_t size, struct mfs_error *err);

/* Fills t from its columns' names. -ENODATA: there is no such column. */
int mfs_pq_footer_read(struct mfs_pq_table *t, struct mfs_error *err);

/* Reads the header at c->at, and goes on to what comes after it. */
int mfs_pq_page_header(struct mfs_pq_table *t, struct mfs_pq_column *c, struct mfs_pq_page *p,
		       struct mfs_error *err);
/* Reads a page into *to, unpacked. */
int mfs_pq_page_load(struct mfs_pq_table *t, struct mfs_pq_column *c, const struct mfs_pq_page *p,
		     struct mfs_pq_room *to, struct mfs_error *err);
int mfs_pq_dictionary_load(struct mfs_pq_table *t, struct mfs_pq_column *c,
			   const struct mfs_pq_page *p, struct mfs_error *err);
/* A byte array as PLAIN has it; moves *at on. False: it goes beyond the end. */
bool mfs_pq_plain(const uint8_t **at, const uint8_t *end, struct mfs_pq_slice *ret);

/* Reads the lengths of a page of DELTA_LENGTH into c; r ends where they end. */
bool mfs_pq_lengths_read(struct mfs_pq_column *c, struct mfs_pq_runs *r);

/* The next value of a column; ret->at is NULL for null. */
int mfs_pq_value(struct mfs_pq_table *t, struct mfs_pq_column *c, struct mfs_pq_slice *ret,
		 struct mfs_error *err);

#endif
