// The design page: every component in every state, with made-up contents. What changes a component looks here, in both themes and all languages.
import { html, nothing } from 'lit-html';
import { Part } from '../base/part.js';
import { t } from '../base/text.js';
import { freshness } from '../parts/bar.js';
import { card } from '../parts/card.js';
import { icon } from '../parts/icons.js';
import { stepRow } from '../parts/steps.js';
import '../parts/stop.js';
import { count, empty, failedNotice, notice, repoTags, skeleton, stateChip, unsavedList } from '../parts/ui.js';
import { Failure } from '../base/api.js';

const states = ['waiting', 'stopped', 'lost', 'working', 'starting', 'away', 'untracked', 'idle', 'frozen', 'archived'];
const colours = ['bg', 'card', 'raised', 'ink', 'muted', 'line', 'field', 'accent', 'accent-soft', 'accent-text', 'good', 'good-soft', 'good-ink', 'warn', 'warn-soft', 'warn-ink', 'bad', 'bad-soft', 'ice-soft', 'ice-ink', 'quiet-soft', 'quiet-ink'];
const ago = minutes => new Date(Date.now() - minutes * 60000).toISOString();

const step = (id, more) => ({ id, tool: 'sandbox_exec', note: 'Runs the tests of the parser', command: 'npm test -- --run parser\nnpm run lint', directory: '/work/app', conversation: '7f3a2b',
        startedAt: ago(3), endedAt: ago(2), durationMs: 63000, exitCode: 0, ...more });
const running = step(1, { endedAt: undefined, durationMs: undefined, exitCode: undefined });
const samples = [
        running,
        step(2),
        step(3, { note: 'Installs what is missing', command: 'apt-get install -y ripgrep', exitCode: 100, durationMs: 8200 }),
        step(4, { tool: 'sandbox_sync', note: undefined, command: undefined, directory: 'app', exitCode: undefined, durationMs: 410 }),
        step(5, { note: 'Builds everything', exitCode: undefined, timedOut: true, durationMs: 120000 }),
        step(6, { note: 'Reads a very large file into memory at once', exitCode: undefined, oomKilled: true, signal: 'SIGKILL', durationMs: 5600 }),
        step(7, { note: 'A note as long as two hundred characters may be, so that one sees how it breaks into lines on a phone and where it is cut on a desktop, without ever running out of its row or over its neighbour', exitCode: undefined, error: 'the server was restarted while this ran; sandbox_procs may still have its result' }),
];
const sample = (id, status, agent, more = {}) => ({ id, name: id, goal: 'Make the parser accept comments, and prove it', status, createdAt: ago(300), lastUsedAt: ago(2), heardAt: ago(2), agent: { state: agent, client: 'claude-code/2.1' },
        conversation: '7f3a2b', size: 'medium', image: 'host', repos: ['acme/parser'], services: [], now: null, running: 0, last: step(2), ...more });
const cards = [
        sample('stopped', 'running', 'left', { heardAt: ago(14), last: step(8, { exitCode: 1, endedAt: ago(15) }) }),
        sample('lost', 'lost', 'away', { statusReason: 'its processes ended; its files are kept' }),
        sample('working', 'running', 'working', { now: running, running: 1, services: [{ name: 'web', port: 5173, web: true, url: '/app/design' }] }),
        sample('fresh', 'starting', 'working', { last: null, repos: [], goal: 'x' }),
        sample('away', 'running', 'away', { goal: 'Find out why the nightly build of the documentation takes forty minutes on the small machine, and write down what could be left out' }),
        sample('frozen', 'frozen', 'idle', { lastUsedAt: ago(2000), heardAt: ago(2000), stopsAt: new Date(Date.now() + 86400000 * 3).toISOString() }),
        sample('archived', 'archived', 'left', { lastUsedAt: ago(9000), heardAt: ago(9000), restorableUntil: new Date(Date.now() + 86400000 * 20).toISOString() }),
];

class Design extends Part {
        #open = new Set([3]);

        #toggle(id) {
                if (!this.#open.delete(id)) this.#open.add(id);
                this.update();
        }

        #part(id, title, body) {
                return html`<section class="group sample" aria-labelledby="design-${id}"><h2 id="design-${id}">${title}</h2>${body}</section>`;
        }

        begin() {
                // The page's own style is loaded with it, not with the app.
                const link = document.createElement('link');
                link.rel = 'stylesheet';
                link.href = '../style/design.css';
                document.head.append(link);
                this.atEnd(() => link.remove());
        }

        view() {
                return html`<h1 tabindex="-1">${t('title_design')}</h1><p class="quiet lead">${t('design_lead')}</p>
                        ${this.#part('colours', t('design_colours'), html`<ul class="swatches">${colours.map(name => html`<li><i class="swatch swatch-${name}"></i><code>${name}</code></li>`)}</ul>`)}
                        ${this.#part('type', t('design_type'), html`<p class="sample-1">${t('design_sample')}</p><p class="sample-2">${t('design_sample')}</p><p>${t('design_sample')}</p><p class="quiet">${t('design_sample')}</p><div class="code"><pre tabindex="0"><code>git log --oneline | head</code></pre><psbx-copy .value=${'git log --oneline | head'}></psbx-copy></div>`)}
                        ${this.#part('buttons', t('design_buttons'), html`<div class="actions">
                                <button type="button" class="primary">${t('try_again')}</button><button type="button">${t('keep_running')}</button><button type="button" class="danger">${t('stop_box')}</button><button type="button" class="danger solid">${t('stop_now')}</button>
                                <button type="button" class="small">${icon('stop')}<span>${t('stop')}</span></button><button type="button" class="small plain">${icon('stop')}<span>${t('stop')}</span></button><button type="button" class="tool" aria-label=${t('copy')}>${icon('copy')}</button><button type="button" disabled>${t('stopping')}</button>
                                <a class="button" href="/app/">${t('all_boxes')}</a></div>`)}
                        ${this.#part('states', t('design_states'), html`<p class="chips">${states.map(stateChip)}</p><p class="chips">${count(3)} ${repoTags(['acme/parser', 'acme/a-repository-with-a-long-name'])}</p>`)}
                        ${this.#part('live', t('design_live'), html`<p class="chips">${['live', 'connecting', 'waiting', 'offline'].map(state => freshness(state, Date.now()))}</p>`)}
                        ${this.#part('cards', t('design_cards'), html`<div class="cards">${cards.map(box => card(box, chosen => this.querySelector('psbx-stop').ask(chosen)))}</div>`)}
                        ${this.#part('steps', t('design_steps'), html`<ol class="steps" reversed>${samples.map(one => stepRow(one, this.#open.has(one.id), () => this.#toggle(one.id)))}</ol>`)}
                        ${this.#part('notices', t('design_notices'), html`${notice('info', html`<p>${t('frozen_why')}</p>`)}${notice('good', html`<p>${t('unsaved_none')}</p>`)}
                                ${notice('warn', html`<p><strong>${t('unsaved_some')}</strong></p>${unsavedList([{ path: 'parser', kind: 'git', uncommitted: 3, unpushedCommits: 1 }, { path: 'notes.txt', kind: 'files', changedFiles: 1 }])}`, html`<button type="button">${t('stop_box')}</button>`)}
                                ${failedNotice(new Failure(503, 'boxhost is not connected yet'), () => {})}${failedNotice(new Failure(0, ''), () => {})}`)}
                        ${this.#part('loading', t('design_loading'), html`<p class="busy" role="status">${icon('starting', 'turns')}<span>${t('loading_boxes')}</span></p>${skeleton('cards', 3)}${skeleton('rows', 2)}`)}
                        ${this.#part('empty', t('design_empty'), html`${empty('box', html`<h3>${t('empty_title')}</h3><p>${t('empty_text')}</p>`)}${empty('clock', html`<p>${t('no_steps')}</p>`, nothing)}`)}
                        <psbx-stop></psbx-stop>`;
        }
}
customElements.define('psbx-design', Design);
