"""Every tool of `belljar mcp`, by the official SDK: the folder is the current one, the program is $BELLJAR."""

import asyncio
import os

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

TOOLS = [
    "allowed_hosts", "ask_for_host", "command_output", "list_commands", "list_files", "read_file", "restore_snapshot",
    "run_command", "stop_command", "take_snapshot", "write_file",
]


async def main():
    words = ["mcp", *os.environ.get("MCP_FLAGS", "").split()]
    server = StdioServerParameters(command=os.environ["BELLJAR"], args=words, env=dict(os.environ))
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        hello = await session.initialize()
        assert "sandbox" in hello.instructions, hello
        tools = await session.list_tools()
        assert sorted(tool.name for tool in tools.tools) == TOOLS, tools

        async def call(tool, /, **arguments):
            result = await session.call_tool(tool, arguments)
            return result.content[0].text, bool(result.isError if hasattr(result, "isError") else result.is_error)

        async def text(tool, /, **arguments):
            said, failed = await call(tool, **arguments)
            assert not failed, (tool, said)
            return said

        here = os.getcwd()
        # Commands, in one sandbox that stays.
        said = await text("run_command", command="pwd; id -un >/dev/null; echo two words >&2; echo kept > ~/kept; exit 3")
        assert said == f"{here}\ntwo words\n[exit code 3]", said
        said = await text("run_command", command="cat ~/kept; pwd", cwd=f"{here}/sub")
        assert said == f"kept\n{here}/sub\n[exit code 0]", said
        said = await text("run_command", command="[[ a == a ]] && echo it is bash")
        assert said.startswith("it is bash"), said

        # A command that takes longer than the answer.
        said = await text("run_command", command="echo begun; exec sleep 1000", wait_s=1)
        assert said == "begun\n[cmd_4 continues in the background]", said
        assert "cmd_4: running: echo begun; exec sleep 1000" in await text("list_commands")
        assert await text("command_output", command_id="cmd_4") == "[cmd_4 continues in the background]"
        assert await text("stop_command", command_id="cmd_4") == "[cmd_4 was ended]"
        said = await text("command_output", command_id="cmd_4", wait_s=30, from_start=True)
        assert said.startswith("begun\n[ended by SIG"), said
        said, failed = await call("command_output", command_id="cmd_99")
        assert failed and "no such command" in said, said

        # A request that is cancelled ends its command.
        try:
            await asyncio.wait_for(session.call_tool("run_command", {"command": "exec sleep 1001", "wait_s": 600}), 2)
            raise AssertionError("it was not cancelled")
        except asyncio.TimeoutError:
            pass
        for _ in range(100):
            said = await text("list_commands")
            if "running" not in said:
                break
            await asyncio.sleep(0.1)
        else:
            raise AssertionError(said)

        # Files: what the host's folder is called, and where it ends.
        await text("write_file", path=f"{here}/sub/new.txt", content="one\ntwo\nthree\n")
        assert await text("read_file", path="sub/new.txt") == "one\ntwo\nthree\n"
        said = await text("read_file", path="sub/new.txt", first_line=2, lines=1)
        assert said == "two\n[lines 2 to 2 of 3]", said
        assert await text("list_files", path="sub") == "new.txt"
        assert "sub/" in (await text("list_files")).split("\n")
        for outside in (os.environ["OUTSIDE"], f"{here}/../{os.path.basename(os.environ['OUTSIDE'])}"):
            said, failed = await call("read_file", path=outside)
            assert failed and "belljar: " in said and "confidential" not in said, said
        said, failed = await call("write_file", path="/etc/new", content="x")
        assert failed, said

        # Hosts: refused with the reason, asked for without being allowed.
        assert "Nothing is allowed." in await text("allowed_hosts")
        for _ in range(2):
            said = await text("run_command", command="curl -sS http://refused.example")
            assert "[belljar refused refused.example" in said, said
        said = await text("ask_for_host", host="refused.example", reason="to try it")
        assert "belljar allow refused.example" in said, said
        assert "refused.example" in await text("allowed_hosts")
        said = await text("run_command", command="curl -sS http://refused.example")
        assert "[belljar refused refused.example" in said, said
        said, failed = await call("ask_for_host", host="a b; rm", reason="x")
        assert failed, said

        # Back to a snapshot.
        await text("run_command", command="echo before > ~/state")
        said = await text("take_snapshot", name="before")
        assert "the home folder" in said and "not in it: " in said, said
        await text("run_command", command="echo after > ~/state")
        said = await text("restore_snapshot", name="before")
        assert "has the files of `before`" in said, said
        assert (await text("run_command", command="cat ~/state")).startswith("before\n")

        # A sandbox that was stopped meanwhile is started again.
        ended = await asyncio.create_subprocess_exec(os.environ["BELLJAR"], "stop", ".")
        assert await ended.wait() == 0
        said = await text("run_command", command="cat ~/kept")
        assert said.startswith("kept\n"), said


asyncio.run(main())
print("done")
