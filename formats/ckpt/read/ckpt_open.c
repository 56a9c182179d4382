#include "formats/ckpt/read/ckpt_open.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "formats/ckpt/ckpt_build.h"
#include "formats/ckpt/read/reader.h"

/* Which format: megatron/training/checkpointing.py:_get_checkpoint_format. */

/* ---- which reader ---- */

#define DECLARE(name, optim) extern const struct mfs_ckpt_reader mfs_ckpt_reader_##name;
#define LIST(name, optim)    &mfs_ckpt_reader_##name,

MFS_CKPT_READERS(DECLARE)

const struct mfs_ckpt_reader *const mfs_ckpt_readers[] = {MFS_CKPT_READERS(LIST)};

bool mfs_ckpt_dir_has(const char *dir, const char *name)
{
	char path[4096];
	struct stat st;

	return (size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) < sizeof(path) &&
	       !stat(path, &st);
}

bool mfs_ckpt_dir_last(const char *dir, const char *file, char *name, size_t size)
{
	return mfs_ckpt_dir_has(dir, file) && (size_t)snprintf(name, size, "%s", file) < size;
}

static int find_reader(const char *dir, const struct mfs_ckpt_reader **ret, struct mfs_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < MFS_CKPT_READER_END; i++)
		if (mfs_ckpt_readers[i]->looks_like(dir)) {
			*ret = mfs_ckpt_readers[i];
			return 0;
		}
	for (size_t i = 0; i < MFS_CKPT_READER_END && !rc; i++)
		if (mfs_ckpt_readers[i]->refuse)
			rc = mfs_ckpt_readers[i]->refuse(dir, err);
	return rc ? rc
		  : mfs_fail(err, -ENODATA,
			     "%s: neither metadata.json nor mp_rank_* directories: not a Megatron "
			     "checkpoint",
			     dir);
}

int mfs_ckpt_begin(const char *dir, unsigned what, struct mfs_ckpt **ret, struct mfs_error *err)
{
	const struct mfs_ckpt_reader *reader;
	struct mfs_ckpt *ckpt;
	int rc = mfs_ckpt_new(dir, what, NULL, &ckpt, err);

	if (rc)
		return rc;
	rc = find_reader(ckpt->dir, &reader, err);
	if (!rc) {
		ckpt->reader = reader;
		ckpt->format = reader->format;
	}
	return mfs_ckpt_end(ckpt, rc, ret);
}

int mfs_ckpt_open_part(const char *dir, unsigned what, const struct mfs_ckpt_part_ops *parts,
		       const struct mfs_ckpt_told *told, struct mfs_ckpt **ret,
		       struct mfs_error *err)
{
	struct mfs_ckpt *ckpt;
	int rc = mfs_ckpt_begin(dir, what, &ckpt, err);

	if (rc)
		return rc;
	ckpt->parts = parts;
	ckpt->told = told;
	rc = ckpt->reader->read(ckpt, err);
	if (!rc)
		rc = mfs_ckpt_group(ckpt, err);
	if (!rc)
		rc = mfs_ckpt_check_told(ckpt, err);
	return mfs_ckpt_end(ckpt, rc, ret);
}

int mfs_ckpt_open(const char *dir, unsigned what, struct mfs_ckpt **ret, struct mfs_error *err)
{
	return mfs_ckpt_open_part(dir, what, NULL, NULL, ret, err);
}
