/*
 * Values of flags, as Python has them: None, True, 5, 0.5, 'text', [..], (..), torch.bfloat16, and
 * members of enums.
 */
#ifndef MFT_TRAINER_CONFIG_VALUE_H
#define MFT_TRAINER_CONFIG_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/buf.h"
#include "formats/base/error.h"
#include "formats/base/tensor.h"
#include "trainer/config/flag.h"

enum mft_flag_value_type {
	MFT_IS_NONE,
	MFT_IS_BOOL,
	MFT_IS_INT,
	MFT_IS_REAL,
	MFT_IS_TEXT,
	MFT_IS_LIST,
	MFT_IS_TUPLE,
	MFT_IS_DTYPE,
	MFT_IS_ENUM,
};

struct mft_flag_value {
	enum mft_flag_value_type type;
	union {
		bool truth;
		int64_t number; /* of INT; the value of an ENUM's member */
		double real;
		const char *text;
		enum mfs_dtype dtype;
		struct {
			const struct mft_flag_value *items;
			size_t count;
		};
	};
	const struct mft_flag_enum *of; /* of ENUM */
};

/* Who set it. A later one in this list has the last word. */
enum mft_flag_source {
	MFT_FROM_DEFAULT,
	MFT_FROM_CHECKPOINT,
	MFT_FROM_YAML,
	MFT_FROM_COMMAND_LINE,
};

/* A name that was given and is no flag's. */
struct mft_flag_other {
	const char *name;
	const char *becomes; /* the flags that say the same; NULL: it has no effect here */
	struct mft_flag_other *next;
};

/* The values of all flags, by their numbers. */
struct mft_flag_values {
	struct mft_flag_value *at;	  /* [mft_flag_count()] */
	unsigned char *from;		  /* enum mft_flag_source */
	struct mft_flag_other *others;	  /* in the order in which they were met */
	struct mft_flag_other *overruled; /* sentences: what was given, and does not count */
};

/* All flags with their defaults, in arena. -ENOMEM. */
int mft_flag_values_new(struct mfs_arena *arena, struct mft_flag_values **ret,
			struct mfs_error *err);

/* The value of a flag by its dest, which must exist. */
const struct mft_flag_value *mft_flag_get(const struct mft_flag_values *v, const char *dest);
struct mft_flag_value *mft_flag_slot(struct mft_flag_values *v, const char *dest);
/* True if somebody has set it: from is not DEFAULT. */
bool mft_flag_is_given(const struct mft_flag_values *v, const char *dest);

/* Of another type: otherwise. A real may be an integer. */
bool mft_flag_truth(const struct mft_flag_values *v, const char *dest);
int64_t mft_flag_number(const struct mft_flag_values *v, const char *dest, int64_t otherwise);
double mft_flag_real(const struct mft_flag_values *v, const char *dest, double otherwise);
const char *mft_flag_text(const struct mft_flag_values *v, const char *dest);
bool mft_flag_is_none(const struct mft_flag_values *v, const char *dest);

void mft_flag_set_none(struct mft_flag_values *v, const char *dest);
void mft_flag_set_truth(struct mft_flag_values *v, const char *dest, bool truth);
void mft_flag_set_number(struct mft_flag_values *v, const char *dest, int64_t number);
void mft_flag_set_real(struct mft_flag_values *v, const char *dest, double real);
void mft_flag_set_text(struct mft_flag_values *v, const char *dest, const char *text);
/* The member of the flag's enum that has this value. */
void mft_flag_set_member(struct mft_flag_values *v, const char *dest, int64_t value);
void mft_flag_set_dtype(struct mft_flag_values *v, const char *dest, enum mfs_dtype dtype);

/*
 * Reads the words of a flag. spelling: the flag as it was given, for messages. words are borrowed.
 * -EINVAL: it takes another number of words, or another kind of them, or other choices.
 */
int mft_flag_value_parse(const struct mft_flag *f, const char *spelling, const char *const *words,
			 size_t count, struct mfs_arena *arena, struct mft_flag_value *ret,
			 struct mfs_error *err);

/* Appends a value as Python's repr() writes it. */
void mft_flag_value_show(const struct mft_flag_value *v, struct mfs_buf *out);
/* True if both are the same; 1 and 1.0 are. */
bool mft_flag_value_same(const struct mft_flag_value *a, const struct mft_flag_value *b);

#endif
