// node oauth-open.mjs URL: what a browser and its person do with an authorization URL: sign in, allow, and follow the answer to the client.
import { consent } from './oauth-browser.mjs';

const to = await consent(process.argv[2], { login: process.env.LOGIN, password: process.env.PASSWORD });
const answer = await fetch(to);
console.log('callback', answer.status, to.host);
