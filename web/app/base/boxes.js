// Every box of the account as last known: asked for once, and then kept true by what is told on the stream.
import { Failure, get, post } from './api.js';
import { live } from './live.js';

/**
 * @typedef {{ id: number, tool: string, note?: string, command?: string, commandCut?: boolean, directory?: string, startedAt: string, endedAt?: string,
 *   durationMs?: number, exitCode?: number, signal?: string, timedOut?: boolean, oomKilled?: boolean, error?: string, conversation?: string }} Step
 * @typedef {{ id: string, name: string, goal: string, status: string, statusReason?: string, createdAt: string, lastUsedAt: string, heardAt?: string,
 *   agent: { state: string, client: string | null }, conversation?: string, size: string, image: string, repos: string[],
 *   services: { name: string, port: number, web?: boolean, url?: string }[], webUrl?: string, now: Step | null, running: number, last: Step | null,
 *   stopsAt?: string, restorableUntil?: string, review?: unknown }} Box
 */

/** What a person sees first: what needs them; then what is at work; then the rest. */
const groups = [['waiting'], ['stopped'], ['lost'], ['working', 'starting', 'away', 'untracked'], ['idle', 'frozen', 'archived']];
const states = groups.flat();
const rank = box => groups.findIndex(group => group.includes(stateOf(box)));

/** The state in one word. @param {Box} box */
export function stateOf(box) {
        if (box.status !== 'running') return states.includes(box.status) ? box.status : 'untracked';
        if (box.review) return 'waiting';
        if (box.agent.state === 'left') return 'stopped';
        if (box.agent.state === 'untracked') return box.now ? 'working' : 'untracked';
        return states.includes(box.agent.state) ? box.agent.state : 'untracked';
}

export const atWork = box => rank(box) === 3;
export const needsPerson = box => ['waiting', 'stopped', 'lost'].includes(stateOf(box));
export const ended = step => Boolean(step.endedAt);
export const failed = step => ended(step) && Boolean(step.error || step.signal || step.timedOut || step.oomKilled || step.exitCode);

/** Tells `change` (detail: the box's id, or null for all), and `step` (detail: {box, step}). */
class Boxes extends EventTarget {
        /** @type {Map<string, Box>} */
        all = new Map();
        /** @type {'loading' | 'ready' | 'failed'} */
        state = 'loading';
        /** @type {Failure | null} */
        failure = null;
        since = Date.now();
        /** Whether the archived ones are wanted too. */
        archived = false;
        /** Ids of those that were deleted while one looked: nobody need ask for them. */
        over = new Set();
        #due = new Map();

        constructor() {
                super();
                live.addEventListener('event', ({ detail }) => this.#told(detail.name, detail.data));
        }

        /** By group, the newest first: by when they were made, so that no card moves because something happens in its box. */
        sorted() {
                return [...this.all.values()].sort((a, b) => rank(a) - rank(b) || b.createdAt.localeCompare(a.createdAt));
        }

        async load() {
                if (this.state !== 'ready') {
                        this.state = 'loading';
                        this.since = Date.now();
                        this.#changed(null);
                }
                try {
                        const { boxes } = await get(`/v1/boxes${this.archived ? '?all=true' : ''}`);
                        this.all = new Map(boxes.map(box => [box.id, box]));
                        this.state = 'ready';
                        this.failure = null;
                } catch (error) {
                        this.failure = error instanceof Failure ? error : new Failure(0, String(error));
                        if (this.state !== 'ready') this.state = 'failed';
                }
                this.#changed(null);
        }

        /** One box anew. Also for one that the list does not have (it is over). @param {string} id */
        async refresh(id) {
                try {
                        const box = await get(`/v1/boxes/${id}`);
                        if (box.status === 'archived' && !this.archived) this.all.delete(id); // as in the list
                        else this.all.set(id, box);
                } catch (error) {
                        if (!(error instanceof Failure) || error.status !== 404) throw error;
                        this.all.delete(id);
                }
                this.#changed(id);
        }

        /** Archived ones too, or no longer. @param {boolean} wanted */
        async show(wanted) {
                this.archived = wanted;
                await this.load();
        }

        /** Brings an archived box back. Throws a Failure. @param {string} id */
        async restore(id) {
                await post(`/v1/boxes/${id}/restore`);
                await this.refresh(id);
        }

        /** It is deleted. @param {string} id */
        forget(id) {
                this.over.add(id);
                this.all.delete(id);
                clearTimeout(this.#due.get(id));
                this.#due.delete(id);
                this.#changed(id);
        }

        #soon(id) {
                if (this.#due.has(id) || this.over.has(id)) return;
                this.#due.set(id, setTimeout(() => {
                        this.#due.delete(id);
                        this.refresh(id).catch(() => {});
                }, 150));
        }

        #told(name, data) {
                if (name === 'ready' || name === 'reset') return void this.load();
                const box = this.all.get(data.box);
                if (name === 'box.state' && data.status === 'deleted') return this.forget(data.box);
                if (name.startsWith('step.')) this.dispatchEvent(new CustomEvent('step', { detail: data }));
                if (!box || name === 'box.state') return this.#soon(data.box);
                if (name === 'agent.state') box.agent.state = data.state;
                else this.#step(box, data.step);
                this.#changed(data.box);
        }

        /** @param {Box} box @param {Step} step */
        #step(box, step) {
                box.lastUsedAt = new Date().toISOString();
                if (!box.last || step.id >= box.last.id) box.last = step;
                if (!ended(step)) {
                        box.now = step;
                        box.running++;
                } else {
                        box.running = Math.max(0, box.running - 1);
                        if (box.now?.id === step.id) box.now = null;
                        if (box.running) this.#soon(box.id); // which of the others is the newest, the server knows
                }
        }

        #changed(id) { this.dispatchEvent(new CustomEvent('change', { detail: id })); }
}

export const boxes = new Boxes();
