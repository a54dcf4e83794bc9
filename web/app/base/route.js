// Addresses of the app: /app/, /app/boxes/ID, /app/design. Links are ordinary links; a click on one of the app's own stays in the page.

/** Tells `change` when another screen is to be shown. */
export const route = new EventTarget();

/** @returns {{ name: 'boxes' | 'box' | 'design' | 'nothing', id?: string }} */
export function here() {
        const path = location.pathname.replace(/\/+$/, '');
        if (path === '/app' || path === '/app/boxes') return { name: 'boxes' };
        if (path === '/app/design') return { name: 'design' };
        const box = path.match(/^\/app\/boxes\/([a-z0-9]{1,64})$/);
        return box ? { name: 'box', id: box[1] } : { name: 'nothing' };
}

export function go(path) {
        history.pushState(null, '', path);
        route.dispatchEvent(new Event('change'));
}

addEventListener('popstate', () => route.dispatchEvent(new Event('change')));
document.addEventListener('click', event => {
        const link = event.target instanceof Element && event.target.closest('a[href]');
        if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
        if (link.target || link.origin !== location.origin || !/^\/app(\/|$)/.test(link.pathname) || link.hash) return;
        event.preventDefault();
        go(link.pathname + link.search);
});
