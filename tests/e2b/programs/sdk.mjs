// Drives the server by the JavaScript SDK as it is published.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'

const { Sandbox } = createRequire(`${process.env.E2B_NODE_MODULES}/`)('e2b')
const began = Date.now()
const sleep = (ms) => new Promise((done) => setTimeout(done, ms))
const rejected = async (promise) => promise.then((value) => assert.fail(`no error, but ${JSON.stringify(value)}`), (error) => error)

async function check(name, work) {
  try {
    await work()
  } catch (error) {
    console.error(`${name}:`, error)
    process.exit(1)
  }
  console.log(`${((Date.now() - began) / 1000).toFixed(2)} ${name}`)
}

const sandbox = await Sandbox.create({ timeoutMs: 120_000, metadata: { app: 'a b&c', run: `js${process.pid}` }, envs: { GREETING: 'hello' } })

await check('commands', async () => {
  const { exitCode, stdout, stderr } = await sandbox.commands.run('echo $GREETING; pwd; echo oops >&2')
  assert.deepEqual({ exitCode, stdout, stderr }, { exitCode: 0, stdout: 'hello\n/home/user\n', stderr: 'oops\n' })
  const failed = await rejected(sandbox.commands.run('exit 3'))
  assert.deepEqual([failed.name, failed.exitCode, failed.error], ['CommandExitError', 3, 'exit status 3'])
  const handle = await sandbox.commands.run('cat', { background: true, stdin: true })
  await sandbox.commands.sendStdin(handle.pid, 'zw\u00f6\n')
  await sandbox.commands.closeStdin(handle.pid)
  assert.equal((await handle.wait()).stdout, 'zw\u00f6\n')
  const asleep = await sandbox.commands.run('sleep 50', { background: true })
  assert.ok((await sandbox.commands.list()).some((found) => found.pid === asleep.pid))
  assert.deepEqual([await asleep.kill(), await sandbox.commands.kill(asleep.pid)], [true, false])
  assert.equal((await rejected(sandbox.commands.run('sleep 50', { timeoutMs: 500 }))).name, 'TimeoutError')
})

await check('terminals', async () => {
  let output = ''
  const terminal = await sandbox.pty.create({ cols: 90, rows: 20, onData: (data) => (output += new TextDecoder().decode(data)) })
  await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('stty size; exit\n'))
  assert.equal((await terminal.wait()).exitCode, 0)
  assert.match(output, /20 90/)
})

await check('files', async () => {
  const told = await sandbox.files.write('d/a.txt', 'text')
  assert.deepEqual({ name: told.name, path: told.path, type: told.type }, { name: 'a.txt', path: '/home/user/d/a.txt', type: 'file' })
  const data = new Uint8Array(1_000_000).map((_, at) => at % 251)
  await sandbox.files.write('d/b.bin', data.buffer)
  assert.deepEqual(await sandbox.files.read('d/b.bin', { format: 'bytes' }), data)
  await sandbox.files.write('d/c', new Blob(['blob']))
  assert.equal(await (await sandbox.files.read('d/c', { format: 'blob' })).text(), 'blob')
  let length = 0
  for await (const piece of await sandbox.files.read('d/b.bin', { format: 'stream' })) length += piece.length
  assert.equal(length, data.length)
  await sandbox.files.write([{ path: 'x1', data: '1' }, { path: 'x2', data: '' }])
  assert.equal(await sandbox.files.read('x2'), '')
  assert.deepEqual((await sandbox.files.list('d')).map((found) => found.name), ['a.txt', 'b.bin', 'c'])
  assert.deepEqual([await sandbox.files.makeDir('n'), await sandbox.files.makeDir('n'), await sandbox.files.exists('none')], [true, false, false])
  const written = await sandbox.downloadUrl('d/a.txt', { useSignatureExpiration: 60 })
  assert.equal(await (await fetch(written)).text(), 'text')
  const form = new FormData()
  form.append('file', new Blob(['sent']), 'up.txt')
  const answer = await fetch(await sandbox.uploadUrl('up.txt', { useSignatureExpiration: 60 }), { method: 'POST', body: form })
  assert.deepEqual([answer.status, await sandbox.files.read('up.txt')], [200, 'sent'])
})

await check('watching', async () => {
  const found = []
  const watch = await sandbox.files.watchDir('d', (event) => found.push(`${event.type} ${event.name}`))
  await sandbox.files.write('d/new', '1')
  for (let round = 0; round < 400 && !found.includes('write new'); round++) await sleep(50)
  await watch.stop()
  assert.ok(found.includes('create new') && found.includes('write new'), found)
})

await check('lists and pauses', async () => {
  const pages = Sandbox.list({ query: { metadata: { app: 'a b&c', run: `js${process.pid}` } } })
  assert.deepEqual((await pages.nextItems()).map((found) => found.sandboxId), [sandbox.sandboxId])
  assert.equal(await sandbox.pause(), true)
  assert.equal(await sandbox.isRunning(), false)
  const again = await Sandbox.connect(sandbox.sandboxId)
  assert.equal((await again.commands.run('cat d/a.txt')).stdout, 'text')
  assert.equal((await sandbox.getMetrics()).length, 1)
})

await check('refusals and ends', async () => {
  assert.equal((await rejected(Sandbox.create({ apiKey: 'e2b_00' }))).name, 'AuthenticationError')
  const running = await sandbox.commands.run('sleep 200', { background: true, timeoutMs: 0 })
  setTimeout(() => sandbox.kill(), 500)
  assert.match((await rejected(running.wait())).message, /killed or reached its end of life/)
  assert.equal((await rejected(Sandbox.connect(sandbox.sandboxId))).name, 'SandboxNotFoundError')
  assert.equal(await Sandbox.kill(sandbox.sandboxId), false)
})
