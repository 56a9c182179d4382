#include <stdio.h>
#include <string.h>

#include "formats/base/buf.h"
#include "fs/cli/cmdline.h"
#include "fs/cli/commands.h"
#include "fs/data/data.h"
#include "fs/cli/json.h"
#include "fs/source/root.h"
#include "fs/cli/text.h"

#define LEVELS 8 /* directories in each other; of a view's files, their names say */

/* Where the listing has got to. An entry is a line, or with --json an object. */
struct listing {
	json_t *entries, *problems; /* NULL: lines */
	const char *above[LEVELS];
	int depth;
	int exit_code;
};

/* A read-only file or directory as ls -l would show it. */
static void print_line(const struct listing *l, const char *mode, uint64_t size, int64_t mtime_ns,
		       const char *name, const char *target)
{
	char when[MFS_HUMAN];

	printf("%s  %15llu  %-19s  %*s%s%s%s\n", mode, (unsigned long long)size,
	       mfs_human_time(mtime_ns, when), 2 * l->depth, "", name, target ? " -> " : "",
	       target	      ? target
	       : *mode == 'd' ? "/"
			      : "");
}

/* "iter_0000040/hf/config.json", from where the listing began. */
static json_t *path_of(const struct listing *l, const char *name)
{
	struct mfs_buf path = {0};
	json_t *value;

	for (int i = 0; i < l->depth; i++)
		mfs_buf_printf(&path, "%s/", l->above[i]);
	mfs_buf_adds(&path, name);
	value = path.failed ? NULL : mfs_json_string(path.data);
	mfs_buf_release(&path);
	return value;
}

static void add_object(struct listing *l, const char *mode, uint64_t size, int64_t mtime_ns,
		       const char *name, const char *target)
{
	const char *type = *mode == 'd' ? "directory" : *mode == 'l' ? "link" : "file";
	json_t *o = json_object();

	json_object_set_new(o, "path", path_of(l, name));
	json_object_set_new(o, "type", mfs_json_string(type));
	json_object_set_new(o, "mode", mfs_json_string(mode + 1));
	json_object_set_new(o, "size", mfs_json_number(size));
	json_object_set_new(o, "mtime_ns", json_integer(mtime_ns));
	if (target)
		json_object_set_new(o, "target", mfs_json_string(target));
	json_array_append_new(l->entries, o);
}

static void add_entry(struct listing *l, const char *mode, uint64_t size, int64_t mtime_ns,
		      const char *name, const char *target)
{
	if (l->entries)
		add_object(l, mode, size, mtime_ns, name, target);
	else
		print_line(l, mode, size, mtime_ns, name, target);
}

static void add_dir(struct listing *l, int64_t mtime_ns, const char *name)
{
	add_entry(l, "dr-xr-xr-x", 0, mtime_ns, name, NULL);
}

/* What follows lies in that directory, until leave(). */
static void enter(struct listing *l, int64_t mtime_ns, const char *name)
{
	add_dir(l, mtime_ns, name);
	l->above[l->depth++] = name;
}

static void leave(struct listing *l)
{
	l->depth--;
}

/* path: of what cannot be listed, as the message names it; "": that is in why. */
static void add_problem(struct listing *l, const char *path, const char *why)
{
	mfs_print_flush();
	l->exit_code = mfs_command_failed("%s%s%s", path, *path ? ": " : "", why);
	if (l->problems)
		json_array_append_new(l->problems, mfs_json_string(mfs_command_failure()));
}

static const char *file_mode(unsigned mode, char text[11])
{
	for (int i = 0; i < 9; i++)
		text[i + 1] = mode & (0400u >> i) ? "rwx"[i % 3] : '-';
	text[0] = '-';
	text[10] = '\0';
	return text;
}

static void add_files(struct listing *l, const struct mfs_view *view)
{
	char mode[11];

	for (uint32_t i = 0; i < view->count; i++)
		add_entry(l, file_mode(mfs_access_told(&view->access).mode, mode),
			  mfs_vfile_size(view->files[i].data), view->mtime_ns, view->files[i].name,
			  NULL);
}

/* ---- iterations ---- */

/* An HF directory is named by what is in it alone, as in the mount. */
static void add_lack(struct listing *l, const struct mfs_iteration *it, const char *what,
		     const char *why)
{
	const bool below = strcmp(mfs_iteration_format(it), "hf");
	char path[MFS_PLACE_NAME];

	snprintf(path, sizeof(path), "%s%s%s", below ? mfs_iteration_name(it) : "",
		 below ? "/" : "", what);
	add_problem(l, path, why);
}

static void list_hf(struct listing *l, struct mfs_iteration *it)
{
	struct mfs_view *view = NULL;
	struct mfs_error err;

	if (mfs_iteration_view(it, "hf", &view, &err)) {
		add_lack(l, it, "hf", err.msg);
		return;
	}
	enter(l, mfs_iteration_mtime(it), "hf");
	add_files(l, view);
	leave(l);
}

static void list_layouts(struct listing *l, struct mfs_iteration *it)
{
	const char *const *names;
	struct mfs_error err;
	uint32_t count;

	if (mfs_iteration_layouts(it, &names, &count, &err)) {
		add_lack(l, it, "megatron/torch", err.msg);
		return;
	}
	for (uint32_t i = 0; i < count; i++)
		add_dir(l, mfs_iteration_mtime(it), names[i]);
}

static void list_megatron(struct listing *l, struct mfs_iteration *it)
{
	const char *lacking = mfs_iteration_why_not(it)->megatron;

	if (lacking) {
		add_lack(l, it, "megatron", lacking);
		return;
	}
	enter(l, mfs_iteration_mtime(it), "torch");
	list_layouts(l, it);
	leave(l);
	add_dir(l, mfs_iteration_mtime(it), "torch_dist");
}

static void list_why_not(struct listing *l, struct mfs_iteration *it)
{
	struct mfs_view *view;
	struct mfs_error err;

	if (mfs_iteration_view(it, MFS_WHY_NOT_VIEW, &view, &err))
		add_lack(l, it, MFS_WHY_NOT_FILE, err.msg);
	else
		add_files(l, view);
}

/* What the mount shows of an iteration: the files of hf, if the model can be mapped, and the names of
 * the Megatron views, whose files are many. */
static void list_views(struct listing *l, struct mfs_iteration *it)
{
	const struct mfs_why_not *lacking = mfs_iteration_why_not(it);

	list_hf(l, it);
	if (lacking->megatron) {
		list_megatron(l, it);
	} else {
		enter(l, mfs_iteration_mtime(it), "megatron");
		list_megatron(l, it);
		leave(l);
	}
	if (lacking->hf || lacking->megatron)
		list_why_not(l, it);
}

/* ---- datasets ---- */

static void list_specs(struct listing *l, struct mfs_dataset *d, const char *dir)
{
	const char *const *names;
	char path[MFS_PLACE_NAME];
	struct mfs_error err;
	uint32_t count;

	if (mfs_dataset_list(d, dir, &names, &count, &err)) {
		snprintf(path, sizeof(path), "data/%s/%s", mfs_dataset_name(d), dir);
		add_problem(l, path, err.msg);
		return;
	}
	for (uint32_t i = 0; i < count; i++)
		add_dir(l, mfs_dataset_mtime(d), names[i]);
}

/* The names of its views, whose files may be many, and specs as examples. */
static void list_dataset(struct listing *l, struct mfs_dataset *d)
{
	const struct mfs_dataset_entry *e;

	for (unsigned i = 0; (e = mfs_dataset_entry(d, i)); i++) {
		enter(l, mfs_dataset_mtime(d), e->name);
		if (e->specs)
			list_specs(l, d, e->name);
		leave(l);
	}
}

static void list_data(struct listing *l, const struct mfs_data *data)
{
	for (uint32_t i = 0; data && i < mfs_data_count(data); i++) {
		struct mfs_dataset *d = mfs_data_at(data, i);

		enter(l, mfs_dataset_mtime(d), mfs_dataset_name(d));
		list_dataset(l, d);
		leave(l);
	}
}

static void list_all_data(struct listing *l, const struct mfs_root *root)
{
	const struct mfs_data *data = mfs_root_data(root);
	int64_t newest = 0;

	if (!data)
		return;
	for (uint32_t i = 0; i < mfs_data_count(data); i++)
		if (mfs_dataset_mtime(mfs_data_at(data, i)) > newest)
			newest = mfs_dataset_mtime(mfs_data_at(data, i));
	enter(l, newest, "data");
	list_data(l, data);
	leave(l);
}

static void list_data_place(struct listing *l, const struct mfs_root *root,
			    const struct mfs_place *place)
{
	struct mfs_dataset *d = place->dataset;
	const struct mfs_dataset_entry *e;
	struct mfs_view *view = NULL;
	struct mfs_error err;

	if (!d) {
		list_data(l, mfs_root_data(root));
		return;
	}
	if (!*place->view) {
		list_dataset(l, d);
		return;
	}
	for (unsigned i = 0; (e = mfs_dataset_entry(d, i)); i++)
		if (e->specs && !strcmp(e->name, place->view)) {
			list_specs(l, d, e->name);
			return;
		}
	if (mfs_dataset_view(d, place->view, &view, &err))
		add_problem(l, "", err.msg);
	else
		add_files(l, view);
}

/* ---- everything ---- */

static void list_iteration(struct listing *l, struct mfs_iteration *it)
{
	if (mfs_iteration_reason(it))
		return;
	enter(l, mfs_iteration_mtime(it), mfs_iteration_name(it));
	list_views(l, it);
	leave(l);
}

static void list_latest(struct listing *l, const struct mfs_root *root,
			const struct mfs_root_snapshot *s)
{
	char path[1024];

	if (s->latest) {
		const char *target = mfs_iteration_name(s->latest);

		add_entry(l, "lrwxrwxrwx", strlen(target), mfs_iteration_mtime(s->latest), "latest",
			  target);
		return;
	}
	snprintf(path, sizeof(path), "'%s' %s", mfs_root_source(root),
		 mfs_root_has_iterations(root) ? "has no latest iteration" : "cannot be shown");
	add_problem(l, path, s->latest_reason);
}

static void list_model(struct listing *l, struct mfs_root *root)
{
	const struct mfs_root_snapshot *s = mfs_root_snapshot(root);

	if (!mfs_root_has_model(root))
		return;
	if (s->latest && !mfs_root_has_iterations(root)) {
		list_views(l, s->latest);
		return;
	}
	list_latest(l, root, s);
	for (uint32_t i = 0; i < s->count && mfs_root_has_iterations(root); i++)
		list_iteration(l, s->iterations[i]);
}

static void list_place(struct listing *l, const struct mfs_root *root,
		       const struct mfs_place *place)
{
	struct mfs_view *view = NULL;
	struct mfs_ckpt *ckpt;
	struct mfs_error err;

	if (!place->iteration)
		list_data_place(l, root, place);
	else if (mfs_iteration_ckpt(place->iteration, &ckpt, &err))
		add_problem(l, "", err.msg);
	else if (!*place->view)
		list_views(l, place->iteration);
	else if (!strcmp(place->view, "megatron"))
		list_megatron(l, place->iteration);
	else if (!strcmp(place->view, "megatron/torch"))
		list_layouts(l, place->iteration);
	else if (mfs_iteration_view(place->iteration, place->view, &view, &err))
		add_problem(l, "", err.msg);
	else
		add_files(l, view);
}

static void list(struct listing *l, const struct mfs_cmdline *c)
{
	struct mfs_root *root = NULL;
	struct mfs_place place;
	struct mfs_error err;

	if (mfs_root_open(c->arguments[0], &c->options.view, &root, &err)) {
		add_problem(l, "", err.msg);
		return;
	}
	if (!c->arguments[1]) {
		list_all_data(l, root);
		list_model(l, root);
	} else if (mfs_root_find(root, c->arguments[1], &place, &err)) {
		add_problem(l, "", err.msg);
	} else {
		list_place(l, root, &place);
	}
	mfs_root_free(root);
}

static int list_json(struct listing *l, const struct mfs_cmdline *c)
{
	json_t *o = json_object();

	l->entries = json_array();
	l->problems = json_array();
	list(l, c);
	json_object_set_new(o, "source", mfs_json_string(c->arguments[0]));
	json_object_set_new(o, "view", mfs_json_string(c->arguments[1]));
	json_object_set_new(o, "ok", json_boolean(!l->exit_code));
	json_object_set_new(o, "error",
			    mfs_json_string(l->exit_code ? mfs_command_failure() : NULL));
	json_object_set_new(o, "errors", l->problems);
	json_object_set_new(o, "entries", l->entries);
	return mfs_json_print(o) ? mfs_command_failed("out of memory") : l->exit_code;
}

int mfs_cmd_ls(int argc, char **argv)
{
	struct listing l = {.exit_code = MFS_EXIT_OK};
	bool json = false;
	struct mfs_cmdline c = {
		.usage = "ls SOURCE [VIEW] [--json] [-o OPTIONS]",
		.help = "Shows the tree that a mount of SOURCE would have, down to the Megatron views.\n"
			"With VIEW, the files of that view, or why there is none. Opens no tensor.\n"
			"\n" MFS_VIEW_HELP "  megatron/torch           (ls alone) common layouts\n"
			"\n"
			"  --json   one JSON object: entries with path, type, mode, size and mtime_ns\n",
		.min = 1,
		.max = 2,
		.switches = {{"json", &json}},
	};
	int exit_code;

	if (mfs_cmdline_parse(&c, argc, argv, &exit_code)) {
		if (!json)
			list(&l, &c);
		exit_code = json ? list_json(&l, &c) : l.exit_code;
	}
	return mfs_cmdline_end(&c, exit_code);
}
