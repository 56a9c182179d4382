/* The readers of iterations' directories. The first one that a directory looks like reads it. */
#ifndef MFS_CKPT_READ_CKPT_READERS_H
#define MFS_CKPT_READ_CKPT_READERS_H

/* X(NAME, OPTIM): a file defines mfs_ckpt_reader_NAME (reader.h), and formats/optim/read has
 * mfs_optim_open_OPTIM(), which reads the optimizer with the model. */
#define MFS_CKPT_READERS(X)                                                                        \
	X(torch_dist, dist)                                                                        \
	X(nemo, dist)                                                                              \
	X(torch, legacy)                                                                           \
	X(dcp, dist)                                                                               \
	X(verl, dist)                                                                              \
	X(verl_dcp, dist)

#endif
