/* Arguments of a model of blocks, in its other form: formats/megatron/write/form.h. */
#include "tests/unit/unit.h"

#include <string.h>

#include "formats/megatron/write/form.h"
#include "formats/torch/pickle.h"

static struct mfs_error err;

/* Of two blocks that were a HybridModel's. */
static struct mfs_megatron_args blocks(void)
{
	return (struct mfs_megatron_args){.num_layers = 2,
					  .hybrid_form = true,
					  .first_stage_layers = 1,
					  .last_stage_layers = MFS_ABSENT,
					  .window_size = MFS_ABSENT};
}

/* An argument as it was written; doc refers to the bytes. */
struct written {
	struct mfs_buf bytes;
	struct mfs_pickle *doc;
	mfs_value v;
};

/* Reads the argument that the GPTModel has; its value was another. */
static struct written replace(const struct mfs_megatron_args *a, const char *name)
{
	struct mfs_form form = {.args = a};
	struct mfs_pickle_writer w;
	struct written ret = {0};

	mfs_pickle_begin(&w, &ret.bytes, 2);
	mfs_pickle_dict_begin(&w);
	ck_assert_int_eq(mfs_form_replace(&form, &w, name, strlen(name)), 1);
	mfs_pickle_dict_end(&w);
	unit_ok(mfs_pickle_end(&w, &err), &err);
	unit_ok(mfs_pickle_parse(ret.bytes.data, ret.bytes.len, name, NULL, &ret.doc, &err), &err);
	ret.v = mfs_value_get(ret.doc, mfs_pickle_root(ret.doc), name);
	return ret;
}

static void release(struct written *w)
{
	mfs_pickle_free(w->doc);
	mfs_buf_release(&w->bytes);
}

/* Megatron takes None as all layers, and the source's window_size stays. */
START_TEST(no_layer_has_the_window)
{
	static const uint8_t has[] = {1, 0};
	struct mfs_megatron_args a = blocks();
	struct written w = replace(&a, "window_attn_skip_freq");
	int64_t every = 0;

	ck_assert(mfs_value_int(w.doc, w.v, &every));
	ck_assert_int_eq(every, 1);
	release(&w);
	a.window_size = 16;
	w = replace(&a, "window_attn_skip_freq");
	ck_assert(mfs_value_is_none(w.doc, w.v));
	release(&w);
	a.window_layers = has;
	w = replace(&a, "window_attn_skip_freq");
	ck_assert_uint_eq(mfs_value_count(w.doc, w.v), 2);
	release(&w);
}
END_TEST

START_TEST(stages_that_split_blocks)
{
	struct mfs_megatron_args a = blocks();
	struct written w = replace(&a, "decoder_first_pipeline_num_layers");
	int64_t layers = 0;

	ck_assert(mfs_value_int(w.doc, w.v, &layers));
	ck_assert_int_eq(layers, 1);
	release(&w);
	a.splits_blocks = true;
	w = replace(&a, "decoder_first_pipeline_num_layers");
	ck_assert(mfs_value_is_none(w.doc, w.v));
	release(&w);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("form");
	TCase *c = unit_case(s, "GPTModel", no_layer_has_the_window);

	tcase_add_test(c, stages_that_split_blocks);
	return s;
}
