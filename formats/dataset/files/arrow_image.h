/*
 * Rows as Arrow IPC stream files, byte for byte computable (Columnar.rst, "IPC Streaming Format";
 * Message.fbs, Schema.fbs): a schema message, few large record batches, an end of stream.
 *
 *   input_ids: list<item: T>, T = int32, uint16, ... as the rows' dtype, or fixed_size_list<item:
 *     T>[row_length]
 *   NAME: T    one for each column of the rows
 *   text: utf8 where a text is given
 *
 * Each message begins and each buffer of values lies at a multiple of MFS_ARROW_ALIGN, which is a
 * page: rows that cannot be read (rows->bad) have batches of their own and share no page with
 * others.
 */
#ifndef MFS_DATASET_FILES_ARROW_IMAGE_H
#define MFS_DATASET_FILES_ARROW_IMAGE_H

#include <stdint.h>

#include "formats/arrow/arrow_write.h"
#include "formats/base/error.h"
#include "formats/dataset/rows/rows.h"
#include "formats/dataset/text/row_text.h"
#include "formats/plan/vfile.h"

#define MFS_ARROW_TOKENS "input_ids" /* the column of tokens */

/* Bytes of tokens in a batch, about, by the size of all: readers open a file with two small reads
 * of each batch, and a program that streams holds a whole one. */
#define MFS_ARROW_BATCH	    (256ull << 20)
#define MFS_ARROW_BATCH_MAX (1ull << 30)
#define MFS_ARROW_BATCHES   4096 /* until batches have reached their largest size */
/* Bytes of tokens in a file: programs read one in each of their workers. */
#define MFS_ARROW_FILES	   64
#define MFS_ARROW_FILE_MAX (16ull << 30)

struct mfs_arrow_config {
	uint64_t batch;		   /* bytes of tokens; 0: as above */
	uint64_t file;		   /* bytes of tokens; 0: as above */
	struct mfs_row_text *text; /* of the rows; NULL: there is no such column */
};

struct mfs_arrow_image;

/*
 * Decides where batches and files begin: about one start is read for each, whatever the number of
 * rows, and 24 bytes are kept of it. rows and text must outlive the view. No rows: one file without
 * a batch. -ENOTSUP: a row of 2^31 tokens or bytes of text or more, or a dtype that Arrow does
 * not have.
 */
int mfs_arrow_image_new(const struct mfs_rows *rows, const struct mfs_arrow_config *config,
			struct mfs_arrow_image **ret, struct mfs_error *err);
void mfs_arrow_image_free(struct mfs_arrow_image *v);

uint32_t mfs_arrow_image_files(const struct mfs_arrow_image *v);
uint32_t mfs_arrow_image_batches(const struct mfs_arrow_image *v);
/* A new virtual file, which reads from the view until it is freed. Values pass through where rows
 * know extents. */
int mfs_arrow_image_file(struct mfs_arrow_image *v, uint32_t file, struct mfs_vfile **ret,
			 struct mfs_error *err);

#endif
