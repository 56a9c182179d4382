/*
 * A tool for NVTX, as a profiler brings one along: NVTX_INJECTION64_PATH names this shared object,
 * and the program that pushes ranges loads it. It appends the path of each range, as the range
 * begins, to $NVTX_TOOL_LOG.PID: the names of all that are open in its thread, from the outermost
 * on. The last line says how many were left open, of all threads; a pop that ends nothing, and a
 * tree that is too deep, have lines of their own.
 *
 * What NVTX asks of a tool: NVTX's header nvtxDetail/nvtxTypes.h.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEEPEST		16
#define CALLBACKS_TABLE 1
#define CORE_MODULE	1
#define PUSH_A		9 /* numbers of the core module's calls */
#define POP		11

typedef void (*call_fn)(void);

struct callbacks {
	size_t size;
	int (*table)(int module, call_fn ***ret_table, unsigned *ret_size);
};

static FILE *out;
static atomic_int left;
static _Thread_local char path[DEEPEST * 128];
static _Thread_local size_t starts[DEEPEST]; /* of each open range's name in path */
static _Thread_local int depth;

static int push(const char *name)
{
	const size_t at = strlen(path);

	if (depth == DEEPEST) {
		fprintf(out, "too deep: %s\n", path);
		return -1;
	}
	starts[depth] = at;
	snprintf(path + at, sizeof(path) - at, "%s%s", depth ? "/" : "", name);
	fprintf(out, "%s\n", path);
	left++;
	return depth++;
}

static int pop(void)
{
	if (!depth) {
		fprintf(out, "a pop of nothing\n");
		return -1;
	}
	left--;
	path[starts[--depth]] = '\0';
	return depth;
}

static void end(void)
{
	fprintf(out, "left open: %d\n", left);
	fclose(out);
}

/* Returns 1: the tool is ready. 0: NVTX goes on without it. */
__attribute__((visibility("default"))) int
InitializeInjectionNvtx2(const void *(*export_table)(uint32_t id))
{
	const struct callbacks *callbacks = export_table(CALLBACKS_TABLE);
	const char *log = getenv("NVTX_TOOL_LOG");
	char name[512];
	call_fn **calls;
	unsigned count;

	if (!callbacks || !log || !callbacks->table(CORE_MODULE, &calls, &count) || count <= POP)
		return 0;
	snprintf(name, sizeof(name), "%s.%d", log, (int)getpid());
	out = fopen(name, "w");
	if (!out)
		return 0;
	*calls[PUSH_A] = (call_fn)push;
	*calls[POP] = (call_fn)pop;
	atexit(end);
	return 1;
}
