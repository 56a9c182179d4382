/* The release, of both programs. */
#ifndef MFS_BASE_VERSION_H
#define MFS_BASE_VERSION_H

#define MFS_VERSION "0.1.0"

#endif
