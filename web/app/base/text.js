// Texts in the person's language, and times, spans and lists as that language writes them.
const files = { en: '../text/en.json', ja: '../text/ja.json', 'zh-Hant': '../text/zh-Hant.json' };
export const languages = [['en', 'English'], ['ja', '日本語'], ['zh-Hant', '繁體中文']];

/** Tells `change` when the language did. */
export const text = new EventTarget();

let lang = 'en', words = {}, plural = new Intl.PluralRules('en');
const tools = new Map();

/** @param {string[]} wanted as browsers list them */
function best(wanted) {
        for (const tag of wanted) {
                if (/^ja\b/i.test(tag)) return 'ja';
                if (/^zh\b/i.test(tag)) return 'zh-Hant';
                if (/^en\b/i.test(tag)) return 'en';
        }
        return 'en';
}

function keep(key, value) { try { localStorage.setItem(key, value); } catch { /* a browser that keeps nothing */ } }
function kept(key) { try { return localStorage.getItem(key); } catch { return null; } }

/** @param {string} tag */
export async function setLanguage(tag) {
        const answer = await fetch(files[tag]);
        if (!answer.ok) throw new Error(`no texts (${answer.status})`);
        words = await answer.json();
        lang = tag;
        plural = new Intl.PluralRules(tag);
        tools.clear();
        document.documentElement.lang = tag;
        text.dispatchEvent(new Event('change'));
}

/** The language of an address (?lang=), else the one chosen before, else the browser's. */
export async function startLanguage() {
        const url = new URL(location.href), asked = url.searchParams.get('lang');
        if (asked && asked in files) {
                keep('lang', asked);
                url.searchParams.delete('lang');
                history.replaceState(null, '', url);
        }
        const own = kept('lang');
        await setLanguage(own && own in files ? own : best(navigator.languages ?? [navigator.language]));
}

export async function chooseLanguage(tag) {
        keep('lang', tag);
        await setLanguage(tag);
        // The pages that need no script are to follow; when they cannot, they keep their own.
        fetch(`/sign-in?lang=${tag}`, { redirect: 'manual' }).catch(() => {});
}

export const language = () => lang;

/**
 * A text with its {slots} filled. With a slot `n`, the text of that number's plural form (key_one, key_other) where there is one.
 * @param {string} key @param {Record<string, string | number>} [slots]
 */
export function t(key, slots) {
        let found = slots && typeof slots.n === 'number' ? words[`${key}_${plural.select(slots.n)}`] ?? words[`${key}_other`] ?? words[key] : words[key];
        if (found === undefined) return key;
        if (slots) found = found.replace(/\{(\w+)\}/g, (whole, name) => name in slots ? (typeof slots[name] === 'number' ? number(slots[name]) : slots[name]) : whole);
        return found;
}

function tool(name, make) {
        if (!tools.has(name)) tools.set(name, make());
        return tools.get(name);
}

export const number = n => tool('number', () => new Intl.NumberFormat(lang)).format(n);
export const clock = at => tool('clock', () => new Intl.DateTimeFormat(lang, { timeStyle: 'short' })).format(at);
export const clockSeconds = at => tool('seconds', () => new Intl.DateTimeFormat(lang, { timeStyle: 'medium' })).format(at);
export const dateTime = at => tool('date', () => new Intl.DateTimeFormat(lang, { dateStyle: 'medium', timeStyle: 'short' })).format(at);
export const day = at => tool('day', () => new Intl.DateTimeFormat(lang, { weekday: 'long', month: 'long', day: 'numeric' })).format(at);
export const list = items => tool('list', () => new Intl.ListFormat(lang, { type: 'unit' })).format(items);

const steps = [[3600, 'minute', 60], [86400, 'hour', 3600], [Infinity, 'day', 86400]];

/** "3 minutes ago", "in 2 hours". @param {number} at @param {number} [now] */
export function relative(at, now = Date.now()) {
        const seconds = (at - now) / 1000, size = Math.abs(seconds);
        if (size < 60) return t('now'); // a figure that changes every second is no calm one
        const [, unit, by] = steps.find(([limit]) => size < limit);
        return tool('relative', () => new Intl.RelativeTimeFormat(lang, { numeric: 'always', style: 'short' })).format(Math.trunc(seconds / by), unit);
}

const unit = (n, name, digits = 0) => tool(`${name}${digits}`, () => new Intl.NumberFormat(lang, { style: 'unit', unit: name, unitDisplay: 'short',
        maximumFractionDigits: digits })).format(n);

/** How long something took, in two units at most. @param {number} ms */
export function span(ms) {
        if (ms < 1000) return unit(Math.max(0, Math.round(ms)), 'millisecond');
        const s = ms / 1000;
        if (s < 10) return unit(Math.floor(s * 10) / 10, 'second', 1);
        if (s < 60) return unit(Math.floor(s), 'second');
        if (s < 3600) return `${unit(Math.floor(s / 60), 'minute')} ${unit(Math.floor(s % 60), 'second')}`;
        return `${unit(Math.floor(s / 3600), 'hour')} ${unit(Math.floor(s % 3600 / 60), 'minute')}`;
}
