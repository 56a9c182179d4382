/*
 * The opcodes of a pickle, protocols 2 to 5, under the names of CPython's Lib/pickletools.py. That
 * file also says what each opcode takes from the machine's stack and what it leaves there.
 */
#ifndef MFS_TORCH_PICKLE_OP_H
#define MFS_TORCH_PICKLE_OP_H

enum mfs_pickle_op {
	/* protocols 0 and 1 */
	MFS_OP_MARK = '(',
	MFS_OP_STOP = '.',
	MFS_OP_POP = '0',
	MFS_OP_POP_MARK = '1',
	MFS_OP_DUP = '2',
	MFS_OP_NONE = 'N',
	MFS_OP_BININT = 'J',
	MFS_OP_BININT1 = 'K',
	MFS_OP_BININT2 = 'M',
	MFS_OP_BINFLOAT = 'G',
	MFS_OP_BINSTRING = 'T',
	MFS_OP_SHORT_BINSTRING = 'U',
	MFS_OP_BINUNICODE = 'X',
	MFS_OP_EMPTY_TUPLE = ')',
	MFS_OP_TUPLE = 't',
	MFS_OP_EMPTY_LIST = ']',
	MFS_OP_LIST = 'l',
	MFS_OP_APPEND = 'a',
	MFS_OP_APPENDS = 'e',
	MFS_OP_EMPTY_DICT = '}',
	MFS_OP_DICT = 'd',
	MFS_OP_SETITEM = 's',
	MFS_OP_SETITEMS = 'u',
	MFS_OP_GLOBAL = 'c',
	MFS_OP_REDUCE = 'R',
	MFS_OP_BUILD = 'b',
	MFS_OP_BINPERSID = 'Q',
	MFS_OP_BINPUT = 'q',
	MFS_OP_LONG_BINPUT = 'r',
	MFS_OP_BINGET = 'h',
	MFS_OP_LONG_BINGET = 'j',
	/* protocol 2 */
	MFS_OP_PROTO = 0x80,
	MFS_OP_NEWOBJ = 0x81,
	MFS_OP_TUPLE1 = 0x85,
	MFS_OP_TUPLE2 = 0x86,
	MFS_OP_TUPLE3 = 0x87,
	MFS_OP_NEWTRUE = 0x88,
	MFS_OP_NEWFALSE = 0x89,
	MFS_OP_LONG1 = 0x8a,
	MFS_OP_LONG4 = 0x8b,
	/* protocol 3 */
	MFS_OP_BINBYTES = 'B',
	MFS_OP_SHORT_BINBYTES = 'C',
	/* protocol 4 */
	MFS_OP_SHORT_BINUNICODE = 0x8c,
	MFS_OP_BINUNICODE8 = 0x8d,
	MFS_OP_BINBYTES8 = 0x8e,
	MFS_OP_EMPTY_SET = 0x8f,
	MFS_OP_ADDITEMS = 0x90,
	MFS_OP_FROZENSET = 0x91,
	MFS_OP_NEWOBJ_EX = 0x92,
	MFS_OP_STACK_GLOBAL = 0x93,
	MFS_OP_MEMOIZE = 0x94,
	MFS_OP_FRAME = 0x95,
	/* protocol 5 */
	MFS_OP_BYTEARRAY8 = 0x96,
};

#endif
