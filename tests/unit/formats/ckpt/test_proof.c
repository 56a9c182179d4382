/* Bytes are proved before they are used: formats/ckpt/proof.h, formats/ckpt/read/demand.h. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/base/buf.h"
#include "formats/base/str.h"
#include "formats/ckpt/read/demand.h"
#include "formats/ckpt/read/ckpt_open.h"
#include "formats/model/hf_ckpt.h"

#define DIST	"weights/qwen3-torch_dist-tp4/iter_0000040"
#define DAMAGED "__2_0.distcp"
#define THREADS 8

static const char *const names[] = {
	".metadata",	"metadata.json", "__0_0.distcp",
	"__1_0.distcp", "__2_0.distcp",	 "__3_0.distcp",
};
#define FILES MFS_ARRAY_SIZE(names)

static struct mfs_error err;
static struct mfs_ckpt *ckpt;
static const char *dir;

static void copy_fixture(void)
{
	dir = unit_tmpdir();
	for (size_t i = 0; i < FILES; i++) {
		char path[600];
		uint8_t *bytes;
		size_t len;

		snprintf(path, sizeof(path), "%s/%s", unit_fixture(DIST), names[i]);
		bytes = unit_slurp(path, &len);
		unit_write(dir, names[i], bytes, len);
		free(bytes);
	}
}

static const char *path_of(const char *name)
{
	static char path[600];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static void flip(const char *name, off_t at)
{
	int fd = open(path_of(name), O_RDWR);
	uint8_t byte;

	ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
	byte ^= 1;
	ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

/* integrity.json of the files as they are now, without one of them (NULL: of all). */
static void write_manifest(const char *without)
{
	struct mfs_buf text = {0};
	const char *comma = "";

	mfs_buf_adds(&text, "{\"algorithm\": \"sha256\", \"files\": {");
	for (size_t i = 0; i < FILES; i++) {
		uint8_t sum[EVP_MAX_MD_SIZE], *bytes;
		char hex[2 * EVP_MAX_MD_SIZE + 1];
		unsigned sum_len;
		size_t len;

		if (mfs_str_is(without, names[i]))
			continue;
		bytes = unit_slurp(path_of(names[i]), &len);
		EVP_Digest(bytes, len, sum, &sum_len, EVP_sha256(), NULL);
		mfs_str_hex(sum, sum_len, hex);
		mfs_buf_printf(&text, "%s\"%s\": \"%s\"", comma, names[i], hex);
		comma = ", ";
		free(bytes);
	}
	mfs_buf_adds(&text, "}}");
	unit_write(dir, "integrity.json", text.data, text.len);
	mfs_buf_release(&text);
}

static int demand(enum mfs_proof_kind kind)
{
	unit_ok(mfs_ckpt_open(dir, 0, &ckpt, &err), &err);
	return mfs_ckpt_demand(ckpt, kind, &err);
}

static int locate(const struct mfs_global_tensor *t, uint32_t storage, struct mfs_error *why)
{
	uint64_t offset;
	uint32_t file;

	return mfs_ckpt_locate(ckpt, t, storage, &file, &offset, why);
}

/* Locates every storage. Returns how many failed; each failure names the damaged file. */
static unsigned locate_all(const char *sum)
{
	struct mfs_error why;
	unsigned failed = 0;

	for (uint32_t i = 0; i < mfs_ckpt_count(ckpt); i++) {
		const struct mfs_global_tensor *t = mfs_ckpt_at(ckpt, i);

		for (uint32_t k = 0; k < t->chunk_count; k++) {
			if (!locate(t, mfs_ckpt_chunks(ckpt, t)[k].storage, &why))
				continue;
			ck_assert_int_eq(why.code, -EINVAL);
			unit_sentence(why.msg, DAMAGED);
			unit_sentence(why.msg, "tensor '");
			unit_sentence(why.msg, sum);
			failed++;
		}
	}
	return failed;
}

static void *locate_for_crc(void *arg)
{
	*(unsigned *)arg = locate_all("CRC-32");
	return NULL;
}

static void *locate_for_sha256(void *arg)
{
	*(unsigned *)arg = locate_all("integrity.json says");
	return NULL;
}

/* All threads come to the same end. */
static unsigned locate_at_once(void *(*work)(void *))
{
	pthread_t threads[THREADS];
	unsigned failed[THREADS];

	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &failed[i]), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 1; i < THREADS; i++)
		ck_assert_uint_eq(failed[i], failed[0]);
	return failed[0];
}

static unsigned chunks_of_damaged(void)
{
	struct mfs_error why;
	unsigned count = 0;

	for (uint32_t i = 0; i < mfs_ckpt_count(ckpt); i++) {
		const struct mfs_global_tensor *t = mfs_ckpt_at(ckpt, i);

		for (uint32_t k = 0; k < t->chunk_count; k++) {
			uint64_t offset;
			uint32_t file;

			if (mfs_ckpt_locate(ckpt, t, mfs_ckpt_chunks(ckpt, t)[k].storage, &file,
					    &offset, &why))
				continue;
			count += !strcmp(mfs_fileset_name(mfs_ckpt_files(ckpt), file), DAMAGED);
		}
	}
	return count;
}

START_TEST(a_flipped_byte_fails_its_crc)
{
	copy_fixture();
	unit_ok(demand(MFS_PROOF_CRC), &err);
	ck_assert_uint_eq(locate_at_once(locate_for_crc), 0);
	mfs_ckpt_free(ckpt);

	flip(DAMAGED, 5000);
	unit_ok(demand(MFS_PROOF_NONE), &err);
	ck_assert_uint_eq(locate_all(""), 0);
	mfs_ckpt_free(ckpt);
	unit_ok(demand(MFS_PROOF_CRC), &err);
	ck_assert_uint_eq(locate_at_once(locate_for_crc), 1);
	ck_assert_uint_eq(locate_all("CRC-32"), 1); /* and again */
	mfs_ckpt_free(ckpt);
}
END_TEST

START_TEST(a_flipped_byte_fails_its_file)
{
	unsigned of_file;

	copy_fixture();
	write_manifest(NULL);
	unit_ok(demand(MFS_PROOF_SHA256), &err);
	ck_assert_uint_eq(locate_at_once(locate_for_sha256), 0);
	of_file = chunks_of_damaged();
	ck_assert_uint_gt(of_file, 1);
	mfs_ckpt_free(ckpt);

	/* A file is a unit: with one bit of it all of its tensors are refused. */
	flip(DAMAGED, 5000);
	unit_ok(demand(MFS_PROOF_SHA256), &err);
	ck_assert_uint_eq(locate_at_once(locate_for_sha256), of_file);
	mfs_ckpt_free(ckpt);
}
END_TEST

START_TEST(unread_is_tried_again)
{
	const struct mfs_global_tensor *t;
	char away[600];

	copy_fixture();
	unit_ok(demand(MFS_PROOF_CRC), &err);
	t = mfs_ckpt_find(ckpt, "embedding.word_embeddings.weight", -1, -1);
	ck_assert_ptr_nonnull(t);
	snprintf(away, sizeof(away), "%s/away", dir);
	for (uint32_t k = 0; k < t->chunk_count; k++) {
		const uint32_t storage = mfs_ckpt_chunks(ckpt, t)[k].storage;

		ck_assert_int_eq(rename(path_of("__1_0.distcp"), away), 0);
		if (locate(t, storage, &err)) {
			ck_assert_int_eq(err.code, -ESTALE);
			ck_assert_int_eq(rename(away, path_of("__1_0.distcp")), 0);
			unit_ok(locate(t, storage, &err), &err);
			mfs_ckpt_free(ckpt);
			return;
		}
		ck_assert_int_eq(rename(away, path_of("__1_0.distcp")), 0);
	}
	ck_abort_msg("no chunk lies in the file that was away");
}
END_TEST

static bool warns(const char *part)
{
	const char *const *warnings;
	uint32_t count = mfs_ckpt_warnings(ckpt, &warnings);

	for (uint32_t i = 0; i < count; i++)
		if (strstr(warnings[i], part))
			return true;
	return false;
}

START_TEST(without_sums)
{
	copy_fixture();
	unit_ok(demand(MFS_PROOF_SHA256), &err);
	ck_assert(warns("verify=sha256: there is no integrity.json"));
	mfs_ckpt_free(ckpt);
	unit_ok(demand(MFS_PROOF_CRC), &err);
	ck_assert(!warns("verify="));
	mfs_ckpt_free(ckpt);

	unit_ok(mfs_hf_ckpt_open(unit_fixture("hf/llama-safetensors"), NULL, 0, &ckpt, &err), &err);
	unit_ok(mfs_ckpt_demand(ckpt, MFS_PROOF_CRC, &err), &err);
	ck_assert(warns("verify=crc: 1 of 1 files of tensors carry no CRC-32"));
	mfs_ckpt_free(ckpt);
	unit_ok(mfs_hf_ckpt_open(unit_fixture("hf/llama-bin"), NULL, 0, &ckpt, &err), &err);
	unit_ok(mfs_ckpt_demand(ckpt, MFS_PROOF_CRC, &err), &err);
	ck_assert(!warns("verify="));
	mfs_ckpt_free(ckpt);
}
END_TEST

static const struct {
	const char *text; /* of integrity.json */
	int rc;
	const char *message;
} manifests[] = {
	{"", -EINVAL, "integrity.json: "},
	{"{\"algorithm\": \"md5\", \"files\": {}}", -ENOTSUP, "algorithm 'md5' instead of sha256"},
	{"{\"algorithm\": \"sha256\"}", -EINVAL, "does not name"},
	{"{\"algorithm\": \"sha256\", \"files\": []}", -EINVAL, "does not name"},
	{"{\"algorithm\": \"sha256\", \"files\": {\"metadata.json\": \"12\"}}", -EINVAL,
	 "the sum of 'metadata.json' is no SHA-256"},
	{"{\"algorithm\": \"sha256\", \"files\": {\"metadata.json\": 7}}", -EINVAL,
	 "the sum of 'metadata.json' is no SHA-256"},
	{"{\"algorithm\": \"sha256\", \"files\": {\".metadata\": \""
	 "zz3456789012345678901234567890123456789012345678901234567890123\"}}",
	 -EINVAL, "the sum of '.metadata' is no SHA-256"},
};

START_TEST(bad_manifest)
{
	copy_fixture();
	unit_write(dir, "integrity.json", manifests[_i].text, strlen(manifests[_i].text));
	unit_fails(demand(MFS_PROOF_SHA256), &err, manifests[_i].rc, manifests[_i].message);
	mfs_ckpt_free(ckpt);
}
END_TEST

START_TEST(changed_index)
{
	copy_fixture();
	write_manifest(NULL);
	unit_write(dir, "metadata.json",
		   "{\"sharded_backend\": \"torch_dist\", \"sharded_backend_version\": 1} ", 64);
	unit_fails(demand(MFS_PROOF_SHA256), &err, -EINVAL, "metadata.json: SHA-256 is");
	mfs_ckpt_free(ckpt);
	write_manifest(DAMAGED);
	unit_fails(demand(MFS_PROOF_SHA256), &err, -EINVAL, "does not name '" DAMAGED "'");
	mfs_ckpt_free(ckpt);
	for (size_t i = 0; i < FILES; i++) {
		write_manifest(names[i]);
		unit_fails(demand(MFS_PROOF_SHA256), &err, -EINVAL, "does not name '");
		unit_sentence(err.msg, names[i]);
		mfs_ckpt_free(ckpt);
	}
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("proof");
	TCase *c = unit_case(s, "proof", a_flipped_byte_fails_its_crc);

	tcase_add_test(c, a_flipped_byte_fails_its_file);
	tcase_add_test(c, unread_is_tried_again);
	tcase_add_test(c, without_sums);
	tcase_add_loop_test(c, bad_manifest, 0, MFS_ARRAY_SIZE(manifests));
	tcase_add_test(c, changed_index);
	return s;
}
