/*
 * null_fs BYTES MOUNTPOINT: one file, "data", that answers every read from the same zeros. What is
 * left is the price of FUSE itself: no daemon on this machine can be faster.
 */
#define FUSE_USE_VERSION 35
#include <errno.h>
#include <fuse_lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static uint64_t size;
static char zeros[1 << 20];

static void fill(fuse_ino_t ino, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_ino = ino;
	st->st_mode = ino == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0444;
	st->st_nlink = 1;
	st->st_size = ino == FUSE_ROOT_ID ? 0 : (off_t)size;
}

static void null_init(void *data, struct fuse_conn_info *conn)
{
	(void)data;
	conn->max_readahead = 2 << 20;
	conn->max_background = 64;
}

static void null_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = {.ino = 2, .attr_timeout = 86400, .entry_timeout = 86400};

	if (parent != FUSE_ROOT_ID || strcmp(name, "data")) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	fill(2, &e.attr);
	fuse_reply_entry(req, &e);
}

static void null_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;

	(void)fi;
	fill(ino, &st);
	fuse_reply_attr(req, &st, 86400);
}

static void null_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	fi->keep_cache = 1;
	fuse_reply_open(req, fi);
}

static void null_read(fuse_req_t req, fuse_ino_t ino, size_t len, off_t off,
		      struct fuse_file_info *fi)
{
	(void)ino, (void)fi;
	if ((uint64_t)off >= size)
		len = 0;
	else if (len > size - (uint64_t)off)
		len = size - (uint64_t)off;
	fuse_reply_buf(req, zeros, len < sizeof(zeros) ? len : sizeof(zeros));
}

static const struct fuse_lowlevel_ops ops = {
	.init = null_init,
	.lookup = null_lookup,
	.getattr = null_getattr,
	.open = null_open,
	.read = null_read,
};

int main(int argc, char **argv)
{
	char *words[] = {argv[0], (char *)"-oro,fsname=null_fs", NULL};
	struct fuse_args args = FUSE_ARGS_INIT(2, words);
	struct fuse_loop_config config = {.max_idle_threads = 10};
	struct fuse_session *session;

	if (argc != 3)
		return EXIT_FAILURE;
	size = strtoull(argv[1], NULL, 0);
	session = fuse_session_new(&args, &ops, sizeof(ops), NULL);
	if (!session || fuse_set_signal_handlers(session) || fuse_session_mount(session, argv[2]))
		return EXIT_FAILURE;
	fuse_daemonize(0);
	fuse_session_loop_mt(session, &config);
	fuse_session_unmount(session);
	fuse_session_destroy(session);
	return EXIT_SUCCESS;
}
