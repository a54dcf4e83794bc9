// node passkeys.mjs ORIGIN AUTHORIZE-URL: in Chromium with a virtual authenticator (WebAuthn by the debugger's protocol): adds a passkey in
// Settings, signs out, signs in with it, signs in with it on the consent page, and tries what must fail. Prints what was seen as JSON.
import { accessibility, launch, open } from './chromium.mjs';

const [origin, authorize] = process.argv.slice(2);
const browser = await launch();
const { context, page, seen } = await open(browser, [new URL(origin).host], { viewport: { width: 1440, height: 900 } });
const cdp = await context.newCDPSession(page);
await cdp.send('WebAuthn.enable');
const authenticator = async (more = {}) => (await cdp.send('WebAuthn.addVirtualAuthenticator', { options: { protocol: 'ctap2', transport: 'internal',
        hasResidentKey: true, hasUserVerification: true, isUserVerified: true, automaticPresenceSimulation: true, ...more } })).authenticatorId;
const press = (selector) => Promise.all([page.waitForNavigation(), page.click(selector)]);
const out = {};
let id = await authenticator();

await page.goto(origin + '/sign-in?next=/settings');
await page.fill('#login', process.env.LOGIN);
await page.fill('#password', process.env.PASSWORD);
await press('main form button[type=submit]');
await page.fill('#passkey-name', 'Test key <b>');
await press('#passkeys [data-passkey] button');
await page.waitForSelector('#passkeys .rows');
out.listed = await page.textContent('#passkeys .rows strong');
out.credentials = (await cdp.send('WebAuthn.getCredentials', { authenticatorId: id })).credentials.length;
out.accessibility = await accessibility(page);

const signOut = async () => { await page.goto(origin + '/sign-out'); await press('main button[type=submit]'); };
await signOut();
await page.goto(origin + '/sign-in?next=%2Fsettings');
await press('[data-passkey] button');
out.signedIn = new URL(page.url()).pathname;

await signOut();
await page.goto(authorize);
await press('[data-passkey] button');
await page.waitForSelector('.who');
out.consent = { password: await page.locator('#password').count(), who: await page.locator('.who').count() };

// Another look at the requests themselves: the challenge is good once, and the count may not go back.
await signOut();
await page.goto(origin + '/sign-in');
out.replay = await page.evaluate(async () => {
        const b = text => Uint8Array.from(atob(text.replace(/-/g, '+').replace(/_/g, '/')), c => c.charCodeAt(0));
        const t = buffer => btoa(String.fromCharCode(...new Uint8Array(buffer))).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');
        const post = (path, body) => fetch('/passkey/' + path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
        const options = await (await post('sign-in-options', {})).json();
        const ask = async challenge => {
                const found = await navigator.credentials.get({ publicKey: { ...options, challenge: b(challenge) } });
                return { id: t(found.rawId), clientDataJSON: t(found.response.clientDataJSON), authenticatorData: t(found.response.authenticatorData),
                        signature: t(found.response.signature) };
        };
        const answer = await ask(options.challenge);
        const wrong = { ...answer, signature: answer.signature.slice(0, -4) + 'AAAA' };
        const made = await ask('AAAA' + options.challenge.slice(4));
        return { made: (await post('sign-in', made)).status, wrong: (await post('sign-in', wrong)).status, again: (await post('sign-in', answer)).status };
});

// A second authenticator whose key the server does not know.
await cdp.send('WebAuthn.removeVirtualAuthenticator', { authenticatorId: id });
id = await authenticator();
await cdp.send('WebAuthn.addCredential', { authenticatorId: id, credential: { credentialId: btoa('a credential nobody knows'), isResidentCredential: true,
        rpId: 'localhost', userHandle: btoa('someone'), signCount: 1, privateKey: process.env.KEY } });
await page.goto(origin + '/sign-in');
await page.click('[data-passkey] button');
await page.waitForSelector('[data-passkey] [role=alert]:not([hidden])');
out.unknown = await page.textContent('[data-passkey] [role=alert]');
out.problems = [...seen.console.filter(line => !/status of 4\d\d/.test(line)), ...seen.foreign, ...seen.failed];

// At an address instead of a name there are no passkeys, and nothing is offered.
const plain = await open(browser, [`127.0.0.1:${new URL(origin).port}`]);
await plain.page.goto(origin.replace('localhost', '127.0.0.1') + '/sign-in');
out.offeredAtAddress = await plain.page.locator('[data-passkey]:visible').count();
// Without scripts everything but passkeys works.
const scriptless = await open(browser, [new URL(origin).host], { javaScriptEnabled: false });
await scriptless.page.goto(authorize);
await scriptless.page.fill('#login', process.env.LOGIN);
await scriptless.page.fill('#password', process.env.PASSWORD);
const [asked] = await Promise.all([scriptless.context.waitForEvent('request', request => request.url().startsWith('http://127.0.0.1:1111/')),
        scriptless.page.click('button[value=allow]')]);
out.scriptless = new URL(asked.url()).searchParams.has('code');
await browser.close();
console.log(JSON.stringify(out));
process.exit(0);
