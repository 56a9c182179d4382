#include "trainer/config/flags_source.h"

#include <string.h>

static void set_text(struct mfs_arg *to, enum mfs_arg_type type, const char *text)
{
	to->type = type;
	to->text = text;
	to->len = strlen(text);
}

static void set_items(struct mfs_arg *to, enum mfs_arg_type type, const struct mft_flag_value *v)
{
	to->type = type;
	to->count = (uint32_t)v->count;
	to->items = (uintptr_t)v->items;
}

/* As run_namespace.c pickles it, and a reader of the pickle finds it. */
static struct mfs_arg value(const struct mft_flag_value *v)
{
	struct mfs_arg a = {.type = MFS_ARG_NONE};

	switch (v->type) {
	case MFT_IS_NONE:
		break;
	case MFT_IS_BOOL:
		a = (struct mfs_arg){.type = MFS_ARG_BOOL, .truth = v->truth};
		break;
	case MFT_IS_INT:
		a = (struct mfs_arg){.type = MFS_ARG_INT, .number = v->number};
		break;
	case MFT_IS_REAL:
		a = (struct mfs_arg){.type = MFS_ARG_REAL, .real = v->real};
		break;
	case MFT_IS_TEXT:
		set_text(&a, MFS_ARG_TEXT, v->text);
		break;
	case MFT_IS_LIST:
		set_items(&a, MFS_ARG_LIST, v);
		break;
	case MFT_IS_TUPLE:
		set_items(&a, MFS_ARG_OTHER, v);
		break;
	case MFT_IS_DTYPE:
		set_text(&a, MFS_ARG_CLASS, mfs_dtype_torch(v->dtype));
		break;
	case MFT_IS_ENUM:
		set_text(&a, MFS_ARG_OTHER, v->of->class_name);
		break;
	}
	return a;
}

static bool get(const struct mfs_args_source *s, const char *name, struct mfs_arg *ret)
{
	const struct mft_flag_values *values = s->from;
	const size_t number = mft_flag_of_dest(name);

	if (number == SIZE_MAX || mft_flag_at(number)->gone)
		return false;
	*ret = value(&values->at[number]);
	return true;
}

static void item(const struct mfs_args_source *s, const struct mfs_arg *of, uint32_t i,
		 struct mfs_arg *ret)
{
	(void)s;
	*ret = value((const struct mft_flag_value *)of->items + i);
}

struct mfs_args_source mft_args_of_flags(const struct mft_flag_values *values)
{
	static const struct mfs_args_source_ops flags = {get, item};

	return (struct mfs_args_source){.ops = &flags, .from = values};
}
