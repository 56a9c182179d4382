/* What a test asks of the library that stands in for cuFile (fake_cufile.c), by dlsym(). */
#ifndef MFS_TEST_GPU_FAKE_CUFILE_H
#define MFS_TEST_GPU_FAKE_CUFILE_H

#include <stddef.h>

struct fake_cufile_way {
	unsigned major;	       /* of nvidia-fs; 0: compatibility mode */
	unsigned file_systems; /* bits of those that take part */
	unsigned fails_at;     /* the number of the read that fails, from 1 on; 0: none */
	size_t most;	       /* bytes of a read */
};

struct fake_cufile_counts {
	unsigned starts, files, reads; /* files: that are registered now */
};

void fake_cufile_set(const struct fake_cufile_way *way);
struct fake_cufile_counts fake_cufile_tell(void);

#endif
