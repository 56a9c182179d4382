/* A directory that stands for a view: what an engine reads besides tensors, and where these are. */
#include "fs/stub/command.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/buf.h"
#include "formats/base/str.h"
#include "formats/io/beneath.h"
#include "formats/io/commit.h"
#include "fs/cli/cmdline.h"
#include "fs/cli/commands.h"
#include "fs/cli/option_rows.h"
#include "fs/lib/mcorefs.h"

#define STUB_FILE    "mcorefs.json"
#define STUB_VERSION 2 /* the same as fs/lib/python/mcorefs/_stub.py */

struct stub {
	const char *source; /* absolute, or a URL. Owned */
	struct mfs_buf options;
	struct mcorefs_source *root;
	struct mcorefs_view *view;
	bool *has_tensors; /* for each file */
	int dirfd;	   /* of the new directory */
};

/* ---- what it stands for ---- */

/* Options as -o takes them, with the paths that the parser has made absolute. */
static int list_options(const struct mfs_options *options, struct mfs_buf *ret,
			struct mfs_error *err)
{
	for (const char *at = NULL; (at = mfs_option_next_setting(options, at));) {
		const size_t len = strcspn(at, "=");
		char *name = strndup(at, len);

		if (!name)
			return mfs_fail_nomem(err);
		mfs_fuse_list_add(ret, name, at[len] ? at + len + 1 : NULL);
		free(name);
	}
	return ret->failed ? mfs_fail_nomem(err) : 0;
}

static const char *absolute(const char *source)
{
	struct mfs_buf path = {0};
	char *cwd;

	if (*source == '/' || strstr(source, "://"))
		return strdup(source);
	cwd = getcwd(NULL, 0);
	if (cwd)
		mfs_buf_printf(&path, "%s/%s", cwd, source);
	free(cwd);
	return path.data;
}

/* Errors of the library in the program's own struct. */
static int passed_on(int rc, const struct mcorefs_error *from, struct mfs_error *err)
{
	return rc < 0 ? mfs_fail(err, rc, "%s", from->text) : 0;
}

static int open_view(struct stub *s, const char *view, struct mfs_error *err)
{
	struct mcorefs_error why;
	int rc = mcorefs_open(s->source, s->options.data, &s->root, &why);

	if (!rc)
		rc = mcorefs_view_open(s->root, view, &s->view, &why);
	return passed_on(rc, &why, err);
}

/* Files with tensors are left where they are. */
static int find_tensors(struct stub *s, struct mfs_error *err)
{
	struct mcorefs_error why;
	struct mcorefs_tensor t;
	struct mcorefs_file f = {.name = ""};
	bool safetensors = false;
	size_t count;
	int rc = mcorefs_tensor_count(s->view, &count, &why);

	s->has_tensors = calloc(mcorefs_file_count(s->view) + 1, sizeof(*s->has_tensors));
	if (!s->has_tensors)
		return mfs_fail_nomem(err);
	for (size_t i = 0; i < count && !rc; i++) {
		rc = mcorefs_tensor(s->view, i, &t, &why);
		if (!rc)
			rc = mcorefs_file(s->view, t.file, &f, &why);
		if (!rc) {
			s->has_tensors[t.file] = true;
			safetensors |= mfs_str_ends(f.name, ".safetensors");
		}
	}
	if (rc || safetensors)
		return passed_on(rc, &why, err);
	return mfs_fail(err, -EINVAL,
			"%s has no safetensors, which engines load: expected a view like hf, "
			"hf-fp8 or vllm/tp2",
			mcorefs_view_name(s->view));
}

/* ---- what is written ---- */

static int open_directory(struct stub *s, const char *path, struct mfs_error *err)
{
	struct dirent *e;
	DIR *dir;
	int rc = 0;

	s->dirfd = mfs_open_path(path, 0777, 0777);
	if (s->dirfd < 0)
		return mfs_fail(err, s->dirfd, "cannot make '%s': %s", path, strerror(-s->dirfd));
	dir = fdopendir(dup(s->dirfd));
	if (!dir)
		return mfs_fail_errno(err, "cannot list '%s'", path);
	while (!rc && (e = readdir(dir)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			rc = mfs_fail(err, -EEXIST,
				      "'%s' is not empty, and a stub replaces nothing", path);
	closedir(dir);
	return rc;
}

static int write_bytes(const struct stub *s, const char *name, const void *bytes, size_t len,
		       struct mfs_error *err)
{
	const char *slash = strrchr(name, '/');
	char *above = slash ? strndup(name, (size_t)(slash - name)) : NULL;
	int dirfd = above ? mfs_beneath_make_dirs(s->dirfd, above, 0777) : dup(s->dirfd), rc;

	if (dirfd < 0)
		rc = mfs_fail(err, dirfd, "cannot make '%s': %s", above, strerror(-dirfd));
	else
		rc = mfs_commit_file(dirfd, slash ? slash + 1 : name, bytes, len, err);
	if (dirfd >= 0)
		close(dirfd);
	free(above);
	return rc;
}

static int copy_file(const struct stub *s, size_t file, struct mfs_error *err)
{
	struct mcorefs_error why;
	struct mcorefs_file f;
	ssize_t n;
	char *bytes;
	int rc = mcorefs_file(s->view, file, &f, &why);

	if (rc)
		return passed_on(rc, &why, err);
	if (s->has_tensors[file] || mfs_str_ends(f.name, ".index.json"))
		return 0;
	bytes = malloc(f.size + 1);
	if (!bytes)
		return mfs_fail_nomem(err);
	n = mcorefs_pread(s->view, file, bytes, f.size, 0, &why);
	rc = n < 0 ? passed_on((int)n, &why, err) : write_bytes(s, f.name, bytes, (size_t)n, err);
	free(bytes);
	return rc;
}

static void add_member(struct mfs_buf *b, const char *key, const char *value)
{
	mfs_buf_printf(b, ",\n  \"%s\": ", key);
	mfs_buf_add_json(b, value);
}

/* The last file: a directory without it is no stub. */
static int write_about(const struct stub *s, struct mfs_error *err)
{
	struct mfs_buf b = {0};
	int rc;

	mfs_buf_printf(&b, "{\n  \"mcorefs_stub\": %d", STUB_VERSION);
	add_member(&b, "source", s->source);
	add_member(&b, "view", mcorefs_view_name(s->view));
	add_member(&b, "options", s->options.len ? s->options.data : "");
	add_member(&b, "identity", mcorefs_view_identity(s->view));
	mfs_buf_adds(&b, "\n}\n");
	rc = b.failed ? mfs_fail_nomem(err) : write_bytes(s, STUB_FILE, b.data, b.len, err);
	mfs_buf_release(&b);
	return rc;
}

static int make_stub(struct stub *s, const struct mfs_cmdline *c, const char *view,
		     struct mfs_error *err)
{
	int rc = list_options(&c->options, &s->options, err);

	s->source = absolute(c->arguments[0]);
	if (!rc && !s->source)
		rc = mfs_fail_nomem(err);
	if (!rc)
		rc = open_view(s, view, err);
	if (!rc)
		rc = find_tensors(s, err);
	if (!rc)
		rc = open_directory(s, c->arguments[1], err);
	for (size_t i = 0; !rc && i < mcorefs_file_count(s->view); i++)
		rc = copy_file(s, i, err);
	return rc ? rc : write_about(s, err);
}

int mfs_cmd_stub(int argc, char **argv)
{
	const char *view = "hf";
	struct mfs_cmdline c = {
		.usage = "stub SOURCE DIR [--view VIEW] [-o OPTIONS]",
		.help = "Writes what an engine wants as a path into DIR, which is new or empty:\n"
			"config.json, the tokenizer's files, and " STUB_FILE
			", which names SOURCE,\n"
			"the view, its iteration and the options. Tensors stay where they are:\n"
			"vllm serve DIR --load-format mcorefs reads them there.\n",
		.help_views = true,
		.help_end = "  --view VIEW  whose tensors they are (hf)\n",
		.min = 2,
		.max = 2,
		.valued = {{"view", MFS_VALUE_TEXT, &view}},
	};
	struct stub s = {.dirfd = -1};
	struct mfs_error err;
	int code;

	if (!mfs_cmdline_parse(&c, argc, argv, &code))
		return mfs_cmdline_end(&c, code);
	code = make_stub(&s, &c, view, &err) ? mfs_command_failed("%s", err.msg) : MFS_EXIT_OK;
	if (!code)
		printf("%s: %s of %s\n", c.arguments[1], mcorefs_view_name(s.view), s.source);
	if (s.dirfd >= 0)
		close(s.dirfd);
	free(s.has_tensors);
	mcorefs_view_close(s.view);
	mcorefs_close(s.root);
	mfs_buf_release(&s.options);
	free((char *)s.source);
	return mfs_cmdline_end(&c, code);
}
