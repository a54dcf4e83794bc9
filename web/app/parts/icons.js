// Icons: drawn with strokes of the text's colour, 20 × 20. They repeat what a word says, so they are hidden from whoever listens.
import { html, svg } from 'lit-html';

const shapes = {
        archived: svg`<path d="M3 5.5h14v3H3zM4.5 8.5v7h11v-7M8 11.5h4"/>`,
        auto: svg`<circle cx="10" cy="10" r="6.5"/><path d="M10 3.5v13a6.5 6.5 0 0 0 0-13z" fill="currentColor" stroke="none"/>`,
        away: svg`<path d="M16 11.6A6.5 6.5 0 1 1 8.4 4a5.2 5.2 0 0 0 7.6 7.6z"/>`,
        back: svg`<path d="M12 4.5 6.5 10l5.5 5.5"/>`,
        box: svg`<path d="M10 2.8 16.5 6.4v7.2L10 17.2l-6.5-3.6V6.4zM3.7 6.5 10 10l6.3-3.5M10 10v7"/>`,
        check: svg`<path d="m4.5 10.5 3.7 3.7 7.3-8"/>`,
        clock: svg`<circle cx="10" cy="10" r="6.8"/><path d="M10 6.2V10l2.6 1.8"/>`,
        copy: svg`<rect x="7" y="7" width="9.5" height="9.5" rx="1.8"/><path d="M13 4.2A1.6 1.6 0 0 0 11.7 3.5H5A1.5 1.5 0 0 0 3.5 5v6.7c0 .5.3 1 .7 1.3"/>`,
        cross: svg`<path d="m5.5 5.5 9 9m0-9-9 9"/>`,
        dark: svg`<path d="M16 11.6A6.5 6.5 0 1 1 8.4 4a5.2 5.2 0 0 0 7.6 7.6z"/>`,
        down: svg`<path d="m5 7.5 5 5 5-5"/>`,
        frozen: svg`<path d="M10 2.8v14.4M3.8 6.4l12.4 7.2M16.2 6.4 3.8 13.6M8 3.8l2 1.7 2-1.7M8 16.2l2-1.7 2 1.7"/>`,
        idle: svg`<path d="M7.2 5.5v9M12.8 5.5v9"/>`,
        light: svg`<circle cx="10" cy="10" r="3.2"/><path d="M10 2.5v1.8M10 15.7v1.8M2.5 10h1.8M15.7 10h1.8M4.7 4.7 6 6M14 14l1.3 1.3M15.3 4.7 14 6M6 14l-1.3 1.3"/>`,
        lost: svg`<path d="M10 2.8 16.5 6.4v7.2L10 17.2l-6.5-3.6V6.4zM7.8 7.8l4.4 4.4m0-4.4-4.4 4.4"/>`,
        open: svg`<path d="M11.5 4H16v4.5M16 4l-6.5 6.5M13.5 11.5V15a1 1 0 0 1-1 1H5a1 1 0 0 1-1-1V7.500a1 1 0 0 1 1-1h3.5"/>`,
        person: svg`<circle cx="10" cy="7" r="3"/><path d="M4.2 16.5c.6-3 2.9-4.5 5.8-4.500s5.2 1.5 5.8 4.5"/>`,
        repo: svg`<circle cx="6" cy="5" r="1.7"/><circle cx="6" cy="15" r="1.7"/><circle cx="14" cy="7" r="1.7"/><path d="M6 6.700v6.600M14 8.700c0 2.6-3 2.8-5.5 3.3-1.2.3-2 .7-2.5 1.3"/>`,
        settings: svg`<path d="M3.5 6h7M14.5 6h2M3.5 14h2M9.5 14h7"/><circle cx="12.5" cy="6" r="2"/><circle cx="7.5" cy="14" r="2"/>`,
        starting: svg`<path d="M10 3.500a6.5 6.5 0 1 1-6.5 6.5"/>`,
        stop: svg`<rect x="5" y="5" width="10" height="10" rx="1.8"/>`,
        stopped: svg`<path d="M10 3.2 17.2 16H2.800zM10 8v3.800M10 13.900v.1"/>`,
        untracked: svg`<circle cx="10" cy="10" r="6.8"/><path d="M8.2 8.300a1.9 1.9 0 1 1 2.6 1.800c-.5.2-.8.6-.8 1.200M10 13.600v.1"/>`,
        waiting: svg`<path d="M4 5.500A1.5 1.5 0 0 1 5.5 4h9A1.5 1.5 0 0 1 16 5.500v6a1.5 1.5 0 0 1-1.5 1.500H9l-3.5 3v-3A1.5 1.5 0 0 1 4 11.500z"/>`,
        working: svg`<circle cx="10" cy="10" r="3.6" fill="currentColor" stroke="none"/><circle cx="10" cy="10" r="6.8" opacity=".45"/>`,
};

/** @param {keyof typeof shapes} name */
export const icon = (name, extra = '') => html`<svg class="icon ${extra}" viewBox="0 0 20 20" aria-hidden="true" focusable="false">${shapes[name]}</svg>`;
