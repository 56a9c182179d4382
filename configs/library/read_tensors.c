/*
 * Reads tensors of a checkpoint without a mount, and writes their bytes to standard output.
 *
 *   cc read_tensors.c -o read_tensors $(pkg-config --cflags --libs mcorefs)
 *   ./read_tensors /runs/llama hf > all             each tensor, in the order of the files
 *   ./read_tensors /runs/llama hf lm_head.weight    this one
 *
 * C, and C++.
 */
#include <mcorefs.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(const struct mcorefs_error *err)
{
	fprintf(stderr, "read_tensors: %s\n", err->text);
	return 1;
}

/* Tensors [first, end), into one piece of memory, in one pass over the source. */
static int load(struct mcorefs_view *view, size_t first, size_t end)
{
	struct mcorefs_box *boxes = (struct mcorefs_box *)calloc(end - first, sizeof(*boxes));
	struct mcorefs_load *work = NULL;
	struct mcorefs_tensor tensor;
	struct mcorefs_error err;
	uint64_t size = 0, at = 0;
	char *memory = NULL;
	int failed = !boxes;

	for (size_t i = first; !failed && i < end; i++) {
		failed = mcorefs_tensor(view, i, &tensor, &err) && fail(&err);
		size += failed ? 0 : tensor.bytes;
	}
	if (!failed)
		memory = (char *)malloc(size ? size : 1);
	for (size_t i = first; !failed && memory && i < end; i++) {
		failed = mcorefs_tensor(view, i, &tensor, &err) && fail(&err);
		boxes[i - first].tensor = i;
		boxes[i - first].to = memory + at;
		boxes[i - first].room = tensor.bytes;
		at += tensor.bytes;
	}
	if (!failed && memory)
		failed = (mcorefs_load_start(view, boxes, end - first, NULL, &work, &err) ||
			  mcorefs_load_wait(work, &err)) &&
			 fail(&err);
	mcorefs_load_free(work);
	if (!failed)
		failed = !memory || fwrite(memory, 1, size, stdout) != size;
	free(memory);
	free(boxes);
	return failed;
}

static int load_named(struct mcorefs_view *view, const char *name)
{
	struct mcorefs_error err;
	size_t count, tensor;

	if (name)
		return mcorefs_tensor_find(view, name, &tensor, &err)
			       ? fail(&err)
			       : load(view, tensor, tensor + 1);
	return mcorefs_tensor_count(view, &count, &err) ? fail(&err) : load(view, 0, count);
}

int main(int argc, char **argv)
{
	struct mcorefs_source *source = NULL;
	struct mcorefs_view *view = NULL;
	struct mcorefs_error err;
	int failed;

	if (argc < 3 || argc > 4) {
		fprintf(stderr, "usage: read_tensors SOURCE VIEW [TENSOR]\n");
		return 2;
	}
	failed = (mcorefs_open(argv[1], NULL, &source, &err) ||
		  mcorefs_view_open(source, argv[2], &view, &err)) &&
		 fail(&err);
	if (!failed)
		failed = load_named(view, argv[3]);
	mcorefs_view_close(view);
	mcorefs_close(source);
	return failed;
}
