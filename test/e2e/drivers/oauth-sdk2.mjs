// node oauth-sdk2.mjs URL: the TypeScript SDK v2 signs in by OAuth; ERA is auto or legacy.
import { Client, StreamableHTTPClientTransport, UnauthorizedError } from '@modelcontextprotocol/client';
import { session } from './oauth-browser.mjs';

await session(process.argv[2], { Client, Transport: StreamableHTTPClientTransport, UnauthorizedError,
        options: { versionNegotiation: { mode: process.env.ERA || 'auto' } },
        finish: (transport, to) => transport.finishAuth(to.searchParams) });
