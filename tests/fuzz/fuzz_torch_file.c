#include "tests/fuzz/fuzz.h"

#include "formats/base/bytes.h"
#include "formats/torch/te_tensor.h"
#include "formats/torch/torch_file.h"

#define BUDGET 2000
#define DEPTH  40

static unsigned visits;

static void check_tensor(const struct mfs_torch_file *f, const struct mfs_torch_tensor *t)
{
	uint64_t last = t->offset, end, count;
	unsigned size = mfs_dtype_size(t->dtype);
	bool empty = false;

	fuzz_require(size && t->ndim <= MFS_MAX_DIMS);
	fuzz_require(t->record >= f->zip.entries && t->record < f->zip.entries + f->zip.count);
	for (unsigned i = 0; i < t->ndim; i++)
		empty |= !t->shape[i];
	for (unsigned i = 0; i < t->ndim && !empty; i++) {
		fuzz_require(!mfs_mul_overflows(t->shape[i] - 1, t->stride[i], &end));
		fuzz_require(!mfs_add_overflows(last, end, &last));
	}
	if (!empty) {
		fuzz_require(!mfs_mul_overflows(last + 1, size, &end));
		fuzz_require(end <= t->record->size);
	}
	mfs_shape_count(t->shape, t->ndim, &count);
}

/* A scale for each block, and the blocks cover the matrix. */
static void check_te(const struct mfs_torch_file *f, const struct mfs_te_tensor *t)
{
	const uint64_t *const shape = t->data.shape, *const scales = t->scale.shape;

	check_tensor(f, &t->data);
	check_tensor(f, &t->scale);
	fuzz_require(t->data.ndim == 2 && t->scale.ndim == 2 && t->scale.dtype == MFS_F32);
	fuzz_require(shape[0] && t->block_rows && scales[0] == (shape[0] - 1) / t->block_rows + 1);
	fuzz_require(shape[1] && t->block_cols && scales[1] > (shape[1] - 1) / t->block_cols);
}

static void walk(const struct mfs_torch_file *f, mfs_value v, unsigned depth, int *rc,
		 struct mfs_error *err)
{
	const struct mfs_pickle *doc = f->doc;
	uint32_t count = mfs_value_count(doc, v), pairs = mfs_value_pairs(doc, v);
	struct mfs_torch_tensor t;

	if (visits++ >= BUDGET || depth > DEPTH)
		return;
	if (mfs_te_is_tensor(f, v)) {
		struct mfs_te_tensor te;
		int r = mfs_te_tensor(f, v, &te, err);

		if (!r)
			check_te(f, &te);
		*rc = *rc ? *rc : r;
		return;
	}
	if (mfs_torch_is_tensor(f, v)) {
		int r = mfs_torch_tensor(f, v, &t, err);

		if (!r)
			check_tensor(f, &t);
		*rc = *rc ? *rc : r;
		return;
	}
	for (uint32_t i = 0; i < count && visits < BUDGET; i++)
		walk(f, mfs_value_at(doc, v, i), depth + 1, rc, err);
	for (uint32_t i = 0; i < pairs && visits < BUDGET; i++)
		walk(f, mfs_value_item(doc, v, i), depth + 1, rc, err);
	walk(f, mfs_value_args(doc, v), depth + 1, rc, err);
	walk(f, mfs_value_state(doc, v), depth + 1, rc, err);
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	struct mfs_source src = mfs_source_memory(bytes, len, "input.pt");
	struct mfs_torch_file f;
	int rc = mfs_torch_file_open(&src, &f, err);

	if (rc)
		return rc;
	visits = 0;
	walk(&f, mfs_pickle_root(f.doc), 0, &rc, err);
	mfs_torch_file_release(&f);
	if (rc)
		err->code = rc; /* of several tensors the first decides, the last has the message */
	return rc;
}

FUZZ_TARGET
