/*
 * seccomp(2): a list of system calls that nothing here makes once a mount stands, and that an
 * attacker who took the daemon over would make. A list of what is allowed would have to follow each
 * version of the C library. io_uring is on the list, because seccomp does not see its operations.
 * So are calls that change the owner, the mode, the times or other attributes of a file that is
 * merely open for reading: Landlock knows no right for these.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/fuse.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "fs/rights/rights_i.h"

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#endif

#define X32 0x40000000 /* numbers of x86's third interface begin here */

/* Newer than headers that this is built with; the numbers are those of all processors. */
#define CALL_FCHMODAT2	     452
#define CALL_SETXATTRAT	     463
#define CALL_REMOVEXATTRAT   466
#define CALL_OPEN_TREE_ATTR  467
#define CALL_FILE_SETATTR    469
#define TERMINAL_ATTRIBUTES2 0x802c542au /* TCGETS2, which newer C libraries ask */

#ifdef ARCH

static const int refused[] = {
	SYS_execve,
	SYS_execveat,
	SYS_ptrace,
	SYS_process_vm_readv,
	SYS_process_vm_writev,
	SYS_mount,
	SYS_umount2,
	SYS_pivot_root,
	SYS_chroot,
	SYS_open_tree,
	CALL_OPEN_TREE_ATTR,
	SYS_move_mount,
	SYS_mount_setattr,
	SYS_fsopen,
	SYS_fsconfig,
	SYS_fsmount,
	SYS_fspick,
	SYS_setns,
	SYS_unshare,
	SYS_init_module,
	SYS_finit_module,
	SYS_delete_module,
	SYS_kexec_load,
	SYS_bpf,
	SYS_perf_event_open,
	SYS_userfaultfd,
	SYS_io_uring_setup,
	SYS_io_uring_enter,
	SYS_io_uring_register,
	SYS_add_key,
	SYS_request_key,
	SYS_keyctl,
	SYS_reboot,
	SYS_swapon,
	SYS_swapoff,
	SYS_settimeofday,
	SYS_clock_settime,
	SYS_adjtimex,
	SYS_acct,
	SYS_quotactl,
	SYS_syslog,
	SYS_personality,
	SYS_open_by_handle_at,
	SYS_sethostname,
	SYS_setdomainname,
	SYS_pidfd_getfd,
	SYS_pidfd_send_signal,
	SYS_rt_sigqueueinfo,
	SYS_tkill,
	SYS_mknodat,
	SYS_truncate,
	SYS_fchmodat,
	CALL_FCHMODAT2,
	SYS_fchownat,
	SYS_setxattr,
	SYS_lsetxattr,
	SYS_fsetxattr,
	CALL_SETXATTRAT,
	SYS_removexattr,
	SYS_lremovexattr,
	SYS_fremovexattr,
	CALL_REMOVEXATTRAT,
	CALL_FILE_SETATTR,
#ifdef __x86_64__ /* the others have no such calls */
	SYS_mknod,
	SYS_chmod,
	SYS_chown,
	SYS_lchown,
	SYS_utime,
	SYS_utimes,
	SYS_futimesat,
#endif
};

/* Of what is open. */
static const int of_owners[] = {SYS_fchmod, SYS_fchown}, of_times[] = {SYS_utimensat};

#define NAMESPACES                                                                                 \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |             \
	 CLONE_NEWPID | CLONE_NEWNET)

struct program {
	struct sock_filter code[256]; /* half of them are used */
	unsigned short len;
};

static void add(struct program *p, unsigned short code, unsigned k, unsigned char yes,
		unsigned char no)
{
	p->code[p->len++] = (struct sock_filter){code, yes, no, k};
}

static void add_load(struct program *p, size_t offset)
{
	add(p, BPF_LD | BPF_W | BPF_ABS, (unsigned)offset, 0, 0);
}

static void add_answer(struct program *p, int code)
{
	add(p, BPF_RET | BPF_K, code ? SECCOMP_RET_ERRNO | (unsigned)code : SECCOMP_RET_ALLOW, 0,
	    0);
}

static void add_if_equal(struct program *p, unsigned value, unsigned char yes, unsigned char no)
{
	add(p, BPF_JMP | BPF_JEQ | BPF_K, value, yes, no);
}

static void refuse(struct program *p, int call, int code)
{
	add_if_equal(p, (unsigned)call, 0, 1);
	add_answer(p, code);
}

static void refuse_all(struct program *p, const int *calls, size_t count)
{
	for (size_t i = 0; i < count; i++)
		refuse(p, calls[i], EPERM);
}

/* The lower half of an argument; processors with another order are none of ours. */
static size_t argument(unsigned i)
{
	return offsetof(struct seccomp_data, args) + 8 * i;
}

/* The call is allowed with one of count values as its argument i, of which it takes 32 bits. */
static void allow_with(struct program *p, int call, unsigned i, const unsigned *values,
		       unsigned char count)
{
	add_if_equal(p, (unsigned)call, 0, (unsigned char)(count + 3));
	add_load(p, argument(i));
	for (unsigned char v = 0; v < count; v++)
		add_if_equal(p, values[v], count - v, 0);
	add_answer(p, EPERM);
	add_answer(p, 0);
}

/* Threads and processes are started, but not in namespaces of their own. clone3(2) has its flags in
 * memory, where no filter looks: the C library falls back on clone(2). CLONE_NEWTIME is for clone3
 * and unshare(2) alone. */
static void limit_clone(struct program *p)
{
	refuse(p, SYS_clone3, ENOSYS);
	add_if_equal(p, SYS_clone, 0, 4);
	add_load(p, argument(0));
	add(p, BPF_JMP | BPF_JSET | BPF_K, NAMESPACES, 0, 1);
	add_answer(p, EPERM);
	add_answer(p, 0);
}

/* Times of what is open; with a name it would be any file's. */
static void limit_times(struct program *p)
{
	add_if_equal(p, SYS_utimensat, 0, 6);
	add_load(p, argument(1));
	add_if_equal(p, 0, 0, 2);
	add_load(p, argument(1) + 4);
	add_if_equal(p, 0, 1, 0);
	add_answer(p, EPERM);
	add_answer(p, 0);
}

static void write_program(struct program *p, struct mfs_rights_changes changes)
{
	/* A thread's own /dev/fuse; what stdio asks of its files. Others set attributes of files,
	 * or type on the terminal. */
	static const unsigned requests[] = {FUSE_DEV_IOC_CLONE, TCGETS, TERMINAL_ATTRIBUTES2};
	const unsigned self = (unsigned)getpid();

	add_load(p, offsetof(struct seccomp_data, arch));
	add_if_equal(p, ARCH, 1, 0);
	add_answer(p, EPERM);
	add_load(p, offsetof(struct seccomp_data, nr));
	add(p, BPF_JMP | BPF_JGE | BPF_K, X32, 0, 1);
	add_answer(p, EPERM);
	refuse_all(p, refused, MFS_ARRAY_SIZE(refused));
	if (!changes.owners)
		refuse_all(p, of_owners, MFS_ARRAY_SIZE(of_owners));
	if (!changes.times)
		refuse_all(p, of_times, MFS_ARRAY_SIZE(of_times));
	limit_clone(p);
	limit_times(p);
	allow_with(p, SYS_ioctl, 1, requests, MFS_ARRAY_SIZE(requests));
	allow_with(p, SYS_kill, 0, &self, 1);
	allow_with(p, SYS_tgkill, 0, &self, 1);
	allow_with(p, SYS_rt_tgsigqueueinfo, 0, &self, 1);
	add_answer(p, 0);
}

int mfs_rights_limit_calls(struct mfs_rights_changes changes, struct mfs_error *err)
{
	struct program p = {.len = 0};
	struct sock_fprog program = {.filter = p.code};

	write_program(&p, changes);
	program.len = p.len;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0)
		       ? mfs_fail_errno(err, "seccomp")
		       : 0;
}

#else

int mfs_rights_limit_calls(struct mfs_rights_changes changes, struct mfs_error *err)
{
	(void)changes;
	return mfs_fail(err, -ENOSYS, "seccomp is not known for this processor");
}

#endif
