/*
 * posix_only COMMAND...: runs it as on a file system that can what POSIX asks for and no more, as
 * those of clusters are: no locks, no exchange of names, no claims of space, no nameless files, no
 * extended attributes.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "formats/base/array.h"

#define TMPFILE 020000000 /* O_TMPFILE without O_DIRECTORY, which is in it */

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define FAIL(error) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))
#define ALLOW	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
/* That call, always. */
#define REFUSE(call, error) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), FAIL(error)
/* That call, if an argument has a bit. */
#define REFUSE_BIT(call, argument, bit, error)                                                     \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4), LOAD(args[argument]),                     \
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bit, 0, 1), FAIL(error), ALLOW

int main(int argc, char **argv)
{
	struct sock_filter filter[] = {
		LOAD(nr),
		REFUSE(SYS_flock, ENOSYS),
		REFUSE(SYS_fallocate, EOPNOTSUPP),
		REFUSE(SYS_fsetxattr, EOPNOTSUPP),
		REFUSE(SYS_fgetxattr, EOPNOTSUPP),
		REFUSE_BIT(SYS_renameat2, 4, RENAME_EXCHANGE | RENAME_NOREPLACE, EINVAL),
		REFUSE_BIT(SYS_openat, 2, TMPFILE, EOPNOTSUPP),
		ALLOW,
	};
	struct sock_fprog program = {MFS_ARRAY_SIZE(filter), filter};

	if (argc < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
		perror("posix_only");
		return 125;
	}
	execvp(argv[1], argv + 1);
	perror(argv[1]);
	return 125;
}
