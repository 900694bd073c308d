// Builds a template by the JavaScript SDK as it is published, and makes a sandbox of it.
import assert from 'node:assert'
import { createRequire } from 'node:module'
import { mkdirSync, writeFileSync } from 'node:fs'
const { Sandbox, Template } = createRequire(process.env.E2B_NODE_MODULES + '/')('e2b')

mkdirSync('template-files-js/src', { recursive: true })
writeFileSync('template-files-js/src/a.txt', 'a')
const template = Template({ fileContextPath: process.cwd() + '/template-files-js' })
  .fromTemplate('base')
  .setEnvs({ WHO: 'node' })
  .copy('src', 'copied')
  .runCmd('echo $WHO > who')
const lines = []
const info = await Template.build(template, 'from-node:v1', { onBuildLogs: (entry) => lines.push(entry.message) })
assert.ok(info.templateId, JSON.stringify(info))
assert.ok(await Template.exists('from-node'))
const sandbox = await Sandbox.create('from-node:v1', { timeoutMs: 60_000 })
const done = await sandbox.commands.run('cat who copied/a.txt; echo $WHO')
assert.strictEqual(done.stdout, 'node\nanode\n')
await sandbox.kill()
await assert.rejects(
  Template.build(Template().fromTemplate('base').runCmd('exit 3'), 'from-node-broken'),
  /step 1 failed: exit status 3/,
)
