// Asks the server. Who is signed in is asked once; whatever changes something carries that session's token.

/** What went wrong, in the server's own words, with its status; 0 when nothing answered. */
export class Failure extends Error {
        /** @param {number} status @param {string} message */
        constructor(status, message) {
                super(message);
                this.status = status;
        }
}

/** @type {{ person: { id: string, login: string, name: string }, csrf: string } | null} */
let session = null;

export function signIn() {
        location.assign(`/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`);
}

/** @param {string} method @param {string} path @param {{ body?: unknown, signal?: AbortSignal }} [options] */
async function ask(method, path, { body, signal } = {}) {
        const headers = {};
        if (method !== 'GET') headers['X-Psbx-Csrf'] = (await whoami()).csrf;
        if (body !== undefined) headers['Content-Type'] = 'application/json';
        let answer;
        try {
                answer = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
        } catch (error) {
                if (signal?.aborted) throw error;
                throw new Failure(0, '');
        }
        if (answer.status === 401) {
                session = null;
                signIn();
        }
        const data = answer.headers.get('Content-Type')?.startsWith('application/json') ? await answer.json().catch(() => null) : null;
        if (!answer.ok) throw new Failure(answer.status, data?.error ?? '');
        return data;
}

export const get = (path, options) => ask('GET', path, options);
export const post = (path, body, options) => ask('POST', path, { ...options, body });

export async function whoami() {
        session ??= await get('/v1/session');
        return session;
}
