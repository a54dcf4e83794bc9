// A browser that a test drives by lines of JSON on standard input, one answer a line:
//   {do: "open", url, page?, options?}   a page of a context of its own; {do: "tab", of, page, url}: in the same context
//   {do: "wait", selector, text?}        until the element is there (and holds the text)
//   {do: "click"|"fill"|"eval"|"shot"|"look"|"cookies", ...}
import readline from 'node:readline';
import { launch, accessibility, layout } from './chromium.mjs';

const browser = await launch();
const pages = new Map(), seen = new Map();

function watch(name, page) {
        pages.set(name, page);
        seen.set(name, []);
        page.on('console', message => { if (message.type() === 'error') seen.get(name).push(message.text()); });
        page.on('pageerror', error => seen.get(name).push(String(error)));
}

const actions = {
        async open({ url, page = 'main', options = {} }) {
                const context = await browser.newContext(options);
                const opened = await context.newPage();
                watch(page, opened);
                const answer = await opened.goto(url, { waitUntil: 'domcontentloaded' });
                return { status: answer.status() };
        },
        async tab({ of = 'main', page, url }) {
                const opened = await pages.get(of).context().newPage();
                watch(page, opened);
                const answer = await opened.goto(url, { waitUntil: 'domcontentloaded' });
                return { status: answer.status() };
        },
        async wait({ selector, text, page = 'main' }) {
                await pages.get(page).locator(selector, text === undefined ? {} : { hasText: text }).first().waitFor({ state: 'attached', timeout: 120000 });
                return {};
        },
        async click({ selector, page = 'main' }) { await pages.get(page).click(selector, { timeout: 60000 }); return {}; },
        async fill({ selector, text, page = 'main' }) { await pages.get(page).fill(selector, text); return {}; },
        async eval({ js, page = 'main' }) { return { value: await pages.get(page).evaluate(js) }; },
        async text({ selector, page = 'main' }) { return { value: await pages.get(page).textContent(selector) }; },
        async look({ page = 'main' }) { return { problems: [...await layout(pages.get(page)), ...await accessibility(pages.get(page))], errors: seen.get(page) }; },
        async errors({ page = 'main' }) { return { value: seen.get(page) }; },
        async shot({ path, page = 'main' }) { await pages.get(page).screenshot({ path, fullPage: true }); return {}; },
        async cookies({ page = 'main' }) { return { value: await pages.get(page).context().cookies() }; },
};

for await (const line of readline.createInterface({ input: process.stdin })) {
        const command = JSON.parse(line);
        try {
                console.log(JSON.stringify({ ok: true, ...await actions[command.do](command) }));
        } catch (error) {
                console.log(JSON.stringify({ ok: false, error: String(error), seen: Object.fromEntries(seen) }));
        }
}
await browser.close();
