#include "formats/ckpt/proof.h"

#include <errno.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/str.h"
#include "formats/ckpt/ckpt_build.h"

#define WINDOW (1u << 20)

enum finding { UNKNOWN, BEING_READ, RIGHT, WRONG };

/* A record or a file. */
struct unit {
	_Atomic uint8_t finding; /* set under the lock */
	char *why;		 /* of WRONG; set before it, and never again */
};

struct mfs_proof {
	struct mfs_file_sum *sums; /* of files; NULL: units are storages */
	struct unit *units;
	uint32_t count;
	pthread_mutex_t lock; /* of findings and reasons; not held while bytes are read */
	pthread_cond_t changed;
};

int mfs_proof_demand(struct mfs_ckpt *ckpt, const struct mfs_file_sum *sums, struct mfs_error *err)
{
	struct mfs_proof *p = calloc(1, sizeof(*p));

	if (!p)
		return mfs_fail_nomem(err);
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->changed, NULL);
	p->count = sums ? mfs_fileset_count(ckpt->files) : ckpt->storage_count;
	p->units = calloc((size_t)p->count + 1, sizeof(*p->units));
	if (sums)
		p->sums = calloc((size_t)p->count + 1, sizeof(*p->sums));
	if (!p->units || (sums && !p->sums)) {
		mfs_proof_free(p);
		return mfs_fail_nomem(err);
	}
	if (sums)
		memcpy(p->sums, sums, p->count * sizeof(*sums));
	ckpt->proof = p;
	return 0;
}

void mfs_proof_free(struct mfs_proof *p)
{
	if (!p)
		return;
	for (uint32_t i = 0; p->units && i < p->count; i++)
		free(p->units[i].why);
	pthread_mutex_destroy(&p->lock);
	pthread_cond_destroy(&p->changed);
	free(p->units);
	free(p->sums);
	free(p);
}

/* ---- a file ---- */

static int digest(struct mfs_ckpt *ckpt, uint32_t file, EVP_MD_CTX *md, uint8_t *window,
		  uint8_t *ret, struct mfs_error *err)
{
	const uint64_t size = mfs_fileset_size(ckpt->files, file);
	int rc = 0;

	EVP_DigestInit_ex(md, EVP_sha256(), NULL);
	for (uint64_t at = 0; at < size && !rc; at += WINDOW) {
		const size_t n = mfs_min_u64(WINDOW, size - at);

		rc = mfs_fileset_read(ckpt->files, file, at, window, n, err);
		if (!rc)
			EVP_DigestUpdate(md, window, n);
		mfs_fileset_served(ckpt->files, n);
	}
	EVP_DigestFinal_ex(md, ret, NULL);
	return rc;
}

static int read_file(struct mfs_ckpt *ckpt, uint32_t file, struct mfs_error *err)
{
	const struct mfs_file_sum *want = &ckpt->proof->sums[file];
	char found_hex[2 * EVP_MAX_MD_SIZE + 1], want_hex[2 * MFS_SHA256_BYTES + 1];
	uint8_t *window = malloc(WINDOW), found[EVP_MAX_MD_SIZE];
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	int rc;

	if (!want->known)
		rc = 0;
	else if (window && md)
		rc = digest(ckpt, file, md, window, found, err);
	else
		rc = mfs_fail_nomem(err);
	EVP_MD_CTX_free(md);
	free(window);
	if (rc || !want->known || !memcmp(found, want->sha256, MFS_SHA256_BYTES))
		return rc;
	mfs_str_hex(found, MFS_SHA256_BYTES, found_hex);
	mfs_str_hex(want->sha256, MFS_SHA256_BYTES, want_hex);
	return mfs_fail(err, -EINVAL, "%s/%s: SHA-256 is %s, integrity.json says %s", ckpt->dir,
			mfs_fileset_name(ckpt->files, file), found_hex, want_hex);
}

/* ---- units ---- */

/* What a unit is, and for which tensor it is asked. */
struct question {
	const struct mfs_global_tensor *t; /* NULL: the unit is a file */
	uint32_t unit;
};

static int read_unit(struct mfs_ckpt *ckpt, const struct question *q, struct mfs_error *err)
{
	bool has_sum;

	return q->t ? mfs_ckpt_check_bytes(ckpt, q->t, q->unit, &has_sum, err)
		    : read_file(ckpt, q->unit, err);
}

static int is_wrong(const struct unit *u, struct mfs_error *err)
{
	return mfs_fail(err, -EINVAL, "%s", u->why);
}

/* Reads the unit, and says what was found to those who wait. The caller has made it BEING_READ. */
static int find_out(struct mfs_ckpt *ckpt, const struct question *q, struct mfs_error *err)
{
	struct mfs_proof *p = ckpt->proof;
	struct unit *u = &p->units[q->unit];
	struct mfs_error own;
	char *why = NULL;
	int rc = read_unit(ckpt, q, &own);

	if (rc == -EINVAL && !(why = strdup(own.msg)))
		rc = mfs_fail_nomem(&own);
	if (rc && err)
		*err = own;
	pthread_mutex_lock(&p->lock);
	u->why = why;
	atomic_store(&u->finding, !rc ? RIGHT : why ? WRONG : UNKNOWN);
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
	return rc;
}

/* Waits while another thread reads the unit. True: nobody knows, and it is the caller's to read. */
static bool claim(struct mfs_proof *p, struct unit *u)
{
	bool mine;

	pthread_mutex_lock(&p->lock);
	while (atomic_load(&u->finding) == BEING_READ)
		pthread_cond_wait(&p->changed, &p->lock);
	mine = atomic_load(&u->finding) == UNKNOWN;
	if (mine)
		atomic_store(&u->finding, BEING_READ);
	pthread_mutex_unlock(&p->lock);
	return mine;
}

static int prove(struct mfs_ckpt *ckpt, const struct question *q, struct mfs_error *err)
{
	struct unit *u = &ckpt->proof->units[q->unit];

	if (atomic_load(&u->finding) == RIGHT)
		return 0;
	if (claim(ckpt->proof, u))
		return find_out(ckpt, q, err);
	return atomic_load(&u->finding) == RIGHT ? 0 : is_wrong(u, err);
}

int mfs_proof_storage(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t, uint32_t storage,
		      struct mfs_error *err)
{
	char name[MFS_CKPT_NAME_SIZE];
	int rc;

	if (!ckpt->proof)
		return 0;
	if (!ckpt->proof->sums)
		return prove(ckpt, &(struct question){t, storage}, err);
	rc = mfs_proof_file(ckpt, ckpt->storages[storage].file, err);
	if (rc)
		mfs_fail_in(err, "tensor '%s'", mfs_global_tensor_name(t, name, sizeof(name)));
	return rc;
}

int mfs_proof_file(struct mfs_ckpt *ckpt, uint32_t file, struct mfs_error *err)
{
	return prove(ckpt, &(struct question){NULL, file}, err);
}
