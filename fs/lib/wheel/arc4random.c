/* For the library in the Python package: expat seeds its hash table with arc4random_buf(), which
 * glibc has since 2.36. With this one the package needs no glibc newer than what else it calls. */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

void arc4random_buf(void *buf, size_t len);

/* As glibc's: it has no way to fail. */
void arc4random_buf(void *buf, size_t len)
{
	char *to = buf;

	while (len) {
		ssize_t n = getrandom(to, len, 0);

		if (n < 0 && errno != EINTR)
			abort();
		if (n > 0) {
			to += n;
			len -= (size_t)n;
		}
	}
}
