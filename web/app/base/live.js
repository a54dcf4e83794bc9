// The one stream of events of this browser. The tab that holds the lock reads it and passes everything on to the others; when it goes, or
// is out of sight, another goes on from the last event that it saw. Where there are no locks (plain http by another name than localhost)
// each tab has its own.

const AWAY_MS = 10000;         // out of sight for so long, the stream is given up
const SAY_MS = 1500;           // a pause shorter than this is not worth a word
const OFFLINE_MS = 12000;
const WAITS = [1000, 2000, 4000, 8000, 15000];

/**
 * Tells `event` (detail: {name, data}) and `state`. state: connecting, live, waiting, offline; at: the last moment at which what is shown
 * was known to be true.
 */
class Live extends EventTarget {
        state = 'connecting';
        at = Date.now();
        last = '';
        #source = null;
        #tries = 0;
        #timers = {};
        #release = null;
        #asked = null;
        #channel = 'BroadcastChannel' in self ? new BroadcastChannel('psbx-events') : null;

        start() {
                this.#channel?.addEventListener('message', ({ data }) => this.#told(data));
                this.#channel?.postMessage({ who: true });
                document.addEventListener('visibilitychange', () => this.#seen());
                addEventListener('online', () => { if (this.#release) this.#open(); });
                addEventListener('offline', () => { if (this.#release) this.#broken(); });
                addEventListener('pagehide', () => this.#leave());
                addEventListener('pageshow', event => { if (event.persisted) this.#seen(); });
                this.#seen();
        }

        #seen() {
                clearTimeout(this.#timers.away);
                if (document.visibilityState === 'visible') this.#lead();
                else this.#timers.away = setTimeout(() => this.#leave(), AWAY_MS);
        }

        #lead() {
                if (this.#asked) return;
                const asked = this.#asked = new AbortController();
                const hold = () => new Promise(resolve => {
                        if (asked.signal.aborted) return resolve();
                        this.#release = resolve;
                        this.#tries = 0;
                        this.#open();
                });
                if (!navigator.locks) hold();
                else navigator.locks.request('psbx-events', { signal: asked.signal }, hold).catch(() => {});
        }

        #leave() {
                this.#asked?.abort();
                this.#asked = null;
                this.#source?.close();
                this.#source = null;
                clearTimeout(this.#timers.again);
                clearTimeout(this.#timers.say);
                this.#release?.();
                this.#release = null;
        }

        #open() {
                clearTimeout(this.#timers.again);
                this.#source?.close();
                const source = this.#source = new EventSource(`/v1/events${this.last ? `?since=${this.last}` : ''}`);
                source.onopen = () => {
                        this.#tries = 0;
                        this.#set('live');
                };
                source.onerror = () => this.#broken();
                for (const name of ['ready', 'reset', 'box.state', 'step.begin', 'step.end', 'agent.state'])
                        source.addEventListener(name, event => {
                                const told = { id: event.lastEventId, name, data: JSON.parse(event.data) };
                                this.#channel?.postMessage(told);
                                this.#take(told);
                        });
        }

        #broken() {
                this.#source?.close();
                this.#source = null;
                if (this.state === 'live') this.at = Date.now();
                const wait = WAITS[Math.min(this.#tries++, WAITS.length - 1)];
                clearTimeout(this.#timers.again);
                this.#timers.again = setTimeout(() => this.#open(), wait);
                if (!navigator.onLine || Date.now() - this.at > OFFLINE_MS) return this.#set('offline');
                clearTimeout(this.#timers.say);
                this.#timers.say = setTimeout(() => { if (this.#source?.readyState !== EventSource.OPEN) this.#set('waiting'); }, this.state === 'live' ? SAY_MS : 0);
        }

        #take({ id, name, data }) {
                this.last = id;
                this.at = Date.now();
                this.dispatchEvent(new CustomEvent('event', { detail: { name, data } }));
        }

        #told(message) {
                if (message.who) {
                        if (this.#release) this.#channel.postMessage({ state: this.state, at: this.at });
                } else if (message.state) {
                        if (!this.#release) this.#set(message.state, message.at);
                } else if (!this.#release) {
                        this.#take(message);
                        this.#set('live');
                }
        }

        #set(state, at) {
                if (state !== 'waiting') clearTimeout(this.#timers.say);
                if (state === 'live') this.at = Date.now();
                else if (at) this.at = at;
                if (state === this.state) return;
                this.state = state;
                if (this.#release) this.#channel?.postMessage({ state, at: this.at });
                this.dispatchEvent(new Event('state'));
        }
}

export const live = new Live();
