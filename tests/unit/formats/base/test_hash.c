/* The hash of names that come from files: formats/base/hash.h. */
#include "tests/unit/unit.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/base/hash.h"
#include "formats/base/uthash.h"

/* The vectors of the reference implementation: the bytes 0, 1, 2, ... under the key 0, 1, ...,
 * 15. */
START_TEST(hashes_are_those_of_the_reference)
{
	static const struct {
		size_t len;
		uint64_t hash;
	} vectors[] = {{0, 0x726fdb47dd0e0e31},
		       {1, 0x74f839c593dc67fd},
		       {7, 0xab0200f58b01d137},
		       {8, 0x93f5f5799a932462},
		       {15, 0xa129ca6149be45e5}};
	uint8_t bytes[16];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)i;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(vectors); i++)
		ck_assert_uint_eq(mfs_siphash(bytes, vectors[i].len, bytes), vectors[i].hash);
}
END_TEST

static uint64_t hash_elsewhere(const char *name)
{
	uint64_t hash = 0;
	int ends[2];
	pid_t child;

	ck_assert_int_eq(pipe(ends), 0);
	child = fork();
	if (!child) {
		hash = mfs_hash(name, strlen(name));
		_exit(write(ends[1], &hash, sizeof(hash)) != sizeof(hash));
	}
	ck_assert_int_eq(read(ends[0], &hash, sizeof(hash)), sizeof(hash));
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	close(ends[0]);
	close(ends[1]);
	return hash;
}

START_TEST(differs_between_processes)
{
	ck_assert_uint_ne(hash_elsewhere("a.weight"), hash_elsewhere("a.weight"));
	ck_assert_uint_eq(mfs_hash("a.weight", 8), mfs_hash("a.weight", 8));
}
END_TEST

struct entry {
	UT_hash_handle hh;
	char name[8];
};

/* What the tables of the formats use is that function. */
START_TEST(tables_use_it)
{
	struct entry e = {.name = "weight"}, *table = NULL, *found;

	HASH_ADD(hh, table, name, 6, &e);
	ck_assert_uint_eq(e.hh.hashv, (unsigned)mfs_hash("weight", 6));
	HASH_FIND(hh, table, "weight", 6, found);
	ck_assert_ptr_eq(found, &e);
	HASH_CLEAR(hh, table);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("hash");
	TCase *c = unit_case(s, "hash", hashes_are_those_of_the_reference);

	tcase_add_test(c, differs_between_processes);
	tcase_add_test(c, tables_use_it);
	return s;
}
