#ifndef MFS_FS_CLI_VERSION_H
#define MFS_FS_CLI_VERSION_H

#define MFS_VERSION "0.1.0"

#endif
