/*
 * late_listing DIR LINK: opens DIR, and after a line on stdin reads the link, then the listing that
 * was opened before, then the link again. Prints both targets, and how many names there were.
 */
#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

static void print_target(const char *link)
{
	char target[256];
	ssize_t n = readlink(link, target, sizeof(target) - 1);

	target[n > 0 ? n : 0] = '\0';
	printf("%s\n", target);
}

int main(int argc, char **argv)
{
	DIR *dir = argc == 3 ? opendir(argv[1]) : NULL;
	int names = 0;

	if (!dir)
		return 1;
	printf("opened\n");
	fflush(stdout);
	getchar();
	print_target(argv[2]);
	while (readdir(dir))
		names++;
	print_target(argv[2]);
	printf("%d names\n", names);
	closedir(dir);
	return 0;
}
