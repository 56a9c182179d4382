/* Finds where a storage's bytes begin in its container, and checks that they are as they were
 * written. */
#include <errno.h>
#include <stdlib.h>
#include <zlib.h>

#include "formats/base/bytes.h"
#include "formats/ckpt/ckpt_build.h"

/* Reads the local header before a record. */
static int locate_record(struct mfs_ckpt *ckpt, const struct mfs_storage *s, uint64_t *ret,
			 struct mfs_record *ret_record, struct mfs_error *err)
{
	struct mfs_source src = mfs_source_file(ckpt->files, s->file);
	struct mfs_zip_entry e = {.name = s->record,
				  .header = s->at,
				  .size = s->length,
				  .limit = s->limit,
				  .crc = s->crc};
	int rc = mfs_zip_locate(&src, &e, ret, err);

	if (!rc)
		*ret_record = (struct mfs_record){*ret, s->length, s->crc};
	return rc;
}

int mfs_ckpt_add_record(struct mfs_ckpt *ckpt, uint32_t file, uint64_t base,
			const struct mfs_zip_entry *e, enum mfs_dtype dtype, uint32_t *ret,
			struct mfs_error *err)
{
	const struct mfs_storage s = {.locate = e->bare ? NULL : locate_record,
				      .file = file,
				      .dtype = dtype,
				      .at = base + e->header,
				      .length = e->size,
				      .limit = base + e->limit,
				      .record = mfs_ckpt_intern(ckpt, e->name),
				      .crc = e->crc};

	return s.record ? mfs_ckpt_add_storage(ckpt, &s, ret, err) : mfs_fail_nomem(err);
}

static int locate(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t,
		  const struct mfs_storage *s, uint64_t *ret, struct mfs_record *ret_record,
		  struct mfs_error *err)
{
	char name[MFS_CKPT_NAME_SIZE];
	int rc;

	if (!s->locate) {
		*ret = s->at;
		*ret_record = (struct mfs_record){s->at, s->length, 0};
		return 0;
	}
	rc = s->locate(ckpt, s, ret, ret_record, err);
	if (rc)
		mfs_fail_in(err, "tensor '%s'", mfs_global_tensor_name(t, name, sizeof(name)));
	return rc;
}

int mfs_ckpt_locate(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t, uint32_t storage,
		    uint32_t *ret_file, uint64_t *ret_offset, struct mfs_error *err)
{
	struct mfs_storage *s = &ckpt->storages[storage];
	uint64_t data = atomic_load_explicit(&s->data, memory_order_relaxed);
	struct mfs_record record;
	int rc = mfs_proof_storage(ckpt, t, storage, err);

	if (rc)
		return rc;
	if (!data) {
		rc = locate(ckpt, t, s, &data, &record, err);
		if (rc)
			return rc;
		/* Other threads that looked have found the same number. */
		atomic_store_explicit(&s->data, ++data, memory_order_relaxed);
	}
	*ret_file = s->file;
	*ret_offset = data - 1;
	return 0;
}

/* ---- checksums ---- */

#define CHECK_WINDOW (1u << 20)

const struct mfs_ckpt_scales *mfs_ckpt_scales(const struct mfs_ckpt *ckpt,
					      const struct mfs_chunk *c)
{
	return c->scales ? &ckpt->scales[c->scales - 1] : NULL;
}

uint32_t mfs_ckpt_storage_count(const struct mfs_ckpt *ckpt)
{
	return ckpt->storage_count;
}

static int sum_record(struct mfs_ckpt *ckpt, uint32_t file, const struct mfs_record *record,
		      uint32_t *ret, struct mfs_error *err)
{
	uint8_t *window = malloc(CHECK_WINDOW);
	uint64_t done = 0;
	uLong crc = 0;
	int rc = window ? 0 : mfs_fail_nomem(err);

	while (done < record->length && !rc) {
		size_t n = mfs_min_u64(CHECK_WINDOW, record->length - done);

		rc = mfs_fileset_read(ckpt->files, file, record->at + done, window, n, err);
		if (!rc)
			crc = crc32_z(crc, window, n);
		mfs_fileset_served(ckpt->files, n);
		done += n;
	}
	free(window);
	if (!rc)
		*ret = (uint32_t)crc;
	return rc;
}

int mfs_ckpt_check_bytes(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t, uint32_t storage,
			 bool *ret_checked, struct mfs_error *err)
{
	const struct mfs_storage *s = &ckpt->storages[storage];
	char name[MFS_CKPT_NAME_SIZE];
	struct mfs_record record;
	uint32_t crc = 0;
	uint64_t data;
	int rc = locate(ckpt, t, s, &data, &record, err);

	if (!rc && record.crc)
		rc = sum_record(ckpt, s->file, &record, &crc, err);
	if (rc)
		return rc;
	*ret_checked = record.crc != 0;
	if (crc == record.crc)
		return 0;
	return mfs_fail(err, -EINVAL,
			"%s/%s: tensor '%s': its bytes have CRC-32 %08x, expected %08x", ckpt->dir,
			mfs_fileset_name(ckpt->files, s->file),
			mfs_global_tensor_name(t, name, sizeof(name)), crc, record.crc);
}
