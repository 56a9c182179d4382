/* Input: a family's file. What is accepted has rows that a model can be made by. */
#include "tests/fuzz/fuzz.h"

#include <jansson.h>
#include <string.h>

#include "formats/ckpt/param_axes.h"
#include "formats/model/families/read.h"

static const struct mfs_family *find(const char *name, void *arg)
{
	(void)arg;
	for (const struct mfs_family *const *f = mfs_families(); *f; f++)
		if (!strcmp((*f)->name, name))
			return *f;
	return NULL;
}

static void check_tensor(const struct mfs_family *f, const struct mfs_family_tensor *row)
{
	const struct mfs_param *p =
		mfs_param_find(row->scope, row->name,
			       mfs_attention_kind(f->required & MFS_HAS(MLA),
						  f->required & MFS_HAS(QK_NORM_WIDE)));

	fuzz_require(p && row->shape[0] != MFS_DIM_NONE &&
		     row->norm == (p->norm && (!f->norms_minus_one || row->plain)));
	fuzz_require(!row->plain || p->norm);
	fuzz_require(!row->transposed || mfs_param_ndim(row->shape) == 2);
	fuzz_require(row->experts == mfs_param_is_of_experts(p));
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	struct mfs_arena arena = {0};
	struct mfs_family *f;
	int rc = mfs_family_read("input.conf", (const char *)bytes, len, find, NULL, &arena, &f,
				 err);

	if (!rc) {
		json_t *defaults = json_loads(f->defaults, 0, NULL);

		fuzz_require(f->name && defaults && !(f->required & f->optional));
		json_decref(defaults);
		for (const struct mfs_family_tensor *row = f->tensors; row->hf; row++)
			if (f->architecture)
				check_tensor(f, row);
	}
	mfs_arena_release(&arena);
	return rc;
}

FUZZ_TARGET
