/*
 * Lines on standard error about what a program does inside, for a person who looks for a fault in
 * it: MCOREFS_TRACE=plan,io. Reads of mapped and planned bytes are not traced. A kind that is
 * switched off costs the test of a bit for each line.
 */
#ifndef MFS_BASE_TRACE_H
#define MFS_BASE_TRACE_H

#include <stdbool.h>

#define MFS_TRACE_VARIABLE "MCOREFS_TRACE"

/* X(KIND, NAME, what it is about) */
#define MFS_TRACE_KINDS(X)                                                                         \
	X(PLAN, "plan", "plans of tensors, when they are built")                                   \
	X(IO, "io", "files that are mapped, and which engine reads")                               \
	X(REMOTE, "remote", "ranges of objects that are asked of servers")                         \
	X(PASS, "pass", "what the trainer submits of each microbatch")                             \
	X(NVTX, "nvtx", "no lines: the trainer's ranges for profilers")

#define MFS_TRACE_ENUM(kind, name, about) MFS_TRACE_NUMBER_##kind,
enum { MFS_TRACE_KINDS(MFS_TRACE_ENUM) MFS_TRACE_COUNT };

/* A bit for each kind that is on. Written by the next two alone. */
extern unsigned mfs_trace_on;

/* Takes the kinds from the environment, before there are threads. A line names each word that is
 * none, with those that there are. */
void mfs_trace_begin(void);
/* Switches one kind on or off, before there are threads: MFS_TRACE_NUMBER_kind. */
void mfs_trace_turn(unsigned number, bool on);

/* Writes a line, by one write(2). */
void mfs_trace_line(const char *kind, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Whether a kind is on, for those who have to compute what a line says. */
#define MFS_TRACES(kind) __builtin_expect(mfs_trace_on >> MFS_TRACE_NUMBER_##kind & 1, 0)

/* MFS_TRACE(IO, "%s", name): a line "trace: IO: NAME". */
#define MFS_TRACE(kind, ...)                                                                       \
	do {                                                                                       \
		if (MFS_TRACES(kind))                                                              \
			mfs_trace_line(#kind, __VA_ARGS__);                                        \
	} while (0)

#endif
