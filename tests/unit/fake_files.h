/*
 * Files for a checkpoint without any (fake_ckpt.h): each tensor is cut into random chunks,
 * row-major or transposed, which are laid into random files with gaps between them. Every element's
 * bytes follow from its tensor's name and its number, so that anybody can say what must be read.
 */
#ifndef MFS_TESTS_FAKE_FILES_H
#define MFS_TESTS_FAKE_FILES_H

#include <sys/stat.h>

#include "tests/unit/fake_ckpt.h"

#define FAKE_FILES 5

struct fake_files {
	struct mfs_ckpt *ckpt;
	uint8_t *bytes[FAKE_FILES];
	size_t used[FAKE_FILES], room[FAKE_FILES];
	uint32_t chunk_capacity;
};

static inline uint32_t fake_below(uint32_t n)
{
	return (uint32_t)rand() % n;
}

static inline uint64_t fake_mix(uint64_t x)
{
	x ^= x >> 31;
	x *= 0x9e3779b97f4a7c15ull;
	x ^= x >> 29;
	return x * 0xbf58476d1ce4e5b9ull >> 7;
}

/* What a tensor's elements have from its name. */
static inline uint64_t fake_seed(const struct mfs_global_tensor *t)
{
	uint64_t v = 0;

	for (const char *p = t->name; *p; p++)
		v = fake_mix(v + (uint8_t)*p + 1);
	return fake_mix(v + (uint64_t)(t->layer + 2) * 977 + (uint64_t)(t->expert + 2) * 31 +
			t->state);
}

/* Bytes of element i of a tensor of that seed. bf16 and fp32 ones are small finite numbers. */
static inline void fake_seeded(uint64_t seed, enum mfs_dtype dtype, uint64_t i, uint8_t *to)
{
	const uint64_t v = fake_mix(seed + fake_mix(i + 1));
	const uint32_t bits = 0x3f000000u | (uint32_t)(v & 0x807fffff);

	if (dtype == MFS_BF16)
		memcpy(to, (const uint8_t *)&bits + 2, 2);
	else if (dtype == MFS_F32)
		memcpy(to, &bits, 4);
	else
		memcpy(to, &v, mfs_dtype_size(dtype));
}

static inline void fake_element(const struct mfs_global_tensor *t, uint64_t i, uint8_t *to)
{
	fake_seeded(fake_seed(t), t->dtype, i, to);
}

/* Room for n bytes in a file; returns where they begin. */
static inline size_t fake_room(struct fake_files *f, unsigned file, size_t n, unsigned element)
{
	size_t at = (f->used[file] + fake_below(9) + element - 1) / element * element;

	while (at + n > f->room[file]) {
		f->room[file] = f->room[file] ? 2 * f->room[file] : 4096;
		f->bytes[file] = realloc(f->bytes[file], f->room[file]);
		ck_assert_ptr_nonnull(f->bytes[file]);
	}
	memset(f->bytes[file] + f->used[file], 0xee, at - f->used[file]);
	f->used[file] = at + n;
	return at;
}

/* Elements of a row. */
static inline uint64_t fake_columns(const struct mfs_global_tensor *t)
{
	uint64_t count = 1;

	for (unsigned a = 1; a < t->ndim; a++)
		count *= t->shape[a];
	return count;
}

/* Tensors of more than two axes are cut between rows alone. */
static inline void fake_chunk(struct fake_files *f, const struct mfs_global_tensor *t,
			      const uint64_t lo[2], const uint64_t size[2])
{
	const uint64_t cols = fake_columns(t), width = size[1];
	const unsigned element = mfs_dtype_size(t->dtype), file = fake_below(FAKE_FILES);
	const bool transposed = t->ndim == 2 && fake_below(6) == 0;
	const size_t at = fake_room(f, file, size[0] * width * element, element);
	const uint64_t seed = fake_seed(t);
	struct mfs_ckpt *c = f->ckpt;
	struct mfs_chunk *chunk;

	if (c->chunk_count == f->chunk_capacity) {
		f->chunk_capacity = f->chunk_capacity ? 2 * f->chunk_capacity : 64;
		c->chunks = reallocarray(c->chunks, f->chunk_capacity, sizeof(*chunk));
	}
	chunk = &c->chunks[c->chunk_count++];
	*chunk = (struct mfs_chunk){.lo = {lo[0], lo[1]},
				    .size = {size[0], size[1]},
				    .stride = {transposed ? 1 : width, transposed ? size[0] : 1},
				    .origin = at / element,
				    .storage = file};
	if (t->ndim == 3) {
		chunk->size[1] = t->shape[1];
		chunk->size[2] = t->shape[2];
		chunk->stride[1] = t->shape[2];
		chunk->stride[2] = 1;
	}
	for (uint64_t r = 0; r < size[0]; r++)
		for (uint64_t k = 0; k < width; k++)
			fake_seeded(seed, t->dtype, (lo[0] + r) * cols + lo[1] + k,
				    f->bytes[file] + at +
					    (transposed ? r + k * size[0] : r * width + k) *
						    element);
}

/* Cuts a tensor into at most three bands of rows, each of at most three blocks. */
static inline void fake_cut(struct fake_files *f, struct mfs_global_tensor *t)
{
	uint64_t lo[2], size[2] = {0, 0};

	t->first_chunk = f->ckpt->chunk_count;
	for (lo[0] = 0; lo[0] < t->shape[0]; lo[0] += size[0]) {
		size[0] = 1 + fake_below((uint32_t)(t->shape[0] - lo[0]));
		if (lo[0] > t->shape[0] / 2)
			size[0] = t->shape[0] - lo[0];
		for (lo[1] = 0; lo[1] < fake_columns(t); lo[1] += size[1]) {
			size[1] = fake_columns(t) - lo[1];
			if (t->ndim == 2 && fake_below(3) == 0)
				size[1] = 1 + fake_below((uint32_t)size[1]);
			fake_chunk(f, t, lo, size);
		}
	}
	t->chunk_count = f->ckpt->chunk_count - t->first_chunk;
}

/* Lays all tensors of a fake checkpoint into files below unit_tmpdir()/dir. fake_unstore() lets go
 * of it. */
static inline void fake_store(struct fake_files *f, struct mfs_ckpt *c, const char *dir)
{
	char path[600];
	struct mfs_error err;
	uint32_t file;

	*f = (struct fake_files){.ckpt = c};
	for (uint32_t i = 0; i < c->tensor_count; i++)
		fake_cut(f, &c->tensors[i]);
	snprintf(path, sizeof(path), "%s/%s", unit_tmpdir(), dir);
	mkdir(path, 0755);
	unit_ok(mfs_fileset_new(path, &c->files, &err), &err);
	c->storages = calloc(FAKE_FILES, sizeof(*c->storages));
	c->storage_count = FAKE_FILES;
	for (unsigned i = 0; i < FAKE_FILES; i++) {
		char name[] = "file0";

		name[4] += (char)i;
		unit_write(path, name, f->bytes[i] ? (char *)f->bytes[i] : "", f->used[i]);
		unit_ok(mfs_fileset_add(c->files, name, &file, &err), &err);
		c->storages[i] =
			(struct mfs_storage){.file = file, .length = f->used[i], .data = 1};
	}
}

static inline void fake_unstore(struct fake_files *f)
{
	mfs_fileset_free(f->ckpt->files);
	free(f->ckpt->chunks);
	free(f->ckpt->storages);
	for (unsigned i = 0; i < FAKE_FILES; i++)
		free(f->bytes[i]);
}

#endif
