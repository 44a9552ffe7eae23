# SPDX-License-Identifier: GPL-2.0
"""verbs-mpi.py: the two ranks of qemu-test/verbs-mpi. Messages of several sizes both ways, sums of
both ranks, and access to memory of the other one; what is received is compared. Prints a line for
each that was right; a difference ends both ranks."""

import sys

from mpi4py import MPI

began = MPI.Wtime()
world = MPI.COMM_WORLD
rank, other = world.rank, 1 - world.rank


def content(size, sender, turn):
    """What this rank sends, or expects of the other one."""
    seed = bytes((i * 7 + sender * 101 + turn * 13) % 251 for i in range(min(size, 251 * 16)))
    return (seed * (size // len(seed) + 1))[:size]


def expect(what, received, wanted):
    """Ends both ranks if the two are not the same."""
    if received != wanted:
        print(f"rank {rank}: {what}: not as expected", flush=True)
        world.Abort(1)


def done(what):
    """The lines of what both ranks have found right, and of the time since the start."""
    world.Barrier()
    if rank == 0:
        print(f"right: {what}", f"after {MPI.Wtime() - began:.1f} s", sep="\n", flush=True)


def messages(size, turns):
    """Each rank sends in turn, and receives into a buffer that had other bytes."""
    for turn in range(turns):
        buffer = bytearray(b"\xff" * size)
        if rank == turn % 2:
            world.Send([content(size, rank, turn), MPI.BYTE], other, turn)
        else:
            world.Recv([buffer, MPI.BYTE], other, turn)
            expect(f"a message of {size}", bytes(buffer), content(size, other, turn))
    done(f"messages of {size} bytes")


def at_once(size, number):
    """Both ranks have many messages under way, which the receiver takes from the last on."""
    buffers = [bytearray(size) for _ in range(number)]
    requests = [world.Irecv([buffers[i], MPI.BYTE], other, i) for i in reversed(range(number))]
    sent = [content(size, rank, i) for i in range(number)]
    requests += [world.Isend([sent[i], MPI.BYTE], other, i) for i in range(number)]
    MPI.Request.Waitall(requests)
    for i, buffer in enumerate(buffers):
        expect(f"message {i} of {number}", bytes(buffer), content(size, other, i))
    done(f"{number} messages at once")


def sums():
    """Sums of numbers of both ranks."""
    expect("allreduce", world.allreduce(rank + 5), 11)
    numbers = memoryview(bytearray(8 * 1000)).cast("q")
    total = memoryview(bytearray(8 * 1000)).cast("q")
    for i in range(1000):
        numbers[i] = i * (rank + 1)
    world.Allreduce([numbers, MPI.INT64_T], [total, MPI.INT64_T])
    expect("Allreduce", total.tolist(), [3 * i for i in range(1000)])
    done("sums")


def memory(size):
    """Put, Get and Fetch_and_op in a window of the other rank's memory."""
    window = MPI.Win.Allocate(size + 8, 1, comm=world)
    mine = memoryview(window).cast("B")
    mine[:] = bytes(size + 8)
    window.Fence()
    sent = content(size, rank, 3)
    window.Put([sent, MPI.BYTE], other, [0, size, MPI.BYTE])
    window.Fence()
    expect("Put", bytes(mine[:size]), content(size, other, 3))
    got = bytearray(size)
    window.Get([got, MPI.BYTE], other, [0, size, MPI.BYTE])
    window.Fence()
    expect("Get", bytes(got), sent)
    one, before = memoryview(bytearray(8)).cast("q"), memoryview(bytearray(8)).cast("q")
    one[0] = 1
    for _ in range(10):
        window.Lock(0, MPI.LOCK_SHARED)
        window.Fetch_and_op([one, MPI.INT64_T], [before, MPI.INT64_T], 0, size)
        window.Unlock(0)
    window.Fence()
    if rank == 0:
        expect("Fetch_and_op", int.from_bytes(mine[size:], sys.byteorder), 20)
    del mine
    window.Free()
    done(f"access to memory of the other rank, {size} bytes")


for length, repeats in (1, 20), (4096, 20), (1 << 20, 2):
    messages(length, repeats)
at_once(512, 64)
sums()
memory(16384)
