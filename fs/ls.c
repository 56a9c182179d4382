#include <stdio.h>
#include <string.h>

#include "fs/cmdline.h"
#include "fs/commands.h"
#include "fs/data.h"
#include "fs/keeper.h"
#include "fs/root.h"
#include "fs/text.h"

/* A read-only file or directory as ls -l would show it. */
static void print_entry(const char *kind, uint64_t size, int64_t mtime_ns, int indent,
			const char *name, const char *suffix)
{
	char when[MFS_HUMAN];

	printf("%s  %15llu  %-19s  %*s%s%s\n", kind, (unsigned long long)size,
	       mfs_human_time(mtime_ns, when), indent, "", name, suffix);
}

static const char *file_mode(unsigned mode, char text[11])
{
	for (int i = 0; i < 9; i++)
		text[i + 1] = mode & (0400u >> i) ? "rwx"[i % 3] : '-';
	text[0] = '-';
	text[10] = '\0';
	return text;
}

static void print_view(const struct mfs_view *view, int indent)
{
	char mode[11];

	for (uint32_t i = 0; i < view->count; i++)
		print_entry(file_mode(mfs_access_told(&view->access).mode, mode),
			    mfs_vfile_size(view->files[i].data), view->mtime_ns, indent,
			    view->files[i].name, "");
}

static void print_dir(int64_t mtime_ns, int indent, const char *name)
{
	print_entry("dr-xr-xr-x", 0, mtime_ns, indent, name, "/");
}

static void print_directory(const struct mfs_iteration *it, int indent, const char *name)
{
	print_dir(mfs_iteration_mtime(it), indent, name);
}

/* An HF directory is named by what is in it alone, as in the mount. */
static int failed(const struct mfs_iteration *it, const char *what, const char *why)
{
	const bool below = strcmp(mfs_iteration_format(it), "hf");

	mfs_print_flush();
	return mfs_command_failed("%s%s%s: %s", below ? mfs_iteration_name(it) : "",
				  below ? "/" : "", what, why);
}

static int print_hf(struct mfs_iteration *it, int indent)
{
	struct mfs_view *view = NULL;
	struct mfs_held *held;
	struct mfs_error err;

	if (mfs_iteration_hold_view(it, "hf", &held, &view, &err))
		return failed(it, "hf", err.msg);
	print_directory(it, indent, "hf");
	print_view(view, indent + 2);
	mfs_keeper_drop(held);
	return MFS_EXIT_OK;
}

static int print_layouts(struct mfs_iteration *it, int indent)
{
	const char *const *names;
	struct mfs_error err;
	uint32_t count;

	if (mfs_iteration_layouts(it, &names, &count, &err))
		return failed(it, "megatron/torch", err.msg);
	for (uint32_t i = 0; i < count; i++)
		print_directory(it, indent, names[i]);
	return MFS_EXIT_OK;
}

static int print_megatron(struct mfs_iteration *it, int indent)
{
	int exit_code;

	print_directory(it, indent, "torch");
	exit_code = print_layouts(it, indent + 2);
	print_directory(it, indent, "torch_dist");
	return exit_code;
}

static void print_why_not(struct mfs_iteration *it, int indent)
{
	struct mfs_view *view;
	struct mfs_error err;

	if (mfs_iteration_view(it, MFS_WHY_NOT_VIEW, &view, &err))
		failed(it, MFS_WHY_NOT_FILE, err.msg);
	else
		print_view(view, indent);
}

/* What the mount shows of an iteration: the files of hf, if the model can be mapped, and the names of
 * the Megatron views, whose files are many. */
static int print_views(struct mfs_iteration *it, int indent)
{
	const struct mfs_why_not *lacking = mfs_iteration_why_not(it);
	int exit_code = print_hf(it, indent);

	if (lacking->megatron) {
		exit_code = failed(it, "megatron", lacking->megatron);
	} else {
		print_directory(it, indent, "megatron");
		if (print_megatron(it, indent + 2))
			exit_code = MFS_EXIT_FAILED;
	}
	if (lacking->hf || lacking->megatron)
		print_why_not(it, indent);
	return exit_code;
}

static int print_iteration(struct mfs_iteration *it)
{
	print_directory(it, 0, mfs_iteration_name(it));
	return print_views(it, 2);
}

/* ---- datasets ---- */

static int print_specs(struct mfs_dataset *d, const char *dir, int indent)
{
	const char *const *names;
	struct mfs_error err;
	uint32_t count;

	if (mfs_dataset_list(d, dir, &names, &count, &err)) {
		mfs_print_flush();
		return mfs_command_failed("data/%s/%s: %s", mfs_dataset_name(d), dir, err.msg);
	}
	for (uint32_t i = 0; i < count; i++)
		print_dir(mfs_dataset_mtime(d), indent, names[i]);
	return MFS_EXIT_OK;
}

/* The names of its views, whose files may be many, and specs as examples. */
static int print_dataset(struct mfs_dataset *d, int indent)
{
	const struct mfs_dataset_entry *e;
	int exit_code = MFS_EXIT_OK;

	for (unsigned i = 0; (e = mfs_dataset_entry(d, i)); i++) {
		print_dir(mfs_dataset_mtime(d), indent, e->name);
		if (e->specs && print_specs(d, e->name, indent + 2))
			exit_code = MFS_EXIT_FAILED;
	}
	return exit_code;
}

static int print_data(const struct mfs_data *data, int indent)
{
	int exit_code = MFS_EXIT_OK;

	for (uint32_t i = 0; data && i < mfs_data_count(data); i++) {
		struct mfs_dataset *d = mfs_data_at(data, i);

		print_dir(mfs_dataset_mtime(d), indent, mfs_dataset_name(d));
		if (print_dataset(d, indent + 2))
			exit_code = MFS_EXIT_FAILED;
	}
	return exit_code;
}

static int print_all_data(const struct mfs_root *root)
{
	const struct mfs_data *data = mfs_root_data(root);
	int64_t newest = 0;

	if (!data)
		return MFS_EXIT_OK;
	for (uint32_t i = 0; i < mfs_data_count(data); i++)
		if (mfs_dataset_mtime(mfs_data_at(data, i)) > newest)
			newest = mfs_dataset_mtime(mfs_data_at(data, i));
	print_dir(newest, 0, "data");
	return print_data(data, 2);
}

static int print_data_place(const struct mfs_root *root, const struct mfs_place *place)
{
	struct mfs_dataset *d = place->dataset;
	const struct mfs_dataset_entry *e;
	struct mfs_view *view = NULL;
	struct mfs_error err;

	if (!d)
		return print_data(mfs_root_data(root), 0);
	if (!*place->view)
		return print_dataset(d, 0);
	for (unsigned i = 0; (e = mfs_dataset_entry(d, i)); i++)
		if (e->specs && !strcmp(e->name, place->view))
			return print_specs(d, e->name, 0);
	if (mfs_dataset_view(d, place->view, &view, &err))
		return mfs_command_failed("%s", err.msg);
	print_view(view, 0);
	return MFS_EXIT_OK;
}

/* ---- everything ---- */

static int print_model(struct mfs_root *root)
{
	const struct mfs_root_snapshot *s = mfs_root_snapshot(root);
	int exit_code = MFS_EXIT_OK;

	if (!mfs_root_has_model(root))
		return MFS_EXIT_OK;
	if (!mfs_root_has_iterations(root))
		return s->latest ? print_views(s->latest, 0)
				 : mfs_command_failed("'%s' cannot be shown: %s",
						      mfs_root_source(root), s->latest_reason);
	if (s->latest) {
		const char *target = mfs_iteration_name(s->latest);

		print_entry("lrwxrwxrwx", strlen(target), mfs_iteration_mtime(s->latest), 0,
			    "latest -> ", target);
	} else {
		exit_code = mfs_command_failed("'%s' has no latest iteration: %s",
					       mfs_root_source(root), s->latest_reason);
	}
	for (uint32_t i = 0; i < s->count; i++)
		if (!mfs_iteration_reason(s->iterations[i]) && print_iteration(s->iterations[i]))
			exit_code = MFS_EXIT_FAILED;
	return exit_code;
}

static int print_tree(struct mfs_root *root)
{
	int exit_code = print_all_data(root);

	return print_model(root) ? MFS_EXIT_FAILED : exit_code;
}

static int print_place(const struct mfs_root *root, const struct mfs_place *place)
{
	struct mfs_view *view = NULL;
	struct mfs_ckpt *ckpt;
	struct mfs_error err;

	if (!place->iteration)
		return print_data_place(root, place);
	if (mfs_iteration_ckpt(place->iteration, &ckpt, &err))
		return mfs_command_failed("%s", err.msg);
	if (!*place->view)
		return print_views(place->iteration, 0);
	if (!strcmp(place->view, "megatron"))
		return print_megatron(place->iteration, 0);
	if (!strcmp(place->view, "megatron/torch"))
		return print_layouts(place->iteration, 0);
	if (mfs_iteration_view(place->iteration, place->view, &view, &err))
		return mfs_command_failed("%s", err.msg);
	print_view(view, 0);
	return MFS_EXIT_OK;
}

static int list(const struct mfs_cmdline *c)
{
	struct mfs_root *root = NULL;
	struct mfs_place place;
	struct mfs_error err;
	int exit_code = MFS_EXIT_OK;

	if (mfs_root_open(c->arguments[0], &c->options.view, &root, &err))
		return mfs_command_failed("%s", err.msg);
	if (!c->arguments[1])
		exit_code = print_tree(root);
	else if (mfs_root_find(root, c->arguments[1], &place, &err))
		exit_code = mfs_command_failed("%s", err.msg);
	else
		exit_code = print_place(root, &place);
	mfs_root_free(root);
	return exit_code;
}

int mfs_cmd_ls(int argc, char **argv)
{
	struct mfs_cmdline c = {
		.usage = "ls SOURCE [VIEW] [-o OPTIONS]",
		.help = "Shows the tree that a mount of SOURCE would have, down to the Megatron views.\n"
			"With VIEW, the files of that view, or why there is none. Opens no tensor.\n"
			"\n" MFS_VIEW_HELP "  megatron/torch           (ls alone) common layouts\n",
		.min = 1,
		.max = 2,
	};
	int exit_code;

	if (mfs_cmdline_parse(&c, argc, argv, &exit_code))
		exit_code = list(&c);
	return mfs_cmdline_end(&c, exit_code);
}
