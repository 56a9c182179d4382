/* Floats as Python writes them (CPython: Python/pystrtod.c, float_repr_style "short"). */
#ifndef MFS_BASE_PYTHON_FLOAT_H
#define MFS_BASE_PYTHON_FLOAT_H

#define MFS_PYTHON_REPR_SIZE 32

/* repr(value) of a float, with "Infinity" and "NaN" as json has them: the fewest digits that read
 * back as value, of those the nearest to it. */
void mfs_python_repr(double value, char ret[MFS_PYTHON_REPR_SIZE]);

#endif
