// Boxes: a card each; what needs the person comes first.
import { html, nothing } from 'lit-html';
import { repeat } from 'lit-html/directives/repeat.js';
import { atWork, boxes, needsPerson } from '../base/boxes.js';
import { Part } from '../base/part.js';
import { t } from '../base/text.js';
import { card } from '../parts/card.js';
import { icon } from '../parts/icons.js';
import '../parts/stop.js';
import { count, empty, failedNotice, skeleton } from '../parts/ui.js';

const SAY_MS = 300, SLOW_MS = 10000;

class BoxesScreen extends Part {
        begin() {
                this.listen(boxes, 'change', () => this.update());
                // Words come after a moment, and more of them when it takes long.
                for (const ms of [SAY_MS, SLOW_MS]) {
                        const timer = setTimeout(() => this.update(), ms + 20);
                        this.atEnd(() => clearTimeout(timer));
                }
        }

        #stop(box) { this.querySelector('psbx-stop').ask(box); }

        #group(id, title, list) {
                return list.length ? html`<section class="group" aria-labelledby=${id}>
                        <h2 id=${id}>${title} ${count(list.length)}</h2>
                        <div class="cards">${repeat(list, box => box.id, box => card(box, chosen => this.#stop(chosen)))}</div>
                </section>` : nothing;
        }

        #loading() {
                const waited = Date.now() - boxes.since;
                return html`<p class="busy" role="status">${waited > SLOW_MS ? t('loading_slow') : waited > SAY_MS ? t('loading_boxes') : nothing}</p>
                        ${waited > SLOW_MS ? html`<p><button type="button" @click=${() => location.reload()}>${t('try_again')}</button></p>` : nothing}
                        ${skeleton('cards', 3)}`;
        }

        #body() {
                if (boxes.state === 'loading') return this.#loading();
                if (boxes.state === 'failed') return failedNotice(boxes.failure, () => boxes.load());
                const all = boxes.sorted();
                if (!all.length) return html`${this.#empty()}${this.#archived()}`;
                return html`${this.#group('group-you', t('group_you'), all.filter(needsPerson))}
                        ${this.#group('group-work', t('group_work'), all.filter(atWork))}
                        ${this.#group('group-rest', t('group_rest'), all.filter(box => !needsPerson(box) && !atWork(box)))}
                        ${this.#archived()}`;
        }

        #archived() {
                return html`<p class="more"><button type="button" class="small plain" aria-pressed=${boxes.archived} @click=${() => boxes.show(!boxes.archived)}>${icon('archived')}<span>${boxes.archived ? t('hide_archived') : t('show_archived')}</span></button></p>`;
        }

        #empty() {
                const line = `claude mcp add --transport http parallelsandbox ${location.origin}/mcp`;
                return empty('box', html`<h2>${t('empty_title')}</h2><p>${t('empty_text')}</p>`,
                        html`<div class="code"><pre tabindex="0"><code>${line}</code></pre><psbx-copy .value=${line}></psbx-copy></div><p class="quiet">${t('empty_other')}</p>`);
        }

        view() {
                return html`<h1 tabindex="-1">${t('boxes')}</h1>${this.#body()}<psbx-stop></psbx-stop>`;
        }
}
customElements.define('psbx-boxes', BoxesScreen);
