#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include <xxhash.h>

#include "formats/base/array.h"
#include "formats/io/regular.h"
#include "formats/io/whole.h"
#include "formats/model/families/read.h"
#include "formats/model/families/texts.h"

#define MOST 256 /* families, bases included */

/* All of them live as long as the program. */
static struct {
	struct mfs_arena arena;
	const struct mfs_family *read[MOST]; /* in the order in which they were read, with bases */
	size_t read_count;
	const struct mfs_family *all[MOST + 1]; /* without bases, in their order */
	const char *names;
	uint64_t added;	      /* a hash of the files of mfs_families_add() */
	struct mfs_error why; /* a built-in one cannot be read */
} families;

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- the list ---- */

static const struct mfs_family *find(const char *name)
{
	for (size_t i = 0; i < families.read_count; i++)
		if (!strcmp(families.read[i]->name, name))
			return families.read[i];
	return NULL;
}

static int in_order(const void *a, const void *b)
{
	const struct mfs_family *x = *(const struct mfs_family *const *)a;
	const struct mfs_family *y = *(const struct mfs_family *const *)b;

	if (!x->impossible != !y->impossible)
		return x->impossible ? 1 : -1;
	if (!x->language != !y->language)
		return x->language ? 1 : -1;
	if (x->built_in != y->built_in)
		return x->built_in - y->built_in;
	if (x->order != y->order)
		return x->order < y->order ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* Makes the list and its names anew. */
static int list(struct mfs_error *err)
{
	size_t count = 0;
	char *names = mfs_arena_strndup(&families.arena, "", 0);

	for (size_t i = 0; i < families.read_count; i++)
		if (families.read[i]->architecture)
			families.all[count++] = families.read[i];
	families.all[count] = NULL;
	qsort(families.all, count, sizeof(*families.all), in_order);
	for (size_t i = 0; i < count && names; i++)
		if (mfs_family_has_models(families.all[i]))
			names = mfs_arena_printf(&families.arena, "%s%s%s", names,
						 *names ? ", " : "", families.all[i]->name);
	families.names = names;
	return names ? 0 : mfs_fail_nomem(err);
}

static int put(const struct mfs_family *f, struct mfs_error *err)
{
	for (size_t i = 0; i < families.read_count; i++) {
		if (strcmp(families.read[i]->name, f->name))
			continue;
		families.read[i] = f;
		return 0;
	}
	if (families.read_count == MOST)
		return mfs_fail(err, -ENOTSUP, "more than %d families", MOST);
	families.read[families.read_count++] = f;
	return 0;
}

/* ---- the built-in ones ---- */

static const struct mfs_family *find_built_in(const char *name, void *arg);

/* depth: of bases. A circle of them is one that is too deep. */
static int read_text(const struct mfs_family_text *text, unsigned depth, struct mfs_error *err)
{
	struct mfs_family *f;
	int rc = mfs_family_read(text->file, text->text, strlen(text->text), find_built_in, &depth,
				 &families.arena, &f, err);

	if (rc)
		return rc;
	f->built_in = true;
	return put(f, err);
}

/* True for "configs/models/NAME.conf". */
static bool is_file_of(const char *file, const char *name)
{
	const char *base = strrchr(file, '/') + 1;
	const size_t len = strlen(name);

	return !strncmp(base, name, len) && !strcmp(base + len, ".conf");
}

/* A base may stand after the family that names it. */
static const struct mfs_family *find_built_in(const char *name, void *arg)
{
	const unsigned *depth = arg;
	const struct mfs_family *there = find(name);

	for (const struct mfs_family_text *t = mfs_family_texts; t->file && !there; t++)
		if (is_file_of(t->file, name) && *depth < 8 &&
		    !read_text(t, *depth + 1, &families.why))
			there = find(name);
	return there;
}

static void read_built_in(void)
{
	int rc = 0;

	for (const struct mfs_family_text *t = mfs_family_texts; t->file && !rc; t++) {
		const char *base = strrchr(t->file, '/') + 1;
		char name[64];

		snprintf(name, sizeof(name), "%.*s", (int)(strlen(base) - strlen(".conf")), base);
		if (!find(name))
			rc = read_text(t, 0, &families.why);
	}
	if (!rc)
		rc = list(&families.why);
	if (rc)
		families.all[0] = NULL;
}

const struct mfs_family *const *mfs_families(void)
{
	pthread_once(&once, read_built_in);
	return families.all;
}

const char *mfs_family_names(void)
{
	mfs_families();
	return families.names ? families.names : families.why.msg;
}

/* ---- a person's ---- */

static const struct mfs_family *find_any(const char *name, void *arg)
{
	(void)arg;
	return find(name);
}

static int read_bytes(int fd, size_t size, const char *path, char **ret, struct mfs_error *err)
{
	char *bytes = mfs_arena_alloc(&families.arena, size + 1);
	int rc = bytes ? mfs_pread_whole(fd, 0, bytes, size) : -ENOMEM;

	if (rc)
		return mfs_fail(err, rc, "family=%s: %s", path, strerror(-rc));
	*ret = bytes;
	return 0;
}

static int read_file(const char *path, char **ret, size_t *ret_len, struct mfs_error *err)
{
	struct stat st;
	int fd, rc = mfs_open_regular(AT_FDCWD, path, 0, &fd, &st);

	if (rc)
		return mfs_fail(err, rc, "family=%s: %s", path, mfs_open_regular_why(rc));
	*ret_len = (size_t)st.st_size;
	if (st.st_size > MFS_FAMILY_MAX)
		rc = mfs_fail(err, -ENOTSUP, "family=%s: %lld bytes, expected at most %u", path,
			      (long long)st.st_size, MFS_FAMILY_MAX);
	else
		rc = read_bytes(fd, *ret_len, path, ret, err);
	close(fd);
	return rc;
}

int mfs_families_add(const char *path, struct mfs_error *err)
{
	const char *file;
	struct mfs_family *f;
	char *bytes;
	size_t len;
	int rc;

	mfs_families();
	file = mfs_arena_strndup(&families.arena, path, strlen(path));
	rc = file ? read_file(file, &bytes, &len, err) : mfs_fail_nomem(err);
	if (!rc)
		rc = mfs_family_read(file, bytes, len, find_any, NULL, &families.arena, &f, err);
	if (rc)
		return rc;
	if (!f->architecture)
		return mfs_fail(err, -EINVAL, "%s: [family] has no 'architecture'", file);
	rc = put(f, err);
	if (rc)
		return rc;
	families.added = XXH64(bytes, len, families.added + 1);
	return list(err);
}

uint64_t mfs_families_stamp(void)
{
	return families.added;
}

/* ---- names ---- */

bool mfs_family_list_has(const char *words, const char *text)
{
	const size_t len = strlen(text);

	while (words) {
		words += strspn(words, " ,");
		if (len && !strncmp(words, text, len) && strchr(" ,", words[len]))
			return true;
		words = strpbrk(words, " ,");
	}
	return false;
}

bool mfs_family_is_called(const struct mfs_family *f, const char *text)
{
	return !strcasecmp(text, f->name) || !strcmp(text, f->model_type) ||
	       !strcmp(text, f->architecture) || mfs_family_list_has(f->also, text);
}

/* ---- who makes models of a family ---- */

/* True if the class is the stem followed by a kind of class. */
static bool is_class_of(const char *provider, const char *stem, size_t len)
{
	static const char *const kinds[] = {"ModelProvider", "ModelConfig", "Provider", "Config"};

	if (strncmp(provider, stem, len) != 0)
		return false;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(kinds); i++)
		if (!strncmp(provider + len, kinds[i], strlen(kinds[i])))
			return true;
	return false;
}

bool mfs_family_is_made_by(const struct mfs_family *f, const char *provider)
{
	for (const char *stem = f->providers; stem; stem = strpbrk(stem, " ,")) {
		size_t len;

		stem += strspn(stem, " ,\t");
		len = strcspn(stem, " ,\t");
		if (len && is_class_of(provider, stem, len))
			return true;
	}
	return false;
}

bool mfs_provider_is_plain(const char *provider)
{
	mfs_families();
	for (size_t i = 0; i < families.read_count; i++)
		if (!families.read[i]->language &&
		    !(families.read[i]->required & MFS_HAS(OWN_MODULES)) &&
		    mfs_family_is_made_by(families.read[i], provider))
			return true;
	return false;
}
