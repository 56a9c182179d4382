/* The prefixes of a directory. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/buf.h"
#include "formats/indexed/indexed_dataset.h"
#include "formats/io/directory.h"

/* As Megatron's merge_datasets.py sorts them, by prefixes: "a" comes before "a-2", though "a-2.idx"
 * comes before "a.idx". */
static int by_prefix(const struct dirent **a, const struct dirent **b)
{
	const size_t len_a = strlen((*a)->d_name) - 4, len_b = strlen((*b)->d_name) - 4;
	const int order = memcmp((*a)->d_name, (*b)->d_name, len_a < len_b ? len_a : len_b);

	return order ? order : (len_a > len_b) - (len_a < len_b);
}

static int is_idx(const struct dirent *e)
{
	const size_t len = strlen(e->d_name);

	return len > 4 && !strcmp(e->d_name + len - 4, ".idx");
}

/* Is there a regular NAME.bin next to NAME.idx? */
static bool has_bin(int dirfd, const char *idx)
{
	char *bin = strdup(idx);
	struct stat st;
	bool found;

	if (!bin)
		return false;
	memcpy(bin + strlen(bin) - 4, ".bin", 4);
	found = !fstatat(dirfd, bin, &st, 0) && S_ISREG(st.st_mode) &&
		!fstatat(dirfd, idx, &st, 0) && S_ISREG(st.st_mode);
	free(bin);
	return found;
}

/* Pointers first, then the texts they point to: one block. */
static int pack(const struct mfs_buf *texts, size_t count, char ***ret)
{
	char **list = malloc(count * sizeof(*list) + texts->len), *text;

	if (!list || texts->failed) {
		free(list);
		return -ENOMEM;
	}
	text = (char *)(list + count);
	memcpy(text, texts->data, texts->len);
	for (size_t i = 0; i < count; i++, text += strlen(text) + 1)
		list[i] = text;
	*ret = list;
	return 0;
}

int mfs_indexed_dataset_list(const char *dir, char ***ret, size_t *ret_count, struct mfs_error *err)
{
	struct dirent **names;
	struct mfs_buf texts = {0};
	size_t count = 0;
	int n, rc, fd = mfs_open_directory(dir);

	if (fd < 0)
		return mfs_fail_errno(err, "cannot open directory '%s'", dir);
	n = scandirat(fd, ".", &names, is_idx, by_prefix);
	rc = n < 0 ? mfs_fail_errno(err, "cannot list '%s'", dir) : 0;
	for (int i = 0; i < n; i++) {
		if (has_bin(fd, names[i]->d_name)) {
			mfs_buf_printf(&texts, "%s/%.*s", dir, (int)strlen(names[i]->d_name) - 4,
				       names[i]->d_name);
			mfs_buf_add(&texts, "", 1);
			count++;
		}
		free(names[i]);
	}
	if (n >= 0)
		free(names);
	if (!rc && !count && !texts.failed)
		rc = mfs_fail(err, -ENODATA, "%s: no indexed dataset (NAME.idx next to NAME.bin)",
			      dir);
	if (!rc && pack(&texts, count, ret))
		rc = mfs_fail_nomem(err);
	if (!rc)
		*ret_count = count;
	mfs_buf_release(&texts);
	close(fd);
	return rc;
}
