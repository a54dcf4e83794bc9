// A stand-in for a person with a browser, for SDK clients: opens the authorization URL, signs in, allows, and returns the address that the
// server sent the browser to.
export async function consent(url, { login, password }) {
        const jar = new Map();
        const keep = answer => { for (const line of answer.headers.getSetCookie()) jar.set(line.split('=')[0], line.split(';')[0]); };
        const page = await fetch(url, { redirect: 'manual' });
        keep(page);
        const text = await page.text();
        const form = text.match(/<form method="post" action="\/authorize">.*?<\/form>/s)?.[0];
        if (!form) throw new Error(`no consent form: ${page.status} ${text.slice(0, 500)}`);
        const fields = new URLSearchParams();
        for (const [, name, value] of form.matchAll(/<input type="hidden" name="([^"]*)" value="([^"]*)"/g)) fields.set(name, value);
        fields.set('login', login);
        fields.set('password', password);
        fields.set('decision', 'allow');
        const answer = await fetch(new URL('/authorize', url), { method: 'POST', redirect: 'manual', body: fields,
                headers: { cookie: [...jar.values()].join('; '), origin: new URL(url).origin } });
        if (answer.status !== 303) throw new Error(`no redirect: ${answer.status} ${await answer.text()}`);
        return new URL(answer.headers.get('location'));
}

// What an SDK asks its application to keep.
export function memory(redirect) {
        const kept = {};
        return {
                kept,
                get redirectUrl() { return redirect; },
                get clientMetadata() { return { client_name: 'SDK test', redirect_uris: [redirect], grant_types: ['authorization_code', 'refresh_token'],
                        response_types: ['code'], token_endpoint_auth_method: 'none' }; },
                state: () => 'state-' + Math.random().toString(36).slice(2),
                clientInformation: () => kept.client,
                saveClientInformation: value => { kept.client = value; kept.registrations = (kept.registrations ?? 0) + 1; },
                tokens: () => kept.tokens,
                saveTokens: value => { kept.tokens = value; kept.saved = (kept.saved ?? 0) + 1; },
                codeVerifier: () => kept.verifier,
                saveCodeVerifier: value => { kept.verifier = value; },
                redirectToAuthorization: url => { kept.url = url; },
        };
}

// Signs in, calls, calls with a token that is no longer good (refresh), waits for a line on stdin (the test restarts the server), calls again
// with a new connection, and refreshes again. Prints "restart" and, at the end, what was seen.
export async function session(url, { Client, Transport, UnauthorizedError, options, finish }) {
        const person = { login: process.env.LOGIN, password: process.env.PASSWORD };
        const provider = memory('http://127.0.0.1:33418/callback');
        const connect = async () => {
                const client = new Client({ name: 'oauth-test', version: '1' }, options);
                const transport = new Transport(new URL(url), { authProvider: provider });
                try {
                        await client.connect(transport);
                        return client;
                } catch (error) {
                        if (!(error instanceof UnauthorizedError)) throw error;
                        await finish(transport, await consent(provider.kept.url, person));
                        const again = new Client({ name: 'oauth-test', version: '1' }, options);
                        await again.connect(new Transport(new URL(url), { authProvider: provider }));
                        return again;
                }
        };
        const list = async client => (await client.callTool({ name: 'sandbox_list', arguments: {} })).structuredContent.boxes.length >= 0;
        let client = await connect();
        const seen = { tools: (await client.listTools()).tools.length, first: await list(client) };
        provider.kept.tokens = { ...provider.kept.tokens, access_token: 'psa_no-longer-good' };
        seen.refreshed = await list(client);
        console.log('restart');
        await new Promise(resolve => process.stdin.once('data', resolve));
        seen.afterRestart = await list(client).catch(error => String(error));
        await client.close().catch(() => {});
        client = await connect();
        seen.reconnected = await list(client);
        provider.kept.tokens = { ...provider.kept.tokens, access_token: 'psa_no-longer-good' };
        seen.refreshedAgain = await list(client);
        await client.close();
        seen.registrations = provider.kept.registrations;
        seen.saved = provider.kept.saved;
        console.log(JSON.stringify(seen));
        process.exit(0);
}
