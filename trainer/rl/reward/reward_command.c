/*
 * Rewards of a program, which is started once: a line of JSON for each response goes in, and a line
 * with its reward comes out, in their order.
 *
 * It may answer each line at once, or read many first: it is written to and read from at the same
 * time, so that neither side waits for the other for ever.
 *
 * A run that is killed kills nobody. So a guard stands in the program's group of processes: it
 * reads a pipe that the run holds open, and kills the group when that ends.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "trainer/rl/reward/reward_i.h"

#define LINE_MAX_BYTES (1 << 20) /* of an answer */
#define GUARD_FD       3

/* $0 is the command. The guard is no child of it, and holds nothing of it open. */
static const char with_guard[] = "( ( read -r end; kill -KILL 0 ) <&3 >/dev/null 2>&1 & )\n"
				 "exec /bin/sh -c \"$0\" 3<&-";

extern char **environ;

struct command {
	pid_t pid;   /* 0: it is not there */
	int in, out; /* its input, a socket, which gives no SIGPIPE; its output; -1: closed */
	int alive;   /* the guard's pipe, which ends with the run */
	char *key;   /* NULL: none is given */
	double seconds;
	struct mfs_buf got; /* of its output, not yet taken */
};

struct round {
	struct command *c;
	const struct mft_reward_row *rows;
	double *ret;
	size_t count, sent, answered; /* rows */
	struct mfs_buf text;	      /* of row sent - 1 */
	size_t at;		      /* bytes of it that it has */
	int64_t end;		      /* ns: of the time for the next answer */
};

/* ---- the process ---- */

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void close_command(void *self)
{
	struct command *c = self;

	close_fd(&c->in);
	close_fd(&c->out);
	if (c->pid) {
		kill(-c->pid, SIGKILL);
		waitpid(c->pid, NULL, 0);
	}
	close_fd(&c->alive);
	mfs_buf_release(&c->got);
	free(c->key);
	free(c);
}

/* A group of its own, so that all that the shell starts ends with it; no signal is blocked or
 * ignored there. */
static int set_attributes(posix_spawnattr_t *a)
{
	sigset_t none, all;
	int rc;

	sigemptyset(&none);
	sigfillset(&all);
	rc = posix_spawnattr_setpgroup(a, 0);
	if (!rc)
		rc = posix_spawnattr_setsigmask(a, &none);
	if (!rc)
		rc = posix_spawnattr_setsigdefault(a, &all);
	if (!rc)
		rc = posix_spawnattr_setflags(a, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
							 POSIX_SPAWN_SETSIGDEF);
	return rc;
}

/* Of the program: its input, its output, and the guard's pipe. */
struct ends {
	int in, out, guard;
};

static int set_files(posix_spawn_file_actions_t *files, const struct ends *e)
{
	int rc = posix_spawn_file_actions_adddup2(files, e->in, STDIN_FILENO);

	if (!rc)
		rc = posix_spawn_file_actions_adddup2(files, e->out, STDOUT_FILENO);
	return rc ? rc : posix_spawn_file_actions_adddup2(files, e->guard, GUARD_FD);
}

static int spawn(struct command *c, const char *text, const struct ends *e)
{
	char *const argv[] = {"sh", "-c", (char *)(uintptr_t)with_guard, (char *)(uintptr_t)text,
			      NULL};
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attributes;
	int rc = posix_spawn_file_actions_init(&files);

	if (rc)
		return rc;
	rc = posix_spawnattr_init(&attributes);
	if (!rc) {
		rc = set_files(&files, e);
		if (!rc)
			rc = set_attributes(&attributes);
		if (!rc)
			rc = posix_spawn(&c->pid, "/bin/sh", &files, &attributes, argv, environ);
		if (rc)
			c->pid = 0;
		posix_spawnattr_destroy(&attributes);
	}
	posix_spawn_file_actions_destroy(&files);
	return rc;
}

/* Opens both sides. What fails is left to close_ends() and close_command(). */
static int open_ends(struct command *c, struct ends *e)
{
	int in[2], out[2], alive[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in))
		return errno;
	c->in = in[0];
	e->in = in[1];
	if (pipe2(out, O_CLOEXEC))
		return errno;
	c->out = out[0];
	e->out = out[1];
	if (pipe2(alive, O_CLOEXEC))
		return errno;
	e->guard = alive[0];
	c->alive = alive[1];
	return fcntl(c->in, F_SETFL, O_NONBLOCK) || fcntl(c->out, F_SETFL, O_NONBLOCK) ? errno : 0;
}

static void close_ends(struct ends *e)
{
	close_fd(&e->in);
	close_fd(&e->out);
	close_fd(&e->guard);
}

static int start(struct command *c, const char *text, struct mfs_error *err)
{
	struct ends e = {-1, -1, -1};
	int rc = open_ends(c, &e);

	if (!rc)
		rc = spawn(c, text, &e);
	close_ends(&e);
	return rc ? mfs_fail(err, -rc, "--rl-reward-command: '%s': %s", text, strerror(rc)) : 0;
}

static int open_command(const struct mft_reward_config *config, void **ret, struct mfs_error *err)
{
	struct command *c;
	int rc;

	if (!config->command)
		return mfs_fail(err, -EINVAL, "--rl-reward command: expected --rl-reward-command");
	c = calloc(1, sizeof(*c));
	if (!c)
		return mfs_fail_nomem(err);
	c->in = c->out = c->alive = -1;
	c->seconds = config->seconds;
	c->key = config->key ? strdup(config->key) : NULL;
	rc = config->key && !c->key ? mfs_fail_nomem(err) : start(c, config->command, err);
	if (rc)
		close_command(c);
	else
		*ret = c;
	return rc;
}

/* ---- its input ---- */

static int next_row(struct round *r, struct mfs_error *err)
{
	r->text.len = 0;
	r->at = 0;
	mft_reward_add_row(&r->text, &r->rows[r->sent++]);
	mfs_buf_adds(&r->text, "\n");
	return r->text.failed ? mfs_fail_nomem(err) : 0;
}

/* Writes as much as there is room for. One that does not listen any more may still answer, or have
 * ended, which its output tells. */
static int write_some(struct round *r, struct mfs_error *err)
{
	int rc = 0;

	while (!rc && (r->at < r->text.len || r->sent < r->count)) {
		ssize_t n;

		if (r->at == r->text.len)
			rc = next_row(r, err);
		if (rc)
			break;
		n = send(r->c->in, r->text.data + r->at, r->text.len - r->at, MSG_NOSIGNAL);
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0 && errno != EINTR)
			close_fd(&r->c->in);
		if (r->c->in < 0)
			break;
		r->at += n > 0 ? (size_t)n : 0;
	}
	return rc;
}

/* ---- its output ---- */

static int take_line(struct round *r, const char *line, size_t len, struct mfs_error *err)
{
	json_t *answer;
	int rc;

	if (r->answered == r->sent)
		return mfs_fail(err, -EPROTO,
				"it has written more lines than it was asked for: %.*s",
				(int)(len < 40 ? len : 40), line);
	answer = json_loadb(line, len, JSON_DECODE_ANY, NULL);
	rc = mft_reward_add_answer(answer, r->c->key, &r->ret[r->answered], err);
	json_decref(answer);
	if (rc)
		return mfs_fail_in(err, "response %zu, its answer '%.*s'", r->answered,
				   (int)(len < 40 ? len : 40), line);
	r->answered++;
	r->end = mfs_now_ns() + (int64_t)(r->c->seconds * 1e9);
	return 0;
}

static int take_lines(struct round *r, struct mfs_error *err)
{
	struct mfs_buf *got = &r->c->got;
	size_t at = 0;
	const char *end;
	int rc = 0;

	while (!rc && at < got->len && (end = memchr(got->data + at, '\n', got->len - at))) {
		const size_t len = (size_t)(end - got->data) - at;

		rc = take_line(r, got->data + at, len, err);
		at += len + 1;
	}
	if (at)
		memmove(got->data, got->data + at, got->len - at);
	got->len -= at;
	if (!rc && got->len > LINE_MAX_BYTES)
		rc = mfs_fail(err, -EPROTO, "response %zu: its answer has more than %d bytes",
			      r->answered, LINE_MAX_BYTES);
	return rc;
}

/* What the process ended with, in a sentence. It may have closed its output alone. */
static int ended(struct round *r, struct mfs_error *err)
{
	int status = 0;
	pid_t pid;

	kill(-r->c->pid, SIGKILL);
	pid = waitpid(r->c->pid, &status, 0);
	r->c->pid = 0;
	if (pid > 0 && WIFSIGNALED(status))
		return mfs_fail(err, -EIO, "it has ended after %zu of %zu answers, by signal %d",
				r->answered, r->count, WTERMSIG(status));
	return mfs_fail(err, -EIO, "it has ended after %zu of %zu answers, with status %d",
			r->answered, r->count, WEXITSTATUS(status));
}

/* Reads what there is, and takes it. */
static int read_some(struct round *r, struct mfs_error *err)
{
	char bytes[65536];
	ssize_t n;
	int rc = 0;

	while (!rc && (n = read(r->c->out, bytes, sizeof(bytes))) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN
				       ? 0
				       : mfs_fail(err, -EIO, "its output: %s", strerror(errno));
		mfs_buf_add(&r->c->got, bytes, (size_t)n);
		rc = r->c->got.failed ? mfs_fail_nomem(err) : take_lines(r, err);
	}
	return rc || r->answered == r->count ? rc : ended(r, err);
}

/* ---- a rollout ---- */

static int wait_for(struct round *r, struct mfs_error *err)
{
	struct pollfd fds[] = {{.fd = r->c->out, .events = POLLIN},
			       {.fd = r->c->in, .events = POLLOUT}};
	const int64_t left = r->end - mfs_now_ns();

	if (left <= 0)
		return mfs_fail(err, -ETIMEDOUT,
				"it has answered %zu of %zu, and then for %g seconds none: "
				"--rl-reward-seconds",
				r->answered, r->count, r->c->seconds);
	if (r->at == r->text.len && r->sent == r->count)
		fds[1].fd = -1;
	poll(fds, 2, (int)(left / 1000000 < 60000 ? left / 1000000 + 1 : 60000));
	return 0;
}

static int score_command(void *self, const struct mft_reward_row *rows, size_t count, double *ret,
			 struct mfs_error *err)
{
	struct round r = {.c = self, .rows = rows, .ret = ret, .count = count};
	int rc;

	if (!r.c->pid)
		return mfs_fail(err, -EIO, "it has ended");
	r.end = mfs_now_ns() + (int64_t)(r.c->seconds * 1e9);
	/* Before it is asked, it has nothing to say. */
	rc = count ? read_some(&r, err) : 0;
	while (!rc && r.answered < r.count) {
		if (r.c->in >= 0)
			rc = write_some(&r, err);
		rc = rc ? rc : wait_for(&r, err);
		rc = rc ? rc : read_some(&r, err);
	}
	if (!rc && r.c->got.len)
		rc = mfs_fail(err, -EPROTO, "it has written more than it was asked for");
	mfs_buf_release(&r.text);
	return rc;
}

const struct mft_reward_kind mft_reward_command = {
	.name = "command", .open = open_command, .close = close_command, .score = score_command};
