#include "fs/source/iteration_save.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "formats/base/clock.h"
#include "formats/io/fileset.h"

#define RANK_FILE      "model_optim_rng.pt"
#define OPTIMIZER_FILE "distrib_optim.pt"

static void add(struct mfs_save *save, const char *name, uint64_t size, int64_t mtime_ns)
{
	const uint64_t state[] = {size, (uint64_t)mtime_ns};

	save->files[save->count++] = (struct mfs_save_file){
		.name = XXH64(name, strlen(name), 0), .state = XXH64(state, sizeof(state), 0)};
}

/* Adds the optimizer's file in the directory of a rank's file, if there is one. */
static void add_optimizer(struct mfs_save *save, const struct mfs_fileset *files, const char *name)
{
	const char *slash = strrchr(name, '/');
	char optimizer[NAME_MAX], path[PATH_MAX];
	struct stat st;

	if (!slash || strcmp(slash + 1, RANK_FILE))
		return;
	if ((size_t)snprintf(optimizer, sizeof(optimizer), "%.*s/" OPTIMIZER_FILE,
			     (int)(slash - name), name) >= sizeof(optimizer) ||
	    (size_t)snprintf(path, sizeof(path), "%s/%s", mfs_fileset_dir(files), optimizer) >=
		    sizeof(path))
		return;
	if (!stat(path, &st))
		add(save, optimizer, (uint64_t)st.st_size, mfs_ns(st.st_mtim));
}

static int by_name(const void *a, const void *b)
{
	const struct mfs_save_file *x = a, *y = b;

	return x->name < y->name ? -1 : x->name > y->name;
}

int mfs_save_note(const struct mfs_fileset *files, struct mfs_save *ret)
{
	const uint32_t count = mfs_fileset_count(files);
	struct mfs_save save = {0};

	save.files = calloc(2 * (size_t)count + 1, sizeof(*save.files));
	if (!save.files)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++) {
		const char *name = mfs_fileset_name(files, i);

		add(&save, name, mfs_fileset_size(files, i), mfs_fileset_mtime(files, i));
		add_optimizer(&save, files, name);
	}
	qsort(save.files, save.count, sizeof(*save.files), by_name);
	*ret = save;
	return 0;
}

void mfs_save_release(struct mfs_save *save)
{
	free(save->files);
	*save = (struct mfs_save){0};
}

void mfs_save_compare(const struct mfs_save *a, const struct mfs_save *b, uint32_t *ret_same,
		      uint32_t *ret_other)
{
	uint32_t i = 0, k = 0;

	*ret_same = *ret_other = 0;
	while (i < a->count && k < b->count) {
		const struct mfs_save_file *x = &a->files[i], *y = &b->files[k];

		if (x->name == y->name)
			++*(x->state == y->state ? ret_same : ret_other);
		i += x->name <= y->name;
		k += y->name <= x->name;
	}
}
