/* A service manager's end of sd_notify(3): notified NAME prints each datagram as a line, newlines
 * as blanks. NAME: a path, or "@name" for an abstract one. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

int main(int argc, char **argv)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	char text[8192];
	socklen_t len;
	ssize_t n;

	if (argc != 2 || fd < 0 || strlen(argv[1]) >= sizeof(at.sun_path))
		return 2;
	strcpy(at.sun_path, argv[1]);
	len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(argv[1]) +
			  (*argv[1] != '@'));
	if (*argv[1] == '@')
		*at.sun_path = '\0';
	if (bind(fd, (struct sockaddr *)&at, len))
		return 1;
	while ((n = recv(fd, text, sizeof(text) - 1, 0)) >= 0) {
		text[n] = '\0';
		for (char *p = text; *p; p++)
			if (*p == '\n')
				*p = ' ';
		puts(text);
		fflush(stdout);
	}
	return 0;
}
