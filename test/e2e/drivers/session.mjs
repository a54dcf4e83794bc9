// What both SDK drivers do with a connected client: list, ping, start a box, run, wait, fetch, cancel, stop.
export async function session(client, call) {
        const out = { server: client.getServerVersion(), capabilities: client.getServerCapabilities() };
        out.instructions = (client.getInstructions() || '').length;
        out.tools = (await client.listTools()).tools.map(tool => tool.name);
        if (client.ping) out.ping = await client.ping().then(() => true, error => error.message);
        const data = result => {
                if (result.isError) throw new Error(result.content.map(block => block.text).join('\n'));
                return result.structuredContent;
        };
        const box = data(await call('sandbox_start', { goal: 'an SDK client drives a box', name: 'sdk' })).id;
        out.box = box;
        out.listed = data(await call('sandbox_list', {})).boxes.some(row => row.id === box);
        out.exec = data(await call('sandbox_exec', { id: box, cmd: 'echo out; echo err >&2; exit 3', note: 'both streams and a code' }));
        const progress = [];
        out.slow = data(await call('sandbox_exec', { id: box, cmd: 'sleep 4; echo slept', note: 'a call that takes a while' },
                { timeout: 120000, resetTimeoutOnProgress: true, onprogress: p => progress.push(p.progress) }));
        out.progress = progress;
        const job = data(await call('sandbox_exec', { id: box, cmd: 'sleep 1; echo background', background: true, note: 'a background job' })).bgId;
        out.waited = data(await call('sandbox_procs', { id: box, action: 'wait', bgId: job, timeoutSec: 60 }));
        out.procs = data(await call('sandbox_procs', { id: box, action: 'list', all: true }));
        out.status = data(await call('sandbox_status', { id: box }));
        await call('sandbox_exec', { id: box, cmd: 'echo content > file', note: 'make a file' });
        out.got = data(await call('sandbox_get', { id: box, path: 'file' }));
        out.body = await (await fetch(out.got.url)).text();
        const stop = new AbortController();
        const cancelled = call('sandbox_exec', { id: box, cmd: 'sleep 60', note: 'cancelled soon' }, { signal: stop.signal })
                .then(() => 'answered', error => 'cancelled: ' + (error.message ?? error));
        await new Promise(resolve => setTimeout(resolve, 500));
        stop.abort('enough');
        out.cancelled = await cancelled;
        out.afterCancel = data(await call('sandbox_exec', { id: box, cmd: 'echo still here', note: 'the box goes on' })).stdout;
        const missing = await call('sandbox_exec', { id: box, cmd: 'true' }).catch(error => ({ isError: true, content: [{ text: error.message }] }));
        out.missing = missing.isError ? missing.content[0].text : null;
        out.stopped = data(await call('sandbox_stop', { id: box }));
        return out;
}
