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

/* Reads the argument that the GPTModel has; its value was another. */
static struct mfs_pickle *replace(const struct mfs_megatron_args *a, const char *name,
				  mfs_value *ret)
{
	struct mfs_form form = {.args = a};
	struct mfs_pickle_writer w;
	struct mfs_buf out = {0};
	struct mfs_pickle *doc;

	mfs_pickle_begin(&w, &out, 2);
	mfs_pickle_dict_begin(&w);
	ck_assert_int_eq(mfs_form_replace(&form, &w, name, strlen(name)), 1);
	mfs_pickle_dict_end(&w);
	unit_ok(mfs_pickle_end(&w, &err), &err);
	unit_ok(mfs_pickle_parse(out.data, out.len, name, NULL, &doc, &err), &err);
	*ret = mfs_value_get(doc, mfs_pickle_root(doc), name);
	return doc;
}

/* Megatron takes None as all layers, and the source's window_size stays. */
START_TEST(no_layer_has_the_window)
{
	static const uint8_t has[] = {1, 0};
	struct mfs_megatron_args a = blocks();
	mfs_value v;
	struct mfs_pickle *doc = replace(&a, "window_attn_skip_freq", &v);
	int64_t every = 0;

	ck_assert(mfs_value_int(doc, v, &every));
	ck_assert_int_eq(every, 1);
	mfs_pickle_free(doc);
	a.window_size = 16;
	doc = replace(&a, "window_attn_skip_freq", &v);
	ck_assert(mfs_value_is_none(doc, v));
	mfs_pickle_free(doc);
	a.window_layers = has;
	doc = replace(&a, "window_attn_skip_freq", &v);
	ck_assert_uint_eq(mfs_value_count(doc, v), 2);
	mfs_pickle_free(doc);
}
END_TEST

START_TEST(stages_that_split_blocks)
{
	struct mfs_megatron_args a = blocks();
	mfs_value v;
	struct mfs_pickle *doc = replace(&a, "decoder_first_pipeline_num_layers", &v);
	int64_t layers = 0;

	ck_assert(mfs_value_int(doc, v, &layers));
	ck_assert_int_eq(layers, 1);
	mfs_pickle_free(doc);
	a.splits_blocks = true;
	doc = replace(&a, "decoder_first_pipeline_num_layers", &v);
	ck_assert(mfs_value_is_none(doc, v));
	mfs_pickle_free(doc);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("form");
	TCase *c = unit_case(s, "GPTModel", no_layer_has_the_window);

	tcase_add_test(c, stages_that_split_blocks);
	return s;
}
