/*
 * The datasets of a mount: what stands below data/. They are opened once, before anything is shown.
 * Their views are opened when somebody enters them.
 *
 *   data/NAME/hf/                 a directory for datasets.load_from_disk
 *   data/NAME/parquet/  npy/  jsonl/
 *   data/NAME/text/               JSON lines of text, where there is a tokenizer
 *   data/NAME/megatron/           NAME.bin and NAME.idx: merged, repaired, or made of an HF dataset
 *   data/NAME/samples/SPEC/       training samples in Megatron's order, as an HF dataset
 *   data/NAME/cache/SPEC/         what Megatron takes as --data-cache-path
 *
 * NAME is a prefix's last part ("tales_text_document"), an HF dataset's directory (followed by
 * _SPLIT, if it has splits), the value of merge=, or "blend" for the datasets of data_path=, which
 * has samples and cache alone.
 */
#ifndef MFS_FS_DATA_DATA_H
#define MFS_FS_DATA_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/dataset/gpt/splits.h"
#include "fs/view/view.h"

#define MFS_DATA_PATHS 64

/* What a person may ask of datasets (-o). NULL or 0: not given. */
struct mfs_data_options {
	const char
		*paths[MFS_DATA_PATHS]; /* data=PATH, any number of times: a prefix, a directory */
	unsigned path_count;
	const char *merge;     /* merge=NAME: all indexed datasets as one, in order of names */
	const char *split;     /* split=99,1,0, as Megatron's --split */
	const char *data_path; /* data_path=WORDS, as Megatron's --data-path */
	const char *split_data_path[MFS_SPLITS]; /* train_data_path= and its like */
	const char *data_args_path;		 /* a file of such words */
	const char *megatron; /* megatron=VERSION, whose rules order samples; NULL: the newest */
	const char
		*tokenizer_id; /* tokenizer_id=FILE: JSON of what identifies Megatron's tokenizer */
	const char *column;    /* of token ids in HF datasets; NULL: input_ids, or the only one */
	const char *cache;     /* dataset_cache=DIR: takes the files that `datasets` writes */
	bool has_eod;	       /* append_eod=ID: one more token after each row of an HF dataset */
	int64_t eod;
	uint64_t vocab_size; /* vocab_size=N: tokens at or above it are -EIO; 0: not looked at */
	/* vocab_scan: all tokens are read when datasets are opened, and rows with one outside of
	 * the vocabulary are kept apart from their neighbours. Without it that is done for small
	 * datasets. */
	bool vocab_scan;
	/* tokenizer=DIR, which is the view options' own: text next to tokens; text_scan: of large
	 * datasets, too (fs/data/data_text.h) */
	const char *tokenizer;
	bool text_scan;
	uint64_t arrow_batch; /* arrow_batch=SIZE in bytes; 0: MFS_ARROW_BATCH */
};

struct mfs_data;
struct mfs_dataset;
struct mfs_fileset;
struct mfs_indexed_dataset;
struct mfs_rows;
struct mfs_views;

/* Opens the datasets of source (NULL: none) and of opt->paths. opt must outlive them. -ENOENT,
 * -ENODATA: a path holds no dataset; -EEXIST: two have one name; what the readers fail with. */
int mfs_data_open(const char *source, const struct mfs_data_options *opt, struct mfs_data **ret,
		  struct mfs_error *err);
void mfs_data_free(struct mfs_data *data);

/* Checks the options of a mount against its datasets; data NULL: it has none. -EINVAL: no dataset
 * is of the kind that an option is for, which the sentence names. A blend that is not of datasets
 * here fails as its views would. So does a tokenizer_id that cannot be read, unless it is a
 * directory, which may be filled later. (Options of what SOURCE has not: fs/cli/option_rows.h.) */
int mfs_data_check_options(const struct mfs_view_options *opt, const struct mfs_data *data,
			   struct mfs_error *err);

/* Whether there are datasets at path: a prefix of .idx and .bin (or one of these files), a
 * directory of them, or an HF dataset. */
bool mfs_data_looks_like_one(const char *path);
/* How many datasets mfs_data_open() would find there, with those that options add. By names, and
 * the lists of splits, alone: no dataset is opened. opt may be NULL. */
uint32_t mfs_data_look(const char *path, const struct mfs_data_options *opt);
/* The absolute path of a file, a directory, or a prefix, which is neither. The caller frees *ret.
 * -ENOENT. */
int mfs_data_path(const char *path, char **ret, struct mfs_error *err);

uint32_t mfs_data_count(const struct mfs_data *data);
/* In order of names. */
struct mfs_dataset *mfs_data_at(const struct mfs_data *data, uint32_t i);
struct mfs_dataset *mfs_data_find(const struct mfs_data *data, const char *name, size_t len);

const char *mfs_dataset_name(const struct mfs_dataset *d);
/* Absolute; NULL: a merge or a blend. */
const char *mfs_dataset_path(const struct mfs_dataset *d);
const struct mfs_data_options *mfs_dataset_options(const struct mfs_dataset *d);
/* The .idx and .bin that it is made of. NULL: it is made of something else. */
struct mfs_indexed_dataset *mfs_dataset_indexed(const struct mfs_dataset *d);
/* Its rows. NULL: it is a blend, which has samples and no rows. */
struct mfs_rows *mfs_dataset_rows(const struct mfs_dataset *d);
int64_t mfs_dataset_mtime(const struct mfs_dataset *d);
/* A sentence about damage that did not keep the dataset from being opened; "": there is none. */
const char *mfs_dataset_warning(const struct mfs_dataset *d);

/* The files that its rows are made of; a blend has none. */
struct mfs_fileset *const *mfs_dataset_sets(const struct mfs_dataset *d, uint32_t *ret_count);

struct mfs_buf;
/* A row, for people. */
struct mfs_dataset_row {
	uint64_t rows, row;	  /* of the dataset; which of these */
	uint64_t tokens;	  /* of the row */
	uint64_t shown;		  /* of these, from the first one on */
	bool is_text;		  /* there is a tokenizer; else they are ids, in decimal */
	struct mfs_error why_ids; /* code 0: they are text, or no tokenizer was given */
};
/* Appends the first tokens of a row, at most so many; of the last row, if there is none of that
 * number. -ENODATA: there are no rows; -ENOTSUP: tokens are no integers; what reading fails
 * with, when *ret is right. */
int mfs_dataset_show_row(const struct mfs_dataset *d, uint64_t row, uint64_t most,
			 struct mfs_buf *text, struct mfs_dataset_row *ret, struct mfs_error *err);

/* Views that stay open while nobody uses them, of all datasets together. */
#define MFS_DATA_KEEP_OPEN 8

/* By their names: "hf", "samples/train-s4096-n1000". */
struct mfs_views *mfs_dataset_views(struct mfs_dataset *d);

#endif
