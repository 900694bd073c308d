// The official SDK for TypeScript finds the tools of `belljar mcp`, and uses some.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import assert from "node:assert/strict";

const require = createRequire(process.env.MCP_NODE_MODULES + "/");
const load = (path) => import(pathToFileURL(require.resolve("@modelcontextprotocol/sdk/" + path)));
const { Client } = await load("client/index.js");
const { StdioClientTransport } = await load("client/stdio.js");

const client = new Client({ name: "test", version: "1" });
await client.connect(new StdioClientTransport({ command: process.env.BELLJAR, args: ["mcp"], env: process.env }));
assert.equal(client.getServerVersion().name, "belljar");
assert.match(client.getInstructions(), /sandbox/);
const { tools } = await client.listTools();
assert.equal(tools.length, 11);

const text = async (name, args) => {
  const result = await client.callTool({ name, arguments: args });
  assert.ok(!result.isError, JSON.stringify(result));
  return result.content[0].text;
};
await text("write_file", { path: "from-node.txt", content: "by the SDK\n" });
assert.equal(await text("run_command", { command: "cat from-node.txt" }), "by the SDK\n[exit code 0]");
const refused = await client.callTool({ name: "read_file", arguments: { path: "/none" } });
assert.ok(refused.isError);
await assert.rejects(client.callTool({ name: "none", arguments: {} }));
await client.close();
console.log("done");
