/* The program: which command is meant. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/io/guard.h"
#include "formats/model/model.h"
#include "fs/commands.h"
#include "fs/daemon.h"
#include "fs/fuse_session.h"
#include "fs/version.h"

static int print_help(int argc, char **argv);
static int print_version(int argc, char **argv);

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} commands[] = {
	{"inspect", mfs_cmd_inspect}, {"ls", mfs_cmd_ls},     {"verify", mfs_cmd_verify},
	{"export", mfs_cmd_export},   {"diff", mfs_cmd_diff}, {"pack", mfs_cmd_pack},
	{"sample", mfs_cmd_sample},   {"--help", print_help}, {"-h", print_help},
	{"--version", print_version}, {"-V", print_version},
};

static const char help[] =
	"mcorefs shows a Megatron-LM checkpoint as a HuggingFace model directory, and\n"
	"either of them as a Megatron checkpoint at any layout; and Megatron's indexed\n"
	"datasets as HuggingFace datasets, and these as indexed datasets.\n"
	"\n"
	"  mcorefs SOURCE MOUNTPOINT [-o OPT,...] [-f] [-d] [-s]      mount it\n"
	"  mcorefs inspect SOURCE [--json]         what it is, and what is missing\n"
	"  mcorefs ls SOURCE [VIEW]                the files, without mounting\n"
	"  mcorefs verify SOURCE [VIEW] [--deep]   every tensor found; --deep: all bytes\n"
	"  mcorefs export SOURCE VIEW DEST         write a view out (resumable)\n"
	"  mcorefs diff SOURCE SOURCE              what differs, whatever the layouts\n"
	"  mcorefs sample SOURCE --step N          the batch of a training step\n"
	"  mcorefs pack PREFIX < IDS               token ids into PREFIX.bin and .idx\n"
	"\n"
	"SOURCE: a checkpoint root, one iter_* directory, a HuggingFace directory, or a\n"
	"dataset: a prefix of .idx and .bin, a directory of them, a saved HF dataset.\n"
	"VIEW: hf, megatron/torch/tp2-pp4, megatron/torch_dist, iter_0000040/hf, ...;\n"
	"data/NAME/hf, parquet, npy, jsonl, megatron, samples/train-s4096, cache/s4096\n"
	"\n"
	"  -o ref=DIR          HF directory with config, tokenizer, chat template\n"
	"  -o arch=FAMILY      of: %s\n"
	"  -o vocab_size=N     true size of a padded vocabulary; or: tokenizer\n"
	"  -o shard_size=SIZE  of model-*.safetensors, as in 5GB (default), 512MiB\n"
	"  -o spec=local|te    modules' names in Megatron views; default: the source's\n"
	"  -o no_optim         Megatron views without the optimizer\n"
	"  -o data=PATH        datasets beside the model; any number of times\n"
	"  -o merge=NAME       all indexed datasets, in sorted order, as one\n"
	"  -o split=99/1/0     as Megatron's --split\n"
	"  -o data_path=WORDS  a blend, as Megatron's --data-path; see man mcorefs\n"
	"  -o dataset_cache=DIR  takes the files that `datasets` writes\n"
	"  -o allow_other      let other users in, by the permissions of SOURCE\n"
	"  -f  stay in the foreground    -s  one thread    -d  debug messages, with -f\n"
	"\n"
	"End: umount MOUNTPOINT, or fusermount3 -u MOUNTPOINT; see also man mcorefs.\n";

static int print_help(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	printf(help, mfs_family_names());
	return MFS_EXIT_OK;
}

static int print_version(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	printf("mcorefs %s (libfuse %s)\n", MFS_VERSION, mfs_session_library());
	return MFS_EXIT_OK;
}

/* A first word that names nothing on disk was meant as a command or an option. */
static int check_first_word(const char *word)
{
	struct stat st;

	if (*word == '-' && word[1] == '-' && word[2])
		return mfs_usage_error("unknown option '%s'", word);
	if (*word != '-' && !strchr(word, '/') && lstat(word, &st))
		return mfs_usage_error("'%s' is neither a command nor a directory", word);
	return MFS_EXIT_OK;
}

int main(int argc, char **argv)
{
	int code;

	mfs_daemon_open_stdio();
	mfs_daemon_raise_limits();
	mfs_guard_install();
	if (argc < 2)
		return mfs_usage_error("SOURCE and MOUNTPOINT are missing");
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
		if (!strcmp(argv[1], commands[i].name))
			return commands[i].run(argc - 1, argv + 1);
	}
	code = check_first_word(argv[1]);
	return code ? code : mfs_cmd_mount(argc, argv);
}
