"""gdb: list the coroutines of a program that uses src/loop/, and where each one waits.

    (gdb) source src/loop/coro-gdb.py
    (gdb) coros          name, state and innermost frames of each
    (gdb) coros NAME     only those whose name has NAME in it, with all frames

The C library mangles what sigsetjmp saves, so the stack is walked by frame pointers (the build keeps them) from the frame of the last
switch. Works on core files too.
"""

import gdb

SKIP = ("ctx_leave", "coro_park", "coro_yield", "coro_spend")


def frames(sp, low, high):
    """The return addresses, innermost first, of the frames above the one whose frame pointer is sp."""
    word = gdb.lookup_type("unsigned long").pointer()
    found = []
    while low <= sp < high and sp % 8 == 0 and len(found) < 64:
        frame = gdb.Value(sp).cast(word)
        found.append(int(frame[1]))
        up = int(frame[0])
        if up <= sp:
            break
        sp = up
    return found


def place(address):
    """Function and line of a return address; None for what belongs to the coroutine machinery."""
    block = gdb.block_for_pc(address - 1)
    while block and not block.function:
        block = block.superblock
    if not block:
        return None  # below the first frame
    name = block.function.name
    if name in SKIP or name == "trampoline" or name == "coro_main":
        return None
    line = gdb.find_pc_line(address - 1)
    return f"{name} ({line.symtab.filename if line.symtab else '?'}:{line.line})"


class Coros(gdb.Command):
    """coros [NAME]: list coroutines and where they wait."""

    def __init__(self):
        super().__init__("coros", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        sched = gdb.parse_and_eval("'coro.c'::sched")
        coro = gdb.lookup_type("struct coro")
        offset = next(member.bitpos // 8 for member in coro.fields() if member.name == "all")
        head = sched["all"].address
        node = sched["all"]["next"]
        count = 0
        while node != head:
            c = gdb.Value(int(node) - offset).cast(coro.pointer()).dereference()
            node = node["next"]
            name = c["name"].string() if c["name"] else "?"
            if argument and argument not in name:
                continue
            count += 1
            running = int(sched["running"]) == int(c.address)
            state = "running" if running else "parked" if c["parked"] else "ready"
            if c["cancelled"]:
                state += ", cancelled"
            print(f"{int(c.address):#x} {name} ({state}) {c['fn']}({c['arg']})")
            if running or not c["ctx"]["begun"]:
                continue
            low = int(c["ctx"]["lo"])
            places = [p for p in map(place, frames(int(c["ctx"]["sp"]), low, low + int(c["ctx"]["size"]))) if p]
            for text in places if argument else places[:4]:
                print(f"        {text}")
        print(f"{count} coroutines")


Coros()
