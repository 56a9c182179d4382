#include "fs/diff/diff.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/optim/rules/settings.h"
#include "fs/cli/cmdline.h"
#include "fs/cli/commands.h"
#include "fs/diff/command.h"

#define LISTED 20 /* tensors, unless -n says otherwise */

/* Exit codes, as of diff(1) and cmp(1). */
enum { EQUAL = 0, DIFFERENT = 1, TROUBLE = 2 };

struct command {
	struct mfs_diff diff;
	bool json, quiet, optim; /* optim: asked for */
	uint64_t limit;
};

static int trouble(const struct mfs_error *err)
{
	mfs_command_failed("%s", err->msg);
	return TROUBLE;
}

/* ---- opening ---- */

/* Reads iteration and step from the state. */
static void look_at_state(struct mfs_diff_side *s)
{
	const struct mfs_ckpt_common *state = mfs_ckpt_common(s->ckpt);
	const struct mfs_optim_info *info = mfs_optim_info(s->ckpt);

	if (state)
		mfs_value_int(state->archive.doc,
			      mfs_value_get(state->archive.doc, state->root, "iteration"),
			      &s->number);
	if (info && info->kind != MFS_OPTIM_NONE && info->has_step)
		s->step = info->step;
}

/* Opens the checkpoint with its optimizer. If that cannot be read, why is set and the model alone
 * is opened. */
static int open_ckpt(struct mfs_diff_side *s, bool no_optim, struct mfs_error *err)
{
	struct mfs_error why;
	int rc;

	if (s->is_hf || no_optim)
		return mfs_iteration_ckpt(s->iteration, &s->ckpt, err);
	rc = mfs_iteration_full_ckpt(s->iteration, &s->ckpt, &why);
	if (rc) {
		snprintf(s->why, sizeof(s->why), "%s", why.msg);
		return mfs_iteration_ckpt(s->iteration, &s->ckpt, err);
	}
	s->has_optimizer = mfs_ckpt_count_all(s->ckpt) > mfs_ckpt_count(s->ckpt);
	look_at_state(s);
	return 0;
}

static int open_side(struct mfs_diff_side *s, const char *path,
		     const struct mfs_view_options *options, struct mfs_error *err)
{
	const struct mfs_root_snapshot *snapshot;
	int rc;

	s->path = path;
	s->number = -1;
	s->step = -1;
	rc = mfs_root_open(path, options, &s->root, err);
	if (rc)
		return rc;
	if (!mfs_root_has_model(s->root))
		return mfs_fail(err, -ENODATA, "'%s' holds datasets; diff compares models", path);
	snapshot = mfs_root_snapshot(s->root);
	if (!snapshot->latest)
		return mfs_fail(err, -ENODATA, "'%s' has no latest iteration: %s", path,
				snapshot->latest_reason);
	s->iteration = snapshot->latest;
	s->is_hf = !mfs_root_has_iterations(s->root);
	return open_ckpt(s, options->no_optim, err);
}

/* Optimizers are compared if both sides have one. */
static int settle_optimizer(struct command *c, const struct mfs_view_options *options,
			    struct mfs_error *err)
{
	struct mfs_diff *d = &c->diff;
	int rc = 0;

	d->optimizer = d->sides[0].has_optimizer && d->sides[1].has_optimizer;
	for (int i = 0; i < 2 && !rc; i++) {
		const struct mfs_diff_side *s = &d->sides[i], *other = &d->sides[!i];

		if (s->has_optimizer || options->no_optim)
			continue;
		if (c->optim)
			return mfs_fail(err, -ENODATA, "'%s' %s%s", s->path,
					*s->why ? "has no optimizer that can be read: "
						: "has no optimizer",
					s->why);
		if (*s->why)
			rc = mfs_diff_note(d, "the optimizers were not compared: %s", s->why);
		else if (other->has_optimizer)
			rc = mfs_diff_note(
				d, "%c has no optimizer: the weights alone were compared", "AB"[i]);
	}
	return rc ? mfs_fail_nomem(err) : 0;
}

/* ---- the whole ---- */

static int compare(struct command *c, const struct mfs_cmdline *line, struct mfs_error *err)
{
	struct mfs_view_options options = line->options.view;
	struct mfs_diff *d = &c->diff;
	int rc = 0;

	options.base_of_either = true;
	for (int i = 0; i < 2 && !rc; i++)
		rc = open_side(&d->sides[i], line->arguments[i], &options, err);
	if (!rc)
		rc = settle_optimizer(c, &line->options.view, err);
	if (!rc)
		rc = mfs_diff_arguments(d, err);
	if (!rc)
		rc = mfs_diff_pair_up(d, err);
	if (rc)
		return rc;
	mfs_diff_count(d);
	/* With --quiet a difference found so far decides the exit code. */
	if (!c->quiet || !mfs_diff_any(d))
		rc = mfs_diff_compare(d, c->quiet, err);
	d->only_a = d->only_b = d->different = d->equal = 0;
	mfs_diff_count(d);
	return rc;
}

static int run(struct command *c, const struct mfs_cmdline *line)
{
	struct mfs_diff *d = &c->diff;
	struct mfs_error err;
	int status;

	if (line->options.view.no_optim && c->optim) {
		mfs_usage_error("--optim and -o no_optim contradict each other");
		return TROUBLE;
	}
	if (compare(c, line, &err)) {
		status = trouble(&err);
	} else {
		status = mfs_diff_any(d) ? DIFFERENT : EQUAL;
		if (c->json && mfs_diff_print_json(d, c->limit)) {
			mfs_command_failed("out of memory");
			status = TROUBLE;
		}
		if (!c->json && !c->quiet)
			mfs_diff_print(d, c->limit);
	}
	for (int i = 0; i < 2; i++)
		mfs_root_free(d->sides[i].root);
	free(d->pairs);
	mfs_arena_release(&d->arena);
	return status;
}

int mfs_cmd_diff(int argc, char **argv)
{
	struct command c = {.limit = LISTED};
	struct mfs_cmdline line = {
		.usage = "diff A B [-q] [-n N] [--optim] [--json] [-o OPTIONS]",
		.help = "Compares two models tensor by tensor, whatever their formats and\n"
			"layouts. Each is a checkpoint root (its latest iteration), one iteration\n"
			"or a HuggingFace directory. Optimizers are compared where both have one;\n"
			"-o no_optim leaves them out. The exit status is 0 if the models are\n"
			"equal, 1 if not, 2 if they could not be compared.\n"
			"\n"
			"  -q, --quiet   say nothing; the exit status tells\n"
			"  -n N          list at most N tensors of each kind (20)\n"
			"  --optim       fail unless both have an optimizer\n"
			"  --json        for programs\n",
		.min = 2,
		.max = 2,
		.switches = {{"quiet", &c.quiet}, {"json", &c.json}, {"optim", &c.optim}},
		.letters = "q",
		.number = &c.limit,
		.number_letter = 'n',
	};
	int status;

	if (mfs_cmdline_parse(&line, argc, argv, &status))
		status = run(&c, &line);
	mfs_options_release(&line.options);
	return mfs_print_end(status, TROUBLE);
}
