// The client of the TypeScript SDK, told line by line what to do. One line of JSON in
// is one call; one line out is what came of it, with the same ref.
//
// MCP_SDK: the SDK's folder. MCP_URL, MCP_KEY: a gateway; or MCP_COMMAND: a bridge.
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'

const { MCP_SDK, MCP_URL, MCP_KEY, MCP_COMMAND, ...env } = process.env
const from = path => import(pathToFileURL(`${MCP_SDK}/dist/esm/client/${path}`))
const { Client } = await from('index.js')
const { StreamableHTTPClientTransport } = await from('streamableHttp.js')
const { StdioClientTransport } = await from('stdio.js')

const client = new Client({ name: 'holdfast-test', version: '1' })
await client.connect(MCP_COMMAND
  ? new StdioClientTransport({ command: MCP_COMMAND, args: ['mcp'], env })
  : new StreamableHTTPClientTransport(new URL(MCP_URL), { requestInit: { headers: { Authorization: `Bearer ${MCP_KEY}` } } }))

const say = line => process.stdout.write(JSON.stringify(line) + '\n')

async function call({ ref, name, arguments: args, timeout, progress }) {
  let heard = 0
  const options = {}
  if (timeout) options.timeout = timeout // the SDK's own is 60 s
  if (progress) {
    options.resetTimeoutOnProgress = true
    options.onprogress = () => { heard++ }
  }
  try {
    const result = name === 'tools/list' ? await client.listTools(args) : await client.callTool({ name, arguments: args }, undefined, options)
    say({ ref, result, heard })
  } catch (e) {
    say({ ref, error: { code: e.code ?? 0, message: String(e.message) }, heard })
  }
}

say({ ref: 'connected' })
for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line)
  if (order.after) await new Promise(done => setTimeout(done, order.after))
  call(order) // the next line is read while this one runs
}
await client.close()
