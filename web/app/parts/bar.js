// The bar at the top, the tabs at the bottom of a phone, and the one place that says how fresh everything is.
import { html, nothing } from 'lit-html';
import { boxes, needsPerson } from '../base/boxes.js';
import { live } from '../base/live.js';
import { Part } from '../base/part.js';
import { here, route } from '../base/route.js';
import { clock, t } from '../base/text.js';
import './menu.js';
import { icon } from './icons.js';
import { count } from './ui.js';

/** How fresh: "Live", "Reconnecting", "Offline: showing 14:02". @param {string} state @param {number} at */
export const freshness = (state, at) => html`<span class="live live-${state}" role="status"><i aria-hidden="true"></i><span>${state === 'live' ? t('live')
        : state === 'connecting' ? t('live_connecting') : state === 'waiting' ? t('live_waiting') : t('live_offline', { time: clock(at) })}</span></span>`;

function links() {
        const name = here().name, n = [...boxes.all.values()].filter(needsPerson).length;
        return html`
                <a href="/app/" aria-current=${name === 'boxes' || name === 'box' ? 'page' : nothing}>${icon('box')}<span>${t('boxes')}</span>${n ? html`${count(n)}<span class="gone">${t('need_you')}</span>` : nothing}</a>
                <a href="/settings">${icon('settings')}<span>${t('settings')}</span></a>`;
}

class Bar extends Part {
        begin() {
                this.listen(live, 'state', () => this.update());
                this.listen(boxes, 'change', () => this.update());
                this.listen(route, 'change', () => this.update());
        }
        view() {
                return html`<header class="bar">
                        <a class="brand" href="/app/" aria-label="ParallelSandbox"><span class="mark" aria-hidden="true"></span><span>ParallelSandbox</span></a>
                        <nav class="bar-links" aria-label=${t('sections')}>${links()}</nav>
                        ${freshness(live.state, live.at)}
                        <psbx-menu></psbx-menu>
                </header>`;
        }
}

class Tabs extends Bar {
        view() { return html`<nav class="bottom" aria-label=${t('sections')}>${links()}</nav>`; }
}

customElements.define('psbx-bar', Bar);
customElements.define('psbx-tabs', Tabs);
