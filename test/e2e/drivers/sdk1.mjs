// Drives a server with the TypeScript SDK, v1, as an agent's client would, and prints one JSON object of what it saw.
//   node sdk1.mjs URL KEY          over Streamable HTTP
//   node sdk1.mjs -- PROGRAM ...   over a program's stdio
// The SDK checks every structuredContent against the tool's outputSchema and throws when they disagree.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { session } from './session.mjs';

const args = process.argv.slice(2);
const split = args.indexOf('--');
const transport = split >= 0
        ? new StdioClientTransport({ command: args[split + 1], args: args.slice(split + 2), env: { ...process.env }, stderr: 'inherit' })
        : new StreamableHTTPClientTransport(new URL(args[0]), { requestInit: { headers: { Authorization: 'Bearer ' + args[1] } } });
const client = new Client({ name: 'sdk1-driver', version: '1' }, { capabilities: {} });
await client.connect(transport);
const call = (name, args2, options = {}) => client.callTool({ name, arguments: args2 }, undefined, options);
const out = await session(client, call);
out.protocol = transport.protocolVersion ?? null;
out.session = transport.sessionId ?? null;
if (transport.terminateSession) await transport.terminateSession();
await client.close();
console.log(JSON.stringify(out));
process.exit(0);
