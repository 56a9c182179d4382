/*
 * case RESULT PROCESSOR_SECONDS CLOCK_SECONDS COMMAND...: runs a test case and writes to RESULT
 * what it took of the processors, in seconds: it and all that it has started, daemons too, which
 * become this process's children when their parents end.
 *
 * A busy machine makes a case longer and not dearer, so the first limit is one of processors; the
 * second one is for what hangs. The exit status is the case's, or 124 after a limit, which the last
 * line of the output names.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOOK_SECONDS   2  /* between two looks at what it has taken */
#define END_SECONDS    10 /* from being asked to end to being killed */
#define SETTLE_SECONDS 5  /* for daemons whose mounts are gone to end */

struct process {
	pid_t pid, parent;
	double seconds; /* of itself and of the children that it has waited for */
	bool ours;
};

struct processes {
	struct process *list;
	size_t count;
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double seconds_of(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

/* proc_pid_stat(5). A process that has just ended has no line. */
static bool read_process(const char *pid, struct process *p)
{
	char path[64], line[1024], *after_name;
	long long user, system, user_children, system_children;
	int parent;
	size_t len;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
	f = fopen(path, "re");
	if (!f)
		return false;
	len = fread(line, 1, sizeof(line) - 1, f);
	fclose(f);
	line[len] = '\0';
	after_name = strrchr(line, ')');
	if (!after_name || sscanf(after_name + 1,
				  " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lld %lld %lld %lld",
				  &parent, &user, &system, &user_children, &system_children) != 5)
		return false;
	p->pid = (pid_t)atoi(pid);
	p->parent = parent;
	p->seconds = (double)(user + system + user_children + system_children) /
		     (double)sysconf(_SC_CLK_TCK);
	p->ours = false;
	return true;
}

static struct processes read_processes(void)
{
	struct processes all = {0};
	DIR *dir = opendir("/proc");
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		struct process p, *more;

		if (entry->d_name[0] < '1' || entry->d_name[0] > '9' ||
		    !read_process(entry->d_name, &p))
			continue;
		more = realloc(all.list, (all.count + 1) * sizeof(*more));
		if (!more)
			break;
		all.list = more;
		all.list[all.count++] = p;
	}
	if (dir)
		closedir(dir);
	return all;
}

/* Those that descend from this process. */
static struct processes descendants(void)
{
	struct processes all = read_processes();
	bool more = true;

	while (more) {
		more = false;
		for (size_t i = 0; i < all.count; i++) {
			struct process *p = &all.list[i];
			bool ours = p->parent == getpid();

			for (size_t j = 0; !p->ours && !ours && j < all.count; j++)
				ours = all.list[j].ours && all.list[j].pid == p->parent;
			if (p->ours || !ours)
				continue;
			p->ours = true;
			more = true;
		}
	}
	return all;
}

/* What has ended and was waited for, and what still runs. */
static double taken(void)
{
	struct processes all = descendants();
	struct rusage ended;
	double sum;

	getrusage(RUSAGE_CHILDREN, &ended);
	sum = seconds_of(ended.ru_utime) + seconds_of(ended.ru_stime);
	for (size_t i = 0; i < all.count; i++)
		if (all.list[i].ours)
			sum += all.list[i].seconds;
	free(all.list);
	return sum;
}

static void kill_all(void)
{
	struct processes all = descendants();

	for (size_t i = 0; i < all.count; i++)
		if (all.list[i].ours)
			kill(all.list[i].pid, SIGKILL);
	free(all.list);
}

/* True while there are children. */
static bool reap(pid_t child, bool *ended, int *status)
{
	int how;
	pid_t pid;

	while ((pid = waitpid(-1, &how, WNOHANG)) > 0) {
		if (pid != child)
			continue;
		*ended = true;
		*status = how;
	}
	return pid == 0;
}

static pid_t start(char **command, const sigset_t *was)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	setpgid(0, 0);
	/* A shell's commands in the background ignore the first two; a case asks what they do. */
	signal(SIGINT, SIG_DFL);
	signal(SIGQUIT, SIG_DFL);
	signal(SIGHUP, SIG_DFL);
	sigprocmask(SIG_SETMASK, was, NULL);
	execvp(command[0], command);
	perror(command[0]);
	_exit(127);
}

/* Waits for the case's end, which comes after a limit at the latest. The exit status. */
static int run(pid_t child, const sigset_t *heeded, double processor, double clock)
{
	const double began = now();
	double looked = began, killed_at = 0;
	bool ended = false, limited = false;
	int status = 0;

	while (reap(child, &ended, &status), !ended) {
		const struct timespec look = {.tv_sec = LOOK_SECONDS};
		int sig = sigtimedwait(heeded, NULL, &look);

		if (sig == SIGCHLD)
			sig = -1;
		if (!killed_at && now() - looked > LOOK_SECONDS) {
			const double took = taken();

			looked = now();
			limited = took > processor || looked - began > clock;
			if (limited)
				printf("no end after %.0f s of the processors and %.0f s of the "
				       "clock (limits: %.0f and %.0f)\n",
				       took, looked - began, processor, clock);
			sig = limited ? SIGTERM : sig;
		}
		if (sig > 0) {
			kill(-child, sig);
			killed_at = now();
		}
		if (killed_at && now() - killed_at > END_SECONDS)
			kill_all();
	}
	/* What it started in sessions of its own has heard nothing. */
	if (killed_at)
		kill_all();
	if (limited)
		return 124;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Daemons end when their mounts do, a moment later. Who stays is .ci/run's matter. */
static void settle(const sigset_t *heeded)
{
	const struct timespec look = {.tv_nsec = 100000000};
	const double began = now();
	bool ended;
	int status;

	while (reap(0, &ended, &status) && now() - began < SETTLE_SECONDS)
		sigtimedwait(heeded, NULL, &look);
}

int main(int argc, char **argv)
{
	sigset_t heeded, was;
	pid_t child;
	FILE *result;
	int status;

	if (argc < 5) {
		fprintf(stderr, "usage: case RESULT PROCESSOR_SECONDS CLOCK_SECONDS COMMAND...\n");
		return EXIT_FAILURE;
	}
	sigemptyset(&heeded);
	sigaddset(&heeded, SIGCHLD);
	sigaddset(&heeded, SIGHUP);
	sigaddset(&heeded, SIGINT);
	sigaddset(&heeded, SIGTERM);
	sigprocmask(SIG_BLOCK, &heeded, &was);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	setvbuf(stdout, NULL, _IOLBF, 0);
	child = start(argv + 4, &was);
	if (child < 0) {
		perror("fork");
		return EXIT_FAILURE;
	}
	status = run(child, &heeded, atof(argv[2]), atof(argv[3]));
	settle(&heeded);
	result = fopen(argv[1], "we");
	if (!result || fprintf(result, "%.2f\n", taken()) < 0 || fclose(result)) {
		perror(argv[1]);
		return EXIT_FAILURE;
	}
	return status;
}
