"""Builds templates by the Python SDK as it is published, and makes sandboxes of them."""
import os
import time
import uuid

from e2b import Sandbox, Template, wait_for_port
from e2b.exceptions import BuildException, SandboxException

folder = "template-files"
os.makedirs(f"{folder}/src/deep", exist_ok=True)
for name, text in {"src/a.txt": "a", "src/deep/b.txt": "b", "one.py": "print('one')", "x.conf": "x", "y.conf": "y"}.items():
    with open(f"{folder}/{name}", "w") as file:
        file.write(text)

context = os.path.abspath(folder)


def build(template, name, **more):
    log = []
    info = Template.build(template, name, on_build_logs=lambda entry: log.append(entry.message), **more)
    return info, "\n".join(log)


# Every kind of step.
mine = (
    Template(file_context_path=context)
    .from_base_image()
    .set_envs({"GREETING": "good day", "PORT": "8123"})
    .set_workdir("app")
    .copy("src", "copied/")
    .copy("one.py", "two.py", mode=0o700)
    .copy("*.conf", "conf/")
    .run_cmd("pwd > where; echo $GREETING > greeting; echo seen $((40 + 2)) >&2")
    .run_cmd("id -un", user="root")
    .set_start_cmd("python3 -m http.server $PORT", wait_for_port(8123))
)
info, log = build(mine, "mine:v1", tags=["stable"])
assert "seen 42" in log and "done as `user`, not as `root`" in log, log
assert Template.alias_exists("mine") and not Template.alias_exists("other")

sandbox = Sandbox.create("mine:v1", timeout=60, envs={"MORE": "1"})
shell = lambda line: sandbox.commands.run(line).stdout.strip()
assert shell("pwd; cat where greeting") == "/home/user/app\n/home/user/app\ngood day", shell("pwd; cat where greeting")
assert shell("cat copied/a.txt copied/deep/b.txt conf/x.conf conf/y.conf") == "abxy"
assert shell("stat -c %a two.py; echo $GREETING $MORE") == "700\ngood day 1"
assert sandbox.files.read("greeting") == "good day\n"
assert sandbox.files.read("~/app/where") == "/home/user/app\n"
# What the template starts is there from the beginning.
assert "two.py" in shell("python3 -c 'import urllib.request as r; print(r.urlopen(\"http://127.0.0.1:8123/\").read().decode())'")
sandbox.files.write("new", "new")
other = Sandbox.create("mine:stable", timeout=60)
assert not other.files.exists("new") and other.files.exists("where")
other.kill()

# The same steps again take nothing anew; a changed one takes what was before it.
_, again = build(mine, "mine:v2")
assert again.count("CACHED") == 7 and "seen 42" not in again, again
changed = Template(file_context_path=context).from_template("mine:v2").run_cmd("cat where > further")
_, log = build(changed, "further")
further = Sandbox.create("further", timeout=60)
assert further.files.read("further") == "/home/user/app\n"
further.kill()
_, forced = build(mine, "mine:v3", skip_cache=True)
assert "CACHED" not in forced and "seen 42" in forced, forced

# Tags.
Template.assign_tags("mine:v2", ["production"])
named = {tag.tag: str(tag.build_id) for tag in Template.get_tags("mine")}
assert named["production"] == named["v2"] and named["v1"] == named["stable"] != named["v2"], named
Template.remove_tags("mine", ["production", "v2"])
assert {tag.tag for tag in Template.get_tags("mine")} == {"v1", "stable", "v3"}
try:
    Sandbox.create("mine:v2", timeout=60)
    raise AssertionError("a sandbox of a tag that was taken away")
except SandboxException as error:
    assert "no build with the tag 'v2'" in str(error), error
# Sandboxes keep their files.
assert shell("cat where") == "/home/user/app"
sandbox.kill()


def fails(template, name, why):
    try:
        build(template, name)
    except BuildException as error:
        assert why in str(error), error
        return
    raise AssertionError(f"the build `{name}` succeeds")


new = lambda: Template(file_context_path=context).from_base_image()
fails(new().run_cmd("echo first").run_cmd("echo the reason >&2; exit 7"), "broken", "step 2 failed: exit status 7: the reason")
fails(new().set_ready_cmd("false"), "never", "was not ready within 60 s") if os.environ.get("SLOW") else None
fails(new().copy("one.py", "/etc/one.py"), "outside", "step 1 failed")
fails(Template().from_template("nothing"), "based", "template 'nothing' not found")
fails(new().run_cmd("true"), "base", "is a profile of the daemon")
fails(new().run_cmd("true"), "UPPER", "names no template")
try:
    Sandbox.create("broken", timeout=60)
    raise AssertionError("a sandbox of a build that failed")
except SandboxException:
    pass

# In the background.
started = Template.build_in_background(new().run_cmd("sleep 1; echo done > done"), f"later-{uuid.uuid4().hex[:8]}")
until = time.time() + 60
while (state := Template.get_build_status(started).status.value) in ("building", "waiting"):
    assert time.time() < until
    time.sleep(0.1)
assert state == "ready", state
