#include "formats/ckpt/read/marks.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/grow.h"
#include "formats/base/str.h"
#include "formats/ckpt/read/reader.h"
#include "formats/io/directory.h"

int mfs_marks_add(struct mfs_marks *marks, const char *name)
{
	if (mfs_grow(&marks->list, marks->count))
		return -ENOMEM;
	marks->list[marks->count] = strdup(name);
	return marks->list[marks->count] ? (marks->count++, 0) : -ENOMEM;
}

void mfs_marks_release(struct mfs_marks *marks)
{
	for (size_t i = 0; i < marks->count; i++)
		free(marks->list[i]);
	free(marks->list);
	*marks = (struct mfs_marks){0};
}

/* first: the number of the first reader that has marks. */
static int add_marks_of(const char *dir, const char *name, struct mfs_marks *marks, size_t *first)
{
	int rc = 0;

	for (size_t i = 0; i < MFS_CKPT_READER_END && !rc; i++) {
		const size_t before = marks->count;

		if (mfs_ckpt_readers[i]->add_marks)
			rc = mfs_ckpt_readers[i]->add_marks(dir, name, marks);
		if (marks->count > before && i < *first)
			*first = i;
	}
	return rc;
}

int mfs_marks_list(const char *dir, struct mfs_marks *ret)
{
	size_t first = MFS_CKPT_READER_END;
	struct dirent *e;
	DIR *d = mfs_opendir(dir);
	int rc = 0;

	*ret = (struct mfs_marks){0};
	if (!d)
		return -errno;
	while (!rc && (e = readdir(d)))
		rc = add_marks_of(dir, e->d_name, ret, &first);
	closedir(d);
	if (rc) {
		mfs_marks_release(ret);
		return rc;
	}
	if (ret->count)
		qsort(ret->list, ret->count, sizeof(*ret->list), mfs_str_order);
	ret->format = first < MFS_CKPT_READER_END ? mfs_ckpt_readers[first]->format : NULL;
	return 0;
}

int mfs_marks_last(const char *dir, char *name, size_t size)
{
	for (size_t i = 0; i < MFS_CKPT_READER_END; i++)
		if (mfs_ckpt_readers[i]->last && mfs_ckpt_readers[i]->last(dir, name, size))
			return 0;
	return -ENOENT;
}
