/* zarr: arrays by themselves, and a checkpoint that Megatron saved as zarr and as torch_dist. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/ckpt/ckpt.h"
#include "formats/ckpt/read/ckpt_open.h"
#include "formats/ckpt/read/zarray.h"
#include "formats/ckpt/rng.h"
#include "formats/optim/read/optim_open.h"
#include "formats/optim/rules/settings.h"

#define ZARR "zarr/llama-zarr-tp2/iter_0000001"
#define DIST "zarr/llama-torch_dist-tp2/iter_0000001"
#define NORM "decoder.final_layernorm.weight"
#define HEAD "output_layer.weight"

static struct mfs_error err;
static struct mfs_ckpt *ckpt;

/* ---- arrays ---- */

#define REST                                                                                       \
	"\"compressor\":null,\"filters\":null,\"order\":\"C\",\"fill_value\":null,\"zarr_format\":2"
#define ARRAY(shape, chunks, dtype)                                                                \
	"{\"shape\":" shape ",\"chunks\":" chunks ",\"dtype\":\"" dtype "\"," REST "}"

static int parse(const char *text, struct mfs_zarray *ret)
{
	return mfs_zarray_parse(text, strlen(text), "k/.zarray", ret, &err);
}

START_TEST(a_grid)
{
	uint64_t lo[MFS_MAX_DIMS], size[MFS_MAX_DIMS];
	struct mfs_zarray a;

	unit_ok(parse(ARRAY("[5,12]", "[2,12]", "bfloat16"), &a), &err);
	ck_assert(a.dtype == MFS_BF16 && a.ndim == 2 && a.chunks == 3 && a.chunk_bytes == 48);
	ck_assert(mfs_zarray_chunk(&a, "0.0", lo, size));
	ck_assert(!lo[0] && !lo[1] && size[0] == 2 && size[1] == 12);
	ck_assert(mfs_zarray_chunk(&a, "2.0", lo, size));
	ck_assert(lo[0] == 4 && !lo[1] && size[0] == 1 && size[1] == 12);
}
END_TEST

static const char *const strangers[] = {"3.0",	"0.1",	"0",   "0.0.0",
					"00.0", "0.",	"",    "-1.0",
					".0",	"0.0 ", "a.b", "18446744073709551616.0"};

START_TEST(names_that_are_no_chunk)
{
	uint64_t lo[MFS_MAX_DIMS], size[MFS_MAX_DIMS];
	struct mfs_zarray a;

	unit_ok(parse(ARRAY("[5,12]", "[2,12]", "<f4"), &a), &err);
	ck_assert(!mfs_zarray_chunk(&a, strangers[_i], lo, size));
}
END_TEST

static const struct {
	const char *text;
	int rc;
	const char *part;
} refused[] = {
	{"{\"zarr_format\":2", -EINVAL, "not JSON"},
	{"[]", -EINVAL, "zarr_format"},
	{"{\"zarr_format\":3}", -ENOTSUP, "zarr_format is not 2"},
	{ARRAY("[5]", "[2,1]", "<f4"), -EINVAL, "shape has 1 axes, chunks have 2"},
	{ARRAY("[5]", "[0]", "<f4"), -EINVAL, "'chunks' has a size that is not positive"},
	{ARRAY("[0]", "[1]", "<f4"), -EINVAL, "'shape' has a size that is not positive"},
	{ARRAY("[5.5]", "[1]", "<f4"), -EINVAL, "'shape'"},
	{ARRAY("5", "[1]", "<f4"), -EINVAL, "'shape' is not a list"},
	{ARRAY("[1,1,1,1,1,1,1,1,1]", "[1]", "<f4"), -EINVAL, "'shape' is not a list"},
	{ARRAY("[5]", "[1]", ">f4"), -ENOTSUP, "dtype is '>f4'"},
	{ARRAY("[4611686018427387904,4]", "[1,1]", "<f4"), -EINVAL, "overflows"},
	{ARRAY("[5]", "[4611686018427387904]", "<f4"), -EINVAL, "overflows"},
	{"{\"zarr_format\":2,\"compressor\":{\"id\":\"blosc\"}}", -ENOTSUP, "compressed (blosc)"},
	{"{\"zarr_format\":2,\"filters\":[{\"id\":\"delta\"}]}", -ENOTSUP, "filtered"},
	{"{\"zarr_format\":2,\"order\":\"F\"}", -ENOTSUP, "row-major"},
	{"{\"zarr_format\":2,\"order\":\"C\",\"dimension_separator\":\"/\"}", -ENOTSUP,
	 "dimension_separator"},
};

START_TEST(arrays_that_are_refused)
{
	struct mfs_zarray a;

	unit_fails(parse(refused[_i].text, &a), &err, refused[_i].rc, refused[_i].part);
}
END_TEST

/* ---- checkpoints ---- */

/* A copy of the fixture, and a path in it. */
static const char *copy_of_fixture(void)
{
	static char to[300];
	char command[1200];

	snprintf(to, sizeof(to), "%s/ckpt", unit_tmpdir());
	snprintf(command, sizeof(command), "rm -rf '%s' && cp -r '%s' '%s'", to, unit_fixture(ZARR),
		 to);
	ck_assert_msg(!system(command), "%s", command);
	return to;
}

/* Bytes of a tensor in row-major order, element by element. */
static uint8_t *bytes_of(struct mfs_ckpt *from, const struct mfs_global_tensor *t, uint64_t *ret)
{
	const unsigned element = mfs_dtype_size(t->dtype);
	uint64_t count, of_chunk, at[MFS_CKPT_DIMS], offset;
	uint8_t *bytes;
	uint32_t file;

	ck_assert(mfs_shape_count(t->shape, t->ndim, &count));
	bytes = calloc(count, element);
	for (uint32_t k = 0; k < t->chunk_count; k++) {
		const struct mfs_chunk *c = &mfs_ckpt_chunks(from, t)[k];

		unit_ok(mfs_ckpt_locate(from, t, c->storage, &file, &offset, &err), &err);
		ck_assert(mfs_shape_count(c->size, t->ndim, &of_chunk));
		for (uint64_t i = 0; i < of_chunk; i++) {
			uint64_t rest = i, in_file = c->origin, in_tensor = 0;

			for (unsigned d = t->ndim; d-- > 0; rest /= c->size[d])
				at[d] = rest % c->size[d];
			for (unsigned d = 0; d < t->ndim; d++) {
				in_file += at[d] * c->stride[d];
				in_tensor = in_tensor * t->shape[d] + c->lo[d] + at[d];
			}
			unit_ok(mfs_fileset_read(mfs_ckpt_files(from), file,
						 offset + in_file * element,
						 bytes + in_tensor * element, element, &err),
				&err);
		}
	}
	*ret = count * element;
	return bytes;
}

/* Both hold the same tensors with the same bytes. */
static void compare(struct mfs_ckpt *a, struct mfs_ckpt *b)
{
	ck_assert_uint_eq(mfs_ckpt_count_all(a), mfs_ckpt_count_all(b));
	for (uint32_t i = 0; i < mfs_ckpt_count_all(a); i++) {
		const struct mfs_global_tensor *x = mfs_ckpt_at(a, i), *y = mfs_ckpt_at(b, i);
		uint64_t len, other_len;
		uint8_t *bytes = bytes_of(a, x, &len), *other = bytes_of(b, y, &other_len);

		ck_assert_str_eq(x->name, y->name);
		ck_assert(x->layer == y->layer && x->state == y->state && x->dtype == y->dtype);
		ck_assert(len == other_len && !memcmp(bytes, other, len));
		free(bytes);
		free(other);
	}
}

/* Weights, the optimizer's state and random states are those that torch_dist has. */
START_TEST(the_same_as_torch_dist)
{
	struct mfs_ckpt *dist;
	struct mfs_rng rng;

	unit_ok(mfs_optim_open(unit_fixture(ZARR), &ckpt, &err), &err);
	unit_ok(mfs_optim_open(unit_fixture(DIST), &dist, &err), &err);
	ck_assert_str_eq(mfs_ckpt_format(ckpt)->name, "zarr");
	ck_assert_uint_eq(mfs_ckpt_count(ckpt), 15);
	ck_assert_uint_eq(mfs_ckpt_count_all(ckpt), 60);
	compare(ckpt, dist);
	ck_assert(mfs_rng_there(ckpt));
	unit_ok(mfs_rng_open(ckpt, 1, 0, 0, &rng, &err), &err);
	ck_assert(mfs_value_has(rng.archive.doc, mfs_value_at(rng.archive.doc, rng.value, 0),
				"torch_rng_state"));
	mfs_rng_release(&rng);
	mfs_ckpt_free(dist);
	mfs_ckpt_free(ckpt);
}
END_TEST

/* Rewrites an array of two bytes an element in chunks that do not divide it. What lies past the end
 * of an axis is written as 0xff. */
static void cut_again(const char *dir, const char *key, uint64_t rows, uint64_t cols,
		      uint64_t chunk_rows, uint64_t chunk_cols)
{
	const struct mfs_global_tensor *t = mfs_ckpt_find(ckpt, key, -1, -1);
	char path[600], name[64], text[400];
	uint64_t len;
	uint8_t *bytes = bytes_of(ckpt, t, &len), chunk[4096];

	ck_assert_uint_eq(len, rows * cols * 2);
	snprintf(path, sizeof(path), "rm '%s/%s/'*", dir, key);
	ck_assert(!system(path));
	snprintf(path, sizeof(path), "%s/%s", dir, key);
	snprintf(text, sizeof(text), ARRAY("[%u,%u]", "[%u,%u]", "bfloat16"), (unsigned)rows,
		 (unsigned)cols, (unsigned)chunk_rows, (unsigned)chunk_cols);
	unit_write(path, ".zarray", text, strlen(text));
	for (uint64_t i = 0; i * chunk_rows < rows; i++)
		for (uint64_t j = 0; j * chunk_cols < cols; j++) {
			memset(chunk, 0xff, sizeof(chunk));
			for (uint64_t r = 0; r < chunk_rows && i * chunk_rows + r < rows; r++)
				for (uint64_t c = 0; c < chunk_cols && j * chunk_cols + c < cols;
				     c++)
					memcpy(chunk + 2 * (r * chunk_cols + c),
					       bytes + 2 * ((i * chunk_rows + r) * cols +
							    j * chunk_cols + c),
					       2);
			snprintf(name, sizeof(name), "%u.%u", (unsigned)i, (unsigned)j);
			unit_write(path, name, chunk, 2 * chunk_rows * chunk_cols);
		}
	free(bytes);
}

START_TEST(chunks_beyond_the_end)
{
	const char *dir = copy_of_fixture();
	struct mfs_ckpt *again;

	unit_ok(mfs_ckpt_open(unit_fixture(ZARR), 0, &ckpt, &err), &err);
	cut_again(dir, HEAD, 64, 16, 7, 5);
	unit_ok(mfs_ckpt_open(dir, 0, &again, &err), &err);
	ck_assert_uint_eq(mfs_ckpt_find(again, HEAD, -1, -1)->chunk_count, 40);
	compare(again, ckpt);
	mfs_ckpt_free(again);
	mfs_ckpt_free(ckpt);
}
END_TEST

static void break_by(const char *what, int rc, const char *part)
{
	const char *dir = copy_of_fixture();
	char command[1200];

	snprintf(command, sizeof(command), "cd '%s' && %s", dir, what);
	ck_assert_msg(!system(command), "%s", command);
	unit_fails(mfs_ckpt_open(dir, 0, &ckpt, &err), &err, rc, part);
}

START_TEST(incomplete_saves)
{
	break_by("rm " HEAD "/1.0", -ENODATA, HEAD ": expected 2 chunks, found 1");
	break_by("truncate -s 1023 " HEAD "/1.0", -ENODATA,
		 HEAD "/1.0: expected 1024 bytes, found 1023");
	break_by("truncate -s 1025 " HEAD "/1.0", -ENODATA, "found 1025");
	break_by("truncate -s 20 " HEAD "/.zarray", -EINVAL, HEAD "/.zarray: it is not JSON");
	break_by("rm common.pt", -ENODATA, "common.pt");
	break_by("sed -i 's/null/{\"id\": \"zlib\"}/' " NORM "/.zarray", -ENOTSUP,
		 "compressed (zlib)");
	break_by("sed -i 's/zarr/nczarr/' metadata.json", -ENOTSUP, "'nczarr'");
	/* One layer less, with its grid. */
	break_by("cd decoder.layers.mlp.linear_fc2.weight && rm 1.* && "
		 "sed -i '/shape/{n;s/2/1/}' .zarray",
		 -EINVAL, "*/.zarray: 'decoder.layers.mlp.linear_fc2.weight'");
}
END_TEST

/* Neighbours of the arrays: locks, hidden files, the tokenizer. */
START_TEST(files_that_lie_among_the_arrays_are_no_arrays)
{
	const char *dir = copy_of_fixture();
	char command[800];

	snprintf(command, sizeof(command),
		 "cd '%s' && mkdir tokenizer " HEAD ".sync && touch " HEAD
		 ".sync/.zarray tokenizer/vocab.json " HEAD "/.lock " HEAD "/0.0.partial notes",
		 dir);
	ck_assert(!system(command));
	unit_ok(mfs_ckpt_open(dir, 0, &ckpt, &err), &err);
	ck_assert_uint_eq(mfs_ckpt_count(ckpt), 15);
	mfs_ckpt_free(ckpt);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("zarr");
	TCase *c = unit_case(s, "arrays", a_grid);

	tcase_add_loop_test(c, names_that_are_no_chunk, 0, MFS_ARRAY_SIZE(strangers));
	tcase_add_loop_test(c, arrays_that_are_refused, 0, MFS_ARRAY_SIZE(refused));
	c = unit_case(s, "checkpoints", the_same_as_torch_dist);
	tcase_add_test(c, chunks_beyond_the_end);
	tcase_add_test(c, incomplete_saves);
	tcase_add_test(c, files_that_lie_among_the_arrays_are_no_arrays);
	return s;
}
