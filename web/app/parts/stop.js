// <psbx-stop>: asks before a box is stopped, after it has looked for what would be lost.
import { html, nothing } from 'lit-html';
import { Failure, get, post } from '../base/api.js';
import { boxes } from '../base/boxes.js';
import { Part } from '../base/part.js';
import { t } from '../base/text.js';
import { icon } from './icons.js';
import { notice, unsavedList } from './ui.js';

class Stop extends Part {
        /** @type {import('../base/boxes.js').Box | null} */
        box = null;
        /** @type {'closed' | 'looking' | 'known' | 'unknown' | 'stopping' | 'failed'} */
        #phase = 'closed';
        #work = [];
        #why = '';
        #from = null;

        /** @param {import('../base/boxes.js').Box} box */
        async ask(box) {
                this.box = box;
                this.#phase = 'looking';
                this.#from = document.activeElement;
                this.draw();
                this.querySelector('dialog').showModal();
                try {
                        this.#work = (await get(`/v1/boxes/${box.id}/unsaved`)).unsavedWork;
                        if (this.#phase === 'looking') this.#phase = 'known';
                } catch (error) {
                        this.#why = error instanceof Failure ? error.message : '';
                        if (this.#phase === 'looking') this.#phase = 'unknown';
                }
                this.draw();
        }

        #close() { this.querySelector('dialog')?.close(); }

        #closed() {
                this.#phase = 'closed';
                this.update();
                if (this.#from?.isConnected) this.#from.focus();
        }

        async #stop() {
                this.#phase = 'stopping';
                this.draw();
                try {
                        const { status } = await post(`/v1/boxes/${this.box.id}/stop`);
                        this.#close();
                        if (status === 'deleted') boxes.forget(this.box.id);
                        else await boxes.refresh(this.box.id);
                } catch (error) {
                        this.#why = error instanceof Failure ? error.message : '';
                        this.#phase = 'failed';
                        this.draw();
                }
        }

        #body() {
                if (this.#phase === 'looking') return html`<p class="busy" role="status">${icon('starting', 'turns')}<span>${t('unsaved_looking')}</span></p>`;
                if (this.#phase === 'unknown') return notice('warn', html`<p>${t('unsaved_unknown')}</p>${this.#why ? html`<p class="quiet">${this.#why}</p>` : nothing}`);
                if (this.#phase === 'failed') return notice('bad', html`<p><strong>${t('stop_failed')}</strong></p>${this.#why ? html`<p>${this.#why}</p>` : nothing}`);
                if (!this.#work.length) return notice('good', html`<p>${t('unsaved_none')}</p>`);
                return notice('warn', html`<p><strong>${t('unsaved_some')}</strong></p>${unsavedList(this.#work)}`);
        }

        view() {
                if (!this.box || this.#phase === 'closed') return html`<dialog></dialog>`;
                const kept = ['archived', 'lost'].includes(this.box.status); // nothing runs any longer: this is the end of its files
                return html`<dialog aria-labelledby="stop-title" @close=${() => this.#closed()}>
                        <h2 id="stop-title">${kept ? t('delete_title') : t('stop_title')}</h2>
                        <p class="goal-line"><bdi>${this.box.goal || this.box.name}</bdi></p>
                        ${kept && this.#phase !== 'failed' ? nothing : this.#body()}
                        <p class="quiet">${kept ? t('delete_text') : this.box.stopsAt ? t('stop_kept') : t('stop_deleted')}</p>
                        <div class="actions even">
                                <button type="button" autofocus @click=${() => this.#close()}>${t('keep_running')}</button>
                                <button type="button" class="danger solid" ?disabled=${['looking', 'stopping'].includes(this.#phase)} @click=${() => this.#stop()}>${kept ? t('delete') : this.#phase === 'stopping' ? t('stopping') : t('stop_now')}</button>
                        </div>
                </dialog>`;
        }
}
customElements.define('psbx-stop', Stop);
