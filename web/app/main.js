// The app: the bar, the screen that the address names, and the one place that says how fresh all of it is.
import { html } from 'lit-html';
import { boxes } from './base/boxes.js';
import { live } from './base/live.js';
import { Part } from './base/part.js';
import { here, route } from './base/route.js';
import { startLanguage, t } from './base/text.js';
import './parts/bar.js';
import { empty } from './parts/ui.js';
import './screens/box.js';
import './screens/boxes.js';

class App extends Part {
        #design = false;

        begin() {
                this.listen(route, 'change', () => this.#moved());
        }

        #moved() {
                window.scrollTo(0, 0);
                this.draw();
                // Whoever listens rather than looks is told where they are now.
                queueMicrotask(() => this.querySelector('h1')?.focus({ preventScroll: true }));
        }

        #screen() {
                const at = here();
                if (at.name === 'boxes') return html`<psbx-boxes></psbx-boxes>`;
                if (at.name === 'box') return html`<psbx-box .boxId=${at.id}></psbx-box>`;
                if (at.name === 'design') {
                        if (!this.#design) import('./screens/design.js').then(() => { this.#design = true; this.update(); });
                        return html`<psbx-design></psbx-design>`;
                }
                return html`<h1 tabindex="-1">${t('nothing_here')}</h1>${empty('lost', t('nothing_here_text'), html`<a class="button" href="/app/">${t('boxes')}</a>`)}`;
        }

        view() {
                const name = here().name;
                if (name !== 'box') document.title = `${t(`title_${name}`)} · ParallelSandbox`;
                return html`
                        <a class="skip" href="#main">${t('skip')}</a>
                        <psbx-bar></psbx-bar>
                        <main id="main" class="page">${this.#screen()}</main>
                        <psbx-tabs></psbx-tabs>`;
        }
}

// A service worker's address is the one thing here that a browser wants vouched for.
const policy = self.trustedTypes?.createPolicy('psbx', { createScriptURL: () => '/app/sw.js' });
async function keepShell() {
        try {
                await navigator.serviceWorker?.register(policy ? policy.createScriptURL('') : '/app/sw.js', { scope: '/app/' });
        } catch { /* without one the app needs the network to start, and is otherwise the same */ }
}

// Without texts there is nothing to say it in: a start that fails says so once, in one language, and tries again.
for (let wait = 1000; ; wait = Math.min(wait * 2, 15000)) {
        try {
                await startLanguage();
                document.querySelector('body > p')?.remove();
                break;
        } catch {
                const line = document.querySelector('body > p') ?? document.createElement('p');
                line.className = 'plain';
                line.textContent = 'The server cannot be reached. Trying again …';
                document.body.append(line);
                await new Promise(resolve => setTimeout(resolve, wait));
        }
}
customElements.define('psbx-app', App);
boxes.load();
live.start();
if (document.readyState === 'complete') keepShell();
else addEventListener('load', keepShell);
