#include "formats/ckpt/read/demand.h"

#include <errno.h>
#include <stdlib.h>

#include "formats/base/path.h"
#include "formats/ckpt/ckpt_build.h"
#include "formats/ckpt/read/integrity.h"

/* ---- CRC-32 of records ---- */

/* The first storage of each file stands for all of it: which writer it was is a matter of the
 * file, and a look at each of 30 000 records would be as slow as opening them all. */
static int crc_of_file(struct mfs_ckpt *ckpt, const struct mfs_storage *s, bool *ret_has,
		       struct mfs_error *err)
{
	struct mfs_record record = {0};
	uint64_t data;
	int rc = 0;

	if (s->locate)
		rc = s->locate(ckpt, s, &data, &record, err);
	*ret_has = record.crc || (s->locate && !s->length);
	return rc;
}

/* A record that cannot be located fails its tensor when that is read. It is no matter of sums. */
static int demand_crc(struct mfs_ckpt *ckpt, struct mfs_error *err)
{
	const uint32_t files = mfs_fileset_count(ckpt->files);
	bool *seen = calloc((size_t)files + 1, sizeof(*seen)), has;
	uint32_t with = 0, without = 0, example = 0;
	int rc = 0;

	if (!seen)
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < ckpt->storage_count; i++) {
		const struct mfs_storage *s = &ckpt->storages[i];

		if (seen[s->file] || crc_of_file(ckpt, s, &has, NULL))
			continue;
		seen[s->file] = true;
		with += has;
		if (!has && !without++)
			example = s->file;
	}
	free(seen);
	if (without)
		rc = mfs_ckpt_warn(ckpt,
				   "verify=crc: %u of %u files of tensors carry no CRC-32 and are "
				   "not checked, such as %.120s",
				   without, with + without, mfs_fileset_name(ckpt->files, example));
	return rc ? mfs_fail_nomem(err) : mfs_proof_demand(ckpt, NULL, err);
}

/* ---- SHA-256 of files ---- */

/* Files in which tensors lie, as flags. */
static bool *files_of_tensors(const struct mfs_ckpt *ckpt)
{
	bool *of = calloc((size_t)mfs_fileset_count(ckpt->files) + 1, sizeof(*of));

	for (uint32_t i = 0; of && i < ckpt->storage_count; i++)
		of[ckpt->storages[i].file] = true;
	return of;
}

/* Without its sum, nobody knows whether the index is the one that was saved: it says which bytes
 * are which tensor. */
static int check_named(struct mfs_ckpt *ckpt, const struct mfs_file_sum *sums, const bool *tensors,
		       struct mfs_error *err)
{
	for (uint32_t i = 0; i < mfs_fileset_count(ckpt->files); i++) {
		const char *name = mfs_fileset_name(ckpt->files, i);

		if (sums[i].known)
			continue;
		if (tensors[i] || mfs_integrity_must_name(mfs_path_base(name)))
			return mfs_fail(err, -EINVAL, "%s: integrity.json does not name '%s'",
					ckpt->dir, name);
		if (mfs_ckpt_warn(ckpt,
				  "verify=sha256: integrity.json does not name %.120s: it is "
				  "believed",
				  name))
			return mfs_fail_nomem(err);
	}
	return 0;
}

static int prove_what_was_read(struct mfs_ckpt *ckpt, const bool *tensors, struct mfs_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < mfs_fileset_count(ckpt->files) && !rc; i++)
		if (!tensors[i] || (ckpt->has_state && ckpt->state.file == i))
			rc = mfs_proof_file(ckpt, i, err);
	return rc;
}

static int demand_sums(struct mfs_ckpt *ckpt, const struct mfs_file_sum *sums,
		       struct mfs_error *err)
{
	bool *tensors = files_of_tensors(ckpt);
	int rc = tensors ? check_named(ckpt, sums, tensors, err) : mfs_fail_nomem(err);

	if (!rc)
		rc = mfs_proof_demand(ckpt, sums, err);
	if (!rc)
		rc = prove_what_was_read(ckpt, tensors, err);
	free(tensors);
	return rc;
}

static int demand_sha256(struct mfs_ckpt *ckpt, struct mfs_error *err)
{
	struct mfs_file_sum *sums =
		calloc((size_t)mfs_fileset_count(ckpt->files) + 1, sizeof(*sums));
	int rc = sums ? mfs_integrity_sums(ckpt->dir, ckpt->files, sums, err) : mfs_fail_nomem(err);

	if (!rc)
		rc = demand_sums(ckpt, sums, err);
	else if (rc == -ENOENT)
		rc = mfs_ckpt_warn(ckpt, "verify=sha256: there is no integrity.json next to the "
					 "files: nothing is checked");
	free(sums);
	return rc;
}

int mfs_ckpt_demand(struct mfs_ckpt *ckpt, enum mfs_proof_kind kind, struct mfs_error *err)
{
	switch (kind) {
	case MFS_PROOF_CRC:
		return demand_crc(ckpt, err);
	case MFS_PROOF_SHA256:
		return demand_sha256(ckpt, err);
	default:
		return 0;
	}
}
