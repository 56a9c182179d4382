/* Files of `mcorefs sum` and their signatures: fs/sum. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/ckpt/read/ckpt_open.h"
#include "fs/sums/tensor_hash.h"
#include "fs/sums/signature.h"
#include "fs/sums/sums.h"

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static struct mfs_error err;
static struct mfs_sums sums;

START_TEST(a_file_of_sums_is_read)
{
	const char text[] = "mcorefs-sums 1\n" HEX " BF16 [1024, 64] a.weight\n" HEX
			    " F32 [] exp_avg of b\nend 2\n";
	const struct mfs_sum *s;

	unit_ok(mfs_sums_parse(text, sizeof(text) - 1, "sums", &sums, &err), &err);
	ck_assert_uint_eq(sums.count, 2);
	s = mfs_sums_find(&sums, "a.weight");
	ck_assert_ptr_nonnull(s);
	ck_assert_int_eq(s->dtype, MFS_BF16);
	ck_assert_uint_eq(s->ndim, 2);
	ck_assert_uint_eq(s->shape[0], 1024);
	ck_assert_uint_eq(s->shape[1], 64);
	ck_assert_uint_eq(s->sha256[31], 0xef);
	s = mfs_sums_find(&sums, "exp_avg of b");
	ck_assert_ptr_nonnull(s);
	ck_assert_uint_eq(s->ndim, 0);
	ck_assert_ptr_null(mfs_sums_find(&sums, "b"));
	mfs_sums_release(&sums);
}
END_TEST

static const struct {
	const char *text;
	int rc;
	const char *message;
} bad[] = {
	{"", -EINVAL, "line 1: the file ends"},
	{"SHA256", -EINVAL, "line 1: it is cut short"},
	{"sums\n", -EINVAL, "line 1: it is not 'mcorefs-sums 1'"},
	{"mcorefs-sums 2\n", -ENOTSUP, "version '2', expected 1"},
	{"mcorefs-sums 1\n", -EINVAL, "line 2: the file ends"},
	{"mcorefs-sums 1\nend 1\n", -EINVAL, "line 2: the last line does not count"},
	{"mcorefs-sums 1\nend 0\nend 0\n", -EINVAL, "line 2: more follows"},
	{"mcorefs-sums 1\nabc BF16 [1] a\nend 1\n", -EINVAL, "does not begin with a SHA-256"},
	{"mcorefs-sums 1\n" HEX "0 BF16 [1] a\nend 1\n", -EINVAL, "does not begin with a SHA-256"},
	{"mcorefs-sums 1\n" HEX " BFLOAT [1] a\nend 1\n", -EINVAL, "the element type"},
	{"mcorefs-sums 1\n" HEX " BF16 [1 a\nend 1\n", -EINVAL, "the shape is not like"},
	{"mcorefs-sums 1\n" HEX " BF16 [-1] a\nend 1\n", -EINVAL, "the shape is not like"},
	{"mcorefs-sums 1\n" HEX " BF16 [4294967296, 4294967296] a\nend 1\n", -EINVAL,
	 "the shape is too large"},
	{"mcorefs-sums 1\n" HEX " BF16 [1] \nend 1\n", -EINVAL, "the name is empty"},
	{"mcorefs-sums 1\n" HEX " BF16 [1] a\rb\nend 1\n", -EINVAL, "control characters"},
	{"mcorefs-sums 1\n" HEX " BF16 [1] b\n" HEX " BF16 [1] a\nend 2\n", -EINVAL, "not sorted"},
	{"mcorefs-sums 1\n" HEX " BF16 [1] a\n" HEX " BF16 [1] a\nend 2\n", -EINVAL, "there twice"},
};

START_TEST(a_malformed_file_of_sums_is_refused)
{
	unit_fails(mfs_sums_parse(bad[_i].text, strlen(bad[_i].text), "sums", &sums, &err), &err,
		   bad[_i].rc, bad[_i].message);
}
END_TEST

/* ---- hashing ---- */

/* The sum of all rows, of one thread and of several, and of fewer rows. */
START_TEST(sums_do_not_depend_on_threads)
{
	uint8_t first[MFS_SHA256_BYTES], whole[EVP_MAX_MD_SIZE], *bytes;
	const struct mfs_global_tensor *t;
	struct mfs_hash_job jobs[64] = {0};
	struct mfs_ckpt *ckpt;
	uint32_t count;
	uint64_t offset;
	uint32_t file;
	size_t len;

	unit_ok(mfs_ckpt_open(unit_fixture("weights/mixtral-torch-pp2-ep2/iter_0000040"), 0, &ckpt,
			      &err),
		&err);
	count = mfs_ckpt_count(ckpt);
	ck_assert_uint_le(count, 64);
	for (unsigned threads = 1; threads <= 4; threads += 3) {
		for (uint32_t i = 0; i < count; i++)
			jobs[i] = (struct mfs_hash_job){.t = mfs_ckpt_at(ckpt, i),
							.rows = mfs_ckpt_at(ckpt, i)->shape[0]};
		unit_ok(mfs_hash_all(ckpt, jobs, count, threads, &err), &err);
		for (uint32_t i = 0; i < count; i++) {
			ck_assert_ptr_null(jobs[i].why);
			/* A tensor of one chunk lies in its file as it is. */
			t = jobs[i].t;
			if (t->chunk_count > 1)
				continue;
			unit_ok(mfs_ckpt_locate(ckpt, t, mfs_ckpt_chunks(ckpt, t)->storage, &file,
						&offset, &err),
				&err);
			len = mfs_hash_bytes(&jobs[i]);
			bytes = malloc(len);
			unit_ok(mfs_fileset_read(mfs_ckpt_files(ckpt), file, offset, bytes, len,
						 &err),
				&err);
			EVP_Digest(bytes, len, whole, NULL, EVP_sha256(), NULL);
			free(bytes);
			ck_assert_mem_eq(jobs[i].sha256, whole, MFS_SHA256_BYTES);
		}
	}
	memcpy(first, jobs[0].sha256, sizeof(first));
	jobs[0].rows--;
	unit_ok(mfs_hash_all(ckpt, jobs, 1, 0, &err), &err);
	ck_assert_mem_ne(jobs[0].sha256, first, sizeof(first));
	mfs_ckpt_free(ckpt);
}
END_TEST

/* ---- signatures ---- */

static const char text[] = "mcorefs-sums 1\nend 0\n";
static char key_path[600], signature_path[600];

static void write_key(EVP_PKEY *key)
{
	FILE *f = fopen(key_path, "w");

	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(PEM_write_PUBKEY(f, key), 1);
	fclose(f);
}

static void sign(EVP_PKEY *key, const EVP_MD *md)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	uint8_t signature[1024];
	size_t len = sizeof(signature);

	ck_assert_int_eq(EVP_DigestSignInit(ctx, NULL, md, NULL, key), 1);
	ck_assert_int_eq(
		EVP_DigestSign(ctx, signature, &len, (const uint8_t *)text, sizeof(text) - 1), 1);
	snprintf(signature_path, sizeof(signature_path), "%s.sig", key_path);
	unit_write("/", signature_path + 1, signature, len);
	EVP_MD_CTX_free(ctx);
}

/* The same by our own hand, with the key from a file. */
static void sign_ourselves(EVP_PKEY *key)
{
	EVP_PKEY *read = NULL;
	void *signature;
	size_t len;
	FILE *f = fopen(key_path, "w");

	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL), 1);
	fclose(f);
	unit_ok(mfs_signature_key(key_path, &read, &err), &err);
	unit_ok(mfs_signature_make(text, sizeof(text) - 1, read, &signature, &len, &err), &err);
	unit_write("/", signature_path + 1, signature, len);
	free(signature);
	EVP_PKEY_free(read);
	write_key(key);
}

static int check_text(const char *what, size_t len)
{
	return mfs_signature_check(what, len, "sums", key_path, signature_path, &err);
}

static void check_key(EVP_PKEY *key, EVP_PKEY *other, const EVP_MD *md)
{
	ck_assert_ptr_nonnull(key);
	write_key(key);
	sign(key, md);
	unit_ok(check_text(text, sizeof(text) - 1), &err);
	sign_ourselves(key);
	unit_ok(check_text(text, sizeof(text) - 1), &err);
	unit_fails(check_text(text, sizeof(text) - 2), &err, -EINVAL,
		   "is not a signature of 'sums'");
	unit_fails(check_text("mcorefs-sums 1\nend 1\n", sizeof(text) - 1), &err, -EINVAL,
		   "is not a signature of 'sums'");
	write_key(other);
	unit_fails(check_text(text, sizeof(text) - 1), &err, -EINVAL, "is not a signature");
	EVP_PKEY_free(key);
	EVP_PKEY_free(other);
}

START_TEST(a_signature_is_of_its_key)
{
	snprintf(key_path, sizeof(key_path), "%s/key", unit_tmpdir());
	check_key(EVP_PKEY_Q_keygen(NULL, NULL, "ED25519"),
		  EVP_PKEY_Q_keygen(NULL, NULL, "ED25519"), NULL);
	check_key(EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)2048),
		  EVP_PKEY_Q_keygen(NULL, NULL, "ED25519"), EVP_sha256());
	check_key(EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256"),
		  EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256"), EVP_sha256());
}
END_TEST

START_TEST(bad_keys)
{
	EVP_PKEY *x25519 = EVP_PKEY_Q_keygen(NULL, NULL, "X25519"), *none = NULL;

	snprintf(key_path, sizeof(key_path), "%s/key", unit_tmpdir());
	snprintf(signature_path, sizeof(signature_path), "%s", key_path);
	unit_fails(check_text(text, sizeof(text) - 1), &err, -ENOENT, "cannot open");
	unit_write("/", key_path + 1, text, sizeof(text) - 1);
	unit_fails(check_text(text, sizeof(text) - 1), &err, -EINVAL, "is no public key (PEM)");
	write_key(x25519);
	unit_fails(check_text(text, sizeof(text) - 1), &err, -ENOTSUP, "is neither an Ed25519");
	unit_fails(mfs_signature_key(key_path, &none, &err), &err, -EINVAL,
		   "is no private key (PEM)");
	ck_assert_ptr_null(none);
	EVP_PKEY_free(x25519);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("sums");
	TCase *c = unit_case(s, "sums", a_file_of_sums_is_read);

	tcase_add_loop_test(c, a_malformed_file_of_sums_is_refused, 0, MFS_ARRAY_SIZE(bad));
	tcase_add_test(c, sums_do_not_depend_on_threads);
	tcase_add_test(c, a_signature_is_of_its_key);
	tcase_add_test(c, bad_keys);
	return s;
}
