#define _GNU_SOURCE
#include "tests/fuzz/fuzz.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/megatron/optim.h"

/*
 * A checkpoint of a tiny model with its optimizer: a sequence of files, each a letter (which file), four
 * bytes of its length, and its bytes. metadata.json is written for whatever has a .metadata.
 */
static const struct {
	char letter;
	const char *path;
} files[] = {{'m', "mp_rank_00/model_optim_rng.pt"},
	     {'n', "mp_rank_01/model_optim_rng.pt"},
	     {'f', "mp_rank_00/distrib_optim.pt"},
	     {'g', "mp_rank_01/distrib_optim.pt"},
	     {'d', ".metadata"},
	     {'c', "common.pt"},
	     {'x', "__0_0.distcp"}};

#define FILES (sizeof(files) / sizeof(files[0]))
#define JSON  "{\"sharded_backend\": \"torch_dist\"}"

static char dir[64];

static void remove_dir(void)
{
	char path[128];

	for (size_t i = 0; i < FILES; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, files[i].path);
		unlink(path);
	}
	snprintf(path, sizeof(path), "%s/metadata.json", dir);
	unlink(path);
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/mp_rank_%02d", dir, i);
		rmdir(path);
	}
	rmdir(dir);
	dir[0] = '\0';
}

static void write_file(const char *name, const void *bytes, size_t len)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	fuzz_require(f && fwrite(bytes, 1, len, f) == len && !fclose(f));
}

static void make_dir(void)
{
	char path[128];

	snprintf(dir, sizeof(dir), "%s/fuzz-optim-XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	fuzz_require(mkdtemp(dir));
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/mp_rank_%02d", dir, i);
		fuzz_require(!mkdir(path, 0700));
	}
}

static void write_files(const uint8_t *bytes, size_t len)
{
	while (len >= 5) {
		size_t size = mfs_le32(bytes + 1), i = 0;

		while (i < FILES && files[i].letter != (char)bytes[0])
			i++;
		if (i == FILES || size > len - 5)
			return;
		write_file(files[i].path, bytes + 5, size);
		if (files[i].letter == 'd')
			write_file("metadata.json", JSON, sizeof(JSON) - 1);
		bytes += 5 + size;
		len -= 5 + size;
	}
}

/* Chunks lie inside of their tensors; what else must be so the reader has checked. */
static void check_tensors(const struct mfs_ckpt *ckpt)
{
	for (uint32_t i = mfs_ckpt_count(ckpt); i < mfs_ckpt_count_all(ckpt); i++) {
		const struct mfs_global_tensor *t = mfs_ckpt_at(ckpt, i);
		const struct mfs_chunk *c = mfs_ckpt_chunks(ckpt, t);

		fuzz_require(t->state != MFS_STATE_MODEL && t->state < MFS_STATE_COUNT);
		for (uint32_t k = 0; k < t->chunk_count; k++)
			for (unsigned d = 0; d < t->ndim; d++)
				fuzz_require(mfs_range_ok(c[k].lo[d], c[k].size[d], t->shape[d]));
	}
}

/* Parameters lie inside of their buffers, whatever the arguments say. */
static void check_side(struct mfs_ckpt *ckpt)
{
	struct mfs_rank_list *list;
	struct mfs_parallel layout;
	struct mfs_error err = {0};
	struct mfs_optim *o;

	if (!mfs_layout_of(ckpt, &layout) || mfs_layout_check(&layout, mfs_ckpt_args(ckpt), &err) ||
	    mfs_rank_list_new(ckpt, &layout, &(struct mfs_rank){0}, mfs_spec_of(ckpt), 0, &list,
			      &err))
		return;
	if (!mfs_optim_new(list, NULL, 1, 1, &o, &err)) {
		for (uint32_t i = 0; i < o->count; i++) {
			const struct mfs_optim_param *p = &o->params[i];

			fuzz_require(p->buffer < o->buffer_count);
			fuzz_require(mfs_range_ok(p->in_coalesced, p->elements,
						  o->buffers[p->buffer].elements));
			fuzz_require(p->group < o->group_count[p->optimizer]);
		}
		mfs_optim_free(o);
	}
	mfs_rank_list_free(list);
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	struct mfs_ckpt *ckpt;
	int rc;

	make_dir();
	write_files(bytes, len);
	rc = mfs_optim_open(dir, &ckpt, err);
	if (!rc) {
		check_tensors(ckpt);
		check_side(ckpt);
		mfs_ckpt_free(ckpt);
	}
	remove_dir();
	return rc;
}

FUZZ_TARGET
