// Part: a custom element that draws itself with lit-html into its own light DOM, and again whenever it is told to.
import { render } from 'lit-html';
import { text } from './text.js';

export class Part extends HTMLElement {
        #ends = [];
        #due = false;

        connectedCallback() {
                this.listen(text, 'change', () => this.update());
                this.begin();
                this.draw();
        }

        disconnectedCallback() {
                for (const end of this.#ends.splice(0)) end();
                this.end();
        }

        /** For parts to say what they need while they are shown. */
        begin() {}
        end() {}
        /** @returns {unknown} what to draw */
        view() { return ''; }
        /** After each drawing. */
        drawn() {}

        /** Listens until the part goes away. @param {EventTarget} target @param {string} type @param {(event: any) => void} fn */
        listen(target, type, fn) {
                target.addEventListener(type, fn);
                this.#ends.push(() => target.removeEventListener(type, fn));
        }

        /** @param {() => void} fn to run when the part goes away */
        atEnd(fn) { this.#ends.push(fn); }

        /** Draws once, however often it was asked in this turn. */
        update() {
                if (this.#due) return;
                this.#due = true;
                queueMicrotask(() => {
                        this.#due = false;
                        if (this.isConnected) this.draw();
                });
        }

        draw() {
                render(this.view(), this);
                this.drawn();
        }
}
