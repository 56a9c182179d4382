"""Compares a log of Megatron-LM with a fixture's loss.csv: compare_loss.py LOG LOSS_CSV [--first 21] [--tolerance 0.001]

The second row that Megatron prints after a start is the mean of its first two losses, which is taken into account.
Prints the largest differences of `lm loss` and `grad norm`; fails if an iteration is missing, if the data or the learning rate is another one, if
Megatron could not load what it wanted, or if a loss is further from loss.csv than the tolerance.
"""
import argparse
import csv
import re
import sys

LINE = re.compile(r"iteration +(\d+)/.*consumed samples: +(\d+).*learning rate: ([0-9.E+-]+).*lm loss: ([0-9.E+-]+|nan).*grad norm: ([0-9.]+|nan)")
COMPLAINTS = ("load_return:", "could not load the checkpoint", "will not load any checkpoints", "Unable to load", "could not find arguments",
              "Unable to restore")  # Megatron goes on, or ends with status 0, after each of these


def read_log(text):
    """{iteration: (consumed samples, learning rate, loss, grad norm)}"""
    rows = {}
    for line in text.splitlines():
        found = LINE.search(line)
        if found:
            rows[int(found[1])] = (int(found[2]), float(found[3]), float(found[4]), float(found[5]))
    return rows


def read_csv(path):
    with open(path, newline="") as file:
        return {int(row["iteration"]): (int(row["consumed_samples"]), float(row["learning_rate"]), float(row["lm_loss"]),
                                        float(row["grad_norm"])) for row in csv.DictReader(file)}


def compare(text, path, first=21, tolerance=None):
    """(one line about the differences, list of problems)"""
    mine, wanted = read_log(text), {k: v for k, v in read_csv(path).items() if k >= first}
    problems = [line.strip()[:300] for line in text.splitlines() if any(word in line for word in COMPLAINTS)]
    missing = sorted(set(wanted) - set(mine))
    if missing:
        problems.append(f"iterations missing: {missing[0]}..{missing[-1]}")
    if min(mine, default=first) < first:
        problems.append(f"the log begins at iteration {min(mine)}, not {first}: not resumed")
    both = sorted(set(wanted) & set(mine))
    for column, name in enumerate(("consumed samples", "learning rate")):
        wrong = [i for i in both if mine[i][column] != wanted[i][column]]
        if wrong:
            problems.append(f"{name} of iteration {wrong[0]}: {mine[wrong[0]][column]}, not {wanted[wrong[0]][column]}")
    if not both:
        return "nothing to compare", problems
    loss = {i: round(abs(mine[i][2] - wanted[i][2]), 7) for i in both}
    norm = {i: abs(mine[i][3] - wanted[i][3]) for i in both}
    second = first + 1
    if first in wanted and second in loss:
        loss[second] = round(abs(mine[second][2] - (wanted[first][2] + wanted[second][2]) / 2), 7)
    worst = max(both, key=lambda i: loss[i] if loss[i] == loss[i] else float("inf"))
    if tolerance is not None and not loss[worst] <= tolerance:
        problems.append(f"loss of iteration {worst}: {mine[worst][2]}, not {wanted[worst][2]}")
    relative = max(loss[i] / wanted[i][2] for i in both)
    equal = sum(loss[i] <= 1e-6 for i in both)
    return (f"loss {len(both)} rows, {equal} as printed, first {loss[both[0]]:.1e}, largest {loss[worst]:.1e} (relative {relative:.1e}) at {worst}; "
            f"grad norm first {norm[both[0]]:.3f}, largest {max(norm.values()):.3f}"), problems


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log")
    parser.add_argument("csv")
    parser.add_argument("--first", type=int, default=21)
    parser.add_argument("--tolerance", type=float)
    opt = parser.parse_args()
    with open(opt.log, errors="replace") as file:
        line, problems = compare(file.read(), opt.csv, opt.first, opt.tolerance)
    print(line)
    for problem in problems:
        print("  " + problem)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
