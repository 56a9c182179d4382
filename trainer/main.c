/* mcorefs-train: the arguments of pretrain_gpt.py, run by one process. */
#include <stdio.h>

int main(int argc, char **argv)
{
	(void)argc;
	fprintf(stderr, "%s: not yet\n", argv[0]);
	return 1;
}
