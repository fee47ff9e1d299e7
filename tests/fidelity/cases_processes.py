"""Coroutines, threads, and processes of the user's own."""

from __future__ import annotations

from cases import Cell, case

ASYNC = "import asyncio\nasync def double(x):\n    await asyncio.sleep(0)\n    return 2 * x\n"
NUMBERS = "async def numbers():\n    for i in range(3):\n        yield i\n        await asyncio.sleep(0)\n"
VARIABLE = "import contextvars\nvariable = contextvars.ContextVar('variable', default=0)\nvariable.set(5)\n"

SETUP = ASYNC + "import contextvars, multiprocessing, threading\nfrom concurrent.futures import ThreadPoolExecutor"

CASES = (
    case("await", ASYNC + "await double(4)"),
    case("await in the middle", "a = await double(1)\nprint(a)\nb = await double(a)\nb"),
    case("gathering", "await asyncio.gather(*(double(i) for i in range(5)))"),
    case("an asynchronous generator", NUMBERS + "[i async for i in numbers()]"),
    case(
        "async for and async with",
        NUMBERS + "import contextlib\n@contextlib.asynccontextmanager\nasync def room():\n    print('in')\n"
        "    yield 5\n    print('out')\nasync with room() as number:\n    async for i in numbers():\n"
        "        print(i + number)",
    ),
    case(
        "a task that outlives its cell",
        "order = []\nasync def later():\n    await asyncio.sleep(0.01)\n    order.append('later')\n"
        "task = asyncio.create_task(later())\norder",
        "await task\norder",
    ),
    case(
        "a task that prints after its cell",
        Cell(
            "async def speak():\n    await asyncio.sleep(0.1)\n    print('spoken', flush=True)\n"
            "speaking = asyncio.create_task(speak())\nprint('started')",
            late="spoken\n",
        ),
    ),
    case("a time-out", "async with asyncio.timeout(0.01):\n    await asyncio.sleep(30)"),
    case(
        "asyncio.run inside a loop",
        "pending = double(1)\ntry:\n    asyncio.run(pending)\nfinally:\n    pending.close()",
    ),
    case(
        "a task group that fails",
        "async def fail(): raise ValueError('one of them')\n"
        "async with asyncio.TaskGroup() as group:\n    group.create_task(fail())",
    ),
    case("a coroutine as a result", "coroutine = double(1)\ntype(coroutine)", "await coroutine"),
    case("autoawait off", "%autoawait off", "print('still')", "%autoawait on"),
    case(
        "a subprocess of asyncio",
        "process = await asyncio.create_subprocess_exec('echo', 'sub', stdout=asyncio.subprocess.PIPE)\n"
        "(await process.communicate())[0]",
    ),
    case(
        "to_thread and contextvars",
        VARIABLE + "await asyncio.to_thread(variable.get)",
    ),
    case("a context variable in the next cell", VARIABLE, "variable.get()"),
    case(
        "threads",
        "import threading\nfound = []\nthreads = [threading.Thread(target=found.append, args=(i,)) for i in range(4)]\n"
        "for thread in threads: thread.start()\nfor thread in threads: thread.join()\nsorted(found)",
    ),
    case(
        "threads that print",
        "def speak(i): print('thread\\n', end='', flush=True)\n"
        "threads = [threading.Thread(target=speak, args=(i,)) for i in range(3)]\n"
        "for thread in threads: thread.start()\nfor thread in threads: thread.join()",
    ),
    case(
        "a thread that displays",
        "thread = threading.Thread(target=lambda: display('from a thread'))\nthread.start(); thread.join()",
    ),
    case(
        "a pool of threads",
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(2) as pool:\n"
        "    outcome = list(pool.map(abs, [-1, -2]))\noutcome",
    ),
    case("an error in a pool of threads", "with ThreadPoolExecutor(1) as pool:\n    pool.submit(int, 'x').result()"),
    case(
        "a forked child",
        "import os\npid = os.fork()\nif pid == 0:\n    os._exit(7)\nos.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])",
    ),
    case(
        "multiprocessing by fork",
        "import multiprocessing\ndef square(x): return x * x\n"
        "with multiprocessing.get_context('fork').Pool(2) as pool:\n    squares = pool.map(square, range(5))\nsquares",
    ),
    case(
        "a forked child that prints",
        Cell(
            "child = multiprocessing.get_context('fork')"
            ".Process(target=print, args=('from the child',), kwargs={'flush': True})\n"
            "child.start(); child.join()",
            late="from the child\n",
        ),
    ),
    case(
        "an error in a forked pool",
        "def fail(x): raise ValueError(x)\nwith multiprocessing.get_context('fork').Pool(1) as pool:\n"
        "    pool.map(fail, [5])",
        hide=((r"pool-\d+|ForkPoolWorker-\d+", "WORKER"),),
    ),
    case(
        "multiprocessing by spawn",
        "import math\nwith multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "    roots = pool.map(math.sqrt, [1, 4])\n"
        "del pool  # its semaphores would outlive a kernel that is killed\nroots",
    ),
    case(
        "a pool of processes",
        "from concurrent.futures import ProcessPoolExecutor\n"
        "with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context('fork')) as pool:\n"
        "    got = pool.submit(pow, 2, 10).result()\ngot",
    ),
    case(
        "a queue between processes",
        "context = multiprocessing.get_context('fork')\nqueue = context.Queue()\n"
        "child = context.Process(target=queue.put, args=('sent',))\nchild.start()\nword = queue.get()\n"
        "child.join()\nword",
    ),
    case(
        "shared memory",
        "from multiprocessing import shared_memory\nmemory = shared_memory.SharedMemory(create=True, size=8)\n"
        "memory.buf[0] = 5\n"
        "value = memory.buf[0]\nmemory.close(); memory.unlink()\nvalue",
    ),
    case(
        "a process in the background of a cell",
        "import subprocess\nsleeper = subprocess.Popen(['sleep', '60'])\nsleeper.poll()",
        "sleeper.terminate()\nsleeper.wait()",
    ),
    case(
        "a lock and a condition", "lock = threading.Lock()\nwith lock:\n    held = lock.locked()\nheld, lock.locked()"
    ),
    case(
        "deep recursion in a thread",
        "def deep(n): return n and deep(n - 1)\nthreading.stack_size(64 << 20)\n"
        "box = []\nthread = threading.Thread(target=lambda: box.append(deep(500)))\n"
        "thread.start(); thread.join()\nthreading.stack_size(0) > 0, box",
    ),
    case(
        "weak references and collection",
        "import gc, weakref\nclass Thing: pass\nthing = Thing()\nwatch = weakref.ref(thing)\ndel thing\n"
        "gc.collect() >= 0, watch() is None",
    ),
    case(
        "an object that says goodbye",
        "class Goodbye:\n    def __del__(self): print('goodbye')\nx = Goodbye()\ndel x\nprint('after')",
    ),
    case("random numbers with a seed", "import random\nrandom.seed(5)\nrandom.random()", "random.random()"),
    case("a generator kept between cells", "counter = iter(range(5))\nnext(counter)", "next(counter)", "next(counter)"),
    case(
        "a file kept open between cells",
        "file = open('kept.txt', 'w+')\nfile.write('abc')",
        "file.seek(0)\nfile.read()",
        "file.close()",
    ),
)
