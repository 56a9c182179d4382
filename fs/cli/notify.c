#define _GNU_SOURCE
#include "fs/cli/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int find_address(struct sockaddr_un *ret, socklen_t *ret_len)
{
	const char *name = getenv("NOTIFY_SOCKET");
	size_t len = name ? strlen(name) : 0;

	if (!len)
		return -ENOENT;
	if ((*name != '/' && *name != '@') || len >= sizeof(ret->sun_path))
		return -EINVAL;
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(ret->sun_path, name, len);
	if (*name == '@')
		*ret->sun_path = '\0';
	*ret_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + (*name == '/'));
	return 0;
}

int mfs_notify(const char *lines)
{
	struct sockaddr_un to;
	socklen_t len;
	int fd, rc = find_address(&to, &len);

	if (rc)
		return rc;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (sendto(fd, lines, strlen(lines), MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&to,
		   len) < 0)
		rc = -errno;
	close(fd);
	return rc;
}

static uint64_t number(const char *name)
{
	const char *text = getenv(name);
	char *end;
	unsigned long long n;

	if (!text || *text < '0' || *text > '9')
		return 0;
	errno = 0;
	n = strtoull(text, &end, 10);
	return *end || errno ? 0 : n;
}

uint64_t mfs_notify_watchdog_us(void)
{
	/* They are inherited: who has another number is not meant. */
	if (getenv("WATCHDOG_PID") && number("WATCHDOG_PID") != (uint64_t)getpid())
		return 0;
	return number("WATCHDOG_USEC");
}
