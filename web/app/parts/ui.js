// The small pieces that every screen is made of: functions that give a template. docs/design.md says when to use which.
import { html, nothing } from 'lit-html';
import { Failure } from '../base/api.js';
import { boxes, stateOf } from '../base/boxes.js';
import { Part } from '../base/part.js';
import { number, t } from '../base/text.js';
import { icon } from './icons.js';

/** A state: icon, word and colour, never colour alone. */
export const stateChip = state => html`<span class="chip state-${state}">${icon(state, state === 'starting' ? 'turns' : '')}<span>${t(`state_${state}`)}</span></span>`;
export const boxChip = box => stateChip(stateOf(box));

/** @param {'info' | 'good' | 'warn' | 'bad'} kind */
export const notice = (kind, body, actions = nothing) => html`<div class="notice ${kind}" role=${kind === 'bad' ? 'alert' : 'status'}><div>${body}</div>${actions === nothing ? nothing : html`<div class="actions">${actions}</div>`}</div>`;

/** Nothing to show: why, and the one thing that helps. */
export const empty = (name, body, action = nothing) => html`<div class="blank"><span class="blank-icon">${icon(name)}</span><div>${body}</div>${action}</div>`;

/** What comes in place of cards or rows until they are there. */
export const skeleton = (kind, n) => html`<div class="${kind}" aria-hidden="true">${Array.from({ length: n }, () => html`<div class="ghost"><i></i><i></i><i></i></div>`)}</div>`;

/** Why nothing could be loaded, and a way to try again. @param {import('../base/api.js').Failure} failure */
export const failedNotice = (failure, again) => notice('bad', html`<p><strong>${failure.status ? t('failed') : t('failed_network')}</strong></p>${failure.message ? html`<p>${failure.message}</p>` : nothing}`,
        html`<button type="button" @click=${again}>${t('try_again')}</button>`);

export const fact = (label, value) => value ? html`<div><dt>${label}</dt><dd>${value}</dd></div>` : nothing;
export const repoTags = repos => repos?.length ? html`<ul class="tags" aria-label=${t('repos')}>${repos.map(repo => html`<li class="tag">${icon('repo')}<bdi>${repo}</bdi></li>`)}</ul>` : nothing;

/** A client's name without its version's last digits: "claude-code/2.1.3" is "Claude Code". */
const known = { 'claude-code': 'Claude Code', codex: 'Codex', 'codex-mcp-client': 'Codex', 'gemini-cli': 'Gemini CLI', cursor: 'Cursor', 'cursor-vscode': 'Cursor' };
export function clientName(client) {
        if (!client) return t('client_unknown');
        const [name] = client.split('/');
        return known[name.toLowerCase()] ?? name;
}

export const who = box => html`<span class="who"><bdi>${clientName(box.agent?.client)}</bdi>${box.conversation ? html` <span class="quiet nowrap">${t('conversation', { name: box.conversation })}</span>` : nothing}</span>`;

/** What would be lost, as a list. @param {{ path: string, kind: string, uncommitted?: number, unpushedCommits?: number, changedFiles?: number }[]} work */
export const unsavedList = work => html`<ul class="unsaved">${work.map(entry => html`<li><code><bdi>/work/${entry.path}</bdi></code><span class="quiet">${entry.kind === 'git'
        ? [entry.uncommitted ? t('unsaved_uncommitted', { n: entry.uncommitted }) : '', entry.unpushedCommits ? t('unsaved_commits', { n: entry.unpushedCommits }) : ''].filter(Boolean).join(' · ')
        : t('unsaved_files', { n: entry.changedFiles ?? 0 })}</span></li>`)}</ul>`;

export const count = n => html`<span class="count">${number(n)}</span>`;

/** <psbx-restore .box>: brings an archived box back, and says why when it cannot. */
class Restore extends Part {
        /** @type {import('../base/boxes.js').Box | null} */
        box = null;
        #busy = false;
        #why = '';
        view() {
                return html`<button type="button" class="small" ?disabled=${this.#busy} @click=${() => this.#go()}>${icon('box')}<span>${this.#busy ? t('bringing_back') : t('bring_back')}</span></button>
                        ${this.#why ? html`<span class="wrong" role="alert">${this.#why}</span>` : nothing}`;
        }
        async #go() {
                this.#busy = true;
                this.#why = '';
                this.update();
                try {
                        await boxes.restore(this.box.id);
                } catch (error) {
                        this.#why = error instanceof Failure && error.message ? error.message : t('failed_network');
                }
                this.#busy = false;
                this.update();
        }
}
customElements.define('psbx-restore', Restore);

/** <psbx-copy .value>: puts a text on the clipboard and says so. Where the browser has none (plain http), it is not there. */
class Copy extends Part {
        value = '';
        #done = 0;
        view() {
                if (!navigator.clipboard) return nothing;
                return html`<button type="button" class="tool" @click=${() => this.#copy()}>${icon(this.#done ? 'check' : 'copy')}<span role="status">${this.#done ? t('copied') : t('copy')}</span></button>`;
        }
        async #copy() {
                await navigator.clipboard.writeText(this.value);
                clearTimeout(this.#done);
                this.#done = setTimeout(() => { this.#done = 0; this.update(); }, 2000);
                this.update();
        }
}
customElements.define('psbx-copy', Copy);
