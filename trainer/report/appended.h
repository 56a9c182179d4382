/* A new file that grows by whole records: what cannot be written is cut off again. */
#ifndef MFT_TRAINER_REPORT_APPENDED_H
#define MFT_TRAINER_REPORT_APPENDED_H

#include <sys/types.h>

#include "formats/base/buf.h"
#include "formats/base/error.h"

struct mft_appended {
	int fd;
	char *path;
	off_t end;		/* of what is written */
	struct mfs_buf records; /* kept in memory until the next flush */
};

/* A file of its own in dir, or in the directory `below` in it. They are made if they are not there;
 * dir may be a link, and what is in it may not. Its name begins with prefix and ends
 * with suffix. -errno. Close it also if it could not be opened. */
int mft_appended_open(struct mft_appended *a, const char *dir, const char *below,
		      const char *prefix, const char *suffix, struct mfs_error *err);
/* Writes the records that are kept. -errno: they are lost, and the file still ends with whole
 * records. */
int mft_appended_flush(struct mft_appended *a, struct mfs_error *err);
void mft_appended_close(struct mft_appended *a);

#endif
