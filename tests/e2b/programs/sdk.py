"""Drives the server by the Python SDK as it is published: what its users do first, and what breaks first."""
import io
import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request

import e2b
from e2b import Sandbox

started = time.time()


def case(check):
    try:
        check()
    except BaseException as error:
        print(f"{check.__name__}: {error!r}", file=sys.stderr)
        raise
    print(f"{time.time() - started:6.2f} {check.__name__}")


def raises(kind, action):
    try:
        found = action()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}, but {found!r}")


def wait_for(what, seconds=20):
    until = time.time() + seconds
    while not (found := what()):
        assert time.time() < until, "it does not happen"
        time.sleep(0.05)
    return found


def fetch(url, headers={}, data=None):
    """Status and body, also of a refusal."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers, data=data)) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def port(sandbox, number):
    """Where a port of a sandbox is, and the headers to get there."""
    if base := os.environ.get("E2B_SANDBOX_URL"):
        return base + "/", {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": str(number)}
    return f"https://{sandbox.get_host(number)}/", {}


sandbox = Sandbox.create(timeout=120, metadata={"app": "a b&c", "run": str(os.getpid())}, envs={"GREETING": "hello"})


@case
def commands():
    result = sandbox.commands.run("echo $GREETING $OWN; pwd; whoami; echo oops >&2", envs={"OWN": "x"})
    assert result.stdout == "hello x\n/home/user\nuser\n" and result.stderr == "oops\n", result
    failed = raises(e2b.CommandExitException, lambda: sandbox.commands.run("exit 3"))
    assert (failed.exit_code, failed.error) == (3, "exit status 3"), failed
    pieces = []
    sandbox.commands.run("for i in 1 2 3; do echo $i; sleep 0.1; done", on_stdout=pieces.append)
    assert pieces == ["1\n", "2\n", "3\n"], pieces
    assert sandbox.commands.run("pwd", cwd="/tmp").stdout == "/tmp\n"
    assert "does not exist" in str(raises(e2b.InvalidArgumentException, lambda: sandbox.commands.run("true", cwd="/none")))
    raises(e2b.AuthenticationException, lambda: sandbox.commands.run("true", user="root"))
    assert len(sandbox.commands.run("head -c 3000000 /dev/zero | tr '\\0' a").stdout) == 3000000


@case
def processes():
    handle = sandbox.commands.run("sleep 100", background=True)
    # The number is that inside.
    assert sandbox.commands.run(f"kill -0 {handle.pid} && tr '\\0' ' ' < /proc/{handle.pid}/cmdline").stdout
    listed = {found.pid: found for found in sandbox.commands.list()}
    assert listed[handle.pid].args[-1] == "sleep 100", listed
    assert handle.kill() and not handle.kill()
    assert raises(e2b.CommandExitException, handle.wait).error == "signal: killed"
    raises(e2b.TimeoutException, lambda: sandbox.commands.run("sleep 50", timeout=1))
    # The time of a command is over inside as well.
    wait_for(lambda: not [found for found in sandbox.commands.list() if "sleep 50" in found.args[-1]])
    # Dropping a stream ends no command, and who comes late hears what follows.
    handle = sandbox.commands.run("for i in $(seq 20); do echo $i; sleep 0.1; done; exit 4", background=True, timeout=0)
    pid = handle.pid
    handle.disconnect()
    time.sleep(0.3)
    heard = []
    listeners = [threading.Thread(target=lambda: heard.append(raises(e2b.CommandExitException, sandbox.commands.connect(pid).wait))) for _ in range(2)]
    [listener.start() for listener in listeners]
    [listener.join() for listener in listeners]
    assert [(end.exit_code, end.stdout.split()[-1], "1" in end.stdout.split()) for end in heard] == [(4, "20", False)] * 2, heard
    # The end is told for a while.
    assert raises(e2b.CommandExitException, sandbox.commands.connect(pid).wait).exit_code == 4
    raises(e2b.NotFoundException, lambda: sandbox.commands.connect(999999))


@case
def input():
    handle = sandbox.commands.run("cat", background=True, stdin=True)
    handle.send_stdin("one\n")
    sandbox.commands.send_stdin(handle.pid, "zw\u00f6\n")
    handle.close_stdin()
    assert handle.wait().stdout == "one\nzw\u00f6\n"
    assert sandbox.commands.run("cat; echo end").stdout == "end\n", "without input there is its end"
    handle = sandbox.commands.run("wc -c", background=True, stdin=True)
    sandbox.commands.stream_input(handle.pid, ("x" * 100000 for _ in range(20)))
    handle.close_stdin()
    assert handle.wait().stdout.strip() == "2000000"


@case
def terminals():
    output = []
    terminal = sandbox.pty.create(size=e2b.PtySize(rows=30, cols=100), envs={"OWN": "y"})
    sandbox.pty.send_stdin(terminal.pid, b"stty size; tty; echo $OWN$TERM; exit 7\n")
    ended = raises(e2b.CommandExitException, lambda: terminal.wait(on_pty=output.append))
    text = b"".join(output)
    assert ended.exit_code == 7 and b"30 100" in text and b"/dev/pts/" in text and b"yxterm" in text, text
    terminal = sandbox.pty.create(size=e2b.PtySize(rows=30, cols=100))
    sandbox.pty.resize(terminal.pid, e2b.PtySize(rows=40, cols=120))
    sandbox.pty.send_stdin(terminal.pid, b"stty size; exit\n")
    output = []
    terminal.wait(on_pty=output.append)
    assert b"40 120" in b"".join(output), output


@case
def files():
    data = os.urandom(3_000_000)
    written = sandbox.files.write("deep/er/a.bin", data)
    assert (written.name, written.path) == ("a.bin", "/home/user/deep/er/a.bin"), written
    assert bytes(sandbox.files.read("deep/er/a.bin", format="bytes")) == data
    assert b"".join(sandbox.files.read("deep/er/a.bin", format="stream")) == data
    assert sandbox.commands.run("stat -c '%a %U' deep deep/er/a.bin").stdout == "755 user\n644 user\n"
    several = [{"path": "m/1", "data": "one"}, {"path": "m/2", "data": b"two"}, {"path": "/tmp/3", "data": io.BytesIO(b"three")}]
    assert [found.path for found in sandbox.files.write_files(several)] == ["/home/user/m/1", "/home/user/m/2", "/tmp/3"]
    assert sandbox.files.read("/tmp/3") == "three"
    for empty in ("", b"", io.BytesIO()):
        sandbox.files.write("empty", empty)
        assert sandbox.files.read("empty") == "" and sandbox.files.get_info("empty").size == 0
    sandbox.files.write("g\u00fcn \"x\".txt", "z" * 10000, gzip=True)
    assert sandbox.files.read("g\u00fcn \"x\".txt", gzip=True) == "z" * 10000
    assert "processor" in sandbox.files.read("/proc/cpuinfo"), "a file without a size"
    info = sandbox.files.get_info("deep")
    assert (info.type.value, info.permissions, info.mode, info.owner) == ("dir", "drwxr-xr-x", 0o755, "user"), info
    sandbox.commands.run("ln -s deep/er way; ln -s nowhere dead")
    assert sandbox.files.get_info("way").symlink_target == "/home/user/deep/er"
    assert [found.path for found in sandbox.files.list("deep", depth=2)] == ["/home/user/deep/er", "/home/user/deep/er/a.bin"]
    assert sandbox.files.make_dir("new/er") and not sandbox.files.make_dir("new/er")
    assert sandbox.files.rename("m/1", "new/moved").path == "/home/user/new/moved"
    sandbox.files.rename("new/moved", "/tmp/other-filesystem")
    assert sandbox.files.read("/tmp/other-filesystem") == "one"
    assert sandbox.files.exists("m/2") and not sandbox.files.exists("m/1")
    sandbox.files.remove("m")
    assert not sandbox.files.exists("m")
    for missing in (lambda: sandbox.files.read("none"), lambda: sandbox.files.list("none"), lambda: sandbox.files.rename("none", "x")):
        raises(e2b.FileNotFoundException, missing)
    for wrong in (lambda: sandbox.files.read("deep"), lambda: sandbox.files.list("empty")):
        raises(e2b.InvalidArgumentException, wrong)


@case
def metadata():
    written = sandbox.files.write("noted", "1", metadata={"author": "me", "kind": "x"})
    assert written.metadata == {"author": "me", "kind": "x"}, written
    assert sandbox.files.get_info("noted").metadata == {"author": "me", "kind": "x"}
    sandbox.files.rename("noted", "noted2")
    assert sandbox.files.get_info("noted2").metadata == {"author": "me", "kind": "x"}
    sandbox.files.write("noted2", "2")
    assert not sandbox.files.get_info("noted2").metadata, "every upload replaces all of it"


@case
def signed():
    sandbox.files.write("s.txt", "signed")
    reading = sandbox.download_url("s.txt", use_signature_expiration=60)
    assert fetch(reading) == (200, b"signed")
    assert fetch(reading, {"Range": "bytes=1-3"}) == (206, b"ign")
    writing = sandbox.upload_url("up.txt", use_signature_expiration=60)
    form = b'--b\r\nContent-Disposition: form-data; name="file"; filename="up.txt"\r\n\r\nsent\r\n--b--\r\n'
    status, told = fetch(writing, {"Content-Type": "multipart/form-data; boundary=b"}, form)
    assert (status, json.loads(told)) == (200, [{"name": "up.txt", "path": "/home/user/up.txt", "type": "file"}]), told
    assert sandbox.files.read("up.txt") == "sent"
    for changed in (reading.replace("s.txt", "up.txt"), writing.replace("signature=v1_", "signature=v1_x")):
        status, told = fetch(changed)
        assert (status, json.loads(told)["message"]) == (401, "invalid signature"), told
    over = sandbox.download_url("s.txt", use_signature_expiration=-10)
    status, told = fetch(over)
    assert (status, json.loads(told)["message"]) == (401, "signature is already expired"), told


@case
def watching():
    sandbox.files.make_dir("watched")
    watch = sandbox.files.watch_dir("watched", recursive=True)
    found = []

    def happened(*wanted):
        found.extend((event.type.value, event.name) for event in watch.get_new_events())
        return set(wanted) <= set(found)

    sandbox.files.write("watched/a", "1")
    sandbox.files.make_dir("watched/below")
    wait_for(lambda: happened(("create", "a"), ("write", "a"), ("create", "below")))
    sandbox.files.write("watched/below/b", "1")
    sandbox.files.remove("watched/a")
    wait_for(lambda: happened(("create", "below/b"), ("remove", "a")))
    watch.stop()
    raises(e2b.SandboxException, watch.get_new_events)
    raises(e2b.FileNotFoundException, lambda: sandbox.files.watch_dir("none"))
    raises(e2b.InvalidArgumentException, lambda: sandbox.files.watch_dir("s.txt"))


@case
def ports():
    server = sandbox.commands.run("python3 -m http.server 8123 --bind 127.0.0.1 --directory deep", background=True, timeout=0)
    url, headers = port(sandbox, 8123)
    wait_for(lambda: fetch(url, headers)[0] == 200)
    assert b"er/" in fetch(url, headers)[1]
    server.kill()
    url, headers = port(sandbox, 8124)
    status, told = fetch(url, headers)
    told = json.loads(told)
    assert (status, told["message"], told["port"]) == (502, "The sandbox is running but port is not open", 8124), told


@case
def time_and_lists():
    sandbox.set_timeout(300)
    end = sandbox.get_info().end_at
    assert Sandbox.connect(sandbox.sandbox_id, timeout=100).commands.run("echo again").stdout == "again\n"
    assert sandbox.get_info().end_at == end, "a connect never shortens"
    Sandbox.connect(sandbox.sandbox_id, timeout=400)
    assert sandbox.get_info().end_at > end
    sandbox.set_timeout(100)
    assert sandbox.get_info().end_at < end
    others = [Sandbox.create(timeout=60, metadata={"run": sandbox.get_info().metadata["run"]}) for _ in range(2)]
    query = e2b.SandboxQuery(metadata={"run": str(os.getpid())})
    pages = Sandbox.list(query=query, limit=2)
    first, second = pages.next_items(), pages.next_items()
    assert not pages.has_next and len(first) == 2 and len(second) == 1, (first, second)
    assert [found.sandbox_id for found in first + second] == [others[1].sandbox_id, others[0].sandbox_id, sandbox.sandbox_id]
    query = e2b.SandboxQuery(metadata={"app": "a b&c", "run": str(os.getpid())})
    assert [found.sandbox_id for found in Sandbox.list(query=query).next_items()] == [sandbox.sandbox_id]
    [other.kill() for other in others]
    measured = sandbox.get_metrics()[0]
    assert measured.mem_used > 0 and measured.disk_total > measured.disk_used > 0, measured


@case
def snapshots_and_forks():
    source = Sandbox.create(timeout=60, envs={"OWN": "kept"})
    source.files.write("state", "1")
    running = source.commands.run("sleep 200", background=True, timeout=0)
    name = f"state-of-{os.getpid()}"
    named, unnamed = source.create_snapshot(name=name), source.create_snapshot()
    assert source.commands.run(f"kill -0 {running.pid} && cat state").stdout == "1", "the source goes on"
    assert named.names == [f"{name}:default"] and not unnamed.names, (named, unnamed)
    source.files.write("state", "2")
    children = [Sandbox.create(name, timeout=60), Sandbox.create(unnamed.snapshot_id, timeout=60)]
    assert [child.files.read("state") for child in children] == ["1", "1"]
    children[0].files.write("state", "3")
    assert (children[1].files.read("state"), source.files.read("state")) == ("1", "2"), "each has its own"
    assert [found.snapshot_id for found in Sandbox.list_snapshots(name=name).next_items()] == [named.snapshot_id]
    pages = Sandbox.list_snapshots(limit=1)
    assert {pages.next_items()[0].snapshot_id, pages.next_items()[0].snapshot_id} == {named.snapshot_id, unnamed.snapshot_id}
    forks = source.fork(count=2, timeout=60)
    assert [fork.files.read("state") for fork in forks] == ["2", "2"], forks
    said = forks[0].commands.run("echo $OWN $E2B_SANDBOX_ID").stdout
    assert said == f"kept {forks[0].sandbox_id}\n" and not forks[0].commands.list(), said
    assert source.commands.run(f"kill -0 {running.pid} && echo alive").stdout == "alive\n"
    assert Sandbox.delete_snapshot(named.snapshot_id) and not Sandbox.delete_snapshot(named.snapshot_id)
    assert children[0].files.read("state") == "3", "what was made from it stays"
    raises(e2b.SandboxException, lambda: Sandbox.create(name))
    assert Sandbox.delete_snapshot(unnamed.snapshot_id) and not Sandbox.list_snapshots().next_items()
    [one.kill() for one in [source, *children, *forks]]


@case
def pauses():
    running = sandbox.commands.run("sleep 200", background=True, timeout=0)
    assert sandbox.pause() and not sandbox.pause(), "the second time it is paused already"
    query = e2b.SandboxQuery(state=[e2b.SandboxState.PAUSED], metadata={"run": str(os.getpid())})
    assert [found.sandbox_id for found in Sandbox.list(query=query).next_items()] == [sandbox.sandbox_id]
    assert not sandbox.is_running()
    raises(e2b.SandboxException, lambda: sandbox.commands.run("true"))
    again = Sandbox.connect(sandbox.sandbox_id)
    assert again.commands.run(f"kill -0 {running.pid} && echo alive").stdout == "alive\n", "processes stay"
    assert sandbox.pause(mode="filesystem")
    again = Sandbox.connect(sandbox.sandbox_id)
    assert not again.commands.list() and again.files.read("s.txt") == "signed", "files stay, processes do not"
    assert again.is_running() and sandbox.commands.run("echo same token").stdout == "same token\n"


@case
def ends():
    running = sandbox.commands.run("sleep 200", background=True, timeout=0)
    threading.Timer(0.5, sandbox.kill).start()
    ended = raises(e2b.SandboxException, running.wait)
    assert "killed or reached its end of life" in str(ended), ended
    assert not sandbox.is_running() and not sandbox.kill()
    raises(e2b.SandboxNotFoundException, lambda: Sandbox.connect(sandbox.sandbox_id))
    short = Sandbox.create(timeout=1)
    wait_for(lambda: not short.is_running())
    asleep = Sandbox.create(timeout=1, lifecycle={"on_timeout": "pause", "auto_resume": True})
    asleep.files.write("kept", "1")
    wait_for(lambda: asleep.get_info().state == e2b.SandboxState.PAUSED)
    assert asleep.files.read("kept") == "1", "the first request wakes it"
    asleep.kill()


@case
def networks():
    closed = Sandbox.create(timeout=60, allow_internet_access=False, network={"allow_public_traffic": False, "mask_request_host": "app.test:${PORT}"})
    assert closed.get_info().allow_internet_access is False
    assert raises(e2b.CommandExitException, lambda: closed.commands.run("curl -sS -m 5 http://example.com")).exit_code
    script = (
        "import http.server\n"
        "class Own(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200), self.end_headers(), self.wfile.write(str(self.headers).encode())\n"
        "http.server.HTTPServer(('127.0.0.1', 8000), Own).serve_forever()\n"
    )
    closed.files.write("own.py", script)
    closed.commands.run("python3 own.py", background=True, timeout=0)
    url, headers = port(closed, 8000)
    shown = {**headers, "e2b-traffic-access-token": closed.traffic_access_token}
    wait_for(lambda: fetch(url, shown)[0] == 200)
    told = fetch(url, shown)[1].decode().lower()
    assert "host: app.test:8000" in told and closed.traffic_access_token not in told, told
    for wrong in ({}, {"e2b-traffic-access-token": "x"}):
        assert fetch(url, {**headers, **wrong})[0] == 403
    closed.kill()
    for network, why in (
        ({"deny_out": ["8.8.8.8"]}, "cannot be denied by itself"),
        ({"allow_out": ["example.com"]}, "0.0.0.0/0"),
        ({"deny_out": ["0.0.0.0/0"], "allow_out": ["1.1.1.1"]}, "is an address"),
    ):
        assert why in str(raises(e2b.SandboxException, lambda: Sandbox.create(network=network)))
    named = Sandbox.create(timeout=60, network={"deny_out": ["0.0.0.0/0"], "allow_out": ["example.com"]})
    assert named.commands.run("getent hosts example.com && ! getent hosts example.org").exit_code == 0
    named.kill()
    assert "not found" in str(raises(e2b.SandboxException, lambda: Sandbox.create("no-such-template")))
    raises(e2b.AuthenticationException, lambda: Sandbox.create(api_key="e2b_00"))
