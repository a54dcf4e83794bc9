// node pages.mjs ORIGIN JOIN-LINK AUTHORIZE-URL: visits every page in every language, light and dark, on a phone and a desktop; prints one JSON
// object with what is wrong. SHOTS names a folder for pictures.
import { accessibility, launch, layout, open } from './chromium.mjs';

const [origin, join, authorize] = process.argv.slice(2);
const sizes = { phone: { width: 390, height: 844 }, desktop: { width: 1440, height: 900 } };
const languages = ['en', 'ja', 'zh-Hant'];
const password = 'a passphrase for pages';
const problems = [], visited = [];
const browser = await launch();

const press = (page, button) => Promise.all([page.waitForNavigation(), page.click(button)]);

async function look(page, name) {
        for (const text of [...await accessibility(page), ...await layout(page)]) problems.push(`${name}: ${text}`);
        const lang = await page.getAttribute('html', 'lang');
        if (!name.includes(`-${lang}`)) problems.push(`${name}: the page is in ${lang}`);
        const blank = await page.evaluate(() => document.body.innerText.match(/\{\{|\}\}|\{\w+\}/)?.[0]);
        if (blank) problems.push(`${name}: unfilled: ${blank}`);
        if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/${name}.png`, fullPage: true });
        visited.push(name);
}

async function tour(form, scheme, lang, first) {
        const tag = `${form}-${scheme}-${lang}`;
        const { context, page, seen } = await open(browser, [new URL(origin).host], { viewport: sizes[form], colorScheme: scheme, locale: lang === 'zh-Hant' ? 'zh-TW' : lang,
                isMobile: form === 'phone', hasTouch: form === 'phone' });
        const go = async (path, name) => { await page.goto(new URL(path, origin).href); await look(page, `${name}-${tag}`); };
        if (first) {
                await go(join, 'join');
                await page.fill('#login', 'a b');
                await page.fill('#password', 'aaaaaaaaaaaa');
                await press(page, 'button[type=submit]');
                await look(page, `join-wrong-${tag}`);
                await page.fill('#login', 'pages@example.org');
                await page.fill('#name', 'Ada Lovelace');
                await page.fill('#password', password);
                await press(page, 'button[type=submit]');
                await page.goto(origin + '/sign-out');
                await look(page, `sign-out-${tag}`);
                await press(page, 'main button[type=submit]');
                await look(page, `signed-out-${tag}`);
        }
        await go('/join/0123456789012345678901234567890123456789012', 'join-over');
        await go(authorize, 'consent-signed-out');
        await go('/authorize?client_id=nobody', 'authorize-unknown');
        await go('/sign-in', 'sign-in');
        await page.fill('#login', 'pages@example.org');
        await page.fill('#password', 'not this one, no');
        await press(page, 'main form button[type=submit]');
        await look(page, `sign-in-wrong-${tag}`);
        await page.fill('#password', password);
        await press(page, 'main form button[type=submit]');
        await look(page, `home-${tag}`);
        await go('/settings', 'settings');
        await page.fill('#key-name', 'laptop');
        await press(page, '#keys form.line button');
        await look(page, `settings-key-${tag}`);
        await page.fill('#note', 'Grace');
        await press(page, '#people form.line button');
        await look(page, `settings-invite-${tag}`);
        await go('/settings/secrets', 'secrets');
        await page.fill('#secret-name', 'GITHUB_TOKEN');
        await page.fill('#secret-value', 'short');
        await press(page, '#set button');
        await look(page, `secrets-wrong-${tag}`);
        if (await page.inputValue('#secret-value')) problems.push(`${tag}: a value came back`);
        await page.fill('#secret-value', 'ghp_never-shown-again\nsecond line\n');
        await press(page, '#set button');
        await look(page, `secrets-set-${tag}`);
        await page.click('.opens summary');
        await look(page, `secrets-replace-${tag}`);
        if ((await page.content()).includes('never-shown-again')) problems.push(`${tag}: the page holds a value`);
        await go(authorize, 'consent');
        // Keyboard alone: the first stop is the way around the header, and every stop can be seen.
        await page.goto(origin + '/settings');
        await page.keyboard.press('Tab');
        if (await page.evaluate(() => document.activeElement.className) !== 'skip') problems.push(`${tag}: the first stop is not the skip link`);
        for (let i = 0; i < 12; i++) {
                await page.keyboard.press('Tab');
                const outline = await page.evaluate(() => { const s = getComputedStyle(document.activeElement); return document.activeElement === document.body || parseFloat(s.outlineWidth) >= 2; });
                if (!outline) problems.push(`${tag}: a stop of the keyboard cannot be seen: ${await page.evaluate(() => document.activeElement.outerHTML.slice(0, 90))}`);
        }
        // A status of 4xx that we made on purpose is told on the console; nothing else may be.
        for (const line of seen.console) if (!/Failed to load resource: the server responded with a status of 4\d\d/.test(line)) problems.push(`${tag}: console: ${line}`);
        for (const line of [...seen.foreign, ...seen.failed]) problems.push(`${tag}: ${line}`);
        await context.close();
}

let first = true;
const only = process.env.ONLY?.split(',');
for (const form of Object.keys(sizes))
        for (const scheme of ['light', 'dark'])
                for (const lang of languages) {
                        if (only && !first && !only.includes(`${form}-${scheme}-${lang}`)) continue;
                        await tour(form, scheme, lang, first);
                        first = false;
                }
await browser.close();
console.log(JSON.stringify({ visited: visited.length, problems }));
process.exit(0);
