/*
 * The -o names, one row each. What a program must know of an option stands in its row: the parser
 * (options.c), commits of the gateway (fs/gateway/repos/options_digest.c), what a gateway refuses
 * (fs/gateway/gateway_config.c) and what has no effect on a mount are loops over this table.
 */
#ifndef MFS_FS_CLI_OPTION_ROWS_H
#define MFS_FS_CLI_OPTION_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/cli/options.h"

enum mfs_option_value_kind {
	MFS_OPTION_BARE,   /* it has none */
	MFS_OPTION_VALUED, /* it needs one */
	MFS_OPTION_PATH,   /* it needs one, the path of a file or a directory */
	MFS_OPTION_EITHER,
};

/* What an option says something about. */
enum mfs_option_scope {
	MFS_OPTION_OF_NONE, /* it is known, and has no effect on what is shown */
	MFS_OPTION_OF_MODELS,
	MFS_OPTION_OF_DATASETS,	   /* how those that there are are shown */
	MFS_OPTION_NAMES_DATASETS, /* which there are: an option for one SOURCE */
	MFS_OPTION_OF_SOURCES,	   /* of models and of datasets */
	MFS_OPTION_OF_PROGRAM,	   /* of all sources of the process together */
	MFS_OPTION_OF_MOUNT,	   /* of a mount, or of the process that serves */
};

/* How an option counts in the digest of a view's options, and so in commits and ETags. */
enum mfs_option_digest_kind {
	MFS_DIGEST_NONE,      /* a mistake, which a unit test finds */
	MFS_DIGEST_LEFT_OUT,  /* no byte of any file depends on it */
	MFS_DIGEST_BY_VIEW,   /* files that it names, which a view's identity has */
	MFS_DIGEST_TEXT,      /* the text, as it was given */
	MFS_DIGEST_NUMBER,    /* the number; 0 is nothing */
	MFS_DIGEST_FILE,      /* the content of the file that it names */
	MFS_DIGEST_FAMILIES,  /* all families that were added */
	MFS_DIGEST_SPLIT,     /* the words of a split's blend */
	MFS_DIGEST_TOKEN,     /* a token's id, which may be 0 */
	MFS_DIGEST_TOKENS_IN, /* a number, after the vocabulary that tokens are held against */
};

/* Which struct has the option's value. */
enum mfs_option_holder {
	MFS_OPTION_IN_NONE,
	MFS_OPTION_IN_VIEW, /* struct mfs_view_options */
	MFS_OPTION_IN_DATA, /* struct mfs_data_options */
	MFS_OPTION_IN_OPTIONS,
};

struct mfs_option_row {
	const char *name;
	enum mfs_option_value_kind value;
	/* Checks the value and keeps it. NULL: the option is known and ignored. */
	int (*apply)(struct mfs_options *opt, const struct mfs_option_row *row, const char *value,
		     struct mfs_error *err);
	enum mfs_option_holder in; /* of the member below */
	size_t at, size;
	bool is_text; /* the member is a string of its own */
	enum mfs_option_scope of;
	enum mfs_option_digest_kind digest;
	const char *digest_name; /* in the digest; NULL: the option's */
	/* Why no gateway takes it for a source, the end of a sentence; NULL: it does. */
	const char *gateway;
	const char *example; /* for sizes: values as a message shows them */
	unsigned most;	     /* for seconds: the largest number */
};

extern const struct mfs_option_row mfs_option_rows[];
extern const size_t mfs_option_row_count;

/* Why a gateway refuses options that are for its process: such are given on its command line. */
extern const char mfs_option_of_process[];
/* The same, of a mount alone. */
extern const char mfs_option_of_mounts[];

/* The row of an option, by its name or by "name=value"; NULL: none is called so. */
const struct mfs_option_row *mfs_option_find(const char *option);

/* Applies an option and keeps it among the settings. value NULL: none was given. -EINVAL: the value
 * is wrong, or there is one where there must be none. */
int mfs_option_apply(struct mfs_options *opt, const struct mfs_option_row *row, const char *value,
		     struct mfs_error *err);
/* Frees all texts that options have set. */
void mfs_option_texts_free(struct mfs_options *opt);

/* The row's member of the options of a view. NULL: it has none there. */
const void *mfs_option_in_view(const struct mfs_option_row *row, const struct mfs_view_options *o);

/* The file or directory that an option names and that is read while its source is served; NULL: it
 * names none, or was not given. (data= and family= may be given several times: they have lists.) */
const char *mfs_option_reads(const struct mfs_option_row *row, const struct mfs_view_options *o);

/* The setting after `at`, "name" or "name=value", of those that were given; NULL: the first one.
 * NULL is returned after the last. */
const char *mfs_option_next_setting(const struct mfs_options *opt, const char *at);

/* The option that was given first of those that are of such things; NULL: none. */
const struct mfs_option_row *mfs_option_given_of(const struct mfs_options *opt,
						 enum mfs_option_scope of);

/* Checks options of a mount. datasets, model: what its SOURCE has. -EINVAL: an option is of what
 * SOURCE has not; the sentence names it. */
int mfs_option_check_effect(const struct mfs_options *opt, bool datasets, bool model,
			    struct mfs_error *err);

/* Only digits; strtoull() would accept signs and spaces. -EINVAL. */
int mfs_parse_digits(const char *text, const char **ret_end, uint64_t *ret);

#endif
