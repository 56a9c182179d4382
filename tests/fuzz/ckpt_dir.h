/*
 * A checkpoint of a tiny model as one input: a sequence of files, each a letter (which file), four
 * bytes of its length, and its bytes. metadata.json is written for whatever has a .metadata, but
 * for that of a plain DCP save. Files of verl's are in two folders, and so are NeMo's.
 */
#ifndef MFS_TESTS_FUZZ_CKPT_DIR_H
#define MFS_TESTS_FUZZ_CKPT_DIR_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/array.h"
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
		  {'e', ".metadata"},
		  {'c', "common.pt"},
		  {'x', "__0_0.distcp"},
		  {'v', "dist_ckpt/.metadata"},
		  {'y', "dist_ckpt/__0_0.distcp"},
		  {'h', "huggingface/config.json"},
		  {'w', "weights/.metadata"},
		  {'p', "weights/common.pt"},
		  {'z', "weights/__0_0.distcp"},
		  {'o', "context/model.yaml"}};

static const char *const fuzz_folders[] = {"mp_rank_00",  "mp_rank_01", "dist_ckpt",
					   "huggingface", "weights",	"context"};
/* Folders that have both a .metadata and a metadata.json. */
static const struct {
	char letter;
	const char *json;
} fuzz_json[] = {
	{'d', "metadata.json"}, {'v', "dist_ckpt/metadata.json"}, {'w', "weights/metadata.json"}};

#define FUZZ_FILES   MFS_ARRAY_SIZE(fuzz_files)
#define FUZZ_FOLDERS MFS_ARRAY_SIZE(fuzz_folders)
#define FUZZ_JSONS   MFS_ARRAY_SIZE(fuzz_json)
#define FUZZ_JSON    "{\"sharded_backend\": \"torch_dist\"}"

static char fuzz_dir[64];

static inline void fuzz_remove_dir(void)
{
	char path[128];

	for (size_t i = 0; i < FUZZ_FILES; i++) {
		snprintf(path, sizeof(path), "%s/%s", fuzz_dir, fuzz_files[i].path);
		unlink(path);
	}
	for (size_t i = 0; i < FUZZ_JSONS; i++) {
		snprintf(path, sizeof(path), "%s/%s", fuzz_dir, fuzz_json[i].json);
		unlink(path);
	}
	for (size_t i = 0; i < FUZZ_FOLDERS; i++) {
		snprintf(path, sizeof(path), "%s/%s", fuzz_dir, fuzz_folders[i]);
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
	snprintf(fuzz_dir, sizeof(fuzz_dir), "%s/fuzz-ckpt-XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	fuzz_require(mkdtemp(fuzz_dir));
}

/* All of a program's folders, of which one may be empty: they stand in pairs. */
static inline void fuzz_make_folders(const char *file)
{
	const size_t len = strcspn(file, "/");
	char path[128];
	size_t first = 0;

	while (strncmp(fuzz_folders[first], file, len) || fuzz_folders[first][len])
		first++;
	first -= first % 2;
	for (size_t i = first; i < first + 2; i++) {
		snprintf(path, sizeof(path), "%s/%s", fuzz_dir, fuzz_folders[i]);
		fuzz_require(!mkdir(path, 0700) || errno == EEXIST);
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
		if (strchr(fuzz_files[i].path, '/'))
			fuzz_make_folders(fuzz_files[i].path);
		fuzz_write_file(fuzz_files[i].path, bytes + 5, size);
		for (size_t k = 0; k < FUZZ_JSONS; k++)
			if (fuzz_files[i].letter == fuzz_json[k].letter)
				fuzz_write_file(fuzz_json[k].json, FUZZ_JSON,
						sizeof(FUZZ_JSON) - 1);
		bytes += 5 + size;
		len -= 5 + size;
	}
}

#endif
