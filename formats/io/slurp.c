#include "formats/io/slurp.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/io/regular.h"
#include "formats/io/whole.h"

int mfs_slurp(const char *path, size_t most, void **ret, size_t *ret_len, struct mfs_error *err)
{
	char *bytes = NULL;
	struct stat st;
	int fd, rc = mfs_open_regular(AT_FDCWD, path, 0, &fd, &st);

	if (rc)
		return mfs_fail(err, rc, "cannot open '%s': %s", path, mfs_open_regular_why(rc));
	if ((uint64_t)st.st_size > most)
		rc = mfs_fail(err, -EFBIG, "'%s' has %lld bytes, at most %zu are read", path,
			      (long long)st.st_size, most);
	else if (!(bytes = malloc((size_t)st.st_size + 1)))
		rc = mfs_fail_nomem(err);
	else if ((rc = mfs_pread_whole(fd, 0, bytes, (size_t)st.st_size)))
		mfs_error_set(err, rc, "cannot read '%s': %s", path, strerror(-rc));
	close(fd);
	if (rc) {
		free(bytes);
		return rc;
	}
	bytes[st.st_size] = '\0';
	*ret = bytes;
	*ret_len = (size_t)st.st_size;
	return 0;
}
