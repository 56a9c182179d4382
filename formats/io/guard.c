#include "formats/io/guard.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>

/* ThreadSanitizer blocks all signals in a handler, whatever its flags are. Only there the mask must
 * be restored, which costs a system call for each copy. */
#ifdef __SANITIZE_THREAD__
#define SAVE_MASK 1
#else
#define SAVE_MASK 0
#endif

/* Volatile: the compiler does not see that a copy may end in the handler, which reads this. */
static _Thread_local sigjmp_buf *volatile active;
static int install_result;
static struct sigaction before; /* who had the signal before: in a library, the program itself */

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
	if (active)
		siglongjmp(*active, 1);
	if (before.sa_flags & SA_SIGINFO)
		before.sa_sigaction(sig, info, context);
	else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
		before.sa_handler(sig);
	else
		/* Not ours: die as the default would, at the same instruction. */
		signal(sig, SIG_DFL);
}

static void install(void)
{
	/* SA_NODEFER: the handler leaves by siglongjmp, with no mask to restore. */
	struct sigaction sa = {.sa_sigaction = on_sigbus, .sa_flags = SA_NODEFER | SA_SIGINFO};

	sigemptyset(&sa.sa_mask);
	install_result = sigaction(SIGBUS, &sa, &before) ? -errno : 0;
}

int mfs_guard_install(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, install);
	return install_result;
}

int mfs_guard_run(void (*fn)(void *arg), void *arg)
{
	sigjmp_buf *outer = active, here;

	if (sigsetjmp(here, SAVE_MASK)) {
		active = outer;
		return -EIO;
	}
	active = &here;
	fn(arg);
	active = outer;
	return 0;
}

struct copy {
	void *to;
	const void *from;
	size_t len;
};

static void copy(void *arg)
{
	struct copy *c = arg;

	memcpy(c->to, c->from, c->len);
}

int mfs_guard_copy(void *to, const void *from, size_t len)
{
	struct copy c = {to, from, len};

	return mfs_guard_run(copy, &c);
}
