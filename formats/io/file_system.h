/* Where the bytes of a file are, as its file system tells. */
#ifndef MFS_IO_FILE_SYSTEM_H
#define MFS_IO_FILE_SYSTEM_H

enum mfs_file_system_kind {
	MFS_FILE_SYSTEM_MEMORY,
	MFS_FILE_SYSTEM_REMOTE, /* on other machines, or given by a program: a read may take long */
	MFS_FILE_SYSTEM_DISK,
};

/* Of an open file or directory; MFS_FILE_SYSTEM_REMOTE if that is not known. It calls fstatfs(2),
 * which may ask another machine. */
enum mfs_file_system_kind mfs_file_system_of(int fd);

#endif
