/*
 * lossy_link PID PID DELAY_MS LOSS_PERCENT MBIT SEED [FILE BYTES]: a link between the network
 * namespaces of two processes, for kernels without sch_netem. Each gets a TUN device "lossy". A
 * packet takes its turn at the rate, then the delay; some are lost, the same numbers for the same
 * seed. SIGUSR1: all are lost, and nobody is told; SIGHUP: the same, as soon as FILE has so many
 * bytes, however busy the machine is; SIGUSR2: as before. The devices go with the process.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SECOND	1000000000ll
#define PACKETS 512 /* on the way in one direction; more are lost, as at a full router */
#define BYTES	1500

struct packet {
	int64_t due;
	ssize_t len;
	char bytes[BYTES];
};

/* One direction. All packets take as long, so they leave in the order in which they came. */
struct wire {
	int from, to;
	int64_t idle; /* when the last packet will have been sent */
	unsigned first, count;
	struct packet packets[PACKETS];
};

static volatile sig_atomic_t is_cut, is_watched;
static const char *watched;
static off_t enough;

static void cut_or_join(int sig)
{
	is_cut = sig == SIGUSR1;
	is_watched = sig == SIGHUP;
}

static bool has_enough(void)
{
	struct stat st;

	return !stat(watched, &st) && st.st_size >= enough;
}

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * SECOND + t.tv_nsec;
}

static int device_of(const char *pid)
{
	struct ifreq request = {.ifr_name = "lossy", .ifr_flags = IFF_TUN | IFF_NO_PI};
	char path[64];
	int ns, tun;

	snprintf(path, sizeof(path), "/proc/%s/ns/net", pid);
	ns = open(path, O_RDONLY | O_CLOEXEC);
	if (ns < 0 || setns(ns, CLONE_NEWNET)) {
		perror(path);
		exit(1);
	}
	tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (tun < 0 || ioctl(tun, TUNSETIFF, &request)) {
		perror("/dev/net/tun");
		exit(1);
	}
	close(ns);
	return tun;
}

/* What came in. */
static void take(struct wire *w, int64_t delay, double loss, double bytes_a_second)
{
	static struct packet spare;
	struct packet *p;

	for (;;) {
		p = w->count < PACKETS ? &w->packets[(w->first + w->count) % PACKETS] : &spare;
		p->len = read(w->from, p->bytes, BYTES);
		if (p->len <= 0)
			return;
		if (p == &spare || is_cut || drand48() * 100 < loss)
			continue;
		if (w->idle < now())
			w->idle = now();
		w->idle += (int64_t)((double)p->len / bytes_a_second * SECOND);
		p->due = w->idle + delay;
		w->count++;
	}
}

/* What has arrived; returns the time of the next one. */
static int64_t deliver(struct wire *w, int64_t next)
{
	for (; w->count; w->count--, w->first = (w->first + 1) % PACKETS) {
		const struct packet *p = &w->packets[w->first];

		if (p->due > now())
			return p->due < next ? p->due : next;
		if (is_watched && has_enough())
			is_cut = true;
		/* A device that is down takes nothing. */
		if (!is_cut && write(w->to, p->bytes, (size_t)p->len) < 0 && errno != EIO)
			perror("lossy_link");
	}
	return next;
}

int main(int argc, char **argv)
{
	static struct wire wires[2];
	struct sigaction on_signal = {.sa_handler = cut_or_join};
	double loss, bytes_a_second;
	int64_t delay;

	if (argc != 7 && argc != 9)
		return 2;
	delay = atoi(argv[3]) * (SECOND / 1000);
	loss = atof(argv[4]);
	bytes_a_second = atof(argv[5]) * 1e6 / 8;
	srand48(atol(argv[6]));
	if (argc == 9) {
		watched = argv[7];
		enough = atol(argv[8]);
		sigaction(SIGHUP, &on_signal, NULL);
	}
	sigaction(SIGUSR1, &on_signal, NULL);
	sigaction(SIGUSR2, &on_signal, NULL);
	for (int i = 0; i < 2; i++)
		wires[i].from = wires[!i].to = device_of(argv[1 + i]);
	printf("ready\n");
	fflush(stdout);
	for (;;) {
		struct pollfd fds[2] = {{wires[0].from, POLLIN, 0}, {wires[1].from, POLLIN, 0}};
		int64_t next = now() + SECOND, rest;
		struct timespec wait;

		for (int i = 0; i < 2; i++) {
			take(&wires[i], delay, loss, bytes_a_second);
			next = deliver(&wires[i], next);
		}
		rest = next - now();
		rest = rest > 0 ? rest : 0;
		wait = (struct timespec){rest / SECOND, rest % SECOND};
		if (ppoll(fds, 2, &wait, NULL) < 0 && errno != EINTR) {
			perror("lossy_link");
			return 1;
		}
	}
}
