#define _GNU_SOURCE
#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/io/guard.h"
#include "formats/model/features.h"
#include "formats/model/hf_args.h"
#include "formats/model/hf_ckpt.h"
#include "formats/model/hf_tensors.h"
#include "formats/model/model.h"
#include "formats/plan/vfile.h"

/*
 * The first byte says what the rest is: 'c' a config.json; 'i' an index; 'd' a directory, whose
 * files follow each other as "NAME LENGTH\n" and LENGTH bytes.
 */
#define MAX_FILES 6

static char dir[256];

static void remove_dir(void)
{
	rmdir(dir);
}

static void make_dir(void)
{
	const char *base = getenv("TMPDIR");

	if (dir[0])
		return;
	fuzz_require(mfs_guard_install() == 0);
	snprintf(dir, sizeof(dir), "%s/mcorefs-fuzz-XXXXXX", base ? base : "/tmp");
	fuzz_require(mkdtemp(dir) != NULL);
	atexit(remove_dir);
}

/* A name that stays in the directory. */
static bool is_plain(const char *name)
{
	return *name && *name != '.' &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == strlen(name);
}

/* Takes the next file of the input. */
static bool take_file(const uint8_t **at, size_t *left, char name[64], size_t *ret_len)
{
	const uint8_t *end = memchr(*at, '\n', *left < 96 ? *left : 96);
	size_t header = end ? (size_t)(end - *at) + 1 : 0;
	char line[96];

	if (!end)
		return false;
	memcpy(line, *at, header - 1);
	line[header - 1] = '\0';
	if (sscanf(line, "%63s %zu", name, ret_len) != 2 || *ret_len > *left - header ||
	    !is_plain(name))
		return false;
	*at += header;
	*left -= header;
	return true;
}

static void write_file(int at, const char *name, const uint8_t *bytes, size_t len)
{
	int fd = openat(at, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	fuzz_require(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
	close(fd);
}

/* Every tensor of the model lies in its file, wherever the file says it does. */
static void check_tensors(const struct mfs_model *model)
{
	struct mfs_error err = {0};
	struct mfs_vfile *f;
	uint8_t bytes[64];
	size_t len;

	fuzz_require(mfs_vfile_new(&f, &err) == 0);
	for (uint32_t i = 0; i < model->target_count; i++)
		fuzz_require(mfs_vfile_add_tensor(f, &model->targets[i].base, &err) == 0);
	/* A ZIP record may turn out to be none when it is looked for. */
	if (!mfs_vfile_check(f, NULL, &err)) {
		fuzz_require(mfs_vfile_size(f) == model->bytes);
		fuzz_require(mfs_vfile_pread(f, 0, bytes, sizeof(bytes), &len, &err) == 0);
	}
	mfs_vfile_free(f);
}

/* What was opened is a whole model: nothing is missing, left over or of another shape. */
static int open_dir(struct mfs_error *err)
{
	struct mfs_model *model;
	struct mfs_ckpt *ckpt;
	int rc;

	mfs_hf_ckpt_looks_like_one(dir);
	rc = mfs_hf_ckpt_open(dir, NULL, 0, &ckpt, err);
	if (rc == -ENOTSUP)
		rc = mfs_hf_ckpt_open(dir, NULL, MFS_CKPT_LANGUAGE, &ckpt, err);
	if (rc)
		return rc;
	fuzz_require(mfs_model_new(ckpt, NULL, NULL, &model, err) == 0);
	check_tensors(model);
	mfs_model_free(model);
	mfs_ckpt_free(ckpt);
	return 0;
}

static int fuzz_dir(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	char names[MAX_FILES][64];
	unsigned count = 0;
	size_t size;
	int at, rc;

	make_dir();
	at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fuzz_require(at >= 0);
	while (count < MAX_FILES && take_file(&bytes, &len, names[count], &size)) {
		write_file(at, names[count++], bytes, size);
		bytes += size;
		len -= size;
	}
	rc = open_dir(err);
	while (count)
		unlinkat(at, names[--count], 0);
	close(at);
	return rc;
}

static int fuzz_config(const char *text, size_t len, struct mfs_error *err)
{
	const struct mfs_family *family, *whole, *again;
	struct mfs_arena arena = {0};
	struct mfs_megatron_args a;
	int rc =
		mfs_hf_args_parse(text, len, "config.json", NULL, &arena, &a, &family, &whole, err);

	if (!rc) {
		fuzz_require(mfs_family_choose(&a, NULL, &again, NULL) == 0 && again == family);
		fuzz_require(a.num_layers > 0 && a.hidden_size > 0 && a.num_query_groups > 0);
		fuzz_require(a.num_attention_heads % a.num_query_groups == 0);
		fuzz_require(a.kv_channels > 0 && a.ffn_hidden_size > 0 && a.vocab_size > 0);
	}
	mfs_arena_release(&arena);
	return rc;
}

static int fuzz_index(const char *text, size_t len, struct mfs_error *err)
{
	json_t *map;
	int rc = mfs_hf_index_parse(text, len, "index.json", &map, err);

	if (!rc) {
		fuzz_require(json_is_object(map) && json_object_size(map) > 0);
		json_decref(map);
	}
	return rc;
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	if (!len)
		return mfs_fail(err, -EINVAL, "nothing");
	switch (bytes[0]) {
	case 'c':
		return fuzz_config((const char *)bytes + 1, len - 1, err);
	case 'i':
		return fuzz_index((const char *)bytes + 1, len - 1, err);
	case 'd':
		return fuzz_dir(bytes + 1, len - 1, err);
	default:
		return mfs_fail(err, -EINVAL, "no kind of input");
	}
}

FUZZ_TARGET
