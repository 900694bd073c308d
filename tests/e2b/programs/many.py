"""Many sandboxes at once. In the middle the daemon is killed and started again: this program only sees calls that fail for a while."""
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import e2b
from e2b import Sandbox

ready, count = Path(sys.argv[1]), int(sys.argv[2])
began = time.time()


def patiently(call):
    until = time.time() + 60
    while True:
        try:
            return call()
        except Exception:
            if time.time() > until:
                raise
            time.sleep(0.2)


def make(number):
    sandbox = Sandbox.create(timeout=1200, metadata={"number": str(number)}, request_timeout=300)
    sandbox.files.write("own", str(number))
    handle = sandbox.commands.run("while :; do date +%s > beat; sleep 1; done", background=True, timeout=0)
    handle.disconnect()
    return number, sandbox, handle.pid


def check(made):
    number, sandbox, pid = made
    again = patiently(lambda: Sandbox.connect(sandbox.sandbox_id, timeout=1200))
    assert patiently(lambda: again.files.read("own")) == str(number)
    assert again.commands.run(f"kill -0 {pid} && echo alive", request_timeout=120).stdout == "alive\n", "the command outlived the daemon"
    assert again.commands.kill(pid)
    assert again.kill()


with ThreadPoolExecutor(32) as pool:
    made = list(pool.map(make, range(count)))
    print(f"{count} sandboxes made in {time.time() - began:.1f} s")
    ready.touch()
    time.sleep(1)
    began = time.time()
    list(pool.map(check, made))
    print(f"all of them checked and killed in {time.time() - began:.1f} s, the start of another daemon among it")
assert not Sandbox.list().next_items()
