#include <stdio.h>
#include <string.h>

#include "fs/cmdline.h"
#include "fs/commands.h"
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
		print_entry(file_mode(view->mode, mode), mfs_vfile_size(view->files[i].data),
			    view->mtime_ns, indent, view->files[i].name, "");
}

/* What the mount shows of an iteration: its hf directory, if the model can be mapped. */
static int print_iteration(struct mfs_iteration *it)
{
	struct mfs_view *view = NULL;
	struct mfs_error err;
	int64_t mtime = mfs_iteration_mtime(it);

	print_entry("dr-xr-xr-x", 0, mtime, 0, mfs_iteration_name(it), "/");
	if (mfs_iteration_hf(it, &view, &err)) {
		fflush(stdout);
		return mfs_command_failed("%s: %s", mfs_iteration_name(it), err.msg);
	}
	print_entry("dr-xr-xr-x", 0, mtime, 2, "hf", "/");
	print_view(view, 4);
	return MFS_EXIT_OK;
}

static int print_tree(struct mfs_root *root)
{
	const struct mfs_root_snapshot *s = mfs_root_snapshot(root);
	int exit_code = MFS_EXIT_OK;

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

static int list(const struct mfs_cmdline *c)
{
	struct mfs_root *root = NULL;
	struct mfs_view *view = NULL;
	struct mfs_error err;
	int exit_code = MFS_EXIT_OK;

	if (mfs_root_open(c->arguments[0], &c->options.view, &root, &err))
		return mfs_command_failed("%s", err.msg);
	if (!c->arguments[1])
		exit_code = print_tree(root);
	else if (mfs_root_view(root, c->arguments[1], &view, NULL, &err))
		exit_code = mfs_command_failed("%s", err.msg);
	else
		print_view(view, 0);
	mfs_root_free(root);
	return exit_code;
}

int mfs_cmd_ls(int argc, char **argv)
{
	struct mfs_cmdline c = {
		.usage = "ls SOURCE [VIEW] [-o OPTIONS]",
		.help = "Shows the tree that a mount of SOURCE would have. With VIEW (hf, latest/hf,\n"
			"iter_0000040/hf), the files of that view. Opens no tensor.\n",
		.min = 1,
		.max = 2,
	};
	int exit_code;

	if (mfs_cmdline_parse(&c, argc, argv, &exit_code))
		exit_code = list(&c);
	return mfs_cmdline_end(&c, exit_code);
}
