#include "trainer/config/arguments_json.h"

static void add_value(const struct mfs_flag_value *v, struct mfs_buf *out);

static void add_items(const struct mfs_flag_value *v, struct mfs_buf *out)
{
	mfs_buf_adds(out, "[");
	for (size_t i = 0; i < v->count; i++) {
		mfs_buf_adds(out, i ? ", " : "");
		add_value(&v->items[i], out);
	}
	mfs_buf_adds(out, "]");
}

static void add_shown(const struct mfs_flag_value *v, struct mfs_buf *out)
{
	struct mfs_buf text = {0};

	mfs_flag_value_show(v, &text);
	mfs_buf_add_json(out, text.failed ? "" : text.data);
	out->failed |= text.failed;
	mfs_buf_release(&text);
}

static void add_value(const struct mfs_flag_value *v, struct mfs_buf *out)
{
	switch (v->type) {
	case MFS_IS_NONE:
		mfs_buf_adds(out, "null");
		break;
	case MFS_IS_BOOL:
		mfs_buf_adds(out, v->truth ? "true" : "false");
		break;
	case MFS_IS_INT:
	case MFS_IS_REAL:
		mfs_flag_value_show(v, out);
		break;
	case MFS_IS_TEXT:
		mfs_buf_add_json(out, v->text);
		break;
	case MFS_IS_LIST:
	case MFS_IS_TUPLE:
		add_items(v, out);
		break;
	case MFS_IS_DTYPE:
	case MFS_IS_ENUM:
		add_shown(v, out);
		break;
	}
}

void mfs_arguments_json(const struct mfs_flag_values *v, struct mfs_buf *out)
{
	bool first = true;

	mfs_buf_adds(out, "{");
	for (size_t i = 0; i < mfs_flag_count(); i++) {
		if (mfs_flag_at(i)->gone)
			continue;
		mfs_buf_printf(out, "%s\"%s\": ", first ? "" : ", ", mfs_flag_at(i)->dest);
		add_value(&v->at[i], out);
		first = false;
	}
	mfs_buf_adds(out, "}");
}
