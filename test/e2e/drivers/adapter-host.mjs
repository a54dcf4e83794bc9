// A host of the stdio adapter (ADAPTER) for `conformance client --command`: the suite appends the server's address. Signs in by
// parallelsandbox_connect when that is offered, calls the suite's tools, and signs in again when a call says so.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

const CONNECT = 'parallelsandbox_connect';
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT || '{}');
const env = { ...process.env, PARALLELSANDBOX_MCP_URL: process.argv.at(-1) };
if (context.client_id) env.PARALLELSANDBOX_OAUTH_CLIENT_ID = context.client_id;
if (context.client_secret) env.PARALLELSANDBOX_OAUTH_CLIENT_SECRET = context.client_secret;

const client = new Client({ name: 'adapter-host', version: '1' }, { capabilities: {} });
await client.connect(new StdioClientTransport({ command: process.env.ADAPTER, args: [], env, stderr: 'inherit' }));

const call = (name, args = {}) => client.callTool({ name, arguments: args }, undefined, { timeout: 60000 });
const list = async () => (await client.listTools()).tools.map(tool => tool.name);
const connect = async () => {
  const result = await call(CONNECT);
  console.error(CONNECT, result.isError ? 'failed:' : '', result.content[0].text);
  return !result.isError && result.structuredContent.connected;
};

let failed = false;
let names = await list();
for (let i = 0; i < 3 && names.includes(CONNECT) && !failed; i++) {  // it may be offered again at once
  if (await connect()) names = await list().catch(error => { console.error('tools/list', error.message); return []; });
  else failed = true;
}
for (const name of names.filter(name => /^(test|add_numbers)/.test(name))) {
  const args = name === 'add_numbers' ? { a: 5, b: 3 } : {};
  for (let i = 0; i < 2; i++) {  // a second time, since some scenarios change under way
    let result = await call(name, args).catch(error => ({ isError: true, content: [{ text: error.message }] }));
    if (result.isError && result.content[0].text.includes(CONNECT) && await connect())
      result = await call(name, args);
    console.error(name, result.isError ? 'failed:' : 'ok', result.content?.[0]?.text ?? '');
    if (name === 'add_numbers') break;
  }
}
await new Promise(done => setTimeout(done, Number(process.env.LINGER || 0)));
await client.close();
process.exit(failed ? 1 : 0);
