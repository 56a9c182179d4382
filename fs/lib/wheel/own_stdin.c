/* For the library in the Python package: the code of Debian's libjansson.a expects variables of
 * others at a fixed distance. It looks at one, stdin, to name what json_loadf() reads; nothing here
 * reads that. */
#include <stdio.h>

#undef stdin
FILE *stdin;
