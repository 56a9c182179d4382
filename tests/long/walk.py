"""Reads everything of a mount while saves go on, in many processes, until WORK/stop.

walk.py MOUNT WORK READERS

Each file of a view has places where all saves agree, places where a weight's 16 bits are by N - 1000 larger in iteration N
(save.py), and a few others (the pickled number of the iteration).  Which is which is seen in the first three saves.  What is
read is right if the first places are as ever, and all of the second are those of this iteration.  An error counts unless the
iteration's deletion had begun.  Each process prints what it has counted; what is wrong is a line in WORK/wrong.
"""
import os
import random
import re
import sys
import time
import traceback

import numpy

FIRST, NUMBERS = 1000, (1000, 1001, 1003)
VIEWS = ["hf", "hf-fp32", "hf-bin", "raw", "megatron/torch_dist", "megatron/torch/tp2-pp2", "megatron/torch/tp1-pp1", "megatron/torch/tp4-pp2"]


def name_of(number):
    return f"iter_{number:07d}"


def neutral(path):
    """A view's file by the same name in all iterations."""
    return re.sub(r"iter_\d+", "iter_N", path)


def files_of(view):
    return sorted(os.path.relpath(os.path.join(directory, file), view) for directory, _, files in os.walk(view) for file in files)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def lane(data, at):
    """The 16-bit numbers that begin at even bytes (0), or at odd ones (1): items of .distcp files lie anywhere."""
    return data[at:len(data) - (len(data) - at) % 2].view("<u2")


def among_others(mask):
    """Only those that have many neighbours, all of them or every other one (float32): a single number that grows with the
    iteration is no weight."""
    if len(mask) < 32:
        return numpy.zeros_like(mask)
    return mask & (numpy.convolve(mask.astype(numpy.int32), numpy.ones(32, numpy.int32), "same") >= 8)


class Pattern:
    """What a file has at the first three saves."""

    def __init__(self, contents):
        self.size = len(contents[0])
        assert {len(c) for c in contents} == {self.size}, "sizes differ"
        self.first, second, third = (numpy.frombuffer(c, numpy.uint8) for c in contents)
        self.weights, covered = [], numpy.zeros(self.size, bool)
        for at in (0, 1):
            base = lane(self.first, at)
            self.weights.append(among_others((lane(second, at) - base == NUMBERS[1] - FIRST) & (lane(third, at) - base == NUMBERS[2] - FIRST)))
            covered[at:at + 2 * len(base)] |= numpy.repeat(self.weights[at], 2)
        changes = ~(covered | ((self.first == second) & (second == third)))
        # What stands next to a byte that any save may change is of the same number, or of the same text (serialization_id).
        near = numpy.convolve(changes.astype(numpy.int32), numpy.ones(129, numpy.int32))[64:64 + self.size]
        self.known = covered | (near == 0)
        self.covered = int(numpy.count_nonzero(covered))

    def expected(self, number):
        data = self.first.copy()
        for at in (0, 1):
            lane(data, at)[self.weights[at]] += numpy.uint16(number - FIRST)
        return data

    def fault(self, data, number, at=0):
        """None, or what is wrong with these bytes, which are all or begin at one."""
        found, part = numpy.frombuffer(data, numpy.uint8), slice(at, at + len(data))
        wrong = numpy.flatnonzero((found != self.expected(number)[part]) & self.known[part])
        return f"{len(wrong)} bytes are of no such save, the first at {at + wrong[0]}" if len(wrong) else None


def learn(mount):
    """{(view, file): Pattern}, and how many bytes are weights."""
    patterns, weights, others = {}, 0, 0
    for view in VIEWS:
        places = [os.path.join(mount, name_of(n), view) for n in NUMBERS]
        names = [files_of(place) for place in places]
        for triple in zip(*names, strict=True):
            pattern = Pattern([read(os.path.join(place, name)) for place, name in zip(places, triple)])
            patterns[view, neutral(triple[0])] = pattern
            weights += pattern.covered
            others += int(numpy.count_nonzero(~pattern.known))
    assert patterns and weights > 1000 * others, f"{len(patterns)} files, {weights} bytes of weights, {others} that no rule is known for"
    print(f"{len(patterns)} files of an iteration, {weights} bytes of weights, {others} bytes that any save may change", flush=True)
    return patterns


class Reader:
    def __init__(self, mount, work, patterns, number):
        self.mount, self.work, self.patterns = mount, work, patterns
        self.random, self.latest = random.Random(number), 0
        self.counts = dict(walks=0, files=0, bytes=0, pieces=0, overtaken=0)

    def wrong(self, what):
        with open(os.path.join(self.work, "wrong"), "a") as file:
            file.write(what + "\n")

    def deleting(self, name):
        try:
            return name in read(os.path.join(self.work, "deleting")).decode().split()
        except FileNotFoundError:
            return False

    def look(self, name, what, *arguments):
        """Calls what; an error counts unless the iteration is being deleted."""
        try:
            what(name, *arguments)
        except OSError as error:
            if self.deleting(name):
                self.counts["overtaken"] += 1
            else:
                self.wrong(f"{name}: {error}")

    def walk(self, name):
        def failed(error):
            raise error
        for directory, _, files in os.walk(os.path.join(self.mount, name), onerror=failed):
            for file in files:
                os.stat(os.path.join(directory, file))
        self.counts["walks"] += 1

    def file(self, name, view, file):
        pattern, data = self.patterns[view, file], read(os.path.join(self.mount, name, view, file.replace("iter_N", name)))
        fault = pattern.fault(data, int(name[5:])) if len(data) == pattern.size else f"{len(data)} bytes, expected {pattern.size}"
        if fault:
            self.wrong(f"{name}/{view}/{file}: {fault}")
        self.counts["files"] += 1
        self.counts["bytes"] += len(data)

    def pieces(self, name, view, file):
        """Some of a file at random."""
        pattern = self.patterns[view, file]
        with open(os.path.join(self.mount, name, view, file.replace("iter_N", name)), "rb", buffering=0) as opened:
            for _ in range(4):
                at = self.random.randrange(max(pattern.size, 1))
                data = os.pread(opened.fileno(), self.random.choice((1, 512, 70000)), at)
                fault = pattern.fault(data, int(name[5:]), at)
                if fault:
                    self.wrong(f"{name}/{view}/{file}: {fault}")
                self.counts["pieces"] += 1

    def follow(self):
        """The link is always there, and moves forward only."""
        name = os.readlink(os.path.join(self.mount, "latest"))
        number = int(name[5:])
        if number < self.latest:
            self.wrong(f"latest was {self.latest} and is {number}")
        self.latest = number

    def round(self):
        names = [n for n in os.listdir(self.mount) if n.startswith("iter_")]
        self.follow()
        name, (view, file) = self.random.choice(names), self.random.choice(list(self.patterns))
        what = self.random.choice(("walk", "file", "file", "pieces"))
        if what == "walk":
            self.look(name, self.walk)
        else:
            self.look(name, getattr(self, what), view, file)

    def run(self):
        end = os.path.join(self.work, "stop")
        while not os.path.exists(end):
            self.round()
        print(" ".join(f"{key} {value}" for key, value in self.counts.items()), flush=True)


def fork(reader):
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        reader.run()
        code = 0
    except BaseException:
        reader.wrong(traceback.format_exc())
    finally:
        os._exit(code)


def main():
    mount, work, readers = sys.argv[1], sys.argv[2], int(sys.argv[3])
    patterns = learn(mount)
    pids = [fork(Reader(mount, work, patterns, number)) for number in range(readers)]
    open(os.path.join(work, "go"), "w").close()
    began = time.monotonic()
    codes = [os.waitpid(pid, 0)[1] for pid in pids]
    print(f"{readers} readers, {time.monotonic() - began:.0f} s", flush=True)
    sys.exit(1 if any(codes) else 0)


if __name__ == "__main__":
    main()
