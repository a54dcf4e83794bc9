// node oauth-sdk1.mjs URL: the TypeScript SDK v1 signs in by OAuth.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';
import { session } from './oauth-browser.mjs';

await session(process.argv[2], { Client, Transport: StreamableHTTPClientTransport, UnauthorizedError,
        finish: (transport, to) => transport.finishAuth(to.searchParams.get('code')) });
