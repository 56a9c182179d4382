/* The library: what it lists, and that what it loads are the bytes of the views' files. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/base/str.h"
#include "formats/base/version.h"
#include "formats/hf/safetensors.h"
#include "fs/lib/mcorefs.h"
#include "formats/load/box_load_i.h"
#include "tests/gpu/fake_cufile.h"
#include "tests/gpu/fake_driver.h"
#include "tests/unit/unit.h"

static _Thread_local struct mcorefs_error err;

#define lib_ok(call)                                                                               \
	do {                                                                                       \
		int lib_r_ = (call);                                                               \
		ck_assert_msg(!lib_r_, "%s: %d: %s", #call, lib_r_, err.text);                     \
	} while (0)

#define lib_fails(call, want, part)                                                                \
	do {                                                                                       \
		int lib_r_ = (call);                                                               \
		ck_assert_msg(lib_r_ == (want), "%s: %d instead of %d", #call, lib_r_, (want));    \
		ck_assert_int_eq(err.code, want);                                                  \
		unit_sentence(err.text, part);                                                     \
	} while (0)

/* ---- a device that is none (tests/gpu/fake_driver.h) ---- */

static struct {
	void (*give)(void *p, size_t size);
	void (*take)(void *p);
	struct fake_driver_counts (*tell)(void);
	void (*set_cufile)(const struct fake_cufile_way *way);
	struct fake_cufile_counts (*tell_cufile)(void);
} fake;

/* Opens a library that answers to the name that loads ask for. It was built next to this program's
 * folder: build/obj/tests/unit/test_library. */
static void *open_fake(const char *name)
{
	char path[PATH_MAX + 64];
	ssize_t len = readlink("/proc/self/exe", path, PATH_MAX);
	void *library;

	ck_assert_int_gt(len, 0);
	path[len] = '\0';
	for (int i = 0; i < 3; i++)
		*strrchr(path, '/') = '\0';
	snprintf(path + strlen(path), 64, "/%s", name);
	library = dlopen(path, RTLD_NOW);
	ck_assert_msg(library, "%s", dlerror());
	return library;
}

static void open_fake_driver(void)
{
	void *driver = open_fake("libfake-driver.so");

	*(void **)&fake.give = dlsym(driver, "fake_driver_give");
	*(void **)&fake.take = dlsym(driver, "fake_driver_take");
	*(void **)&fake.tell = dlsym(driver, "fake_driver_tell");
}

/* The disk that a folder is on, where the test names one. */
static void make_sys(const char *folder, const char *place)
{
	static char sys[PATH_MAX + 32];
	char link[PATH_MAX + 96];
	struct stat st;

	ck_assert_int_eq(stat(folder, &st), 0);
	snprintf(sys, sizeof(sys), "%s/sys", folder);
	ck_assert_int_eq(mkdir(sys, 0700), 0);
	snprintf(link, sizeof(link), "%s/dev", sys);
	ck_assert_int_eq(mkdir(link, 0700), 0);
	strcat(link, "/block");
	ck_assert_int_eq(mkdir(link, 0700), 0);
	snprintf(link, sizeof(link), "%s/dev/block/%u:%u", sys, major(st.st_dev), minor(st.st_dev));
	ck_assert_int_eq(symlink(place, link), 0);
	mfs_gds_sys = sys;
}

/* And a machine with nvidia-fs. */
static void open_fake_cufile(const struct fake_cufile_way *way)
{
	static char proc[PATH_MAX + 32];
	void *cufile = open_fake("libfake-cufile.so");

	*(void **)&fake.set_cufile = dlsym(cufile, "fake_cufile_set");
	*(void **)&fake.tell_cufile = dlsym(cufile, "fake_cufile_tell");
	fake.set_cufile(way);
	snprintf(proc, sizeof(proc), "%s/proc", unit_tmpdir());
	mfs_gds_proc = proc;
	ck_assert_int_eq(mkdir(proc, 0700), 0);
	strcat(proc, "/driver");
	ck_assert_int_eq(mkdir(proc, 0700), 0);
	strcat(proc, "/nvidia-fs");
	ck_assert_int_eq(mkdir(proc, 0700), 0);
	proc[strlen(proc) - strlen("/driver/nvidia-fs")] = '\0';
}

/* ---- what is compared ---- */

static struct mcorefs_view *open_view(const char *fixture, const char *options, const char *name,
				      struct mcorefs_source **ret)
{
	struct mcorefs_view *view;

	lib_ok(mcorefs_open(unit_fixture(fixture), options, ret, &err));
	lib_ok(mcorefs_view_open(*ret, name, &view, &err));
	return view;
}

static void close_view(struct mcorefs_view *view, struct mcorefs_source *source)
{
	mcorefs_view_close(view);
	mcorefs_close(source);
}

/* The bytes of a tensor, as a reader of its file gets them. */
static uint8_t *read_tensor(struct mcorefs_view *view, const struct mcorefs_tensor *t)
{
	uint8_t *bytes = malloc(t->bytes + 1);

	ck_assert_int_eq(mcorefs_pread(view, t->file, bytes, t->bytes, t->off, &err),
			 (ssize_t)t->bytes);
	return bytes;
}

/* A box, where it goes, and what must be there in the end. */
struct wanted {
	uint64_t begin[MCOREFS_MAX_DIMS], end[MCOREFS_MAX_DIMS];
	int64_t strides[MCOREFS_MAX_DIMS];
	uint8_t *to, *expected;
	uint64_t room;
};

static _Thread_local uint64_t rng;

static uint64_t draw(uint64_t most)
{
	rng = rng * 6364136223846793005ull + 1442695040888963407ull;
	return (rng >> 33) % (most + 1);
}

/* Element by element: nothing of the library's is used here. */
static void expect(struct wanted *w, const struct mcorefs_tensor *t, const uint8_t *bytes)
{
	uint64_t index[MCOREFS_MAX_DIMS], n = 1;

	for (unsigned a = 0; a < t->ndim; a++) {
		index[a] = w->begin[a];
		n *= w->end[a] - w->begin[a];
	}
	for (; n; n--) {
		uint64_t from = 0, to = 0;

		for (unsigned a = 0; a < t->ndim; a++) {
			from = from * t->shape[a] + index[a];
			to += (index[a] - w->begin[a]) * (uint64_t)w->strides[a];
		}
		memcpy(w->expected + to, bytes + from * t->item, t->item);
		for (unsigned a = t->ndim; a-- && ++index[a] == w->end[a];)
			index[a] = w->begin[a];
	}
}

/* A random box of a tensor, whose axes lie in a random order in the destination, with gaps. */
static void draw_box(struct wanted *w, const struct mcorefs_tensor *t, bool whole)
{
	unsigned order[MCOREFS_MAX_DIMS];
	uint64_t run = t->item;

	for (unsigned a = 0; a < t->ndim; a++) {
		w->begin[a] = whole ? 0 : draw(t->shape[a]);
		w->end[a] = whole ? t->shape[a] : w->begin[a] + draw(t->shape[a] - w->begin[a]);
		order[a] = t->ndim - 1 - a;
	}
	for (unsigned a = 0; a < t->ndim && !draw(3); a++) {
		const unsigned b = (unsigned)draw(t->ndim - 1), kept = order[a];

		order[a] = order[b];
		order[b] = kept;
	}
	for (unsigned a = 0; a < t->ndim; a++) {
		w->strides[order[a]] = (int64_t)(run + (draw(2) ? 0 : t->item * draw(3)));
		run = (uint64_t)w->strides[order[a]] *
		      (w->end[order[a]] - w->begin[order[a]] + (draw(4) ? 0 : draw(2)));
	}
	w->room = run + t->item;
	w->to = malloc(w->room + 1);
	w->expected = malloc(w->room + 1);
	if (fake.give)
		fake.give(w->to, w->room);
	memset(w->to, 0xa5, w->room);
	memset(w->expected, 0xa5, w->room);
}

/* Loads a box of each tensor, and compares it with what its file has. */
static void compare(struct mcorefs_view *view, bool whole, const struct mcorefs_load_options *o)
{
	struct mcorefs_load_state state;
	struct mcorefs_load *load;
	struct mcorefs_box *boxes;
	struct wanted *w;
	size_t count, told = 0, box;
	uint64_t bytes = 0;
	int rc;

	lib_ok(mcorefs_tensor_count(view, &count, &err));
	ck_assert_uint_gt(count, 0);
	boxes = calloc(count, sizeof(*boxes));
	w = calloc(count, sizeof(*w));
	for (size_t i = 0; i < count; i++) {
		struct mcorefs_tensor t;
		uint8_t *content;

		lib_ok(mcorefs_tensor(view, i, &t, &err));
		content = read_tensor(view, &t);
		draw_box(&w[i], &t, whole);
		expect(&w[i], &t, content);
		free(content);
		boxes[i] = (struct mcorefs_box){.tensor = i,
						.begin = w[i].begin,
						.end = w[i].end,
						.to = w[i].to,
						.room = w[i].room,
						.strides = w[i].strides};
	}
	lib_ok(mcorefs_load_start(view, boxes, count, o, &load, &err));
	while ((rc = mcorefs_load_next(load, -1, &box, &err)) > 0) {
		ck_assert_uint_lt(box, count);
		ck_assert_mem_eq(w[box].to, w[box].expected, w[box].room);
		told++;
	}
	lib_ok(rc);
	ck_assert_uint_eq(told, count);
	mcorefs_load_state(load, &state);
	ck_assert_uint_eq(state.done, state.bytes);
	mcorefs_load_free(load);
	for (size_t i = 0; i < count; i++) {
		bytes += w[i].room;
		if (fake.take)
			fake.take(w[i].to);
		free(w[i].to);
		free(w[i].expected);
	}
	ck_assert_uint_ge(bytes, state.bytes);
	free(w);
	free(boxes);
}

/* ---- loads ---- */

static const struct {
	const char *fixture, *options, *view;
} cases[] = {
	{"weights/llama-torch-tp2-pp2", NULL, "hf"},
	{"weights/llama-torch-tp2-pp2", NULL, "hf-fp16"},
	{"weights/llama-torch-tp2-pp2", NULL, "hf-bin"},
	{"weights/llama-torch-tp2-pp2", NULL, "vllm/tp2"},
	{"weights/mixtral-torch-pp2-ep2", NULL, "vllm-fp8-tensor/tp2"},
	{"weights/llama-torch-tp2-pp2", NULL, "megatron/torch/tp1-pp1"},
	{"weights/llama-torch_dist-tp2-pp2-vpp2", "shard_size=100KB", "hf"},
	{"weights/gpt2-torch-tp2-pp2", NULL, "hf"},
	{"weights/mixtral-torch_dist-pp2-ep2", NULL, "hf"},
	{"weights/mixtral-torch-pp2-ep2", NULL, "megatron/torch_dist"},
	{"weights/deepseek-torch_dist-pp2-ep2", NULL, "hf-fp8"},
	{"hf/llama-safetensors", NULL, "hf"},
	{"hf/gpt2-bin", NULL, "hf-fp32"},
	{"zarr/llama-zarr-tp2", NULL, "hf"},
};

START_TEST(whole_tensors_are_the_bytes_of_their_files)
{
	struct mcorefs_source *source;
	struct mcorefs_view *view =
		open_view(cases[_i].fixture, cases[_i].options, cases[_i].view, &source);

	compare(view, true, NULL);
	close_view(view, source);
}
END_TEST

START_TEST(boxes_of_any_strides_are_the_bytes_of_their_files)
{
	static const struct mcorefs_load_options options[] = {
		{.device = -1, .threads = 1},
		{.device = -1, .threads = 3, .memory = 1, .direct = MCOREFS_DIRECT_NEVER},
		{.device = -1, .direct = MCOREFS_DIRECT_ALWAYS},
	};
	struct mcorefs_source *source;
	struct mcorefs_view *view =
		open_view(cases[_i].fixture, cases[_i].options, cases[_i].view, &source);

	rng = (uint64_t)_i + 1;
	for (int round = 0; round < (UNIT_TSAN ? 1 : 4); round++)
		compare(view, false, &options[round % 3]);
	close_view(view, source);
}
END_TEST

START_TEST(boxes_in_a_gpu_are_the_bytes_of_their_files)
{
	static const struct mcorefs_load_options options[] = {
		{.device = 0, .threads = 3},
		{.device = 0, .threads = 1, .memory = 1},
		{.device = 0, .direct = MCOREFS_DIRECT_ALWAYS},
	};
	struct mcorefs_source *source;
	struct mcorefs_view *view =
		open_view(cases[_i].fixture, cases[_i].options, cases[_i].view, &source);
	struct fake_driver_counts before;

	open_fake_driver();
	rng = (uint64_t)_i + 1;
	for (int round = 0; round < (UNIT_TSAN ? 1 : 3); round++)
		compare(view, round == 0, &options[round % 3]);
	before = fake.tell();
	ck_assert_uint_gt(before.copies, 0);
	ck_assert_uint_gt(before.pinned, 0);
	mcorefs_trim();
	ck_assert_uint_eq(fake.tell().pinned, 0);
	close_view(view, source);
}
END_TEST

/* What a load has pinned is there for the next one of the same shape. */
START_TEST(buffers_are_pinned_once)
{
	const struct mcorefs_load_options o = {.device = 0, .threads = 1};
	struct mcorefs_source *source;
	struct mcorefs_view *view = open_view("hf/llama-safetensors", NULL, "hf", &source);
	unsigned pinned;

	open_fake_driver();
	compare(view, true, &o);
	pinned = fake.tell().pinned;
	ck_assert_uint_ge(pinned, 1);
	ck_assert_uint_le(pinned, 2); /* the first slot, and the others */
	compare(view, true, &o);
	ck_assert_uint_eq(fake.tell().pinned, pinned);
	mcorefs_trim();
	ck_assert_uint_eq(fake.tell().pinned, 0);
	close_view(view, source);
}
END_TEST

/* ---- lists ---- */

static int count_iteration(void *arg, const struct mcorefs_iteration *it)
{
	ck_assert_str_eq(it->name, "iter_0000040");
	ck_assert_str_eq(it->format, "torch");
	ck_assert_ptr_null(it->reason);
	ck_assert_int_eq(it->is_latest, 1);
	++*(int *)arg;
	return 0;
}

static int look_for_view(void *arg, const char *view)
{
	return !strcmp(view, arg) ? 7 : 0;
}

START_TEST(iterations_views_and_files_are_those_of_a_mount)
{
	struct mcorefs_source *source;
	struct mcorefs_view *view = open_view("weights/llama-torch-tp2-pp2", NULL, NULL, &source);
	struct mcorefs_file file;
	size_t found;
	int count = 0;

	lib_ok(mcorefs_iterations(source, count_iteration, &count, &err));
	ck_assert_int_eq(count, 1);
	ck_assert_int_eq(mcorefs_views(source, NULL, look_for_view, "hf-fp8", &err), 7);
	ck_assert_int_eq(mcorefs_views(source, "latest", look_for_view, "latest/vllm/tp2", &err),
			 7);
	ck_assert_int_eq(mcorefs_views(source, NULL, look_for_view, "onnx", &err), 0);
	lib_fails(mcorefs_views(source, "iter_7", look_for_view, "", &err), -ENOENT, "iter_7");
	ck_assert_str_eq(mcorefs_view_name(view), "iter_0000040/hf");
	ck_assert_uint_eq(strspn(mcorefs_view_identity(view), "0123456789abcdef"), 16);
	ck_assert_uint_ge(mcorefs_file_count(view), 2);
	ck_assert_str_eq(mcorefs_version(), MFS_VERSION);
	lib_ok(mcorefs_file_find(view, "config.json", &found, &err));
	lib_ok(mcorefs_file(view, found, &file, &err));
	ck_assert_str_eq(file.name, "config.json");
	ck_assert_uint_gt(file.size, 100);
	lib_fails(mcorefs_file_find(view, "x", &found, &err), -ENOENT, "'x'");
	lib_fails(mcorefs_file(view, 1000, &file, &err), -ENOENT, "1000");
	lib_ok(mcorefs_refresh(source, &err));
	close_view(view, source);
}
END_TEST

/* Tensors of a file that is made of them are listed without its header. */
static void compare_header(struct mcorefs_view *view, size_t file, const struct mcorefs_file *f)
{
	uint8_t *bytes = malloc(f->size);
	const struct mfs_source source = mfs_source_memory(bytes, f->size, f->name);
	struct mfs_safetensors st;
	struct mcorefs_tensor *t;
	struct mfs_error why = {0};
	size_t first, count;

	ck_assert_int_eq(mcorefs_pread(view, file, bytes, f->size, 0, &err), f->size);
	unit_ok(mfs_safetensors_open(&source, &st, &why), &why);
	lib_ok(mcorefs_file_tensors(view, file, &first, &count, &err));
	ck_assert_uint_eq(count, st.count);
	t = calloc(count + 1, sizeof(*t));
	lib_ok(mcorefs_tensors(view, first, count, t, &err));
	for (size_t i = 0; i < count; i++) {
		ck_assert_str_eq(t[i].name, st.tensors[i].name);
		ck_assert_str_eq(t[i].dtype, mfs_dtype_name(st.tensors[i].dtype));
		ck_assert_uint_eq(t[i].ndim, st.tensors[i].ndim);
		ck_assert_mem_eq(t[i].shape, st.tensors[i].shape, t[i].ndim * sizeof(*t[i].shape));
		ck_assert_uint_eq(t[i].off, st.data + st.tensors[i].begin);
		ck_assert_uint_eq(t[i].bytes, st.tensors[i].end - st.tensors[i].begin);
		ck_assert_uint_eq(t[i].file, file);
	}
	free(t);
	mfs_safetensors_release(&st);
	free(bytes);
}

START_TEST(tensors_are_those_of_the_headers)
{
	struct mcorefs_source *source;
	struct mcorefs_view *view =
		open_view(cases[_i].fixture, cases[_i].options, cases[_i].view, &source);
	struct mcorefs_tensor t[2];
	struct mcorefs_file f;
	size_t count, first, of_file, sum = 0;

	for (size_t i = 0; i < mcorefs_file_count(view); i++) {
		lib_ok(mcorefs_file(view, i, &f, &err));
		if (mfs_str_ends(f.name, ".safetensors"))
			compare_header(view, i, &f);
		lib_ok(mcorefs_file_tensors(view, i, &first, &of_file, &err));
		ck_assert_uint_eq(first, sum);
		sum += of_file;
	}
	lib_ok(mcorefs_tensor_count(view, &count, &err));
	ck_assert_uint_eq(count, sum);
	lib_ok(mcorefs_tensors(view, count, 0, t, &err));
	lib_fails(mcorefs_tensors(view, count - 1, 2, t, &err), -ENOENT, "there is no tensor");
	lib_fails(mcorefs_file_tensors(view, 1000, &first, &count, &err), -ENOENT, "1000");
	close_view(view, source);
}
END_TEST

/* ---- mistakes ---- */

START_TEST(sources_options_and_views_that_are_wrong_are_refused)
{
	struct mcorefs_source *source;
	struct mcorefs_view *view;

	lib_fails(mcorefs_open("/nonexistent", NULL, &source, &err), -ENOENT, "/nonexistent");
	lib_fails(mcorefs_open(unit_fixture("hf/llama-safetensors"), "allow_other", &source, &err),
		  -EINVAL, "allow_other");
	lib_fails(mcorefs_open(unit_fixture("hf/llama-safetensors"), "onnx=1", &source, &err),
		  -EINVAL, "onnx");
	lib_ok(mcorefs_open(unit_fixture("hf/llama-safetensors"), NULL, &source, &err));
	lib_fails(mcorefs_view_open(source, "hg", &view, &err), -ENOENT, "hg");
	lib_fails(mcorefs_view_open(source, "vllm/tp7", &view, &err), -EINVAL, "7");
	mcorefs_close(source);
	mcorefs_close(NULL);
	mcorefs_view_close(NULL);
	mcorefs_load_free(NULL);
	mcorefs_trim();
}
END_TEST

START_TEST(boxes_that_are_wrong_are_refused)
{
	struct mcorefs_source *source;
	struct mcorefs_view *view = open_view("hf/llama-safetensors", NULL, "hf", &source);
	const uint64_t begin[2] = {0, 1}, end[2] = {1, 1u << 20};
	const int64_t back[2] = {-2, 2};
	struct mcorefs_load_options options = {.device = -1};
	struct mcorefs_load *load;
	struct mcorefs_tensor t;
	uint8_t to[64];
	struct mcorefs_box box = {.to = to, .room = sizeof(to)};
	size_t i;

	lib_fails(mcorefs_tensor_find(view, "model.norm.weigt", &i, &err), -ENOENT,
		  "model.norm.weight");
	lib_ok(mcorefs_tensor_find(view, "model.embed_tokens.weight", &box.tensor, &err));
	lib_ok(mcorefs_tensor(view, box.tensor, &t, &err));
	lib_fails(mcorefs_load_start(view, &box, 1, NULL, &load, &err), -EINVAL, "has 64");
	box.reserved[1] = 1;
	lib_fails(mcorefs_load_start(view, &box, 1, NULL, &load, &err), -EINVAL, "reserved");
	box.reserved[1] = 0;
	box.begin = begin;
	lib_fails(mcorefs_load_start(view, &box, 1, NULL, &load, &err), -EINVAL, "or neither");
	box.end = end;
	lib_fails(mcorefs_load_start(view, &box, 1, NULL, &load, &err), -EINVAL, "axis 1");
	box.end = t.shape;
	box.strides = back;
	lib_fails(mcorefs_load_start(view, &box, 1, NULL, &load, &err), -EINVAL, "negative");
	box.tensor = 1u << 20;
	lib_fails(mcorefs_load_start(view, &box, 1, NULL, &load, &err), -ENOENT, "1048576");
	options.reserved[2] = 1;
	lib_fails(mcorefs_load_start(view, NULL, 0, &options, &load, &err), -EINVAL, "reserved");
	lib_ok(mcorefs_load_start(view, NULL, 0, NULL, &load, &err));
	ck_assert_int_eq(mcorefs_load_next(load, 0, &i, &err), 0);
	mcorefs_load_free(load);
	close_view(view, source);
}
END_TEST

START_TEST(a_gpu_that_is_not_there_is_refused)
{
	const struct mcorefs_load_options options = {.device = 63};
	struct mcorefs_source *source;
	struct mcorefs_view *view = open_view("hf/llama-safetensors", NULL, "hf", &source);
	struct mcorefs_load *load;
	struct mcorefs_tensor t;
	struct mcorefs_box box = {.tensor = 0};

	lib_ok(mcorefs_tensor(view, 0, &t, &err));
	box.room = t.bytes;
	box.to = malloc(t.bytes);
	lib_fails(mcorefs_load_start(view, &box, 1, &options, &load, &err), -ENODEV, "CUDA");
	free(box.to);
	close_view(view, source);
}
END_TEST

START_TEST(a_child_is_told_to_open_the_source_itself)
{
	struct mcorefs_source *source;
	struct mcorefs_view *view = open_view("hf/llama-safetensors", NULL, "hf", &source);
	int status;
	pid_t pid = fork();

	if (!pid) {
		uint8_t byte;
		const bool refused = mcorefs_pread(view, 0, &byte, 1, 0, &err) == -EINVAL &&
				     strstr(err.text, "forked");

		close_view(view, source);
		_exit(refused ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	close_view(view, source);
}
END_TEST

/* ---- sources that change ---- */

static void copy_file(const char *from, const char *dir, const char *name)
{
	size_t len;
	uint8_t *bytes = unit_slurp(from, &len);

	unit_write(dir, name, bytes, len);
	free(bytes);
}

static const char *copied_model(void)
{
	static char dir[PATH_MAX];
	char path[PATH_MAX];

	snprintf(dir, sizeof(dir), "%s", unit_tmpdir());
	for (int i = 0; i < 2; i++) {
		const char *name = i ? "model.safetensors" : "config.json";

		snprintf(path, sizeof(path), "%s/%s", unit_fixture("hf/llama-safetensors"), name);
		copy_file(path, dir, name);
	}
	return dir;
}

/* Small ones have none by themselves. */
static const struct mcorefs_load_options in_threads = {.device = -1, .threads = 2};

static int load_all(struct mcorefs_view *view, const struct mcorefs_load_options *o)
{
	struct mcorefs_tensor t;
	struct mcorefs_box *boxes;
	size_t count;
	int rc;

	lib_ok(mcorefs_tensor_count(view, &count, &err));
	boxes = calloc(count, sizeof(*boxes));
	for (size_t i = 0; i < count; i++) {
		lib_ok(mcorefs_tensor(view, i, &t, &err));
		boxes[i] =
			(struct mcorefs_box){.tensor = i, .to = malloc(t.bytes), .room = t.bytes};
	}
	rc = mcorefs_load_fill(view, boxes, count, o, &err);
	for (size_t i = 0; i < count; i++)
		free(boxes[i].to);
	free(boxes);
	return rc;
}

/* How a source goes wrong after its view was opened. */
static void cut(const char *path)
{
	ck_assert_int_eq(truncate(path, 3000), 0);
}

static void rewrite(const char *path)
{
	FILE *f = fopen(path, "r+");

	ck_assert_ptr_nonnull(f);
	fputs("rewritten", f);
	fclose(f);
}

static void replace(const char *path)
{
	char other[PATH_MAX];
	FILE *f;

	snprintf(other, sizeof(other), "%s.new", path);
	f = fopen(other, "w");
	fputs("another", f);
	fclose(f);
	ck_assert_int_eq(rename(other, path), 0);
}

START_TEST(a_source_that_was_changed_is_stale)
{
	static void (*const damage[])(const char *path) = {cut, rewrite};
	const char *dir = copied_model();
	struct mcorefs_source *source;
	struct mcorefs_view *view;
	char path[PATH_MAX + 32];

	lib_ok(mcorefs_open(dir, NULL, &source, &err));
	lib_ok(mcorefs_view_open(source, "hf", &view, &err));
	lib_ok(load_all(view, NULL));
	snprintf(path, sizeof(path), "%s/model.safetensors", dir);
	damage[_i](path);
	lib_fails(load_all(view, NULL), -ESTALE, "model.safetensors");
	lib_fails(load_all(view, &in_threads), -ESTALE, "model.safetensors");
	close_view(view, source);
}
END_TEST

static void read_identity(const char *dir, char ret[32])
{
	struct mcorefs_source *source;
	struct mcorefs_view *view;

	lib_ok(mcorefs_open(dir, NULL, &source, &err));
	lib_ok(mcorefs_view_open(source, "hf", &view, &err));
	snprintf(ret, 32, "%s", mcorefs_view_identity(view));
	close_view(view, source);
}

#define ALL_FILE_SYSTEMS 0xffffu
#define NO_FABRICS	 (ALL_FILE_SYSTEMS & ~(1u << 5))
#define NVME		 "../../devices/pci0000:00/0000:00:1d.0/nvme/nvme0/nvme0n1/nvme0n1p2"
#define FABRICS		 "../../devices/virtual/nvme-fabrics/ctl/nvme1/nvme1n1"
#define SEVERAL_PATHS	 "../../devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1"
#define RAID		 "../../devices/virtual/block/md0"
#define NO_PART		 "the disk does not take part, not used"

static const struct {
	struct fake_cufile_way way;
	bool has_module, is_used;
	const char *disk, *words;
} storages[] = {
	{{2, ALL_FILE_SYSTEMS, 0, 1000}, true, true, NVME, "used"},
	{{2, ALL_FILE_SYSTEMS, 0, 1 << 20}, true, true, SEVERAL_PATHS, "used"},
	{{2, ALL_FILE_SYSTEMS, 1, 1 << 20}, true, false, NVME, "a read has failed, not used"},
	{{2, ALL_FILE_SYSTEMS, 3, 1 << 20}, true, false, NVME, "a read has failed, not used"},
	{{2, NO_FABRICS, 0, 1 << 20}, true, true, NVME, "used"},
	{{2, NO_FABRICS, 0, 1 << 20}, true, false, FABRICS, NO_PART},
	{{2, NO_FABRICS, 0, 1 << 20}, true, false, SEVERAL_PATHS, NO_PART},
	{{2, ALL_FILE_SYSTEMS, 0, 1 << 20}, true, false, RAID, NO_PART},
	{{0, ALL_FILE_SYSTEMS, 0, 1 << 20}, true, false, NVME, "compatibility mode, not used"},
	{{2, 0, 0, 1 << 20},
	 true,
	 false,
	 NVME,
	 "the driver does not support the file system, not used"},
	{{2, ALL_FILE_SYSTEMS, 0, 1 << 20},
	 false,
	 false,
	 NVME,
	 "nvidia-fs is not loaded, not used"},
};

static void leave_cache(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	fsync(fd);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	close(fd);
}

/* Where tests run in memory there are no disks, and nothing is read past the page cache. */
static void check_storage(const struct mcorefs_load_state *state, int i)
{
	const struct fake_cufile_counts counts = fake.tell_cufile();

	ck_assert_uint_eq(counts.files, 0);
	if (!state->direct)
		return;
	ck_assert_str_eq(state->gds, storages[i].words);
	if (storages[i].is_used)
		ck_assert_uint_eq(state->gds_bytes, state->direct);
	else if (!storages[i].way.fails_at)
		ck_assert_uint_eq(counts.reads + state->gds_bytes, 0);
	ck_assert_uint_eq(counts.starts, storages[i].has_module);
}

/* All tensors of the model, one after the other, while nothing of it is in the page cache; or the
 * first of so many parts of their columns. */
static uint8_t *load_cold(const char *dir, const struct mcorefs_load_options *o, unsigned parts,
			  size_t *ret_size, struct mcorefs_load_state *ret_state)
{
	static const uint64_t begin[MCOREFS_MAX_DIMS];
	uint64_t end[64][MCOREFS_MAX_DIMS];
	struct mcorefs_source *source;
	struct mcorefs_view *view;
	struct mcorefs_box boxes[64] = {0};
	struct mcorefs_tensor t[64];
	struct mcorefs_load *load;
	char path[PATH_MAX + 32];
	uint8_t *to;
	size_t count;

	lib_ok(mcorefs_open(dir, NULL, &source, &err));
	lib_ok(mcorefs_view_open(source, "hf", &view, &err));
	lib_ok(mcorefs_tensor_count(view, &count, &err));
	ck_assert_uint_le(count, 64);
	lib_ok(mcorefs_tensors(view, 0, count, t, &err));
	*ret_size = 0;
	for (size_t i = 0; i < count; *ret_size += t[i++].bytes) {
		memcpy(end[i], t[i].shape, t[i].ndim * sizeof(*end[i]));
		end[i][t[i].ndim - 1] /= parts;
		boxes[i] = (struct mcorefs_box){
			.tensor = i, .begin = begin, .end = end[i], .room = t[i].bytes};
	}
	to = malloc(*ret_size);
	fake.give(to, *ret_size);
	for (size_t i = 0, at = 0; i < count; at += t[i++].bytes)
		boxes[i].to = to + at;
	snprintf(path, sizeof(path), "%s/model.safetensors", dir);
	leave_cache(path);
	lib_ok(mcorefs_load_start(view, boxes, count, o, &load, &err));
	lib_ok(mcorefs_load_wait(load, &err));
	mcorefs_load_state(load, ret_state);
	mcorefs_load_free(load);
	fake.take(to);
	close_view(view, source);
	return to;
}

START_TEST(disks_write_into_a_gpu_where_they_can)
{
	const struct mcorefs_load_options o = {
		.device = 0, .threads = 2, .direct = MCOREFS_DIRECT_ALWAYS};
	const char *dir = copied_model();
	struct mcorefs_load_state state;
	uint8_t *host, *device;
	size_t size, same;

	open_fake_driver();
	open_fake_cufile(&storages[_i].way);
	make_sys(dir, storages[_i].disk);
	if (!storages[_i].has_module)
		mfs_gds_proc = "/nonexistent";
	host = load_cold(dir, &in_threads, 1, &size, &state);
	ck_assert_ptr_null(state.gds);
	device = load_cold(dir, &o, 1, &same, &state);
	ck_assert_uint_eq(size, same);
	ck_assert_mem_eq(host, device, size);
	check_storage(&state, _i);
	mcorefs_trim();
	free(host);
	free(device);
}
END_TEST

/* The last bytes of a file are no whole page, and come through the page cache. */
START_TEST(direct_bytes_are_those_that_o_direct_has_read)
{
	const struct mcorefs_load_options o = {.device = 0, .direct = MCOREFS_DIRECT_ALWAYS};
	const char *dir = copied_model();
	struct mcorefs_load_state state;
	char path[PATH_MAX + 32];
	struct stat st;
	size_t size;

	open_fake_driver();
	mfs_gds_proc = "/nonexistent";
	snprintf(path, sizeof(path), "%s/model.safetensors", dir);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_ne(st.st_size % 4096, 0);
	free(load_cold(dir, &o, 1, &size, &state));
	if (state.direct && !state.cached)
		ck_assert_uint_eq(state.direct, state.read - (uint64_t)st.st_size % 4096);
	mcorefs_trim();
}
END_TEST

/* Bytes of the pages that the page cache has of a file. */
static uint64_t cached_bytes(const char *path)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint8_t *map, *pages;
	uint64_t count, cached = 0;
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	count = ((uint64_t)st.st_size + page - 1) / page;
	pages = calloc(count, 1);
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(map, MAP_FAILED);
	ck_assert_int_eq(mincore(map, (size_t)st.st_size, pages), 0);
	for (uint64_t i = 0; i < count; i++)
		cached += (pages[i] & 1) * page;
	munmap(map, (size_t)st.st_size);
	free(pages);
	close(fd);
	return cached;
}

static bool is_on_disk(const char *path)
{
	struct statfs fs;

	ck_assert_int_eq(statfs(path, &fs), 0);
	return fs.f_type == EXT4_SUPER_MAGIC || fs.f_type == XFS_SUPER_MAGIC;
}

/* A load that takes the page cache for a disk has the same bytes, and would say the same. So the
 * kernel is asked. */
START_TEST(bytes_are_read_past_the_page_cache_or_through_it)
{
	const struct mcorefs_load_options o = {
		.device = -1, .direct = _i ? MCOREFS_DIRECT_ALWAYS : MCOREFS_DIRECT_NEVER};
	const char *dir = copied_model();
	struct mcorefs_load_state state;
	char path[PATH_MAX + 32];
	size_t size;

	if (!is_on_disk(dir))
		return;
	open_fake_driver();
	snprintf(path, sizeof(path), "%s/model.safetensors", dir);
	free(load_cold(dir, &o, 1, &size, &state));
	ck_assert_uint_eq(state.direct > 0, _i);
	if (_i)
		ck_assert_uint_le(cached_bytes(path), /* the end, which is no whole page */
				  (uint64_t)sysconf(_SC_PAGESIZE));
	else
		ck_assert_uint_ge(cached_bytes(path), size);
	mcorefs_trim();
}
END_TEST

/* Of a stretch with columns of other ranks, which they would read again. */
START_TEST(what_ranks_share_is_read_through_the_page_cache)
{
	const struct mcorefs_load_options o = {.device = -1, .direct = MCOREFS_DIRECT_ALWAYS};
	const char *dir = copied_model();
	struct mcorefs_load_state state;
	char path[PATH_MAX + 32];
	size_t size;

	if (!is_on_disk(dir))
		return;
	open_fake_driver();
	snprintf(path, sizeof(path), "%s/model.safetensors", dir);
	free(load_cold(dir, &o, 2, &size, &state));
	ck_assert_uint_eq(state.direct, 0);
	ck_assert_uint_ge(cached_bytes(path), size);
	mcorefs_trim();
}
END_TEST

START_TEST(a_view_is_another_one_after_a_file_was_touched)
{
	const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
	const char *dir = copied_model();
	char path[PATH_MAX + 32], before[32], again[32], after[32];

	read_identity(dir, before);
	read_identity(dir, again);
	ck_assert_str_eq(before, again);
	snprintf(path, sizeof(path), "%s/model.safetensors", dir);
	ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
	read_identity(dir, after);
	ck_assert_str_ne(before, after);
}
END_TEST

START_TEST(a_source_that_was_deleted_or_replaced_is_read_while_its_view_is_open)
{
	const char *dir = copied_model();
	struct mcorefs_source *source;
	struct mcorefs_view *view;
	char path[PATH_MAX + 32];

	lib_ok(mcorefs_open(dir, NULL, &source, &err));
	lib_ok(mcorefs_view_open(source, "hf", &view, &err));
	snprintf(path, sizeof(path), "%s/model.safetensors", dir);
	if (_i)
		replace(path);
	else
		unlink(path);
	lib_ok(load_all(view, NULL));
	lib_ok(load_all(view, &in_threads));
	close_view(view, source);
}
END_TEST

/* Replaces the C library's: all file systems are of other machines, if a test asks for that. */
static bool all_are_remote;

int fstatfs(int fd, struct statfs *ret)
{
	const long rc = syscall(SYS_fstatfs, fd, ret);

	if (!rc && all_are_remote)
		ret->f_type = NFS_SUPER_MAGIC;
	return (int)rc;
}

static void check_threads(struct mcorefs_view *view, const struct mcorefs_load_options *o,
			  bool has_any)
{
	struct mcorefs_load_state state;
	struct mcorefs_load *load;
	struct mcorefs_tensor t;
	struct mcorefs_box box = {.tensor = 0};
	size_t told;

	lib_ok(mcorefs_tensor(view, 0, &t, &err));
	box.room = t.bytes;
	box.to = malloc(t.bytes);
	lib_ok(mcorefs_load_start(view, &box, 1, o, &load, &err));
	if (!has_any)
		ck_assert_int_eq(mcorefs_load_next(load, 0, &told, &err), 1);
	lib_ok(mcorefs_load_wait(load, &err));
	mcorefs_load_state(load, &state);
	ck_assert_int_eq(state.threads > 0, has_any);
	ck_assert_int_eq(state.buffers > 0, has_any);
	ck_assert_uint_eq(state.done, t.bytes);
	ck_assert_uint_ge(state.read, t.bytes);
	mcorefs_load_free(load);
	free(box.to);
}

START_TEST(a_small_load_is_done_by_its_caller)
{
	struct mcorefs_source *source;
	struct mcorefs_view *view =
		open_view(cases[_i].fixture, cases[_i].options, cases[_i].view, &source);
	const struct mcorefs_load_options direct = {.device = -1, .direct = MCOREFS_DIRECT_ALWAYS};

	check_threads(view, NULL, false);
	check_threads(view, &in_threads, true);
	check_threads(view, &direct, true);
	close_view(view, source);
}
END_TEST

/* Bytes may take long to come. */
START_TEST(a_small_load_from_another_machine_has_threads)
{
	struct mcorefs_source *source;
	struct mcorefs_view *view;

	all_are_remote = true;
	view = open_view(cases[_i].fixture, cases[_i].options, cases[_i].view, &source);
	check_threads(view, NULL, true);
	close_view(view, source);
}
END_TEST

START_TEST(a_load_that_is_cancelled_ends)
{
	struct mcorefs_source *source;
	struct mcorefs_view *view = open_view("weights/llama-torch-tp2-pp2", NULL, "hf", &source);
	struct mcorefs_load *load;
	struct mcorefs_tensor t;
	const struct mcorefs_load_options options = {.device = -1, .threads = 1};
	struct mcorefs_box box = {.tensor = 0};
	int rc;

	lib_ok(mcorefs_tensor(view, 0, &t, &err));
	box.room = t.bytes;
	box.to = malloc(t.bytes);
	for (int i = 0; i < 20; i++) {
		lib_ok(mcorefs_load_start(view, &box, 1, &options, &load, &err));
		mcorefs_load_cancel(load);
		rc = mcorefs_load_wait(load, &err);
		ck_assert_msg(!rc || rc == -ECANCELED, "%d: %s", rc, err.text);
		mcorefs_load_free(load);
	}
	free(box.to);
	close_view(view, source);
}
END_TEST

struct assembled {
	uint8_t *bytes;
	uint64_t filled;
};

/* What a loader of one's own does with an extent. */
static int read_extent(void *arg, const struct mcorefs_extent *e)
{
	struct assembled *a = arg;
	int fd = open(e->path, O_RDONLY);

	ck_assert(e->kind == MCOREFS_EXTENT_SOURCE);
	ck_assert_int_ge(fd, 0);
	for (uint64_t i = 0; i < e->rows; i++)
		ck_assert_int_eq(pread(fd, a->bytes + e->at + i * e->step, e->width,
				       (off_t)(e->off + i * e->row_step)),
				 (ssize_t)e->width);
	close(fd);
	a->filled += e->rows * e->width;
	return 0;
}

START_TEST(extents_lead_to_the_bytes_of_a_tensor)
{
	struct mcorefs_source *source;
	struct mcorefs_view *view = open_view("weights/llama-torch-tp2-pp2", NULL, "hf", &source);
	struct mcorefs_tensor t;
	size_t count;

	lib_ok(mcorefs_tensor_count(view, &count, &err));
	for (size_t i = 0; i < count; i++) {
		struct assembled a = {0};
		uint8_t *expected;

		lib_ok(mcorefs_tensor(view, i, &t, &err));
		expected = read_tensor(view, &t);
		a.bytes = calloc(1, t.bytes);
		lib_ok(mcorefs_extents(view, i, read_extent, &a, &err));
		ck_assert_uint_eq(a.filled, t.bytes);
		ck_assert_mem_eq(a.bytes, expected, t.bytes);
		free(a.bytes);
		free(expected);
	}
	close_view(view, source);
}
END_TEST

static int take_name(void *arg, const char *name)
{
	snprintf(arg, 256, "%s", name);
	return 0;
}

/* A token array of a dataset is a range of its .bin. */
static int take_source(void *arg, const struct mcorefs_extent *e)
{
	if (e->kind == MCOREFS_EXTENT_SOURCE)
		*(uint64_t *)arg += e->rows * e->width;
	return 0;
}

START_TEST(extents_of_a_dataset_are_ranges_of_its_bin)
{
	struct mcorefs_source *source;
	struct mcorefs_view *view;
	struct mcorefs_file file;
	char name[256] = "", npy[300];
	uint64_t bytes = 0, all = 0;

	lib_ok(mcorefs_open(unit_fixture("data/tales_text_document"), NULL, &source, &err));
	ck_assert_int_eq(mcorefs_views(source, "data", take_name, name, &err), 0);
	snprintf(npy, sizeof(npy), "%s/npy", name);
	lib_ok(mcorefs_view_open(source, npy, &view, &err));
	for (size_t i = 0; i < mcorefs_file_count(view); i++) {
		lib_ok(mcorefs_file(view, i, &file, &err));
		all += file.size;
		ck_assert_int_eq(
			mcorefs_file_extents(view, i, 0, file.size, take_source, &bytes, &err), 0);
		lib_fails(mcorefs_file_extents(view, i, 1, file.size, take_source, &bytes, &err),
			  -EINVAL, "beyond its end");
	}
	ck_assert_uint_gt(bytes, all / 4);
	close_view(view, source);
}
END_TEST

/* Nobody but the library's threads uses them, and TSan sees them. */
static void *load_often(void *view)
{
	for (int i = 0; i < 3; i++)
		compare(view, true, &(struct mcorefs_load_options){.device = -1, .threads = 2});
	return NULL;
}

START_TEST(threads_share_a_view)
{
	struct mcorefs_source *source;
	struct mcorefs_view *view = open_view("weights/llama-torch-tp2-pp2", NULL, "hf", &source);
	pthread_t other;

	ck_assert_int_eq(pthread_create(&other, NULL, load_often, view), 0);
	load_often(view);
	pthread_join(other, NULL);
	close_view(view, source);
}
END_TEST

Suite *mfs_suite(void)
{
	const int count = MFS_ARRAY_SIZE(cases);
	Suite *s = suite_create("library");
	TCase *c = unit_case(s, "lists", iterations_views_and_files_are_those_of_a_mount);

	tcase_add_test(c, sources_options_and_views_that_are_wrong_are_refused);
	tcase_add_loop_test(c, tensors_are_those_of_the_headers, 0, count);
	tcase_add_test(c, extents_lead_to_the_bytes_of_a_tensor);
	tcase_add_test(c, extents_of_a_dataset_are_ranges_of_its_bin);
	c = tcase_create("loads");
	tcase_add_loop_test(c, whole_tensors_are_the_bytes_of_their_files, 0, count);
	tcase_add_loop_test(c, boxes_of_any_strides_are_the_bytes_of_their_files, 0, count);
	tcase_add_loop_test(c, boxes_in_a_gpu_are_the_bytes_of_their_files, 0, count);
	tcase_add_test(c, buffers_are_pinned_once);
	tcase_add_test(c, boxes_that_are_wrong_are_refused);
	tcase_add_test(c, a_gpu_that_is_not_there_is_refused);
	tcase_add_test(c, a_child_is_told_to_open_the_source_itself);
	tcase_add_loop_test(c, a_source_that_was_changed_is_stale, 0, 2);
	tcase_add_loop_test(c, disks_write_into_a_gpu_where_they_can, 0, MFS_ARRAY_SIZE(storages));
	tcase_add_test(c, direct_bytes_are_those_that_o_direct_has_read);
	tcase_add_loop_test(c, bytes_are_read_past_the_page_cache_or_through_it, 0, 2);
	tcase_add_test(c, what_ranks_share_is_read_through_the_page_cache);
	tcase_add_test(c, a_view_is_another_one_after_a_file_was_touched);
	tcase_add_loop_test(c, a_source_that_was_deleted_or_replaced_is_read_while_its_view_is_open,
			    0, 2);
	tcase_add_loop_test(c, a_small_load_is_done_by_its_caller, 0, count);
	tcase_add_loop_test(c, a_small_load_from_another_machine_has_threads, 0, count);
	tcase_add_test(c, a_load_that_is_cancelled_ends);
	tcase_add_test(c, threads_share_a_view);
	suite_add_tcase(s, c);
	return s;
}
