// One box: how it stands, and every step, live.
import { html, nothing } from 'lit-html';
import { repeat } from 'lit-html/directives/repeat.js';
import { Failure, get } from '../base/api.js';
import { boxes, ended, needsPerson, stateOf } from '../base/boxes.js';
import { live } from '../base/live.js';
import { Part } from '../base/part.js';
import { day, dateTime, t } from '../base/text.js';
import { reason } from '../parts/card.js';
import { icon } from '../parts/icons.js';
import { stepRow } from '../parts/steps.js';
import '../parts/stop.js';
import '../parts/time.js';
import { boxChip, empty, fact, failedNotice, notice, repoTags, skeleton, who } from '../parts/ui.js';

const PAGE = 50;

class BoxScreen extends Part {
        #id = '';
        /** @type {Map<number, import('../base/boxes.js').Step>} */
        #steps = new Map();
        #more = false;
        #open = new Set();
        /** @type {'loading' | 'ready' | 'failed' | 'older'} */
        #phase = 'loading';
        /** @type {Failure | null} */
        #failure = null;
        #gone = false;
        #last = null;

        set boxId(id) {
                if (id === this.#id) return;
                this.#id = id;
                this.#steps.clear();
                this.#open.clear();
                this.#phase = 'loading';
                this.#gone = false;
                this.#last = null;
                if (this.isConnected) this.#load();
        }

        begin() {
                this.listen(boxes, 'change', ({ detail }) => { if (detail === null || detail === this.#id) this.#changed(); });
                this.listen(boxes, 'step', ({ detail }) => { if (detail.box === this.#id) this.#told(detail.step); });
                this.listen(live, 'event', ({ detail }) => { if (detail.name === 'ready' || detail.name === 'reset') this.#load(); });
                this.#load();
        }

        get #box() {
                this.#last = boxes.all.get(this.#id) ?? this.#last;
                return this.#last;
        }

        #changed() {
                if (boxes.all.has(this.#id)) this.#last = boxes.all.get(this.#id);
                else if (boxes.over.has(this.#id)) this.#gone = true;
                else if (this.#last && boxes.state === 'ready') this.#check();
                this.update();
        }

        // It left the list of those that run: it is over, or it was put away.
        async #check() {
                try {
                        this.#last = await get(`/v1/boxes/${this.#id}`);
                } catch (error) {
                        if (error instanceof Failure && error.status === 404) this.#gone = true;
                }
                this.update();
        }

        #told(step) {
                const known = this.#steps.get(step.id);
                this.#steps.set(step.id, known?.command && step.commandCut ? { ...step, command: known.command, commandCut: known.commandCut } : step);
                this.update();
        }

        async #load(before = 0) {
                const id = this.#id;
                if (before) this.#phase = 'older';
                this.update();
                try {
                        if (!before && !boxes.all.has(id)) {
                                this.#last = await get(`/v1/boxes/${id}`);
                                if (id !== this.#id) return;
                        }
                        const page = await get(`/v1/boxes/${id}/steps?limit=${PAGE}${before ? `&before=${before}` : ''}`);
                        if (id !== this.#id) return;
                        // A gap between what was known and the new page would be a lie.
                        if (!before && page.more && !page.steps.some(step => this.#steps.has(step.id))) this.#steps.clear();
                        for (const step of page.steps) this.#steps.set(step.id, step);
                        if (before || this.#phase !== 'ready' || this.#steps.size <= PAGE) this.#more = page.more;
                        this.#phase = 'ready';
                        this.#failure = null;
                } catch (error) {
                        if (id !== this.#id) return;
                        this.#failure = error instanceof Failure ? error : new Failure(0, '');
                        if (this.#failure.status === 404) this.#gone = true;
                        this.#phase = this.#steps.size ? 'ready' : 'failed';
                }
                this.update();
        }

        // The whole command is asked for when somebody wants to read it.
        async #toggle(step) {
                if (this.#open.delete(step.id)) return this.update();
                this.#open.add(step.id);
                this.update();
                if (!step.commandCut) return;
                const { steps: [whole] } = await get(`/v1/boxes/${this.#id}/steps?limit=1&before=${step.id + 1}`);
                if (whole?.id === step.id) this.#steps.set(step.id, whole);
                this.update();
        }

        #list() {
                const steps = [...this.#steps.values()].sort((a, b) => b.id - a.id);
                if (this.#phase === 'loading') return skeleton('rows', 5);
                if (this.#phase === 'failed') return failedNotice(this.#failure, () => this.#load());
                if (!steps.length) return empty('clock', html`<p>${t('no_steps')}</p>`);
                const days = new Map();
                for (const step of steps) {
                        const at = new Date(step.startedAt).toDateString();
                        days.set(at, [...days.get(at) ?? [], step]);
                }
                return html`${repeat(days, ([at]) => at, ([, list]) => html`
                        <h3 class="day">${day(Date.parse(list[0].startedAt))}</h3>
                        <ol class="steps" reversed>${repeat(list, step => step.id, step => stepRow(step, this.#open.has(step.id), () => this.#toggle(step)))}</ol>`)}
                        ${this.#failure ? failedNotice(this.#failure, () => this.#load()) : nothing}
                        ${this.#more ? html`<button type="button" class="wide" ?disabled=${this.#phase === 'older'} @click=${() => this.#load(steps.at(-1).id)}>${this.#phase === 'older' ? t('loading_older') : t('show_older')}</button>` : nothing}`;
        }

        #notice(box) {
                const state = stateOf(box);
                if (this.#gone) return notice('info', html`<p><strong>${t('gone_title')}</strong></p><p>${t('gone_text')}</p>`, html`<a class="button" href="/app/">${t('all_boxes')}</a>`);
                if (state === 'stopped') return notice('warn', html`<p><strong>${t('stopped_title')}</strong> ${box.heardAt ? html`<span class="quiet"><psbx-ago at=${box.heardAt}></psbx-ago></span>` : nothing}</p><p>${t('stopped_text')}</p>`,
                        html`<button type="button" @click=${() => this.#stop()}>${icon('stop')}<span>${t('stop_box')}</span></button>`);
                if (state === 'lost') return notice('bad', html`<p>${reason(box)}</p>`, html`<button type="button" @click=${() => this.#stop()}>${icon('stop')}<span>${t('remove_box')}</span></button>`);
                if (state === 'archived') return notice('info', html`<p>${reason(box)}</p>`, html`<psbx-restore .box=${box}></psbx-restore>`);
                return reason(box) ? notice('info', html`<p>${reason(box)}</p>`) : nothing;
        }

        #stop() { this.querySelector('psbx-stop').ask(this.#box); }

        #facts(box) {
                return html`<dl class="facts">
                        ${fact(t('fact_client'), who(box))}
                        ${fact(t('fact_name'), html`<bdi>${box.name}</bdi>`)}
                        ${box.name === box.id ? nothing : fact(t('fact_id'), html`<code>${box.id}</code>`)}
                        ${fact(t('fact_used'), html`<psbx-ago at=${box.lastUsedAt}></psbx-ago>`)}
                        ${fact(t('fact_created'), dateTime(Date.parse(box.createdAt)))}
                        ${box.stopsAt ? fact(t('fact_stops'), html`<psbx-ago at=${box.stopsAt}></psbx-ago>`) : nothing}
                        ${box.restorableUntil ? fact(t('fact_kept'), dateTime(Date.parse(box.restorableUntil))) : nothing}
                        ${fact(t('fact_size'), t(`size_${box.size}`))}
                        ${fact(t('fact_image'), html`<bdi>${box.image}</bdi>`)}
                        ${box.repos?.length ? fact(t('repos'), repoTags(box.repos)) : nothing}
                        ${box.services?.length ? fact(t('services'), html`<ul class="plain-list">${box.services.map(service => html`<li>${service.web && service.url
                                ? html`<a href=${service.url} target="_blank" rel="noopener noreferrer"><bdi>${service.name}</bdi></a>` : html`<bdi>${service.name}</bdi>`} <span class="quiet">:${String(service.port)}</span></li>`)}</ul>`) : nothing}
                </dl>`;
        }

        view() {
                const box = this.#box;
                const back = html`<a class="back" href="/app/">${icon('back')}<span>${t('boxes')}</span></a>`;
                if (!box) {
                        const missing = this.#failure;
                        document.title = `${t('title_box')} · ParallelSandbox`;
                        return html`${back}<h1 tabindex="-1">${this.#gone ? t('unknown_title') : t('title_box')}</h1>${this.#gone ? empty('lost', html`<p>${t('unknown_text')}</p>`, html`<a class="button" href="/app/">${t('all_boxes')}</a>`)
                                : missing ? failedNotice(missing, () => this.#load()) : html`<p class="busy" role="status">${t('loading_box')}</p>${skeleton('rows', 5)}`}`;
                }
                document.title = `${box.goal || box.name} · ParallelSandbox`;
                const runs = [...this.#steps.values()].filter(step => !ended(step)).length;
                return html`${back}
                        <div class="box-head">
                                ${boxChip(box)}
                                ${this.#gone || needsPerson(box) ? nothing : html`<button type="button" class="small" @click=${() => this.#stop()}>${icon('stop')}<span>${stateOf(box) === 'archived' ? t('remove_box') : t('stop_box')}</span></button>`}
                        </div>
                        <h1 tabindex="-1"><bdi>${box.goal || box.name}</bdi></h1>
                        ${this.#notice(box)}
                        <div class="box-body">
                                <section aria-labelledby="steps-title">
                                        <h2 id="steps-title">${t('steps')} <span class="quiet" role="status">${runs ? t('running_n', { n: runs }) : nothing}</span></h2>
                                        ${this.#list()}
                                </section>
                                <aside aria-labelledby="about-title"><h2 id="about-title">${t('about')}</h2>${this.#facts(box)}</aside>
                        </div>
                        <psbx-stop></psbx-stop>`;
        }
}
customElements.define('psbx-box', BoxScreen);
