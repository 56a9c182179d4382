/* The fields that follow from one flag each, by the table. */
#include <errno.h>
#include <string.h>

#include "formats/base/str.h"
#include "trainer/config/fill.h"
#include "trainer/config/value.h"

/* The number of a choice in a list with '|' between. */
static int choice_of(const char *choices, const char *text)
{
	int number = 0;

	for (;; number++) {
		const size_t len = strcspn(choices, "|");

		if (strlen(text) == len && !memcmp(choices, text, len))
			return number;
		if (!choices[len])
			return 0;
		choices += len + 1;
	}
}

/* Texts of a list, as they were given. */
static int words_of(const struct mft_flag_value *v, struct mfs_arena *arena,
		    struct mfs_arg_words *ret, struct mfs_error *err)
{
	const char **list;

	*ret = (struct mfs_arg_words){0};
	if (v->type != MFT_IS_LIST || !v->count)
		return 0;
	list = mfs_arena_array(arena, v->count, sizeof(*list));
	if (!list)
		return mfs_fail_nomem(err);
	for (size_t i = 0; i < v->count; i++)
		list[i] = v->items[i].type == MFT_IS_TEXT ? v->items[i].text : "";
	*ret = (struct mfs_arg_words){list, v->count};
	return 0;
}

static int fill_field(struct mft_train_config *c, const struct mft_flag *f,
		      const struct mft_flag_value *v, struct mfs_error *err)
{
	void *at = (char *)c + f->at;
	const bool truth = v->type == MFT_IS_BOOL && v->truth;

	switch (f->as) {
	case MFT_AS_NONE:
		break;
	case MFT_AS_BOOL:
		*(bool *)at = truth;
		break;
	case MFT_AS_NOT:
		*(bool *)at = !truth;
		break;
	case MFT_AS_INT:
		*(int64_t *)at = v->type == MFT_IS_INT	  ? v->number
				 : v->type == MFT_IS_REAL ? (int64_t)v->real
							  : (int64_t)f->none;
		break;
	case MFT_AS_REAL:
		*(double *)at = v->type == MFT_IS_REAL	? v->real
				: v->type == MFT_IS_INT ? (double)v->number
							: f->none;
		break;
	case MFT_AS_TEXT:
		*(const char **)at = v->type == MFT_IS_TEXT ? v->text : NULL;
		break;
	case MFT_AS_WORDS:
		return words_of(v, &c->arena, at, err);
	case MFT_AS_CHOICE:
		*(unsigned *)at =
			v->type == MFT_IS_TEXT ? (unsigned)choice_of(f->choices, v->text) : 0;
		break;
	case MFT_AS_DTYPE:
		*(enum mfs_dtype *)at = v->type == MFT_IS_DTYPE ? v->dtype : MFS_DTYPE_NONE;
		break;
	}
	return 0;
}

int mft_train_config_fill(struct mft_train_config *c, struct mfs_error *err)
{
	const size_t count = mft_flag_count();
	int r = 0;

	for (size_t i = 0; i < count && !r; i++)
		r = fill_field(c, mft_flag_at(i), &c->values->at[i], err);
	return r;
}
