"""Prints mcorefs' structs readably in gdb: gdb -x tests/gdb/mcorefs.py PROGRAM

    print *doc      struct mfs_pickle: the value that it holds, as Python writes it
    print *plan     struct mfs_plan: its shape, and its bands and blocks
    print arena     struct mfs_arena: how much it has, in how many blocks
    print buf, err  struct mfs_buf, struct mfs_error: their text
    pickle DOC N    value N of a pickle
"""
import gdb
import gdb.printing

DEPTH = 6  # of nested values
ITEMS = 20  # of one list, of one plan


def text_of(value, length):
    """Bytes in the program's memory, as a text in quotes."""
    if not length:
        return "''"
    data = gdb.selected_inferior().read_memory(int(value), min(int(length), 200)).tobytes()
    return repr(data.decode("utf-8", "replace")) + ("..." if length > 200 else "")


class Error:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        code = int(self.value["code"])
        return f"{code}: {self.value['msg'].string()}" if code else "no error"


class Buf:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        failed = ", failed" if self.value["failed"] else ""
        return f"{int(self.value['len'])} bytes{failed}: {text_of(self.value['data'], self.value['len'])}"


class Arena:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        blocks, block = 0, self.value["blocks"]
        while block and blocks < 100000:
            blocks, block = blocks + 1, block["next"]
        return f"{int(self.value['total'])} bytes in {blocks} blocks, {int(self.value['used'])} used of the newest"


class Plan:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        v = self.value
        return (f"[{int(v['rows'])}, {int(v['cols'])}] of {v['dtype']} shown as {v['shown']}, "
                f"{int(v['band_count'])} bands, {int(v['block_count'])} blocks")

    def children(self):
        for name in ("band", "block"):
            for i in range(min(int(self.value[name + "_count"]), ITEMS)):
                yield f"{name}s[{i}]", self.value[name + "s"][i]


class Pickle:
    """A document, whose values are numbers of 16-byte nodes in blocks of a table."""

    SHIFT = 12  # MFS_PICKLE_BLOCK_SHIFT

    def __init__(self, value):
        self.value = value

    def node(self, number):
        table = self.value["nodes"]
        if number >= int(table["count"]):
            return None
        block = table["blocks"][number >> self.SHIFT]
        nodes = block.cast(gdb.lookup_type("struct mfs_pickle_node").pointer())
        return nodes[number & ((1 << self.SHIFT) - 1)]

    def stream(self, node):
        return text_of(int(self.value["bytes"]) + int(node["u"]["i"]), int(node["a"]))

    def items(self, node, depth):
        count = int(node["a"])
        shown = [self.show(int(node["u"]["items"][i]), depth - 1) for i in range(min(count, 2 * ITEMS))]
        return shown, ", ..." if count > 2 * ITEMS else ""

    def show(self, number, depth=DEPTH):
        node = self.node(number)
        if node is None or depth < 0:
            return f"<{number}>"
        kind = str(node["type"].cast(gdb.lookup_type("enum mfs_value_type")))
        kind = kind.rsplit("_", 1)[-1]
        if kind == "INT":
            return str(int(node["u"]["i"]))
        if kind == "BOOL":
            return str(bool(node["u"]["i"]))
        if kind in ("REAL", "FLOAT"):
            return repr(float(node["u"]["f"]))
        if kind == "STR":
            return self.stream(node)
        if kind in ("BYTES", "BIGINT"):
            return f"{kind.lower()} {self.stream(node)}"
        if kind in ("LIST", "TUPLE", "SET"):
            shown, more = self.items(node, depth)
            return {"LIST": "[{}]", "TUPLE": "({})", "SET": "{{{}}}"}[kind].format(", ".join(shown) + more)
        if kind == "DICT":
            shown, more = self.items(node, depth)
            pairs = [f"{k}: {v}" for k, v in zip(shown[::2], shown[1::2])]
            return "{" + ", ".join(pairs) + more + "}"
        if kind == "GLOBAL":
            parts = (self.show(int(node["a"]), 0), self.show(int(node["u"]["p"]["b"]), 0))
            return ".".join(p.strip("'") for p in parts)
        if kind == "OBJECT":
            return f"{self.show(int(node['a']), depth - 1)}{self.show(int(node['u']['p']['b']), depth - 1)}"
        if kind == "PERSID":
            return f"persistent {self.show(int(node['a']), depth - 1)}"
        return kind.capitalize()

    def to_string(self):
        return self.show(int(self.value["root"]))


class PickleCommand(gdb.Command):
    """pickle DOC N: value N of a pickle."""

    def __init__(self):
        super().__init__("pickle", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        doc, number = gdb.string_to_argv(argument)
        value = gdb.parse_and_eval(doc)
        if value.type.code == gdb.TYPE_CODE_PTR:
            value = value.dereference()
        print(Pickle(value).show(int(gdb.parse_and_eval(number))))


printers = gdb.printing.RegexpCollectionPrettyPrinter("mcorefs")
for struct, printer in (("mfs_error", Error), ("mfs_buf", Buf), ("mfs_arena", Arena), ("mfs_plan", Plan),
                        ("mfs_pickle", Pickle)):
    printers.add_printer(struct, f"^{struct}$", printer)
gdb.printing.register_pretty_printer(gdb.current_objfile(), printers, replace=True)
PickleCommand()
