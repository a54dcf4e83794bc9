// node app.mjs PART ORIGIN JSON: the app in a browser; prints one JSON object. SHOTS names a folder for pictures.
//   screens  every screen and state at both sizes, in three languages, light and dark
//   live     what happens, as it happens: answers lines of standard input, one JSON object a line
import fs from 'node:fs';
import readline from 'node:readline';
import { accessibility, launch, layout, open } from './chromium.mjs';

const [part, origin, json = '{}'] = process.argv.slice(2);
const given = JSON.parse(json);
const sizes = { phone: { width: 390, height: 844 }, desktop: { width: 1440, height: 900 } };
const languages = ['en', 'ja', 'zh-Hant'];
const problems = [], visited = [];
const browser = await launch();

async function enter({ form = 'desktop', scheme = 'light', lang = 'en', size, path = '/app/' } = {}) {
        const found = await open(browser, [new URL(origin).host], { viewport: size ?? sizes[form], colorScheme: scheme, locale: lang === 'zh-Hant' ? 'zh-TW' : lang,
                isMobile: form === 'phone', hasTouch: form === 'phone', permissions: ['clipboard-read', 'clipboard-write'] });
        found.context.setDefaultTimeout(60000);
        await found.page.goto(`${origin}/sign-in?next=${encodeURIComponent(path)}`);
        await found.page.fill('#login', given.login);
        await found.page.fill('#password', given.password);
        await Promise.all([found.page.waitForURL(url => url.pathname.startsWith('/app')), found.page.click('main form button[type=submit]')]);
        return found;
}

// What a text that was not found looks like: its key.
const keys = Object.keys(JSON.parse(fs.readFileSync(given.texts, 'utf8'))).filter(key => key.includes('_'));

async function look(page, name, lang, whole = false) {
        for (const text of [...await accessibility(page), ...await layout(page)]) problems.push(`${name}: ${text}`);
        const is = await page.evaluate(known => ({ lang: document.documentElement.lang, text: document.body.innerText, title: document.title, known: known.filter(key => document.body.innerText.split(/\s+/).includes(key)) }), keys);
        if (is.lang !== lang) problems.push(`${name}: the page is in ${is.lang}`);
        if (is.known.length || /\{\w+\}|undefined|NaN|\[object/.test(is.text + is.title)) problems.push(`${name}: unfilled: ${is.known} ${is.text.match(/.*(\{\w+\}|undefined|NaN|\[object).*/)?.[0] ?? is.title}`);
        if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/${name}.png`, fullPage: whole });
        visited.push(name);
}

async function tour(form, scheme, lang, size) {
        const tag = `${form}-${scheme}-${lang}${size ? `-${size.width}` : ''}`;
        const at = await enter({ form, scheme, lang, size });
        try {
                await visit(at, tag, lang);
        } catch (error) {
                problems.push(`${tag}: ${error}`, ...at.seen.console, ...at.seen.failed, await at.page.evaluate(() => `${location} ${document.visibilityState} ${document.body.innerText.slice(0, 600)}`));
        }
        await at.context.close();
}

async function visit({ page, seen }, tag, lang) {
        const go = async (path, wait, name, whole) => {
                await page.goto(origin + path);
                await page.locator(wait).first().waitFor();
                await look(page, `${name}-${tag}`, lang, whole);
        };
        await page.locator('.live-live').waitFor();
        await page.locator('.box-card').nth(2).waitFor();
        await look(page, `boxes-${tag}`, lang);
        const order = await page.locator('.box-card').evaluateAll(cards => cards.map(card => card.classList[1]));
        if (order.lastIndexOf('stopped') > order.indexOf('working')) problems.push(`${tag}: what needs the person does not come first: ${order}`);
        await page.click('psbx-menu > button');
        await look(page, `menu-${tag}`, lang);
        await page.keyboard.press('Escape');
        await go(`/app/boxes/${given.working}`, '.step.runs', 'box', true);
        await page.locator('.step.bad .step-head').first().click();
        await page.locator('.step.bad .code').first().waitFor();
        await look(page, `step-${tag}`, lang, true);
        await go(`/app/boxes/${given.stopped}`, '.notice.warn', 'stopped', true);
        await page.locator('.notice.warn button').click();
        await page.locator('dialog .unsaved').waitFor();
        await look(page, `stop-${tag}`, lang);
        await page.keyboard.press('Escape');
        await page.locator('dialog[open]').waitFor({ state: 'detached' });
        await go('/app/boxes/nosuchbox1', '.blank', 'unknown');
        await go('/app/nothing/here', '.blank', 'nothing');
        await go('/app/design', '.swatches', 'design', true);
        // Keyboard alone: the first stop is the way around the bar, and every stop can be seen.
        await page.goto(origin + '/app/');
        await page.locator('.box-card').first().waitFor();
        await page.keyboard.press('Tab');
        if (await page.evaluate(() => document.activeElement.className) !== 'skip') problems.push(`${tag}: the first stop is not the skip link`);
        for (let i = 0; i < 14; i++) {
                await page.keyboard.press('Tab');
                const seenStop = await page.evaluate(() => {
                        const at = document.activeElement, outline = node => node && parseFloat(getComputedStyle(node).outlineWidth) >= 2 && getComputedStyle(node).outlineStyle !== 'none';
                        return at === document.body || outline(at) || outline(at.closest('.box-card'));
                });
                if (!seenStop) problems.push(`${tag}: a stop of the keyboard cannot be seen: ${await page.evaluate(() => document.activeElement.outerHTML.slice(0, 90))}`);
        }
        // The box that does not exist is asked for on purpose; nothing else may be told on the console.
        for (const line of seen.console) if (!/nosuchbox1.*status of 404/.test(line)) problems.push(`${tag}: console: ${line}`);
        for (const line of [...seen.foreign, ...seen.failed]) problems.push(`${tag}: ${line}`);
}

async function screens() {
        const only = process.env.ONLY?.split(',');
        for (const form of Object.keys(sizes))
                for (const scheme of ['light', 'dark'])
                        for (const lang of languages)
                                if (!only || only.includes(`${form}-${scheme}-${lang}`)) await tour(form, scheme, lang);
        // The narrowest phone, in each language.
        if (!only) for (const lang of languages) await tour('phone', 'light', lang, { width: 360, height: 740 });
        return { visited: visited.length, problems };
}

// A page that a test leads by the hand. Each line is {do: NAME, …}; each answer {ok} or {error}.
async function live() {
        const tabs = {};
        let main;
        const steps = {
                enter: async how => { main = await enter(how); tabs.one = main.page; return true; },
                tab: async ({ name, path = '/app/' }) => { tabs[name] = await main.context.newPage(); await tabs[name].goto(origin + path); return true; },
                goto: async ({ tab = 'one', path }) => { await tabs[tab].goto(path.startsWith('http') ? path : origin + path); return true; },
                reload: async ({ tab = 'one' }) => { await tabs[tab].reload().catch(error => { throw error; }); return true; },
                close: async ({ tab }) => { await tabs[tab].close(); return true; },
                wait: async ({ tab = 'one', at, text, gone, timeout = 30000 }) => {
                        await tabs[tab].locator(at, text ? { hasText: text } : {}).first().waitFor({ state: gone ? 'detached' : 'visible', timeout });
                        return true;
                },
                text: async ({ tab = 'one', at }) => tabs[tab].locator(at).first().innerText(),
                texts: async ({ tab = 'one', at }) => tabs[tab].locator(at).allInnerTexts(),
                click: async ({ tab = 'one', at, text }) => { await tabs[tab].locator(at, text ? { hasText: text } : {}).first().click(); return true; },
                press: async ({ tab = 'one', key }) => { await tabs[tab].keyboard.press(key); return true; },
                focused: async ({ tab = 'one' }) => tabs[tab].evaluate(() => `${document.activeElement.tagName} ${document.activeElement.innerText ?? ''}`),
                eval: async ({ tab = 'one', code }) => tabs[tab].evaluate(code),
                offline: async ({ on }) => { await main.context.setOffline(on); return true; },
                shot: async ({ tab = 'one', name }) => { if (process.env.SHOTS) await tabs[tab].screenshot({ path: `${process.env.SHOTS}/${name}.png` }); return true; },
                check: async ({ tab = 'one' }) => [...await accessibility(tabs[tab]), ...await layout(tabs[tab])],
                url: async ({ tab = 'one' }) => new URL(tabs[tab].url()).pathname,
                seen: async () => main.seen,
        };
        for await (const line of readline.createInterface({ input: process.stdin })) {
                const { do: name, ...how } = JSON.parse(line);
                let answer;
                try {
                        answer = { ok: await steps[name](how) };
                } catch (error) {
                        answer = { error: String(error).slice(0, 2000) };
                }
                process.stdout.write(JSON.stringify(answer) + '\n');
        }
}

if (part === 'screens') console.log(JSON.stringify(await screens()));
else await live();
await browser.close();
process.exit(0);
