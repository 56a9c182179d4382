#define _GNU_SOURCE
#include "fs/source/chain.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "formats/base/path.h"
#include "formats/delta/delta_base.h"
#include "formats/delta/delta_file.h"
#include "formats/delta/delta_index.h"
#include "formats/io/backing.h"
#include "formats/io/beneath.h"
#include "formats/io/fileset.h"
#include "formats/io/whole.h"
#include "formats/model/hf_ckpt.h"
#include "formats/plan/vfile.h"
#include "formats/remote/mirror.h"
#include "fs/source/root.h"
#include "fs/source/weight_files.h"

#define TREE	   "tree"  /* in the place: directories of versions */
#define BYTES	   "bytes" /* tensors that are kept */
#define MOST_SMALL (256u << 20)
/* Chains may have chains as their bases. */
#define MOST_NESTED 8

/* What versions change: the base, or a whole model among them. */
struct base {
	struct mfs_root *root;
	struct mfs_delta_base named; /* without a name: it is a version of the chain */
	struct mfs_weight_files files;
	struct mfs_delta_base_file *weights;
	struct reader {
		const struct mfs_weight_files *files;
		uint32_t file;
	} * readers;	/* of weights */
	uint32_t count; /* of weights; 0: it could not be opened */
	int small_fd; /* directory of the first version, which has the small files; -1: none yet */
	struct base *next;
};

/* A version that was opened. A later look may find another one in its place, and this one stays. */
struct version {
	struct mfs_chain_version public;
	uint64_t own;			/* stamp of its own directory */
	const struct version *before;	/* as it was then; NULL: version 0, or missing */
	struct base *base;		/* what its links change; of a whole model, once one does */
	struct mfs_delta *delta;	/* NULL: a whole model, or it cannot be shown */
	const struct mfs_delta **links; /* all up to it */
	uint32_t link_count;
	char *dir; /* of public.path */
	struct mfs_delta_file **files;
	struct stat *placeholders;
	uint32_t file_count;
	struct version *older; /* chain of all that were ever made */
};

struct mfs_chain {
	char *dir;
	uint32_t only; /* 0: all versions are shown */
	struct mfs_view_options options;
	struct mfs_cache *cache; /* for its place */
	int tree_fd, bytes_fd;
	struct mfs_delta_room *room;
	uint32_t numbers;	  /* that files and directories were given */
	struct base *bases;	  /* the first is version 0, or was to be it */
	struct mfs_error no_base; /* why version 0 is not known */
	struct version *versions; /* the newest first */
};

static int path_of(const char *dir, uint32_t version, char ret[PATH_MAX])
{
	char name[MFS_DELTA_DIR_SIZE];

	return (size_t)snprintf(ret, PATH_MAX, "%s/%s", dir, mfs_delta_dir_name(version, name)) <
			       PATH_MAX
		       ? 0
		       : -ENAMETOOLONG;
}

/* ---- bases ---- */

static _Thread_local unsigned nested;

static int open_root(const struct mfs_chain *c, const char *source, struct base *b,
		     struct mfs_error *err)
{
	struct mfs_view_options options = c->options;
	int rc;

	if (nested == MOST_NESTED)
		return mfs_fail(err, -ENOTSUP, "'%s': more than %d chains are bases of each other",
				c->dir, MOST_NESTED);
	options.base = options.adapter = NULL;
	options.may_be_empty = options.stack_experts = false;
	nested++;
	rc = mfs_root_open(source, &options, &b->root, err);
	nested--;
	return rc;
}

static int read_base(void *arg, uint64_t off, void *buf, size_t len, struct mfs_error *err)
{
	const struct reader *r = arg;

	return mfs_weight_files_read(r->files, r->file, off, buf, len, err);
}

static int by_offset(const void *a, const void *b)
{
	const struct mfs_delta_part *x = a, *y = b;

	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static bool is_part(const struct mfs_weight_tensor *t, uint32_t file)
{
	return t->file == file && t->bytes;
}

/* The parts of a file of weights: its header, and its tensors. An empty tensor is none: another
 * part begins where it does, and holds the byte there. */
static int list_parts(struct base *b, uint32_t file, struct mfs_delta_base_file *to,
		      struct mfs_error *err)
{
	struct mfs_delta_part *parts;
	uint32_t count = 1;

	for (uint32_t i = 0; i < b->files.tensor_count; i++)
		count += is_part(&b->files.tensors[i], file);
	parts = mfs_arena_array(&b->files.arena, count, sizeof(*parts));
	if (!parts)
		return mfs_fail_nomem(err);
	parts[0] = (struct mfs_delta_part){.bytes = b->files.files[file].header};
	to->count = 1;
	for (uint32_t i = 0; i < b->files.tensor_count; i++) {
		const struct mfs_weight_tensor *t = &b->files.tensors[i];

		if (is_part(t, file))
			parts[to->count++] =
				(struct mfs_delta_part){t->name, t->offset, t->bytes,
							mfs_delta_base_find(&b->named, t->name)};
	}
	qsort(parts, count, sizeof(*parts), by_offset);
	to->parts = parts;
	return 0;
}

static int list_weights(struct base *b, struct mfs_error *err)
{
	int rc = 0;

	b->weights = calloc((size_t)b->files.count + 1, sizeof(*b->weights));
	b->readers = calloc((size_t)b->files.count + 1, sizeof(*b->readers));
	if (!b->weights || !b->readers)
		return mfs_fail_nomem(err);
	for (uint32_t i = 0, n = 0; i < b->files.count && !rc; i++) {
		if (!b->files.files[i].has_weights)
			continue;
		b->readers[n] = (struct reader){&b->files, i};
		b->weights[n] =
			(struct mfs_delta_base_file){.name = b->files.files[i].name,
						     .size = mfs_vfile_size(b->files.files[i].data),
						     .sum = b->named.sum,
						     .read = read_base,
						     .arg = &b->readers[n]};
		rc = list_parts(b, i, &b->weights[n++], err);
		if (!rc)
			b->count = n;
	}
	return rc;
}

static struct base *new_base(struct mfs_chain *c, struct mfs_error *err)
{
	struct base *b = calloc(1, sizeof(*b)), **at = &c->bases;

	if (!b) {
		mfs_fail_nomem(err);
		return NULL;
	}
	b->small_fd = -1;
	while (*at)
		at = &(*at)->next;
	return *at = b;
}

/* What is in named stays. A base that is closed may be opened again. */
static void close_base(struct base *b)
{
	mfs_weight_files_release(&b->files);
	mfs_root_free(b->root);
	free(b->weights);
	free(b->readers);
	b->root = NULL;
	b->weights = NULL;
	b->readers = NULL;
	b->count = 0;
}

/* view NULL: a HuggingFace directory's own files, or hf. */
static int open_base(const struct mfs_chain *c, const char *source, const char *view,
		     struct base *b, struct mfs_error *err)
{
	int rc = open_root(c, source, b, err);

	if (!rc)
		rc = mfs_weight_files_open(b->root, view, &b->files, err);
	if (!rc)
		rc = list_weights(b, err);
	if (!rc)
		return 0;
	close_base(b);
	return mfs_fail_in(err, "the base of '%s'", c->dir);
}

/* Version 0. -o base= names another place, and the file still says which view was meant, and what
 * its sums are. */
static int open_first(struct mfs_chain *c, struct base *b, struct mfs_error *err)
{
	const char *source = c->options.base;
	int rc = mfs_delta_base_read(c->dir, &b->named, err);

	if (rc && rc != -ENOENT)
		return rc;
	if (rc && !source)
		return mfs_fail(
			err, -ENODATA,
			"nothing names the model that '%s' changes: there is no %s, so name it "
			"with -o base=SOURCE",
			c->dir, MFS_DELTA_BASE_FILE);
	return open_base(c, source ? source : b->named.source,
			 b->named.view && *b->named.view ? b->named.view : NULL, b, err);
}

static void free_base(struct base *b)
{
	close_base(b);
	if (b->small_fd >= 0)
		close(b->small_fd);
	mfs_delta_base_release(&b->named);
	free(b);
}

/* ---- the place ---- */

static int fail_place(const struct mfs_chain *c, int rc, struct mfs_error *err)
{
	return mfs_fail(err, rc, "cannot make directories of '%s' in %s: %s", c->dir,
			mfs_cache_place(c->cache), mfs_errno_text(-rc));
}

static int open_place(struct mfs_chain *c, struct mfs_error *err)
{
	struct mfs_cache_options cache = {.size = c->options.cache_size};
	char *dir;
	int rc = mfs_mirror_cache(c->options.cache, &dir, err);

	if (rc)
		return rc;
	cache.dir = dir;
	rc = mfs_cache_open(&cache, &c->cache, err);
	free(dir);
	if (rc)
		return rc;
	c->tree_fd = mfs_beneath_make_dirs(mfs_cache_place_fd(c->cache), TREE, 0700);
	c->bytes_fd = mfs_beneath_make_dirs(mfs_cache_place_fd(c->cache), BYTES, 0700);
	rc = c->tree_fd < 0 ? c->tree_fd : c->bytes_fd < 0 ? c->bytes_fd : 0;
	if (rc)
		return fail_place(c, rc, err);
	return mfs_delta_room_new(c->bytes_fd, cache.size ? cache.size : MFS_CACHE_SIZE, &c->room,
				  err);
}

/* ---- the base's small files ---- */

/* The base's time, so that two mounts of the same bytes have one identity. */
static int set_time(int fd, int64_t mtime_ns)
{
	const struct timespec times[2] = {{0, UTIME_OMIT},
					  {mtime_ns / 1000000000, mtime_ns % 1000000000}};

	return futimens(fd, times) ? -errno : 0;
}

static int copy_small(const struct mfs_chain *c, const struct base *b, uint32_t file, int dirfd,
		      struct mfs_error *err)
{
	const struct mfs_weight_file *f = &b->files.files[file];
	const uint64_t size = mfs_vfile_size(f->data);
	void *bytes = size <= MOST_SMALL ? malloc(size + 1) : NULL;
	int fd, rc;

	if (!bytes)
		return mfs_fail(err, -ENOTSUP, "%s of the base of '%s' is too large", f->name,
				c->dir);
	rc = mfs_weight_files_read(&b->files, file, 0, bytes, size, err);
	fd = rc ? -1 : mfs_beneath_create(dirfd, f->name, O_WRONLY, 0600);
	if (!rc && fd < 0)
		rc = fail_place(c, fd, err);
	if (!rc) {
		rc = mfs_write_whole(fd, bytes, size);
		if (!rc)
			rc = set_time(fd, b->files.mtime_ns);
		if (rc)
			fail_place(c, rc, err);
	}
	if (fd >= 0)
		close(fd);
	free(bytes);
	return rc;
}

/* Those of later versions are links to the first one's, or copies, too, where none can be made. A
 * view's files lie in no directories, but for Megatron's, which have no safetensors. */
static int add_all_small(const struct mfs_chain *c, struct base *b, int dirfd,
			 struct mfs_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < b->files.count && !rc; i++) {
		const char *name = b->files.files[i].name;

		if (b->files.files[i].has_weights)
			continue;
		if (b->small_fd < 0 || linkat(b->small_fd, name, dirfd, name, 0))
			rc = copy_small(c, b, i, dirfd, err);
	}
	if (!rc && b->small_fd < 0)
		b->small_fd = fcntl(dirfd, F_DUPFD_CLOEXEC, 0);
	return rc;
}

static int make_dir(struct mfs_chain *c, const char *name, char **ret, int *ret_fd,
		    struct mfs_error *err)
{
	*ret_fd = mfs_beneath_make_dirs(c->tree_fd, name, 0700);
	if (*ret_fd < 0)
		return fail_place(c, *ret_fd, err);
	if (asprintf(ret, "%s/" TREE "/%s", mfs_cache_place(c->cache), name) < 0) {
		*ret = NULL;
		close(*ret_fd);
		return mfs_fail_nomem(err);
	}
	return 0;
}

/* ---- opening ---- */

/* A chain whose version 0 is not known can be shown from a whole model on. */
static int find_whole(const struct mfs_chain *c, struct mfs_error *err)
{
	uint32_t *list, count;
	bool found = false;
	char path[PATH_MAX];
	int rc = mfs_delta_versions(c->dir, &list, &count, err);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < count && !found; i++)
		found = !path_of(c->dir, list[i], path) && mfs_hf_ckpt_looks_like_one(path);
	free(list);
	return found ? 0 : mfs_fail(err, c->no_base.code, "%s", c->no_base.msg);
}

static int open_all(struct mfs_chain *c, struct mfs_error *err)
{
	struct base *first = new_base(c, err);

	if (!first)
		return -ENOMEM;
	return open_first(c, first, &c->no_base) ? find_whole(c, err) : 0;
}

int mfs_chain_open(const char *dir, const struct mfs_view_options *options, struct mfs_chain **ret,
		   struct mfs_error *err)
{
	struct mfs_chain *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return mfs_fail_nomem(err);
	c->options = *options;
	c->tree_fd = c->bytes_fd = -1;
	mfs_delta_looks_like_chain(dir, &c->only);
	c->dir = c->only ? mfs_path_parent(dir) : strdup(dir);
	rc = c->dir ? open_place(c, err) : mfs_fail_nomem(err);
	if (!rc)
		rc = open_all(c, err);
	if (rc) {
		mfs_chain_free(c);
		return rc;
	}
	*ret = c;
	return 0;
}

static void free_version(struct version *v)
{
	for (uint32_t i = 0; i < v->file_count; i++) {
		mfs_backing_remove(&v->placeholders[i]);
		mfs_delta_file_free(v->files[i]);
	}
	free(v->files);
	free(v->placeholders);
	mfs_delta_free(v->delta);
	free(v->links);
	free(v->dir);
	free(v->public.why);
	free(v);
}

void mfs_chain_free(struct mfs_chain *c)
{
	struct version *v;
	struct base *b;

	if (!c)
		return;
	while ((v = c->versions)) {
		c->versions = v->older;
		free_version(v);
	}
	mfs_delta_room_free(c->room);
	while ((b = c->bases)) {
		c->bases = b->next;
		free_base(b);
	}
	if (c->tree_fd >= 0)
		close(c->tree_fd);
	if (c->bytes_fd >= 0)
		close(c->bytes_fd);
	mfs_cache_free(c->cache);
	free(c->dir);
	free(c);
}

/* ---- the directory of a version ---- */

static int make_placeholder(struct mfs_chain *c, struct version *v, int dirfd, uint32_t file,
			    struct mfs_error *err)
{
	const struct mfs_delta_base_file *base = &v->base->weights[file];
	struct stat *st = &v->placeholders[v->file_count];
	struct mfs_backing backing;
	int rc = mfs_delta_file_new(c->room, base, v->links, v->link_count, c->numbers++,
				    &v->files[v->file_count], err);
	int fd = rc ? -1 : mfs_beneath_create(dirfd, base->name, O_WRONLY, 0600);

	if (rc)
		return rc;
	if (fd < 0)
		rc = fd;
	else if (ftruncate(fd, (off_t)base->size))
		rc = -errno;
	else
		rc = set_time(fd, mfs_fileset_mtime(v->delta->files, 0));
	if (!rc && fstat(fd, st))
		rc = -errno;
	if (fd >= 0)
		close(fd);
	backing = mfs_delta_file_as_backing(v->files[v->file_count], v->public.stamp);
	if (!rc)
		rc = mfs_backing_add(st, &backing);
	if (!rc) {
		v->file_count++;
		return 0;
	}
	mfs_delta_file_free(v->files[v->file_count]);
	return fail_place(c, rc, err);
}

static int fill_dir(struct mfs_chain *c, struct version *v, int dirfd, struct mfs_error *err)
{
	int rc = add_all_small(c, v->base, dirfd, err);

	v->files = calloc((size_t)v->base->count + 1, sizeof(*v->files));
	v->placeholders = calloc((size_t)v->base->count + 1, sizeof(*v->placeholders));
	if (!rc && (!v->files || !v->placeholders))
		rc = mfs_fail_nomem(err);
	for (uint32_t i = 0; i < v->base->count && !rc; i++)
		rc = make_placeholder(c, v, dirfd, i, err);
	return rc;
}

/* Its last name is that of the iteration. An earlier one may have had it. */
static int make_version_dir(struct mfs_chain *c, struct version *v, struct mfs_error *err)
{
	char name[64];
	int fd, rc;

	snprintf(name, sizeof(name), "%u/iter_%07u", c->numbers++, v->public.number);
	rc = make_dir(c, name, &v->dir, &fd, err);
	if (rc)
		return rc;
	rc = fill_dir(c, v, fd, err);
	close(fd);
	if (!rc)
		v->public.path = v->dir;
	return rc;
}

/* ---- versions ---- */

static int check_meta(const struct version *v, struct mfs_error *err)
{
	const struct mfs_delta_meta *m = &v->delta->meta;

	if (m->version == v->public.number && m->base_version + 1 == v->public.number)
		return 0;
	return mfs_fail(err, -EINVAL,
			"its index says that it is version %u and changes version %u, expected %u "
			"and %u",
			m->version, m->base_version, v->public.number, v->public.number - 1);
}

/* A tensor that is not in the base cannot change. */
static int check_names(const struct version *v, struct mfs_error *err)
{
	for (uint32_t i = 0; i < v->delta->count; i++)
		if (!mfs_weight_files_find(&v->base->files, v->delta->changes[i].name))
			return mfs_fail(err, -ENODATA,
					"%s changes tensor '%s', which is not in the base",
					v->delta->changes[i].bytes.name, v->delta->changes[i].name);
	return 0;
}

static int link_up(struct version *v, struct mfs_error *err)
{
	const uint32_t before = v->before ? v->before->link_count : 0;

	v->links = calloc((size_t)before + 1, sizeof(const struct mfs_delta *));
	if (!v->links)
		return mfs_fail_nomem(err);
	if (before)
		memcpy(v->links, v->before->links, before * sizeof(*v->links));
	v->links[before] = v->delta;
	v->link_count = before + 1;
	return 0;
}

/* What a whole model's successors change. It is opened once. */
static int open_whole(struct mfs_chain *c, const struct version *whole, struct base **ret,
		      struct mfs_error *err)
{
	struct version *v = (struct version *)whole; /* the chain's own */

	if (!v->base) {
		struct base *b = new_base(c, err);

		if (!b)
			return -ENOMEM;
		v->base = b;
	}
	*ret = v->base;
	return v->base->count ? 0 : open_base(c, v->public.path, NULL, v->base, err);
}

static int choose_base(struct mfs_chain *c, struct version *v, struct mfs_error *err)
{
	if (v->public.number == 1) {
		v->base = c->bases;
		return v->base->count ? 0 : mfs_fail(err, -ENODATA, "%s", c->no_base.msg);
	}
	if (!v->before)
		return mfs_fail(err, -ENODATA, "version %u, which it changes, is missing",
				v->public.number - 1);
	if (!v->before->public.path)
		return mfs_fail(err, -ENODATA, "it changes version %u, which cannot be shown: %s",
				v->before->public.number, v->before->public.why);
	if (!v->before->delta)
		return open_whole(c, v->before, &v->base, err);
	v->base = v->before->base;
	return 0;
}

static int open_delta(struct mfs_chain *c, struct version *v, const char *path,
		      struct mfs_error *err)
{
	int rc = choose_base(c, v, err);

	if (!rc)
		rc = mfs_delta_open(path, &v->delta, err);
	if (!rc)
		rc = check_meta(v, err);
	if (!rc)
		rc = check_names(v, err);
	if (!rc)
		rc = link_up(v, err);
	if (!rc)
		rc = make_version_dir(c, v, err);
	return rc;
}

/* Why it cannot be shown is in err. */
static int examine(struct mfs_chain *c, struct version *v, const char *path, struct mfs_error *err)
{
	bool is_delta = false;
	int rc;

	if (mfs_hf_ckpt_looks_like_one(path)) {
		v->dir = strdup(path);
		v->public.path = v->dir;
		return v->dir ? 0 : mfs_fail_nomem(err);
	}
	rc = mfs_delta_looks_like_one(path, &is_delta, err);
	if (rc == -ENOENT)
		return mfs_fail(err, -ENODATA, "it has no " MFS_DELTA_INDEX);
	if (!rc && !is_delta)
		rc = mfs_fail(err, -ENODATA,
			      "it is neither a delta (delta_encoding in its index) nor a whole "
			      "model (config.json)");
	return rc ? rc : open_delta(c, v, path, err);
}

/* ---- looks ---- */

static uint64_t mix(uint64_t stamp, uint64_t v)
{
	return (stamp ^ v) * 0x100000001b3ull + (v >> 32);
}

/* The state of a version's directory: of its index, which is written last, and of config.json. */
static uint64_t look_at_dir(const char *path)
{
	static const char *const names[] = {MFS_DELTA_INDEX, "config.json"};
	uint64_t stamp = 1;

	for (int i = 0; i < 2; i++) {
		char file[PATH_MAX + 64];
		struct stat st;

		snprintf(file, sizeof(file), "%s/%s", path, names[i]);
		if (!stat(file, &st))
			stamp = mix(mix(stamp, (uint64_t)mfs_ns(st.st_mtim)),
				    (uint64_t)st.st_size + (uint64_t)i);
	}
	return stamp;
}

static struct version *find_version(const struct mfs_chain *c, uint32_t number)
{
	struct version *v = c->versions;

	while (v && v->public.number != number)
		v = v->older;
	return v;
}

/* One that cannot be shown is looked at again each time: its files may come after its index. */
static int look_at(struct mfs_chain *c, uint32_t number, const struct version *before,
		   struct version **ret, struct mfs_error *err)
{
	struct version *old = find_version(c, number), *v;
	char path[PATH_MAX];
	struct mfs_error why;
	uint64_t own;

	if (path_of(c->dir, number, path))
		return mfs_fail(err, -ENAMETOOLONG, "the path of version %u is too long", number);
	own = look_at_dir(path);
	if (old && old->public.path && old->own == own && old->before == before) {
		*ret = old;
		return 0;
	}
	v = calloc(1, sizeof(*v));
	if (!v)
		return mfs_fail_nomem(err);
	v->public.number = number;
	v->own = own;
	v->before = before;
	v->public.options = c->options;
	v->public.stamp = mix(before ? before->public.stamp : c->bases->files.stamp, own) | 1;
	if (examine(c, v, path, &why)) {
		v->public.path = NULL;
		v->public.why = strdup(why.msg);
		v->public.stamp = mix(v->public.stamp, c->numbers++);
	} else if (!v->public.options.ref) {
		v->public.options.ref = v->public.path;
	}
	if (!v->public.path && old && !old->public.path && v->public.why &&
	    !strcmp(old->public.why, v->public.why)) {
		free_version(v);
		v = old;
	} else {
		v->older = c->versions;
		c->versions = v;
	}
	*ret = v;
	return v->public.path || v->public.why ? 0 : mfs_fail_nomem(err);
}

int mfs_chain_look(struct mfs_chain *c, const struct mfs_chain_version ***ret, uint32_t *ret_count,
		   struct mfs_error *err)
{
	const struct mfs_chain_version **shown;
	struct version *v = NULL;
	uint32_t *list, count, kept = 0;
	int rc = mfs_delta_versions(c->dir, &list, &count, err);

	if (rc)
		return rc;
	shown = calloc((size_t)count + 1, sizeof(*shown));
	if (!shown)
		rc = mfs_fail_nomem(err);
	for (uint32_t i = 0; i < count && !rc && (!c->only || list[i] <= c->only); i++) {
		const bool follows = v && v->public.number + 1 == list[i];

		if (!list[i]) /* version 0 is the base */
			continue;
		rc = look_at(c, list[i], follows ? v : NULL, &v, err);
		if (!rc && (!c->only || list[i] == c->only))
			shown[kept++] = &v->public;
	}
	free(list);
	if (rc) {
		free(shown);
		return rc;
	}
	*ret = shown;
	*ret_count = kept;
	return 0;
}
