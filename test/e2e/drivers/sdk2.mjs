// The same as sdk1.mjs with the TypeScript SDK, v2. ERA=auto first asks whether the server speaks the 2026 protocol.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { session } from './session.mjs';

const args = process.argv.slice(2);
const split = args.indexOf('--');
const transport = split >= 0
        ? new StdioClientTransport({ command: args[split + 1], args: args.slice(split + 2), env: { ...process.env }, stderr: 'inherit' })
        : new StreamableHTTPClientTransport(new URL(args[0]), { requestInit: { headers: { Authorization: 'Bearer ' + args[1] } } });
const client = new Client({ name: 'sdk2-driver', version: '2' }, { versionNegotiation: { mode: process.env.ERA || 'legacy' } });
await client.connect(transport);
const call = (name, args2, options = {}) => client.callTool({ name, arguments: args2 }, options);
const out = await session(client, call);
out.protocol = transport.protocolVersion ?? null;
out.session = transport.sessionId ?? null;
if (transport.terminateSession) await transport.terminateSession();
await client.close();
console.log(JSON.stringify(out));
process.exit(0);
