#include "formats/io/lock.h"

#include <errno.h>
#include <sys/file.h>

int mfs_lock_try(int fd, bool *ret_none)
{
	if (ret_none)
		*ret_none = false;
	if (!flock(fd, LOCK_EX | LOCK_NB))
		return 0;
	switch (errno) {
	case EWOULDBLOCK:
		return -EBUSY;
	case ENOSYS:
	case EOPNOTSUPP:
	case ENOLCK:
		if (ret_none)
			*ret_none = true;
		return 0;
	default:
		return -errno;
	}
}
