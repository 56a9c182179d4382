/* Private to formats/model/families: a family's file that is being read. */
#ifndef MFS_MODEL_FAMILIES_READ_I_H
#define MFS_MODEL_FAMILIES_READ_I_H

#include <stdbool.h>

#include "formats/model/families/conf.h"
#include "formats/model/families/read.h"
#include "formats/model/families/words.h"

/* Rows of one kind. A row of a file takes the place of its base's rows of the same key. */
struct mfs_family_rows {
	struct mfs_family_entry {
		const char *key;
		unsigned where; /* the section, as a number */
		bool own;	/* of this file, not of its base */
		const void *row;
	} * at;
	size_t count;
};

struct mfs_family_reader {
	const char *file;
	mfs_find_base find;
	void *arg;
	struct mfs_arena *arena;
	struct mfs_family *family;
	struct mfs_family_rows tensors, config, aliases, notes, defaults;
	struct mfs_family_rows fused, vllm, sglang;
	struct mfs_language *language; /* the family's; NULL: no section is of it */
	struct mfs_family_rows hf_names, megatron_names; /* rows: what names begin with there */
	struct mfs_error *err;
};

/* A row of this file (own) takes the place of its base's rows of the same key. -EINVAL: there are
 * too many. */
int mfs_family_put(struct mfs_family_reader *r, struct mfs_family_rows *rows, unsigned where,
		   const char *key, const void *row, bool own);
/* Drops the base's rows of a key, or of all keys that begin as "mlp.*" does. -EINVAL: there are
 * none. */
int mfs_family_drop(struct mfs_family_reader *r, struct mfs_family_rows *rows, unsigned where,
		    const char *key);

/* Reads a line of a section of tensors, or of [config]. */
int mfs_family_read_tensor(struct mfs_family_reader *r, const struct mfs_conf_line *line,
			   enum mfs_scope scope, enum mfs_layer_kind kind);
int mfs_family_read_config(struct mfs_family_reader *r, const struct mfs_conf_line *line);

/* The section of a row as a number: mfs_family_put()'s where. */
unsigned mfs_family_where(enum mfs_scope scope, enum mfs_layer_kind kind);

/* Reads a line of [language], [language hf] or [language megatron] (family_language.c). */
int mfs_family_read_language(struct mfs_family_reader *r, const struct mfs_conf_line *line);
int mfs_family_read_hf_name(struct mfs_family_reader *r, const struct mfs_conf_line *line);
int mfs_family_read_megatron_name(struct mfs_family_reader *r, const struct mfs_conf_line *line);
/* Checks a vision-language family, and puts its tables into it. */
int mfs_family_settle_language(struct mfs_family_reader *r);

/* Reads a line of [fused], and puts its table into the family (fused.c). */
int mfs_family_read_fused(struct mfs_family_reader *r, const struct mfs_conf_line *line);
int mfs_family_settle_fused(struct mfs_family_reader *r);

/* Reads a line of [vllm] or [sglang], and puts the names of both into the family's rows
 * (vllm_names.c). */
int mfs_family_read_vllm(struct mfs_family_reader *r, const struct mfs_conf_line *line);
int mfs_family_read_sglang(struct mfs_family_reader *r, const struct mfs_conf_line *line);
int mfs_family_settle_vllm(struct mfs_family_reader *r, struct mfs_family_tensor *rows);

/* Fills in what follows from the tensors' names and the family's features, and puts the rows into
 * the family. */
int mfs_family_settle_tensors(struct mfs_family_reader *r);
int mfs_family_settle_config(struct mfs_family_reader *r);

#endif
