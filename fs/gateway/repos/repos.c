#define _GNU_SOURCE
#include "fs/gateway/repos/repos.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>

#include "formats/base/array.h"
#include "formats/base/grow.h"
#include "formats/base/path.h"
#include "formats/base/str.h"
#include "formats/io/fence.h"
#include "fs/cli/log.h"
#include "fs/cli/option_rows.h"
#include "fs/data/data.h"
#include "fs/gateway/repos/facts_i.h"
#include "fs/source/root.h"
#include "fs/source/runs.h"

struct mfs_repos *mfs_repos_new(unsigned open)
{
	struct mfs_repos *repos = calloc(1, sizeof(*repos));

	if (!repos)
		return NULL;
	repos->open = open ? open : MFS_ROOTS_OPEN;
	repos->roots = mfs_roots_new(repos->open, &mfs_served_ops, NULL);
	atomic_init(&repos->shares, 1);
	if (!repos->roots) {
		free(repos);
		return NULL;
	}
	mfs_facts_table_init(&repos->facts);
	return repos;
}

static void free_source(struct mfs_repo_source *s)
{
	for (uint32_t i = 0; i < s->dataset_count; i++)
		free(s->datasets[i]);
	free(s->datasets);
	for (uint32_t i = 0; i < s->fence_count; i++)
		mfs_fence_remove(s->fences[i]);
	free(s->fences);
	free(s->org);
	free(s->name);
	free(s->path);
}

void mfs_repos_share(struct mfs_repos *repos)
{
	atomic_fetch_add(&repos->shares, 1);
}

void mfs_repos_on_free(struct mfs_repos *repos, void (*freed)(void *arg), void *arg)
{
	repos->freed = freed;
	repos->freed_arg = arg;
}

void mfs_repos_free(struct mfs_repos *repos)
{
	if (!repos || atomic_fetch_sub(&repos->shares, 1) != 1)
		return;
	mfs_roots_free(repos->roots);
	mfs_facts_table_release(&repos->facts);
	for (uint32_t i = 0; i < repos->source_count; i++)
		free_source(&repos->sources[i]);
	free(repos->sources);
	if (repos->freed)
		repos->freed(repos->freed_arg);
	free(repos);
}

/* ---- names ---- */

/* huggingface_hub's validate_repo_id(), for one part of a name. */
static bool is_part(const char *part, size_t len)
{
	if (!len || part[0] == '-' || part[0] == '.' || part[len - 1] == '-' ||
	    part[len - 1] == '.')
		return false;
	for (size_t i = 0; i < len; i++) {
		const char c = part[i];

		if (!isalnum((unsigned char)c) && c != '-' && c != '.' && c != '_')
			return false;
		if (i && c == part[i - 1] && (c == '-' || c == '.'))
			return false;
	}
	return true;
}

bool mfs_repo_name_ok(const char *name)
{
	const char *slash = strchr(name, '/');

	return slash && strlen(name) < MFS_REPO_NAME && is_part(name, (size_t)(slash - name)) &&
	       is_part(slash + 1, strlen(slash + 1)) && !mfs_str_ends(name, ".git");
}

char *mfs_repo_part(const char *name)
{
	char *part = malloc(strlen(name) + 2), *to = part;

	if (!part)
		return NULL;
	for (; *name; name++) {
		const char c =
			isalnum((unsigned char)*name) || *name == '_' || *name == '.' ? *name : '-';
		const bool twice = to > part && !isalnum((unsigned char)c) && to[-1] == c;

		if (!twice && (to > part || (c != '-' && c != '.')))
			*to++ = c;
	}
	while (to > part && (to[-1] == '-' || to[-1] == '.'))
		to--;
	if (to == part)
		*to++ = '_';
	*to = '\0';
	return part;
}

/* ---- what they are ---- */

static bool has_dataset(const struct mfs_repo_source *s, const char *name)
{
	for (uint32_t i = 0; i < s->dataset_count; i++)
		if (!strcmp(s->datasets[i], name))
			return true;
	return false;
}

/* A name that two sources have in common. NULL: they have none. */
static const char *find_common(const struct mfs_repo_source *a, const struct mfs_repo_source *b)
{
	if (strcmp(a->org, b->org))
		return NULL;
	if (!a->name && !b->name)
		return "*";
	if (a->has_model && b->has_model && mfs_str_is(a->name, b->name ? b->name : ""))
		return a->name;
	for (uint32_t i = 0; i < a->dataset_count; i++)
		if (has_dataset(b, a->datasets[i]))
			return a->datasets[i];
	return NULL;
}

/* What to do about it depends on whether a name was given. */
static int check_names(const struct mfs_repos *repos, const struct mfs_repo_source *s,
		       struct mfs_error *err)
{
	for (uint32_t i = 0; i < repos->source_count; i++) {
		const struct mfs_repo_source *other = &repos->sources[i];
		const char *name = find_common(s, other);

		if (name)
			return mfs_fail(err, -EEXIST,
					"'%s' and '%s' would both be the repository %s/%s: give "
					"each a name of its own, ORG/NAME=SOURCE%s",
					other->path, s->path, s->org, name,
					s->dataset_count > 1 || other->dataset_count > 1
						? ", and name their datasets one by one"
						: "");
	}
	return 0;
}

/* named: the source has a name that somebody chose. */
static int note_datasets(struct mfs_repo_source *s, const struct mfs_data *data, bool named)
{
	const uint32_t count = data ? mfs_data_count(data) : 0;

	s->is_dataset = named && count == 1 && !s->has_model;
	for (uint32_t i = 0; i < count; i++) {
		const char *own = mfs_dataset_name(mfs_data_at(data, i));
		char *name = s->is_dataset ? strdup(s->name) : mfs_repo_part(own);

		if (!name || mfs_grow(&s->datasets, s->dataset_count)) {
			free(name);
			return -ENOMEM;
		}
		s->datasets[s->dataset_count++] = name;
	}
	return 0;
}

/* ---- fences ---- */

static int add_fence(struct mfs_repo_source *s, const char *path, bool each)
{
	struct stat st;
	const bool dir = !stat(path, &st) && S_ISDIR(st.st_mode);
	int rc = mfs_grow(&s->fences, s->fence_count);

	if (!rc)
		rc = mfs_fence_add(each	 ? MFS_FENCE_EACH
				   : dir ? MFS_FENCE_DIR
					 : MFS_FENCE_PREFIX,
				   path, &s->fences[s->fence_count]);
	s->fence_count += !rc;
	return rc;
}

/* A file that an option names is followed wherever it leads: the operator has named it. A file that
 * is missing is reported when it is opened. */
static int fence_named(struct mfs_repo_source *s, const char *path)
{
	struct stat st;

	return path && !stat(path, &st) && S_ISDIR(st.st_mode) ? add_fence(s, path, false) : 0;
}

/* Links of SOURCE, and of what its options name, lead to nothing else: who writes there decides
 * where they lead, and the gateway may read more than he and its clients. */
static int fence_in(struct mfs_repo_source *s, struct mfs_error *err)
{
	const struct mfs_view_options *o = s->options;
	const unsigned paths = o->data ? o->data->path_count : 0;
	char *path;
	int rc = *s->path == '/' ? add_fence(s, s->path, !s->name) : 0; /* else a URL */

	for (size_t i = 0; i < mfs_option_row_count && !rc; i++)
		rc = fence_named(s, mfs_option_reads(&mfs_option_rows[i], o));
	for (unsigned i = 0; i < paths && !rc; i++)
		if (!mfs_root_named(o->data->paths[i], &path, NULL)) {
			rc = add_fence(s, path, false);
			free(path);
		}
	return rc ? mfs_fail(err, rc, "'%s': %s", s->path, strerror(-rc)) : 0;
}

/* ---- adding ---- */

/* Opens it once, to see what it is. every: it may be a directory of sources instead. */
static int look(struct mfs_repos *repos, struct mfs_repo_source *s, bool every,
		struct mfs_error *err)
{
	struct mfs_shared_root *shared;
	struct stat st;
	int rc = mfs_roots_hold(repos->roots, s->path, s->options, &shared, err);

	if (rc == -ENODATA && every && !stat(s->path, &st) && S_ISDIR(st.st_mode)) {
		free(s->name);
		s->name = NULL;
		return fence_in(s, err);
	}
	if (rc)
		return rc;
	s->has_model = mfs_root_has_model(shared->root);
	rc = note_datasets(s, mfs_root_data(shared->root), !every);
	mfs_roots_drop(repos->roots, shared);
	if (rc)
		return mfs_fail_nomem(err);
	if (!every && !s->has_model && s->dataset_count > 1)
		mfs_log(LOG_NOTICE,
			"%s/%s is several datasets, by their own names: %s/%s and %u more", s->org,
			s->name, s->org, s->datasets[0], s->dataset_count - 1);
	return 0;
}

static bool is_reserved(const char *org, size_t len)
{
	static const char *const words[] = {"api",     "datasets", "files", "healthz",
					    "metrics", "s3",	   "spaces"};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(words); i++)
		if (strlen(words[i]) == len && !memcmp(words[i], org, len))
			return true;
	return false;
}

static int set_name(struct mfs_repo_source *s, const char *name, struct mfs_error *err)
{
	const char *slash = name ? strchr(name, '/') : NULL;
	char check[MFS_REPO_NAME + 2];

	if (!name) {
		s->org = strdup(MFS_REPO_ORG);
		s->name = mfs_repo_part(mfs_path_base(s->path));
		return s->org && s->name ? 0 : mfs_fail_nomem(err);
	}
	snprintf(check, sizeof(check), "%s", name);
	if (slash && !strcmp(slash, "/*") && strlen(name) < sizeof(check))
		check[slash - name + 1] = 'x';
	if (!strncmp(name, "datasets/", 9) && strchr(name + 9, '/'))
		return mfs_fail(err, -EINVAL,
				"'%s': a dataset is named ORG/NAME, too; what it is, its files say",
				name);
	if (!mfs_repo_name_ok(check))
		return mfs_fail(
			err, -EINVAL,
			"'%s' is no name of a repository: ORG/NAME or ORG/* is, of letters, "
			"digits and -._, at most %d characters, without '--' and '..'",
			name, MFS_REPO_NAME - 1);
	if (is_reserved(name, (size_t)(slash - name)))
		return mfs_fail(err, -EINVAL,
				"'%s': paths of the gateway begin with that, so no repository does",
				name);
	if (strstr(name, "__"))
		return mfs_fail(err, -EINVAL,
				"'%s': '__' stands between a repository and a view, and in no "
				"name",
				name);
	s->org = strndup(name, (size_t)(slash - name));
	s->name = strcmp(slash, "/*") ? strdup(slash + 1) : NULL;
	return s->org && (s->name || !strcmp(slash, "/*")) ? 0 : mfs_fail_nomem(err);
}

int mfs_repos_add(struct mfs_repos *repos, const char *name, const char *source,
		  const struct mfs_view_options *options, struct mfs_error *err)
{
	struct mfs_repo_source s = {.options = options};
	int rc = mfs_root_named(source, &s.path, err);

	if (!rc)
		rc = set_name(&s, name, err);
	if (!rc)
		rc = fence_in(&s, err);
	if (!rc && s.name)
		rc = look(repos, &s, !name, err);
	if (!rc)
		rc = check_names(repos, &s, err);
	if (!rc && mfs_grow(&repos->sources, repos->source_count))
		rc = mfs_fail_nomem(err);
	if (rc) {
		free_source(&s);
		return rc;
	}
	repos->sources[repos->source_count++] = s;
	return 0;
}

/* ---- finding ---- */

static bool has_name(const struct mfs_repo_source *s, enum mfs_repo_kind kind, const char *name)
{
	return kind == MFS_REPO_MODEL ? s->has_model && !strcmp(s->name, name)
				      : has_dataset(s, name);
}

/* As mfs_runs_find(); -ENOLINK: the run's own directory leads out of the source. */
static int find_run(const struct mfs_repo_source *s, const char *name, char *path, size_t size)
{
	const int found = mfs_runs_find(s->path, name, path, size);
	const int rc = found > 0 ? mfs_fence_check_path(path) : 0;

	return rc ? rc : found;
}

int mfs_repos_find(struct mfs_repos *repos, enum mfs_repo_kind kind, const char *name,
		   const struct mfs_repo_source **ret, char *path, size_t path_size,
		   const char **ret_dataset, struct mfs_error *err)
{
	const char *last = strchr(name, '/') + 1;
	const size_t org = (size_t)(last - 1 - name);

	for (uint32_t i = 0; i < repos->source_count; i++) {
		const struct mfs_repo_source *s = &repos->sources[i];
		int found;

		if (strlen(s->org) != org || memcmp(s->org, name, org))
			continue;
		*ret_dataset = s->name && !s->is_dataset ? last : "";
		if (!s->name)
			found = find_run(s, last, path, path_size);
		else
			found = has_name(s, kind, last);
		if (found < 0)
			return mfs_fail(err, found, "'%s': %s", path, mfs_errno_text(-found));
		if (!found)
			continue;
		if (s->name && (size_t)snprintf(path, path_size, "%s", s->path) >= path_size)
			break;
		*ret = s;
		return 0;
	}
	return mfs_fail(err, -ENOENT, "there is no repository %s", name);
}

/* ---- listing ---- */

static int each_name(const char *org, const char *part, int (*each)(void *arg, const char *name),
		     void *arg)
{
	char name[MFS_REPO_NAME];

	if ((size_t)snprintf(name, sizeof(name), "%s/%s", org, part) >= sizeof(name) ||
	    !mfs_repo_name_ok(name))
		return 0;
	return each(arg, name);
}

struct naming {
	const struct mfs_repo_source *source;
	enum mfs_repo_kind kind;
	int (*each)(void *arg, const char *name);
	void *arg;
};

/* Whether a directory of SOURCE looks like a repository. What cannot be looked at is listed as a
 * model: who asks for it learns why. Several datasets in one directory have no names here. */
static bool looks_right(const struct naming *n, const char *run)
{
	enum mfs_root_kind look;
	char path[PATH_MAX];

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", n->source->path, run) >= sizeof(path) ||
	    mfs_fence_check_path(path) == -ENOLINK)
		return false;
	if (mfs_root_look(path, &look))
		return n->kind == MFS_REPO_MODEL;
	if (n->kind == MFS_REPO_MODEL)
		return look == MFS_ROOT_MODEL;
	return look == MFS_ROOT_DATA && mfs_data_look(path, n->source->options->data) == 1;
}

static int name_run(void *arg, const char *name, const struct stat *st)
{
	const struct naming *n = arg;

	(void)st;
	if (strstr(name, "__") || !looks_right(n, name))
		return 0;
	return each_name(n->source->org, name, n->each, n->arg);
}

int mfs_repos_each(struct mfs_repos *repos, enum mfs_repo_kind kind,
		   int (*each)(void *arg, const char *name), void *arg)
{
	int rc = 0;

	for (uint32_t i = 0; i < repos->source_count && !rc; i++) {
		const struct mfs_repo_source *s = &repos->sources[i];
		struct naming n = {s, kind, each, arg};

		if (!s->name)
			rc = mfs_runs_each(s->path, name_run, &n);
		if (s->name && kind == MFS_REPO_MODEL && s->has_model)
			rc = each_name(s->org, s->name, each, arg);
		for (uint32_t k = 0; kind == MFS_REPO_DATASET && k < s->dataset_count && !rc; k++)
			rc = each_name(s->org, s->datasets[k], each, arg);
	}
	return rc;
}
