/* The command `extents`: where in the source the bytes of a view's tensors lie. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/tensor.h"
#include "fs/cli/cmdline.h"
#include "fs/cli/commands.h"
#include "fs/cli/json.h"
#include "fs/cli/text.h"
#include "fs/extents/command.h"
#include "fs/lib/mcorefs.h"

struct lister {
	struct mcorefs_view *view;
	json_t *list; /* of extents; NULL: lines are printed */
	struct mcorefs_error err;
};

static const char *const kinds[] = {
	[MCOREFS_EXTENT_SOURCE] = "source",
	[MCOREFS_EXTENT_ZEROS] = "zeros",
	[MCOREFS_EXTENT_MEMORY] = "memory",
	[MCOREFS_EXTENT_COMPUTED] = "computed",
};

/* ---- one extent ---- */

static void print_extent(const struct mcorefs_extent *e)
{
	char shown[MFS_SHOWN];

	printf("  %-8s  %llu + %llu x %llu, step %llu", kinds[e->kind], (unsigned long long)e->at,
	       (unsigned long long)e->rows, (unsigned long long)e->width,
	       (unsigned long long)e->step);
	if (e->path)
		printf("  <-  %llu, step %llu, of %s", (unsigned long long)e->off,
		       (unsigned long long)e->row_step, mfs_shown(e->path, shown));
	putchar('\n');
}

static int take_extent(void *arg, const struct mcorefs_extent *e)
{
	const struct lister *l = arg;
	json_t *o;

	if (!l->list) {
		print_extent(e);
		return 0;
	}
	o = json_object();
	json_object_set_new(o, "kind", json_string(kinds[e->kind]));
	json_object_set_new(o, "at", mfs_json_number(e->at));
	json_object_set_new(o, "rows", mfs_json_number(e->rows));
	json_object_set_new(o, "width", mfs_json_number(e->width));
	json_object_set_new(o, "step", mfs_json_number(e->step));
	if (e->path) {
		json_object_set_new(o, "path", mfs_json_string(e->path));
		json_object_set_new(o, "offset", mfs_json_number(e->off));
		json_object_set_new(o, "row_step", mfs_json_number(e->row_step));
	}
	return json_array_append_new(l->list, o) ? -ENOMEM : 0;
}

/* ---- one tensor ---- */

static void print_head(const struct mcorefs_tensor *t, const char *file)
{
	char shape[256], shown[MFS_SHOWN];

	printf("%s  %s  %s  %llu bytes at %llu of %s\n", mfs_shown(t->name, shown), t->dtype,
	       mfs_shape_text(t->shape, t->ndim, shape, sizeof(shape)),
	       (unsigned long long)t->bytes, (unsigned long long)t->off, file);
}

static json_t *head_json(const struct mcorefs_tensor *t, const char *file)
{
	json_t *o = json_object(), *shape = json_array();

	for (unsigned i = 0; i < t->ndim; i++)
		json_array_append_new(shape, mfs_json_number(t->shape[i]));
	json_object_set_new(o, "name", mfs_json_string(t->name));
	json_object_set_new(o, "dtype", json_string(t->dtype));
	json_object_set_new(o, "shape", shape);
	json_object_set_new(o, "file", mfs_json_string(file));
	json_object_set_new(o, "offset", mfs_json_number(t->off));
	json_object_set_new(o, "bytes", mfs_json_number(t->bytes));
	return o;
}

/* tensors NULL: lines are printed. */
static int list_tensor(struct lister *l, size_t number, const struct mcorefs_tensor *t,
		       json_t *tensors)
{
	struct mcorefs_file file;
	json_t *o;
	int rc = mcorefs_file(l->view, t->file, &file, &l->err);

	if (rc)
		return rc;
	l->list = tensors ? json_array() : NULL;
	if (!tensors)
		print_head(t, file.name);
	rc = mcorefs_extents(l->view, number, take_extent, l, &l->err);
	if (!tensors)
		return rc;
	o = head_json(t, file.name);
	json_object_set_new(o, "extents", l->list);
	json_array_append_new(tensors, o);
	return rc;
}

/* of: of this file alone. Returns how many there were, or an error. */
static int list_tensors(struct lister *l, const size_t *of, json_t *tensors)
{
	struct mcorefs_tensor t;
	size_t count;
	int rc = mcorefs_tensor_count(l->view, &count, &l->err), listed = 0;

	for (size_t i = 0; i < count && !rc; i++) {
		rc = mcorefs_tensor(l->view, i, &t, &l->err);
		if (rc || (of && t.file != *of))
			continue;
		rc = list_tensor(l, i, &t, tensors);
		listed = 1;
	}
	return rc ? rc : listed;
}

/* ---- a view ---- */

/* A file that is no file of tensors has extents, too. */
static int list_file(struct lister *l, size_t number, json_t *extents)
{
	struct mcorefs_file file;
	int rc = mcorefs_file(l->view, number, &file, &l->err);

	l->list = extents;
	return rc ? rc
		  : mcorefs_file_extents(l->view, number, 0, file.size, take_extent, l, &l->err);
}

static int list_view(struct lister *l, const char *file, json_t *o)
{
	json_t *tensors = o ? json_array() : NULL, *extents = o ? json_array() : NULL;
	size_t number;
	int rc = file ? mcorefs_file_find(l->view, file, &number, &l->err) : 0;

	if (!rc)
		rc = list_tensors(l, file ? &number : NULL, tensors);
	if (!rc && file)
		rc = list_file(l, number, extents);
	if (o) {
		json_object_set_new(o, "tensors", tensors);
		json_object_set_new(o, "extents", extents);
	}
	return rc < 0 ? rc : 0;
}

static int list_source(const struct mfs_cmdline *c, json_t *o)
{
	struct mcorefs_source *source = NULL;
	struct lister l = {.view = NULL};
	int rc = mcorefs_open(c->arguments[0], c->o_list->data, &source, &l.err);

	if (!rc)
		rc = mcorefs_view_open(source, c->arguments[1], &l.view, &l.err);
	if (!rc)
		rc = list_view(&l, c->arguments[2], o);
	mcorefs_view_close(l.view);
	mcorefs_close(source);
	return rc ? mfs_command_failed("%s", l.err.text) : MFS_EXIT_OK;
}

static int list_json(const struct mfs_cmdline *c)
{
	json_t *o = json_object();
	const int exit_code = list_source(c, o);

	json_object_set_new(o, "source", mfs_json_string(c->arguments[0]));
	json_object_set_new(o, "view", mfs_json_string(c->arguments[1]));
	json_object_set_new(o, "ok", json_boolean(!exit_code));
	json_object_set_new(o, "error", mfs_json_string(exit_code ? mfs_command_failure() : NULL));
	return mfs_json_print(o) ? mfs_command_failed("out of memory") : exit_code;
}

int mfs_cmd_extents(int argc, char **argv)
{
	struct mfs_buf options = {0};
	bool json = false;
	struct mfs_cmdline c = {
		.usage = "extents SOURCE [VIEW] [FILE] [--json] [-o OPTIONS]",
		.help = "Shows where the bytes of each tensor of VIEW (hf) lie in the files of\n"
			"SOURCE: AT + ROWS x BYTES, step BYTES <- OFFSET, step BYTES, of PATH.\n"
			"\"computed\" ones are cast, merged or transposed when they are read.\n"
			"With FILE, those of this file; of a file without tensors, its own.\n",
		.help_views = true,
		.help_end = "  --json   one JSON object: tensors with name, dtype, shape, file, "
			    "offset,\n           bytes and extents\n",
		.min = 1,
		.max = 3,
		.switches = {{"json", &json}},
		.o_list = &options,
	};
	int exit_code;

	if (mfs_cmdline_parse(&c, argc, argv, &exit_code))
		exit_code = json ? list_json(&c) : list_source(&c, NULL);
	mfs_buf_release(&options);
	return mfs_cmdline_end(&c, exit_code);
}
