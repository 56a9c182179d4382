/*
 * What a read of an open file allocates: nothing, once its tensors are planned. Each file of each
 * view is read as fs/fuse/ops.c reads it, with one gather, and the calls of malloc() and its like
 * are counted meanwhile.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/plan/vfile.h"
#include "fs/fuse/readahead.h"
#include "fs/source/root.h"
#include "fs/tree/tree.h"
#include "fs/view/kind.h"
#include "fs/view/view.h"

/* ---- counting ---- */

static bool counting;
static unsigned calls;

#ifdef __SANITIZE_ADDRESS__
/* The sanitizer's own malloc() calls this. */
void __sanitizer_malloc_hook(const volatile void *p, size_t size);
void __sanitizer_malloc_hook(const volatile void *p, size_t size)
{
	(void)p, (void)size;
	calls += counting;
}
#else
/* These are called in place of the C library's, by its own functions and by other libraries too. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size)
{
	calls += counting;
	return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	calls += counting;
	return __libc_calloc(count, size);
}

void *realloc(void *p, size_t size)
{
	calls += counting;
	return __libc_realloc(p, size);
}

void *memalign(size_t alignment, size_t size)
{
	calls += counting;
	return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
	return memalign(alignment, size);
}

int posix_memalign(void **ret, size_t alignment, size_t size)
{
	*ret = memalign(alignment, size);
	return *ret ? 0 : ENOMEM;
}
#endif

/* ---- reading ---- */

#define LARGE (1u << 20) /* the kernel's requests */
#define SMALL 4099u	 /* begins and ends inside elements, blocks and parts */

static struct mfs_gather gather;
static struct mfs_root *root;
static struct mfs_tree *tree;
static unsigned seen; /* bits of kinds */

/* Returns how often memory was asked for. */
static unsigned read_all(const struct mfs_node *node, struct mfs_vfile *f, size_t step)
{
	const uint64_t size = mfs_vfile_size(f);
	struct mfs_readahead ahead = {0};
	struct mfs_error err;

	calls = 0;
	for (uint64_t off = 0; off < size; off += step) {
		const uint64_t want = mfs_min_u64(step, size - off);
		int rc;

		counting = true;
		mfs_readahead_demand(&ahead, f, off, step);
		rc = mfs_vfile_gather(f, off, step, &gather, &err);
		if (!rc) {
			mfs_vfile_served(f, gather.bytes);
			mfs_readahead_next(&ahead, f, off, gather.bytes);
		}
		counting = false;
		ck_assert_msg(!rc && gather.bytes == want, "%s at %llu: %d %s", node->path,
			      (unsigned long long)off, rc, rc ? err.msg : "");
		mfs_gather_reset(&gather);
	}
	return calls;
}

/* The same, copied as a reply of the gateway is (fs/gateway/call/reply_file.c). */
static unsigned copy_all(struct mfs_vfile *f)
{
	static uint8_t buf[LARGE / 4];
	const uint64_t size = mfs_vfile_size(f);
	struct mfs_error err;
	int rc = 0;

	calls = 0;
	for (uint64_t off = 0, n; off < size; off += n) {
		size_t got = 0;

		n = mfs_min_u64(sizeof(buf), size - off);
		counting = true;
		rc = mfs_vfile_pread_by(f, &gather, off, buf, sizeof(buf), &got, &err);
		counting = false;
		unit_ok(rc, &err);
		ck_assert_uint_eq(got, n);
		ck_assert_uint_eq(gather.bytes, 0);
	}
	return calls;
}

static void note_kind(const struct mfs_node *node)
{
	for (unsigned i = 0; i < mfs_ckpt_views.count; i++)
		if (node->home && node->home->kind == mfs_ckpt_views.kinds[i])
			seen |= 1u << i;
}

/* Returns what the first reads of its tensors allocated. */
static unsigned read_file(const struct mfs_node *node, size_t first_step)
{
	static const size_t steps[] = {LARGE, SMALL};
	struct mfs_open_file file;
	struct mfs_error err;
	unsigned first;

	unit_ok(mfs_tree_open(node, &file, NULL, &err), &err);
	first = read_all(node, file.data, first_step);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(steps); i++) {
		const unsigned again = read_all(node, file.data, steps[i]);

		ck_assert_msg(!again, "%s: reads of %zu bytes allocated %u times", node->path,
			      steps[i], again);
	}
	ck_assert_uint_eq(copy_all(file.data), 0);
	mfs_tree_close(&file);
	note_kind(node);
	return first;
}

static unsigned read_dir(struct mfs_node *dir, size_t first_step)
{
	const struct mfs_dir *list;
	struct mfs_error err;
	unsigned first = 0;

	unit_ok(mfs_tree_list(tree, dir, &list, NULL, &err), &err);
	for (uint32_t i = 0; i < list->count; i++) {
		struct mfs_node *node = list->entries[i];

		if (S_ISDIR(node->type))
			first += read_dir(node, first_step);
		else if (S_ISREG(node->type))
			first += read_file(node, first_step);
	}
	return first;
}

static void open_source(const char *source)
{
	const struct mfs_view_options none = {0};
	struct mfs_error err;

	unit_ok(mfs_root_open(source, &none, &root, &err), &err);
	unit_ok(mfs_tree_new(root, &tree, &err), &err);
}

static void close_source(void)
{
	mfs_tree_free(tree);
	mfs_root_free(root);
}

static unsigned read_source(const char *source, size_t first_step)
{
	unsigned first;

	open_source(source);
	ck_assert_int_eq(mfs_gather_init(&gather, LARGE, UIO_MAXIOV - 1), 0);
	first = read_dir(mfs_tree_root(tree), first_step);
	mfs_gather_release(&gather);
	close_source();
	return first;
}

/* Plans are of tensors: there are as many of them whatever the size of reads. */
static void check_source(const char *source)
{
	const unsigned large = read_source(source, LARGE), small = read_source(source, SMALL);

	ck_assert_msg(large, "%s: no plan was made, or nothing is counted", source);
	ck_assert_msg(large == small, "%s: first reads of %u bytes allocated %u times, of %u %u",
		      source, LARGE, large, SMALL, small);
}

/* ---- sources ---- */

static const char *const fixtures[] = {
	"resume/llama-torch-tp2-pp2",
	"resume/llama-torch_dist-tp2-pp2",
	"resume/gpt2-torch-tp2-pp2",
	"resume/qwen2-torch-tp2-dp2-distopt",
	"weights/mixtral-torch_dist-pp2-ep2",
	"weights/deepseek-torch_dist-pp2-ep2",
	"optim/llama-torch_dist-tp2-flattened",
	"dcp/llama-fsdp-optimizer",
	"nemo/llama-optimizer",
	"zarr/llama-zarr-tp2",
	"bridge/llama",
	"hf/llama-safetensors",
	"hf/llama-bin",
};

START_TEST(each_source)
{
	check_source(unit_fixture(fixtures[_i]));
}
END_TEST

/* A part of a matrix of 8-bit floats is whole blocks of 128, which no model among the fixtures
 * has. Its plans are those of hf-fp8 and of vllm. */
static bool is_of_large_models(const struct mfs_view_kind *kind)
{
	return !strcmp(kind->name, "vllm-fp8");
}

START_TEST(each_kind)
{
	seen = 0;
	read_source(unit_fixture(fixtures[0]), LARGE);
	for (unsigned i = 0; i < mfs_ckpt_views.count; i++)
		ck_assert_msg(seen >> i & 1 || is_of_large_models(mfs_ckpt_views.kinds[i]),
			      "no file of %s was read", mfs_ckpt_views.kinds[i]->name);
}
END_TEST

static struct mfs_node *look_up(struct mfs_node *dir, const char *name)
{
	struct mfs_node *node;
	struct mfs_error err;

	unit_ok(mfs_tree_lookup(tree, dir, name, &node, NULL, &err), &err);
	return node;
}

static void write_out(const char *dir, const struct mfs_node *node)
{
	struct mfs_open_file file;
	struct mfs_error err;
	uint8_t *bytes = malloc(node->size + 1);
	size_t len;

	unit_ok(mfs_tree_open(node, &file, NULL, &err), &err);
	unit_ok(mfs_vfile_pread(file.data, 0, bytes, node->size, &len, &err), &err);
	unit_write(dir, node->name, bytes, len);
	mfs_tree_close(&file);
	free(bytes);
}

/* What hf-fp8 shows, as a source: its other views are dequantised. */
START_TEST(eight_bits)
{
	const char *dir = unit_tmpdir();
	const struct mfs_dir *list;
	struct mfs_error err;

	open_source(unit_fixture("hf/llama-safetensors"));
	unit_ok(mfs_tree_list(tree, look_up(mfs_tree_root(tree), "hf-fp8"), &list, NULL, &err),
		&err);
	for (uint32_t i = 0; i < list->count; i++)
		write_out(dir, list->entries[i]);
	close_source();
	check_source(dir);
}
END_TEST

/* 'd', then "NAME LENGTH\n" and LENGTH bytes of each file (tests/fuzz/fuzz_hf_dir.c). */
static void unpack(const char *dir, const char *seed)
{
	size_t len, size;
	char *bytes = (char *)unit_slurp(seed, &len), name[64];

	bytes[len] = '\0';
	for (char *at = bytes + 1, *data; at < bytes + len; at = data + size) {
		ck_assert_int_eq(sscanf(at, "%63s %zu", name, &size), 2);
		data = strchr(at, '\n') + 1;
		ck_assert_uint_le(size, (size_t)(bytes + len - data));
		unit_write(dir, name, data, size);
	}
	free(bytes);
}

START_TEST(four_bits)
{
	const char *dir = unit_tmpdir();

	unpack(dir, "tests/fuzz/corpus/hf_dir/ok-dir-gpt-oss-mxfp4");
	check_source(dir);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("read_memory");
	TCase *c = unit_case(s, "views", each_kind);

	tcase_add_loop_test(c, each_source, 0, MFS_ARRAY_SIZE(fixtures));
	tcase_add_test(c, eight_bits);
	tcase_add_test(c, four_bits);
	return s;
}
