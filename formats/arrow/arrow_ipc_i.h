/* Inside of the Arrow reader. */
#ifndef MFS_ARROW_ARROW_IPC_I_H
#define MFS_ARROW_ARROW_IPC_I_H

#include "formats/arrow/arrow_ipc.h"
#include "formats/base/arena.h"
#include "formats/arrow/flatbuffer.h"

#define MFS_ARROW_METADATA_MAX (256u << 20) /* bytes of one message's metadata, or of a footer */

struct mfs_arrow {
	struct mfs_source src;
	struct mfs_arena arena;
	struct mfs_arrow_column *columns;
	uint32_t column_count;
	uint32_t buffers, nodes, views; /* of all columns */
	bool has_dictionaries;
	int16_t version;   /* of the metadata, Message.fbs: V4 is 3, V5 is 4 */
	bool legacy;	   /* messages begin with their size at once */
	uint64_t end;	   /* where messages may not go beyond: the source's, or the footer */
	uint64_t at;	   /* of a stream: the next message */
	uint64_t batches;  /* that were given so far */
	uint8_t *metadata; /* of the message at hand */
	size_t room;
	/* Of a file: its footer, and in it the places of record batches. */
	uint8_t *footer;
	struct mfs_flat footer_flat;
	struct mfs_flat_vector blocks;
	bool is_file;
	bool gives_all; /* mfs_arrow_next_any() */
};

/* Fills columns, of a Schema table whose bytes stay where they are. */
int mfs_arrow_read_schema(struct mfs_arrow *a, const struct mfs_flat_table *schema,
			  struct mfs_error *err);

#endif
