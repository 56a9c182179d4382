/* Input: a YAML file. Values that are taken are of the kinds that their flags have, and can be
 * shown and pickled. */
#include "tests/fuzz/fuzz.h"

#include "formats/torch/pickle_write.h"
#include "trainer/config/run_namespace.h"
#include "trainer/config/fill.h"
#include "trainer/config/value.h"
#include "trainer/config/parse/yaml.h"

static void check_kind(const struct mft_flag *f, const struct mft_flag_value *v)
{
	switch (f->kind) {
	case MFT_FLAG_ON:
	case MFT_FLAG_OFF:
	case MFT_FLAG_SWITCH:
	case MFT_FLAG_TRUTH:
		fuzz_require(v->type == MFT_IS_BOOL);
		break;
	case MFT_FLAG_INT:
		fuzz_require(v->type == MFT_IS_INT);
		break;
	case MFT_FLAG_REAL:
		fuzz_require(v->type == MFT_IS_REAL);
		break;
	case MFT_FLAG_TEXT:
		fuzz_require(v->type == MFT_IS_TEXT && v->text);
		break;
	case MFT_FLAG_TUPLE:
		fuzz_require(v->type == MFT_IS_TUPLE);
		break;
	case MFT_FLAG_INTS:
	case MFT_FLAG_REALS:
	case MFT_FLAG_TEXTS:
		fuzz_require(v->type == MFT_IS_LIST);
		break;
	default:
		break;
	}
}

static void check_values(const struct mft_train_config *c)
{
	struct mfs_buf out = {0};
	struct mfs_pickle_writer w;
	struct mfs_error err = {0};

	for (size_t i = 0; i < mft_flag_count(); i++) {
		if (c->values->from[i] == MFT_FROM_YAML)
			check_kind(mft_flag_at(i), &c->values->at[i]);
		mft_flag_value_show(&c->values->at[i], &out);
	}
	fuzz_require(!out.failed);
	out.len = 0;
	mfs_pickle_begin(&w, &out, 2);
	fuzz_require(!mft_train_namespace_write(&w, c, NULL));
	fuzz_require(!mfs_pickle_end(&w, &err));
	mfs_buf_release(&out);
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	struct mft_train_config c = {0};
	int rc = mft_flag_values_new(&c.arena, &c.values, err);

	fuzz_require(!rc);
	rc = mft_yaml_parse("input.yaml", bytes, len, c.values, &c.arena, err);
	if (!rc) {
		check_values(&c);
		fuzz_require(!mft_train_config_fill(&c, err));
	}
	mfs_arena_release(&c.arena);
	return rc;
}

FUZZ_TARGET
