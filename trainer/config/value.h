/*
 * Values of flags, as Python has them: None, True, 5, 0.5, 'text', [..], (..), torch.bfloat16, and
 * members of enums.
 */
#ifndef MFS_TRAINER_CONFIG_VALUE_H
#define MFS_TRAINER_CONFIG_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/buf.h"
#include "formats/base/error.h"
#include "formats/base/tensor.h"
#include "trainer/config/flag.h"

enum mfs_flag_value_type {
	MFS_IS_NONE,
	MFS_IS_BOOL,
	MFS_IS_INT,
	MFS_IS_REAL,
	MFS_IS_TEXT,
	MFS_IS_LIST,
	MFS_IS_TUPLE,
	MFS_IS_DTYPE,
	MFS_IS_ENUM,
};

struct mfs_flag_value {
	enum mfs_flag_value_type type;
	union {
		bool truth;
		int64_t number; /* of INT; the value of an ENUM's member */
		double real;
		const char *text;
		enum mfs_dtype dtype;
		struct {
			const struct mfs_flag_value *items;
			size_t count;
		};
	};
	const struct mfs_flag_enum *of; /* of ENUM */
};

/* Who set it. A later one in this list has the last word. */
enum mfs_flag_from {
	MFS_FROM_DEFAULT,
	MFS_FROM_CHECKPOINT,
	MFS_FROM_YAML,
	MFS_FROM_COMMAND_LINE,
};

/* A name that was given and is no flag's. */
struct mfs_flag_other {
	const char *name;
	const char *becomes; /* the flags that say the same; NULL: it has no effect here */
	struct mfs_flag_other *next;
};

/* The values of all flags, by their numbers. */
struct mfs_flag_values {
	struct mfs_flag_value *at;	  /* [mfs_flag_count()] */
	unsigned char *from;		  /* enum mfs_flag_from */
	struct mfs_flag_other *others;	  /* in the order in which they were met */
	struct mfs_flag_other *overruled; /* sentences: what was given, and does not count */
};

/* All flags with their defaults, in arena. -ENOMEM. */
int mfs_flag_values_new(struct mfs_arena *arena, struct mfs_flag_values **ret,
			struct mfs_error *err);

/* The value of a flag by its dest, which must exist. */
const struct mfs_flag_value *mfs_flag_get(const struct mfs_flag_values *v, const char *dest);
struct mfs_flag_value *mfs_flag_slot(struct mfs_flag_values *v, const char *dest);
/* True if somebody has set it: from is not DEFAULT. */
bool mfs_flag_is_given(const struct mfs_flag_values *v, const char *dest);

/* Of another type: otherwise. A real may be an integer. */
bool mfs_flag_truth(const struct mfs_flag_values *v, const char *dest);
int64_t mfs_flag_number(const struct mfs_flag_values *v, const char *dest, int64_t otherwise);
double mfs_flag_real(const struct mfs_flag_values *v, const char *dest, double otherwise);
const char *mfs_flag_text(const struct mfs_flag_values *v, const char *dest);
bool mfs_flag_is_none(const struct mfs_flag_values *v, const char *dest);

void mfs_flag_set_none(struct mfs_flag_values *v, const char *dest);
void mfs_flag_set_truth(struct mfs_flag_values *v, const char *dest, bool truth);
void mfs_flag_set_number(struct mfs_flag_values *v, const char *dest, int64_t number);
void mfs_flag_set_real(struct mfs_flag_values *v, const char *dest, double real);
void mfs_flag_set_text(struct mfs_flag_values *v, const char *dest, const char *text);
/* The member of the flag's enum that has this value. */
void mfs_flag_set_member(struct mfs_flag_values *v, const char *dest, int64_t value);
void mfs_flag_set_dtype(struct mfs_flag_values *v, const char *dest, enum mfs_dtype dtype);

/*
 * Reads the words of a flag. said: the flag as it was spelt, for messages. words are borrowed.
 * -EINVAL: it takes another number of words, or another kind of them, or other choices.
 */
int mfs_flag_value_parse(const struct mfs_flag *f, const char *said, const char *const *words,
			 size_t count, struct mfs_arena *arena, struct mfs_flag_value *ret,
			 struct mfs_error *err);

/* Appends a value as Python's repr() writes it. */
void mfs_flag_value_show(const struct mfs_flag_value *v, struct mfs_buf *out);
/* True if both are the same; 1 and 1.0 are. */
bool mfs_flag_value_same(const struct mfs_flag_value *a, const struct mfs_flag_value *b);

#endif
