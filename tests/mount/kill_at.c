/*
 * kill_at [-SIGNAL] N COMMAND...: runs it, and kills it before the N-th of its system calls that
 * change files: what a crash may leave, at every place there is. With the number of another signal
 * it gets that one there, and goes on. The exit status is 137 if it was killed, 125 if processes
 * cannot be traced here, else the command's own. Of what its first thread does.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static bool changes_files(const struct __ptrace_syscall_info *info)
{
	switch (info->entry.nr) {
	case SYS_openat:
		return info->entry.args[2] & O_CREAT;
	case SYS_write:
	case SYS_pwrite64:
	case SYS_ftruncate:
	case SYS_fsync:
	case SYS_fdatasync:
	case SYS_sync_file_range:
	case SYS_mkdirat:
#ifdef SYS_mkdir
	case SYS_mkdir:
	case SYS_rmdir:
	case SYS_rename:
#endif
#ifdef SYS_renameat
	case SYS_renameat:
#endif
	case SYS_renameat2:
	case SYS_unlinkat:
		return true;
	default:
		return false;
	}
}

/* At a stop before or after a system call. */
static bool at_change(pid_t pid)
{
	struct __ptrace_syscall_info info;

	if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) <= 0)
		exit(125);
	return info.op == PTRACE_SYSCALL_INFO_ENTRY && changes_files(&info);
}

static int end_now(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return 128 + SIGKILL;
}

static int follow(pid_t pid, long left, int signal)
{
	int status, deliver = 0;

	for (;;) {
		if (ptrace(PTRACE_SYSCALL, pid, NULL, deliver) || waitpid(pid, &status, 0) < 0)
			return 125;
		if (WIFEXITED(status))
			return WEXITSTATUS(status);
		if (WIFSIGNALED(status))
			return 128 + WTERMSIG(status);
		deliver = 0;
		if (WSTOPSIG(status) != (SIGTRAP | 0x80))
			deliver = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
		else if (at_change(pid) && !--left) {
			if (signal == SIGKILL)
				return end_now(pid);
			kill(pid, signal);
		}
	}
}

int main(int argc, char **argv)
{
	int status, signal = SIGKILL;
	pid_t pid;

	if (argc > 1 && argv[1][0] == '-') {
		signal = atoi(argv[1] + 1);
		argv++;
		argc--;
	}
	pid = argc > 2 ? fork() : -1;
	if (!pid) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(125);
		raise(SIGSTOP);
		execvp(argv[2], argv + 2);
		_exit(125);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFSTOPPED(status) ||
	    ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL))
		return 125;
	return follow(pid, strtol(argv[1], NULL, 10), signal);
}
