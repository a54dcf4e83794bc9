// <psbx-ago> and <psbx-since>: times that stay true while one looks. One clock drives them all, and rests while nobody does.
import { Part } from '../base/part.js';
import { dateTime, relative, span } from '../base/text.js';

const shown = new Set();
let ticking = 0;

function tick() {
        if (document.visibilityState !== 'hidden') for (const part of shown) part.tick();
}

class Timed extends Part {
        #said = '';
        /** @type {string} RFC 3339 */
        at = '';
        begin() {
                shown.add(this);
                ticking ||= setInterval(tick, 1000);
                this.listen(document, 'visibilitychange', () => this.tick());
        }
        end() {
                shown.delete(this);
                if (!shown.size) {
                        clearInterval(ticking);
                        ticking = 0;
                }
        }
        say() { return ''; }
        tick() {
                const said = this.say();
                if (said === this.#said) return;
                this.#said = said;
                this.textContent = said;
        }
        draw() {
                this.#said = '';
                this.tick();
        }
        static get observedAttributes() { return ['at']; }
        attributeChangedCallback(name, old, value) {
                this.at = value;
                if (this.isConnected) this.draw();
        }
}

/** How long ago, with the whole date as its title. */
class Ago extends Timed {
        say() {
                const at = Date.parse(this.at);
                this.title = Number.isNaN(at) ? '' : dateTime(at);
                return Number.isNaN(at) ? '' : relative(at);
        }
}

/** How long it has been going on. */
class Since extends Timed {
        say() { return span(Math.max(0, Date.now() - Date.parse(this.at))); }
}

customElements.define('psbx-ago', Ago);
customElements.define('psbx-since', Since);
