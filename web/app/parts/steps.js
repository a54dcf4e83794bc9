// A step, as a row that opens: its note, the command, how it ended, how long it took.
import { html, nothing } from 'lit-html';
import { ended, failed } from '../base/boxes.js';
import { clockSeconds, dateTime, span, t } from '../base/text.js';
import { icon } from './icons.js';
import './time.js';
import { fact } from './ui.js';

const tools = ['sandbox_exec', 'sandbox_sync', 'sandbox_pull', 'sandbox_get', 'sandbox_build', 'sandbox_wire', 'sandbox_shot', 'sandbox_procs'];
const toolName = tool => tools.includes(tool) ? t(`tool_${tool.slice(8)}`) : tool;

/** @param {import('../base/boxes.js').Step} step */
export function stepTitle(step) {
        if (step.note) return step.note;
        return step.directory ? t('step_of', { tool: toolName(step.tool), where: step.directory }) : toolName(step.tool);
}

/** How it ended, in words. @param {import('../base/boxes.js').Step} step */
export function stepResult(step) {
        if (!ended(step)) return t('result_running');
        if (step.timedOut) return t('result_timeout');
        if (step.oomKilled) return t('result_memory');
        if (step.signal) return t('result_signal', { name: step.signal });
        if (step.error) return t('result_error');
        if (step.exitCode) return t('result_exit', { code: String(step.exitCode) });
        return t('result_good');
}

const took = step => ended(step) ? span(step.durationMs ?? 0) : html`<psbx-since at=${step.startedAt}></psbx-since>`;

/** @param {import('../base/boxes.js').Step} step @param {boolean} open @param {() => void} toggle */
export function stepRow(step, open, toggle) {
        const kind = !ended(step) ? 'runs' : failed(step) ? 'bad' : 'good';
        return html`<li class="step ${kind}">
                <button type="button" class="step-head" aria-expanded=${open} aria-controls="step-${step.id}" @click=${toggle}>
                        ${icon(kind === 'runs' ? 'starting' : kind === 'bad' ? 'cross' : 'check', kind === 'runs' ? 'turns' : '')}
                        <span class="step-text"><bdi class="step-note">${stepTitle(step)}</bdi>${step.command ? html`<code class="step-line">${step.command.split('\n', 1)[0]}</code>` : nothing}</span>
                        <span class="step-end"><span class="step-result">${kind === 'good' ? html`<span class="gone">${stepResult(step)}</span>` : stepResult(step)}</span><span class="step-took">${took(step)}</span></span>
                        <time class="step-time" datetime=${step.startedAt}>${clockSeconds(Date.parse(step.startedAt))}</time>
                        ${icon('down', 'step-more')}
                </button>
                <div id="step-${step.id}" class="step-body" ?hidden=${!open}>${open ? html`
                        ${step.command ? html`<div class="code"><pre tabindex="0"><code>${step.command}${step.commandCut ? '…' : ''}</code></pre><psbx-copy .value=${step.command}></psbx-copy></div>` : nothing}
                        ${step.error ? html`<p class="why"><bdi>${step.error}</bdi></p>` : nothing}
                        <dl class="facts">
                                ${fact(t('fact_tool'), html`<code>${step.tool}</code>`)}
                                ${fact(t('fact_result'), stepResult(step))}
                                ${fact(t('fact_directory'), step.directory && html`<code><bdi>${step.directory}</bdi></code>`)}
                                ${fact(t('fact_started'), dateTime(Date.parse(step.startedAt)))}
                                ${fact(t('fact_took'), took(step))}
                                ${fact(t('fact_conversation'), step.conversation)}
                        </dl>` : nothing}
                </div>
        </li>`;
}
