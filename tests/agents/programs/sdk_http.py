"""The MCP server of the daemon, by the official SDK over HTTP: $URL, with the tokens of two grants."""

import asyncio
import os

import httpx2
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

URL = os.environ["URL"]


def client(token):
    return httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=60)


async def main():
    async with client(os.environ["TOKEN"]) as http:
        async with streamable_http_client(URL, http_client=http) as streams:
            async with ClientSession(streams[0], streams[1]) as session:
                await session.initialize()
                assert len((await session.list_tools()).tools) == 11

                async def text(tool, /, **arguments):
                    return (await session.call_tool(tool, arguments)).content[0].text

                assert await text("run_command", command="echo kept > ~/kept; echo hi") == "hi\n[exit code 0]"
                assert await text("run_command", command="cat ~/kept") == "kept\n[exit code 0]"
                assert "[belljar refused" in await text("run_command", command="curl -sS http://refused.example")

    # What the protocol does not have, whose sessions are whose, and what a grant does not allow.
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "list_files", "arguments": {}}}
    async with client(os.environ["TOKEN"]) as http, client(os.environ["OTHER_TOKEN"]) as other:
        begun = await http.post(URL, json=hello)
        session = {"mcp-session-id": begun.headers["mcp-session-id"]}
        notice = await http.post(URL, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session)
        assert notice.status_code == 202, notice
        assert (await other.post(URL, json=call, headers=session)).status_code == 404
        assert (await http.post(URL, json=call)).status_code == 400
        assert (await http.get(URL, headers=session)).status_code == 405
        begun = await http.post(f"{URL}?folder=/etc", json=hello)
        folder = {"mcp-session-id": begun.headers["mcp-session-id"]}
        refused = (await http.post(URL, json=call, headers=folder)).json()["result"]
        assert refused["isError"] and "grant" in refused["content"][0]["text"], refused
        assert (await http.delete(URL, headers=session)).status_code == 204
        assert (await http.post(URL, json=call, headers=session)).status_code == 404
    async with httpx2.AsyncClient() as nobody:
        assert (await nobody.post(URL, json=hello)).status_code == 401


asyncio.run(main())
print("done")
