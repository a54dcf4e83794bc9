// The system's Chromium by playwright-core, with what every page is watched for: errors on the console, exceptions, refused resources, and
// requests to another host. Only `allowed` hosts answer; whatever else is asked for is refused and told.
import { createRequire } from 'node:module';
import fs from 'node:fs';
import { chromium } from 'playwright-core';

const require = createRequire(import.meta.url);
const axeSource = fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

export async function launch() {
        return chromium.launch({ executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
                args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-background-networking', '--disable-component-update'] });
}

export async function open(browser, allowed, options = {}) {
        // The checker below is put into pages by the debugger's protocol, which a page's policy does not concern.
        const context = await browser.newContext({ ...options });
        const seen = { console: [], foreign: [], failed: [] };
        await context.route('**/*', route => {
                const url = new URL(route.request().url());
                if (url.protocol === 'data:' || allowed.includes(url.host)) return route.continue();
                seen.foreign.push(url.href);
                return route.abort();
        });
        context.on('page', page => {
                page.on('console', message => { if (['error', 'warning'].includes(message.type())) seen.console.push(`${page.url()}: ${message.text()}`); });
                page.on('pageerror', error => seen.console.push(`${page.url()}: ${error}`));
                page.on('response', response => { if (response.status() >= 500) seen.failed.push(`${response.status()} ${response.url()}`); });
        });
        const page = await context.newPage();
        return { context, page, seen };
}

// Serious and critical findings of axe-core, as text.
export async function accessibility(page) {
        await page.evaluate(axeSource);
        const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
        return found.violations.filter(v => ['serious', 'critical'].includes(v.impact)).map(v => `${page.url()}: ${v.id}: ${v.nodes.map(n => n.target.join(' ')).join('; ')}`);
}

// What a phone cannot do without: nothing wider than the screen, and targets that a thumb meets.
export async function layout(page) {
        return page.evaluate(() => {
                const problems = [];
                const width = document.documentElement.clientWidth;
                if (document.documentElement.scrollWidth > width) problems.push(`wider than the screen: ${document.documentElement.scrollWidth} > ${width}`);
                for (const node of document.querySelectorAll('a, button, input:not([type=hidden])')) {
                        // (.whole: its target is the whole card around it)
                        if (!node.checkVisibility() || node.closest('.skip, .gone, .whole')) continue;
                        const box = node.getBoundingClientRect();
                        if (box.height < 43.5 || box.width < 24) problems.push(`small: ${node.outerHTML.slice(0, 80)} ${box.width}x${box.height}`);
                }
                return problems;
        });
}
