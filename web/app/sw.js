// Keeps the shell of the app, and nothing else: what is shown is asked for anew each time, and what a box holds is on no disk of this device.
// Every file of the shell has its content's hash in its name, so a file that is there is the right one.
const files = 'SHELL';
const name = 'shell';

self.addEventListener('install', event => event.waitUntil((async () => {
        const cache = await caches.open(name);
        await cache.addAll(['/app/', ...files]);
        await self.skipWaiting();
})()));

self.addEventListener('activate', event => event.waitUntil((async () => {
        const cache = await caches.open(name), wanted = new Set(['/app/', ...files]);
        for (const request of await cache.keys())
                if (!wanted.has(new URL(request.url).pathname)) await cache.delete(request);
        await self.clients.claim();
})()));

// The page itself comes from the network while there is one, so that a new version is seen at once.
async function page(request) {
        try {
                const answer = await fetch(request);
                if (answer.ok) await (await caches.open(name)).put('/app/', answer.clone());
                return answer;
        } catch (error) {
                const kept = await caches.match('/app/');
                if (kept) return kept;
                throw error;
        }
}

self.addEventListener('fetch', event => {
        const url = new URL(event.request.url);
        if (event.request.method !== 'GET' || url.origin !== location.origin || !url.pathname.startsWith('/app')) return;
        if (event.request.mode === 'navigate') event.respondWith(page(event.request));
        else if (files.includes(url.pathname)) event.respondWith(caches.match(url.pathname).then(kept => kept || fetch(event.request)));
});
