/* Versions of a chain as directories: fs/source/chain.h. */
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/delta/delta_base.h"
#include "formats/delta/delta_write.h"
#include "formats/io/fileset.h"
#include "fs/source/chain.h"

#define MODEL "hf/llama-safetensors"
#define HEADER                                                                                     \
	"{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},"                          \
	"\"e\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}"
#define DATA (8 + sizeof(HEADER) - 1)
#define TICK 20000 /* us: times of files are no finer than the kernel's tick */

static struct mfs_error err;
static char chain_dir[300], base_dir[300], cache[300];
static uint8_t old_bytes[8] = "12345678", new_bytes[8] = "1234567x";

/* A model with a file of two tensors, one of them empty, in the same place. */
static void make_model(const char *dir)
{
	uint8_t file[DATA + sizeof(old_bytes)];
	char command[1000];

	snprintf(command, sizeof(command), "cp -r '%s' '%s'", unit_fixture(MODEL), dir);
	ck_assert(!system(command));
	mfs_put_le64(file, sizeof(HEADER) - 1);
	memcpy(file + 8, HEADER, sizeof(HEADER) - 1);
	memcpy(file + DATA, old_bytes, sizeof(old_bytes));
	unit_write(dir, "more.safetensors", file, sizeof(file));
}

static void write_version(uint32_t version)
{
	const struct mfs_delta_meta meta = {.version = version, .base_version = version - 1};
	struct mfs_delta_tensor t = {
		.name = "a", .bytes = sizeof(old_bytes), .memory = {old_bytes, new_bytes}};
	struct mfs_delta_writer *w;

	unit_ok(mfs_delta_writer_new(chain_dir, &meta, 1, &w, &err), &err);
	unit_ok(mfs_delta_write_shard(w, 0, &t, 1, NULL, &err), &err);
	unit_ok(mfs_delta_writer_finish(w, &err), &err);
	mfs_delta_writer_free(w);
}

static void set_up(void)
{
	struct mfs_delta_base base = {.source = base_dir, .view = ""};

	snprintf(base_dir, sizeof(base_dir), "%s/base", unit_tmpdir());
	snprintf(chain_dir, sizeof(chain_dir), "%s/chain", unit_tmpdir());
	snprintf(cache, sizeof(cache), "%s/cache", unit_tmpdir());
	ck_assert(!mkdir(chain_dir, 0755));
	make_model(base_dir);
	write_version(1);
	unit_ok(mfs_delta_base_write(chain_dir, &base, &err), &err);
}

static struct mfs_chain *open_chain(void)
{
	const struct mfs_view_options options = {.cache = cache};
	struct mfs_chain *c;

	unit_ok(mfs_chain_open(chain_dir, &options, &c, &err), &err);
	return c;
}

/* Opens the first version. Its identity; *ret, unless it is NULL: the bytes of tensor a. */
static uint64_t look(uint8_t *ret)
{
	const struct mfs_chain_version **versions;
	struct mfs_chain *c = open_chain();
	struct mfs_fileset *set;
	uint64_t identity;
	uint32_t count, file;

	unit_ok(mfs_chain_look(c, &versions, &count, &err), &err);
	ck_assert_uint_eq(count, 1);
	ck_assert_msg(versions[0]->path != NULL, "%s", versions[0]->why);
	unit_ok(mfs_fileset_new(versions[0]->path, &set, &err), &err);
	unit_ok(mfs_fileset_add(set, "config.json", &file, &err), &err);
	unit_ok(mfs_fileset_add(set, "more.safetensors", &file, &err), &err);
	identity = mfs_fileset_identity(set);
	if (ret)
		unit_ok(mfs_fileset_read(set, file, DATA, ret, sizeof(old_bytes), &err), &err);
	mfs_fileset_free(set);
	free(versions);
	mfs_chain_free(c);
	return identity;
}

START_TEST(an_empty_tensor_hides_no_other)
{
	uint8_t bytes[sizeof(new_bytes)];

	look(bytes);
	ck_assert_mem_eq(bytes, new_bytes, sizeof(bytes));
}
END_TEST

START_TEST(a_version_has_one_identity)
{
	const uint64_t identity = look(NULL);

	usleep(TICK);
	ck_assert_uint_eq(look(NULL), identity);
}
END_TEST

/* The small files of a base are there once. */
START_TEST(versions_share_small_files)
{
	const struct mfs_chain_version **versions;
	struct mfs_chain *c;
	struct stat st[2];
	uint32_t count;
	char path[700];

	memcpy(old_bytes, new_bytes, sizeof(old_bytes));
	new_bytes[0] = 'y';
	write_version(2);
	c = open_chain();
	unit_ok(mfs_chain_look(c, &versions, &count, &err), &err);
	ck_assert_uint_eq(count, 2);
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/config.json", versions[i]->path);
		ck_assert(!stat(path, &st[i]));
	}
	ck_assert_uint_eq(st[0].st_ino, st[1].st_ino);
	free(versions);
	mfs_chain_free(c);
}
END_TEST

/* Each look opens it again, until its weights can be read. */
START_TEST(a_whole_model_is_opened_again)
{
	const struct mfs_chain_version **versions;
	char whole[400], command[1000];
	struct mfs_chain *c;
	uint32_t count;

	snprintf(whole, sizeof(whole), "%s/weight_v000002", chain_dir);
	make_model(whole);
	unit_write(whole, "more.safetensors", "cut", 3);
	write_version(3);
	c = open_chain();
	for (int i = 0; i < 3; i++) {
		unit_ok(mfs_chain_look(c, &versions, &count, &err), &err);
		ck_assert_uint_eq(count, 3);
		ck_assert_ptr_null(versions[2]->path);
		ck_assert_msg(strstr(versions[2]->why, "the base of '") != NULL, "%s",
			      versions[2]->why);
		free(versions);
	}
	snprintf(command, sizeof(command), "cp '%s/more.safetensors' '%s'", base_dir, whole);
	ck_assert(!system(command));
	unit_ok(mfs_chain_look(c, &versions, &count, &err), &err);
	ck_assert_msg(versions[2]->path != NULL, "%s", versions[2]->why);
	free(versions);
	mfs_chain_free(c);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("chain");
	TCase *c = tcase_create("chain");

	tcase_add_checked_fixture(c, set_up, NULL);
	tcase_add_test(c, an_empty_tensor_hides_no_other);
	tcase_add_test(c, a_version_has_one_identity);
	tcase_add_test(c, versions_share_small_files);
	tcase_add_test(c, a_whole_model_is_opened_again);
	suite_add_tcase(s, c);
	return s;
}
