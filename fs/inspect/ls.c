#include <stdio.h>
#include <string.h>

#include "formats/base/buf.h"
#include "fs/cli/cmdline.h"
#include "fs/cli/commands.h"
#include "fs/data/data.h"
#include "fs/cli/json.h"
#include "fs/inspect/command.h"
#include "fs/source/root.h"
#include "fs/cli/text.h"
#include "fs/view/views.h"

#define LEVELS 8 /* nested directories; directories in a view are part of its files' names */

/* The state of a listing. An entry is a line, or an object with --json. */
struct listing {
	struct mfs_root *root;
	json_t *entries, *problems; /* NULL: print lines */
	const char *above[LEVELS];
	int depth;
	int exit_code;
};

/* Prints a read-only file or directory like ls -l. */
static void print_line(const struct listing *l, const char *mode, uint64_t size, int64_t mtime_ns,
		       const char *name, const char *target)
{
	char when[MFS_HUMAN], shown[MFS_SHOWN], leads[MFS_SHOWN];

	printf("%s  %15llu  %-19s  %*s%s%s%s\n", mode, (unsigned long long)size,
	       mfs_human_time(mtime_ns, when), 2 * l->depth, "", mfs_shown(name, shown),
	       target ? " -> " : "",
	       target	      ? mfs_shown(target, leads)
	       : *mode == 'd' ? "/"
			      : "");
}

/* The path from the place that is listed: "iter_0000040/hf/config.json". */
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

/* The next entries are in this directory, until leave(). */
static void enter(struct listing *l, int64_t mtime_ns, const char *name)
{
	add_dir(l, mtime_ns, name);
	l->above[l->depth++] = name;
}

static void leave(struct listing *l)
{
	l->depth--;
}

/* path: the place that cannot be listed, for the message. "": why names it. */
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

/* ---- the views of an iteration or a dataset ---- */

/* what: its path below the place. */
static void add_lack(struct listing *l, const struct mfs_place *at, const char *what,
		     const char *why)
{
	struct mfs_place place = *at;
	char path[MFS_PLACE_NAME];

	snprintf(place.view, sizeof(place.view), "%s", what);
	add_problem(l, mfs_place_name(l->root, &place, path), why);
}

static void list_specs(struct listing *l, const struct mfs_place *at,
		       const struct mfs_view_kind *kind)
{
	const char *const *names;
	struct mfs_error err;
	uint32_t count;

	if (mfs_views_list(at->views, kind, &names, &count, &err)) {
		add_lack(l, at, kind->name, err.msg);
		return;
	}
	for (uint32_t i = 0; i < count; i++)
		add_dir(l, at->views->mtime_ns, names[i]);
}

static void list_files(struct listing *l, const struct mfs_place *at, const char *name,
		       const char *dir)
{
	struct mfs_view *view;
	struct mfs_error err;

	if (mfs_views_open(at->views, name, &view, &err)) {
		add_lack(l, at, name, err.msg);
		return;
	}
	if (dir)
		enter(l, at->views->mtime_ns, dir);
	add_files(l, view);
	if (dir)
		leave(l);
}

/* Lists a view of a model with its files. Other views may have many files, or take long to open:
 * only their names are listed, with specs as examples. */
static void list_kind(struct listing *l, const struct mfs_place *at,
		      const struct mfs_view_kind *kind, const char *name)
{
	if (kind->spec) {
		enter(l, at->views->mtime_ns, name);
		list_specs(l, at, kind);
		leave(l);
	} else if (kind->of == MFS_VIEW_OF_MODEL) {
		list_files(l, at, kind->name, name);
	} else {
		add_dir(l, at->views->mtime_ns, name);
	}
}

/* That it lacks is no failure. */
static bool may_lack(const struct mfs_view_kind *kind)
{
	return kind->is_extra || kind->by_option;
}

static bool all_may_lack(const struct mfs_place *at, const struct mfs_views_entry *e)
{
	for (unsigned i = e->first; i < e->end; i++)
		if (!may_lack(at->views->table->kinds[i]))
			return false;
	return true;
}

/* Lists a directory of views. */
static void list_group(struct listing *l, const struct mfs_place *at,
		       const struct mfs_views_entry *e)
{
	for (unsigned i = e->first; i < e->end; i++) {
		const struct mfs_view_kind *kind = at->views->table->kinds[i];

		if (!at->views->why_not[i])
			list_kind(l, at, kind, kind->name + strlen(e->name) + 1);
		else if (!may_lack(kind))
			add_lack(l, at, kind->name, at->views->why_not[i]);
	}
}

static void list_entry(struct listing *l, const struct mfs_place *at,
		       const struct mfs_views_entry *e)
{
	if (e->why_not) {
		if (!all_may_lack(at, e))
			add_lack(l, at, e->name, e->why_not);
	} else if (e->is_group) {
		enter(l, at->views->mtime_ns, e->name);
		list_group(l, at, e);
		leave(l);
	} else {
		list_kind(l, at, at->views->table->kinds[e->first], e->name);
	}
}

/* Lists what a mount shows of an iteration or a dataset. A reason that several entries share is
 * printed once. */
static void list_views(struct listing *l, const struct mfs_place *at)
{
	const char *printed = NULL;
	struct mfs_views_entry e;

	for (unsigned i = 0; mfs_views_entry(at->views, i, &e); i = e.end) {
		if (!e.why_not || e.why_not != printed)
			list_entry(l, at, &e);
		printed = e.why_not;
	}
	if (mfs_views_lacks(at->views))
		list_files(l, at, MFS_WHY_NOT_VIEW, NULL);
}

/* Lists a view, or a directory of views. */
static void list_named(struct listing *l, const struct mfs_place *at)
{
	const struct mfs_view_kind *kind;
	struct mfs_views_entry e;
	struct mfs_view *view;
	struct mfs_error err;
	const char *spec;

	for (unsigned i = 0; mfs_views_entry(at->views, i, &e); i = e.end)
		if (e.is_group && !strcmp(e.name, at->view)) {
			if (e.why_not)
				add_lack(l, at, e.name, e.why_not);
			else
				list_group(l, at, &e);
			return;
		}
	kind = mfs_view_kind_find(at->views->table, at->views->of, at->view, &spec);
	if (kind && kind->spec && !*spec)
		list_specs(l, at, kind);
	else if (mfs_views_open(at->views, at->view, &view, &err))
		add_problem(l, "", err.msg);
	else
		add_files(l, view);
}

/* ---- datasets ---- */

static void list_data(struct listing *l, const struct mfs_data *data)
{
	for (uint32_t i = 0; data && i < mfs_data_count(data); i++) {
		struct mfs_dataset *d = mfs_data_at(data, i);
		const struct mfs_place at = {.dataset = d, .views = mfs_dataset_views(d)};

		enter(l, mfs_dataset_mtime(d), mfs_dataset_name(d));
		list_views(l, &at);
		leave(l);
	}
}

static void list_all_data(struct listing *l)
{
	const struct mfs_data *data = mfs_root_data(l->root);
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

/* ---- everything ---- */

static void list_iteration(struct listing *l, struct mfs_iteration *it)
{
	const struct mfs_place at = {.iteration = it, .views = mfs_iteration_views(it)};

	if (mfs_iteration_reason(it))
		return;
	if (!mfs_root_has_iterations(l->root)) {
		list_views(l, &at);
		return;
	}
	enter(l, mfs_iteration_mtime(it), mfs_iteration_name(it));
	list_views(l, &at);
	leave(l);
}

static void list_latest(struct listing *l, const struct mfs_root_snapshot *s)
{
	char path[1024];

	if (s->latest) {
		const char *target = mfs_iteration_name(s->latest);

		add_entry(l, "lrwxrwxrwx", strlen(target), mfs_iteration_mtime(s->latest), "latest",
			  target);
		return;
	}
	snprintf(path, sizeof(path), "'%s' %s", mfs_root_source(l->root),
		 mfs_root_has_iterations(l->root) ? "has no latest iteration" : "cannot be shown");
	add_problem(l, path, s->latest_reason);
}

static void list_model(struct listing *l)
{
	const struct mfs_root_snapshot *s = mfs_root_snapshot(l->root);

	if (!mfs_root_has_model(l->root))
		return;
	if (s->latest && !mfs_root_has_iterations(l->root)) {
		list_iteration(l, s->latest);
		return;
	}
	list_latest(l, s);
	for (uint32_t i = 0; i < s->count && mfs_root_has_iterations(l->root); i++)
		list_iteration(l, s->iterations[i]);
}

static void list_place(struct listing *l, const struct mfs_place *place)
{
	struct mfs_ckpt *ckpt;
	struct mfs_error err;

	if (!place->views)
		list_data(l, mfs_root_data(l->root));
	else if (place->iteration && mfs_iteration_ckpt(place->iteration, &ckpt, &err))
		add_problem(l, "", err.msg);
	else if (*place->view)
		list_named(l, place);
	else
		list_views(l, place);
}

static void list(struct listing *l, const struct mfs_cmdline *c)
{
	struct mfs_place place;
	struct mfs_error err;

	if (mfs_root_open(c->arguments[0], &c->options.view, &l->root, &err)) {
		add_problem(l, "", err.msg);
		return;
	}
	if (!c->arguments[1]) {
		list_all_data(l);
		list_model(l);
	} else if (mfs_root_find(l->root, c->arguments[1], &place, &err)) {
		add_problem(l, "", err.msg);
	} else {
		list_place(l, &place);
	}
	mfs_root_free(l->root);
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
		.help = "Shows the tree that a mount of SOURCE would have, down to the Megatron\n"
			"views. With VIEW, it shows the files of that view, or why there is none.\n"
			"Of a directory of views it shows the usual ones. It opens no tensor.\n",
		.help_views = true,
		.help_end = "  --json   one JSON object: entries with path, type, mode, size and "
			    "mtime_ns\n",
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
