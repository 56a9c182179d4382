/* The program: which command is meant. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/array.h"
#include "formats/base/nearest.h"
#include "formats/base/trace.h"
#include "formats/base/version.h"
#include "formats/io/guard.h"
#include "fs/cli/commands.h"
#include "fs/cli/stop.h"
#include "fs/delta/command.h"
#include "fs/diff/command.h"
#include "fs/export/command.h"
#include "fs/extents/command.h"
#include "fs/families/command.h"
#include "fs/fsck/command.h"
#include "fs/gateway/command.h"
#include "fs/inspect/command.h"
#include "fs/mount/command.h"
#include "fs/daemon/daemon.h"
#include "fs/prefetch/fetcher.h"
#include "fs/fuse/session.h"
#include "fs/mount/helper.h"
#include "fs/daemon/unmounter.h"
#include "fs/daemon/watchdog.h"
#include "fs/pack/command.h"
#include "fs/sample/command.h"
#include "fs/stub/command.h"
#include "fs/sum/command.h"
#include "fs/verify/command.h"

static int print_help(int argc, char **argv);
static int print_version(int argc, char **argv);

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} commands[] = {
	{"inspect", mfs_cmd_inspect},
	{"ls", mfs_cmd_ls},
	{"verify", mfs_cmd_verify},
	{"export", mfs_cmd_export},
	{"diff", mfs_cmd_diff},
	{"delta", mfs_cmd_delta},
	{"families", mfs_cmd_families},
	{"extents", mfs_cmd_extents},
	{"mounts", mfs_cmd_mounts},
	{"umount", mfs_cmd_umount},
	{"fsck", mfs_cmd_fsck},
	{"pack", mfs_cmd_pack},
	{"sample", mfs_cmd_sample},
	{"serve", mfs_cmd_serve},
	{"stub", mfs_cmd_stub},
	{"sum", mfs_cmd_sum},
	{"--help", print_help},
	{"-h", print_help},
	{"--version", print_version},
	{"-V", print_version},
	{MFS_FETCHER_COMMAND, mfs_fetcher_main},
	{MFS_WATCHDOG_COMMAND, mfs_watchdog_main},
	{MFS_UNMOUNTER_COMMAND, mfs_unmounter_main},
};

static const char help[] =
	"mcorefs shows Megatron-LM checkpoints and datasets as HuggingFace directories,\n"
	"and these as Megatron checkpoints and datasets. See man mcorefs for all.\n"
	"\n"
	"  mcorefs SOURCE MOUNTPOINT [-o OPT,...] [-f] [-d] [-s]      mount it\n"
	"  mcorefs mounts | mcorefs umount MOUNTPOINT    what is mounted; end a mount\n"
	"  mcorefs inspect SOURCE [--json]         what it is, and what is missing\n"
	"  mcorefs ls | mcorefs extents SOURCE [VIEW]   its files; where bytes lie\n"
	"  mcorefs verify SOURCE [VIEW] [--deep]   nothing missing; --deep: all bytes\n"
	"  mcorefs export SOURCE VIEW DEST         write a view out (resumable)\n"
	"  mcorefs serve SOURCE... --listen ADDR   over HTTP, as a HuggingFace Hub\n"
	"  mcorefs stub SOURCE DIR                 a path for engines that read SOURCE\n"
	"  mcorefs diff A B | mcorefs delta A B OUT     what differs; as engines pull it\n"
	"  mcorefs families | mcorefs fsck PATH    models it knows; what pickles import\n"
	"  mcorefs sum SOURCE                      SHA-256 of each tensor, at any layout\n"
	"  mcorefs sample SOURCE --step N          the batch of a training step\n"
	"  mcorefs pack PREFIX < IDS               token ids into PREFIX.bin and .idx\n"
	"\n"
	"SOURCE: a checkpoint root, an iter_* directory, a HuggingFace model, deltas, or\n"
	"the URL (https, s3) of one; a prefix of .idx and .bin, save_to_disk; a directory\n"
	"of any. VIEW: hf, hf-fp16, raw, megatron/torch/tp2-pp4, megatron/torch_dist; of\n"
	"data/NAME/: hf, parquet, npy, jsonl, text, megatron, samples/..., cache/s4096\n"
	"  -o ref=DIR, adapter=DIR, arch=FAMILY, family=FILE, vocab_size=N, no_optim\n"
	"  -o data=PATH, merge=NAME, split=99/1/0, data_path=WORDS, dataset_cache=DIR\n"
	"  -o base=SOURCE, part=language, spec=te, shard_size=5GB, allow_other  -f -d -s\n";

static int print_help(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	fputs(help, stdout);
	return mfs_print_end(MFS_EXIT_OK, MFS_EXIT_FAILED);
}

static int print_version(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	printf("mcorefs %s (libfuse %s)\n", MFS_VERSION, mfs_session_library());
	return mfs_print_end(MFS_EXIT_OK, MFS_EXIT_FAILED);
}

/* A file or directory, or the prefix of a dataset's files. */
static bool is_on_disk(const char *word)
{
	char idx[PATH_MAX];
	struct stat st;

	if (!lstat(word, &st))
		return true;
	return snprintf(idx, sizeof(idx), "%s.idx", word) < (int)sizeof(idx) && !lstat(idx, &st);
}

/* A first word that names nothing on disk was meant as a command or an option. */
static int check_first_word(const char *word)
{
	struct mfs_nearest near = {.word = word};
	char hint[MFS_NEAREST_HINT];

	for (size_t i = 0; i < MFS_ARRAY_SIZE(commands); i++)
		mfs_nearest_try(&near, commands[i].name);
	mfs_nearest_hint(&near, "", hint);
	if (*word == '-' && word[1] == '-' && word[2])
		return mfs_usage_error("unknown option '%s'%s", word, hint);
	if (*word != '-' && !strchr(word, '/') && !is_on_disk(word))
		return mfs_usage_error("'%s' is neither a command nor a source%s", word, hint);
	return MFS_EXIT_OK;
}

int main(int argc, char **argv)
{
	int code;

	mfs_daemon_open_stdio();
	mfs_trace_begin();
	mfs_daemon_raise_limits();
	mfs_guard_install();
	if (argc < 2)
		return mfs_usage_error("SOURCE and MOUNTPOINT are missing");
	/* Like a mount, and unlike commands, it leaves signals to libfuse. */
	if (!strcmp(argv[1], MFS_HELPER_COMMAND))
		return mfs_helper_main(argc - 1, argv + 1);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(commands); i++) {
		if (strcmp(argv[1], commands[i].name))
			continue;
		mfs_usage_of(*argv[1] == '-' ? NULL : argv[1]);
		mfs_stop_at_once(); /* unless the command has something to put in order first */
		return commands[i].run(argc - 1, argv + 1);
	}
	code = check_first_word(argv[1]);
	return code ? code : mfs_cmd_mount(argc, argv);
}
