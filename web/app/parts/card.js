// The card of a box: what it is for, whose it is, how it stands, what it does now.
import { html, nothing } from 'lit-html';
import { ended, failed, stateOf } from '../base/boxes.js';
import { dateTime, t } from '../base/text.js';
import { icon } from './icons.js';
import { stepResult, stepTitle } from './steps.js';
import './time.js';
import { boxChip, repoTags, who } from './ui.js';

/** What it does now, or did last. @param {import('../base/boxes.js').Box} box */
export function doing(box) {
        const step = box.now ?? box.last;
        if (!step) return html`<p class="doing none">${t('no_step_yet')}</p>`;
        if (!ended(step)) return html`<p class="doing runs">${icon('starting', 'turns')}<span class="doing-text"><bdi>${stepTitle(step)}</bdi></span><span class="doing-time"><psbx-since at=${step.startedAt}></psbx-since></span></p>`;
        return html`<p class="doing ${failed(step) ? 'bad' : 'good'}">${icon(failed(step) ? 'cross' : 'check')}<span class="doing-text"><bdi>${stepTitle(step)}</bdi>${failed(step) ? html` <span class="result">${stepResult(step)}</span>` : nothing}</span><span class="doing-time"><psbx-ago at=${step.endedAt}></psbx-ago></span></p>`;
}

/** Why it needs the person, or why it no longer runs. @param {import('../base/boxes.js').Box} box */
export function reason(box) {
        const state = stateOf(box);
        if (state === 'stopped') return t('stopped_why');
        if (state === 'lost') return html`${t('lost_why')}${box.statusReason ? html` <bdi class="quiet">${box.statusReason}</bdi>` : nothing}`;
        if (state === 'frozen') return t('frozen_why');
        if (state === 'archived') return box.restorableUntil ? t('archived_until', { time: dateTime(Date.parse(box.restorableUntil)) }) : t('archived_why');
        return '';
}

/** @param {import('../base/boxes.js').Box} box @param {(box: import('../base/boxes.js').Box) => void} onStop */
export function card(box, onStop) {
        const state = stateOf(box), why = reason(box);
        const sites = (box.services ?? []).filter(service => service.web && service.url);
        return html`<article class="box-card ${state}" aria-labelledby="goal-${box.id}">
                <header>${boxChip(box)}<span class="quiet seen"><psbx-ago at=${box.heardAt ?? box.lastUsedAt}></psbx-ago></span></header>
                <h3 id="goal-${box.id}"><a class="whole" href="/app/boxes/${box.id}"><bdi>${box.goal || box.name}</bdi></a></h3>
                ${who(box)}
                ${why ? html`<p class="why">${why}</p>` : nothing}
                ${doing(box)}
                ${repoTags(box.repos)}
                <footer>
                        <span class="quiet name"><bdi>${box.name}</bdi>${box.stopsAt ? html` · ${t('stops')} <psbx-ago at=${box.stopsAt}></psbx-ago>` : nothing}</span>
                        <span class="tools">
                                ${sites.map(service => html`<a class="button small" href=${service.url} target="_blank" rel="noopener noreferrer">${icon('open')}<span>${t('use_it')}</span></a>`)}
                                ${state === 'archived' ? html`<psbx-restore .box=${box}></psbx-restore>` : nothing}
                                <button type="button" class="small ${state === 'stopped' ? '' : 'plain'}" aria-label=${state === 'archived' ? t('delete_named', { name: box.goal || box.name }) : t('stop_named', { name: box.goal || box.name })} @click=${() => onStop(box)}>${icon(state === 'archived' ? 'cross' : 'stop')}<span>${state === 'archived' ? t('delete') : t('stop')}</span></button>
                        </span>
                </footer>
        </article>`;
}
