// Passkeys: the only thing on these pages that needs a script. Without one, or without WebAuthn, the parts stay hidden.
'use strict';

const bytes = text => Uint8Array.from(atob(text.replace(/-/g, '+').replace(/_/g, '/')), c => c.charCodeAt(0));
const text = buffer => btoa(String.fromCharCode(...new Uint8Array(buffer))).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');

async function ask(path, body, csrf) {
        const headers = { 'Content-Type': 'application/json' };
        if (csrf) headers['X-Psbx-Csrf'] = csrf;
        const answer = await fetch('/passkey/' + path, { method: 'POST', headers, body: JSON.stringify(body) });
        const data = await answer.json();
        if (!answer.ok) throw new Error(data.error);
        return data;
}

async function signIn(part) {
        const options = await ask('sign-in-options', {});
        options.challenge = bytes(options.challenge);
        const found = await navigator.credentials.get({ publicKey: options });
        const r = found.response;
        return ask('sign-in', { id: text(found.rawId), clientDataJSON: text(r.clientDataJSON), authenticatorData: text(r.authenticatorData),
                signature: text(r.signature), next: part.dataset.next });
}

async function register(part) {
        const options = await ask('register-options', {}, part.dataset.csrf);
        options.challenge = bytes(options.challenge);
        options.user.id = bytes(options.user.id);
        for (const known of options.excludeCredentials) known.id = bytes(known.id);
        const made = await navigator.credentials.create({ publicKey: options });
        return ask('register', { clientDataJSON: text(made.response.clientDataJSON), attestationObject: text(made.response.attestationObject),
                name: part.querySelector('input').value }, part.dataset.csrf);
}

// Browsers know passkeys for names only, not for addresses.
const named = !/^[\d.]+$|^\[/.test(location.hostname);
for (const part of document.querySelectorAll('[data-passkey]')) {
        if (!window.PublicKeyCredential || !window.isSecureContext || !named) continue;
        const button = part.querySelector('button'), note = part.querySelector('[role=alert]');
        part.hidden = false;
        button.addEventListener('click', async () => {
                button.disabled = true;
                note.hidden = true;
                try {
                        const { location: to } = await (part.dataset.passkey === 'register' ? register(part) : signIn(part));
                        // To where one is already, only another fragment would change: the page must be asked for anew.
                        if (new URL(to, location.href).href.split('#')[0] === location.href.split('#')[0]) {
                                history.replaceState(null, '', to);
                                location.reload();
                        } else {
                                location.assign(to);
                        }
                } catch (error) {
                        // The person closed the dialog: nothing to say.
                        if (error.name !== 'NotAllowedError' && error.name !== 'AbortError') {
                                note.textContent = error.message;
                                note.hidden = false;
                        }
                }
                button.disabled = false;
        });
}
