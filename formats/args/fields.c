#include "formats/args/field.h"

#include <string.h>

/* The words of fields.h. */
#define NAMED(text)  .name = (text)
#define OR_AS(text)  .also = (text)
#define AND_AS(text) .also = (text), .also_written = true
#define INVERTED     .inverted = true
#define REQUIRED     .read = MFS_ARGS_REQUIRED
#define POSITIVE(n)  .read = MFS_ARGS_POSITIVE, .absent = {.number = (n)}
#define NATURAL(n)   .read = MFS_ARGS_ANY, .absent = {.number = (n)}
#define REAL_OR(x)   .read = MFS_ARGS_ANY, .absent = {.real = (x)}
#define FLAG_OR(x)   .read = MFS_ARGS_ANY, .absent = {.truth = (x)}
#define TEXT_OR(x)   .read = MFS_ARGS_ANY, .absent = {.text = (x)}
#define PLAIN(...)                                                                                 \
	.plain = &(const union mfs_args_value)                                                     \
	{                                                                                          \
		__VA_ARGS__                                                                        \
	}
#define WRITTEN		  WRITTEN_IN(RUN)
#define WRITTEN_IN(where) .section = MFS_ARGS_IN_##where
#define ZERO_IS_NONE	  .zero_is_none = true
#define WHOLE		  .whole = true
#define MODEL		  .scope = MFS_ARGS_MODEL
#define TRAINING	  .scope = MFS_ARGS_TRAINING
#define SHOWN(text)	  .shown = (text)
#define APART(reason)	  .why = (reason)
#define WORD		  .word = true
#define TAKEN		  .taken = MFS_ARGS_TAKEN
#define FORCED		  .taken = MFS_ARGS_FORCED
#define FITS		  .fits = true
#define FITS_AS(text)	  FITS, .fits_as = (text)

#define ROW(type_, member_, ...)                                                                   \
	{.member = #member_,                                                                       \
	 .offset = offsetof(struct mfs_megatron_args, member_),                                    \
	 .type = MFS_ARGS_##type_,                                                                 \
	 __VA_ARGS__},

const struct mfs_args_field mfs_args_fields[] = {
#define ARG(...)  ROW(__VA_ARGS__)
#define PART(...) ROW(__VA_ARGS__)
#include "formats/args/fields.h"
	{0},
};

const struct mfs_args_field *mfs_args_word(const char *word)
{
	for (const struct mfs_args_field *f = mfs_args_fields; f->member; f++)
		if (f->word && !strcmp(f->member, word))
			return f;
	return NULL;
}

void mfs_args_set(struct mfs_megatron_args *a, const struct mfs_args_field *f,
		  union mfs_args_value value)
{
	void *at = (char *)a + f->offset;

	switch (f->type) {
	case MFS_ARGS_INT:
		*(int64_t *)at = value.number;
		break;
	case MFS_ARGS_REAL:
		*(double *)at = value.real;
		break;
	case MFS_ARGS_FLAG:
		*(bool *)at = value.truth;
		break;
	case MFS_ARGS_TEXT:
		*(const char **)at = value.text;
		break;
	case MFS_ARGS_LAYERS:
	case MFS_ARGS_TEXTS:
	case MFS_ARGS_PAIR:
	case MFS_ARGS_MUP:
		break;
	}
}

struct mfs_megatron_args mfs_args_plain(void)
{
	struct mfs_megatron_args a = {0};

	for (const struct mfs_args_field *f = mfs_args_fields; f->member; f++)
		mfs_args_set(&a, f, f->plain ? *f->plain : f->absent);
	return a;
}
