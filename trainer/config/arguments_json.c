#include "trainer/config/arguments_json.h"

static void add_value(const struct mft_flag_value *v, struct mfs_buf *out);

static void add_items(const struct mft_flag_value *v, struct mfs_buf *out)
{
	mfs_buf_adds(out, "[");
	for (size_t i = 0; i < v->count; i++) {
		mfs_buf_adds(out, i ? ", " : "");
		add_value(&v->items[i], out);
	}
	mfs_buf_adds(out, "]");
}

static void add_shown(const struct mft_flag_value *v, struct mfs_buf *out)
{
	struct mfs_buf text = {0};

	mft_flag_value_show(v, &text);
	mfs_buf_add_json(out, text.failed ? "" : text.data);
	out->failed |= text.failed;
	mfs_buf_release(&text);
}

static void add_value(const struct mft_flag_value *v, struct mfs_buf *out)
{
	switch (v->type) {
	case MFT_IS_NONE:
		mfs_buf_adds(out, "null");
		break;
	case MFT_IS_BOOL:
		mfs_buf_adds(out, v->truth ? "true" : "false");
		break;
	case MFT_IS_INT:
	case MFT_IS_REAL:
		mft_flag_value_show(v, out);
		break;
	case MFT_IS_TEXT:
		mfs_buf_add_json(out, v->text);
		break;
	case MFT_IS_LIST:
	case MFT_IS_TUPLE:
		add_items(v, out);
		break;
	case MFT_IS_DTYPE:
	case MFT_IS_ENUM:
		add_shown(v, out);
		break;
	}
}

void mft_arguments_json(const struct mft_flag_values *v, struct mfs_buf *out)
{
	bool first = true;

	mfs_buf_adds(out, "{");
	for (size_t i = 0; i < mft_flag_count(); i++) {
		if (mft_flag_at(i)->gone)
			continue;
		mfs_buf_printf(out, "%s\"%s\": ", first ? "" : ", ", mft_flag_at(i)->dest);
		add_value(&v->at[i], out);
		first = false;
	}
	mfs_buf_adds(out, "}");
}
