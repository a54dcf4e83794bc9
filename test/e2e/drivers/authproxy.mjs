// node authproxy.mjs UPSTREAM_ORIGIN KEY: a loopback proxy that adds the key, for a tester that has no option for one.
// Prints its port. A Host or Origin that is the proxy's own becomes the server's; a hostile one stays hostile.
import http from 'node:http';

const upstream = new URL(process.argv[2]);
const key = process.argv[3];
const proxy = http.createServer((request, response) => {
        const port = proxy.address().port;
        const own = new Set([`127.0.0.1:${port}`, `localhost:${port}`]);
        const headers = { ...request.headers, authorization: 'Bearer ' + key };
        if (own.has(headers.host)) headers.host = upstream.host;
        if (headers.origin && URL.canParse(headers.origin) && own.has(new URL(headers.origin).host)) headers.origin = upstream.origin;
        const forward = http.request({ host: upstream.hostname, port: upstream.port, path: request.url, method: request.method,
                headers, setHost: false }, answer => {
                response.writeHead(answer.statusCode, answer.headers);
                response.flushHeaders();
                answer.pipe(response);
        });
        forward.on('error', () => response.destroy());
        response.on('close', () => forward.destroy());
        request.pipe(forward);
});
proxy.listen(0, '127.0.0.1', () => console.log(proxy.address().port));
