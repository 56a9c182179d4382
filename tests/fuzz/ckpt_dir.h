/*
 * A checkpoint of a tiny model as one input: a sequence of files, each a letter (which file), four
 * bytes of its length, and its bytes. metadata.json is written for whatever has a .metadata.
 */
#ifndef MFS_TESTS_FUZZ_CKPT_DIR_H
#define MFS_TESTS_FUZZ_CKPT_DIR_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "tests/fuzz/fuzz.h"

static const struct {
	char letter;
	const char *path;
} fuzz_files[] = {{'m', "mp_rank_00/model_optim_rng.pt"},
		  {'n', "mp_rank_01/model_optim_rng.pt"},
		  {'f', "mp_rank_00/distrib_optim.pt"},
		  {'g', "mp_rank_01/distrib_optim.pt"},
		  {'d', ".metadata"},
		  {'c', "common.pt"},
		  {'x', "__0_0.distcp"}};

#define FUZZ_FILES (sizeof(fuzz_files) / sizeof(fuzz_files[0]))
#define FUZZ_JSON  "{\"sharded_backend\": \"torch_dist\"}"

static char fuzz_dir[64];

static inline void fuzz_remove_dir(void)
{
	char path[128];

	for (size_t i = 0; i < FUZZ_FILES; i++) {
		snprintf(path, sizeof(path), "%s/%s", fuzz_dir, fuzz_files[i].path);
		unlink(path);
	}
	snprintf(path, sizeof(path), "%s/metadata.json", fuzz_dir);
	unlink(path);
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/mp_rank_%02d", fuzz_dir, i);
		rmdir(path);
	}
	rmdir(fuzz_dir);
	fuzz_dir[0] = '\0';
}

static inline void fuzz_write_file(const char *name, const void *bytes, size_t len)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", fuzz_dir, name);
	f = fopen(path, "w");
	fuzz_require(f && fwrite(bytes, 1, len, f) == len && !fclose(f));
}

static inline void fuzz_make_dir(void)
{
	char path[128];

	snprintf(fuzz_dir, sizeof(fuzz_dir), "%s/fuzz-ckpt-XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	fuzz_require(mkdtemp(fuzz_dir));
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/mp_rank_%02d", fuzz_dir, i);
		fuzz_require(!mkdir(path, 0700));
	}
}

static inline void fuzz_write_files(const uint8_t *bytes, size_t len)
{
	while (len >= 5) {
		size_t size = mfs_le32(bytes + 1), i = 0;

		while (i < FUZZ_FILES && fuzz_files[i].letter != (char)bytes[0])
			i++;
		if (i == FUZZ_FILES || size > len - 5)
			return;
		fuzz_write_file(fuzz_files[i].path, bytes + 5, size);
		if (fuzz_files[i].letter == 'd')
			fuzz_write_file("metadata.json", FUZZ_JSON, sizeof(FUZZ_JSON) - 1);
		bytes += 5 + size;
		len -= 5 + size;
	}
}

#endif
