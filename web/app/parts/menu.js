// <psbx-menu>: the person, the language, light or dark, and the way out.
import { html, nothing } from 'lit-html';
import { whoami } from '../base/api.js';
import { Part } from '../base/part.js';
import { route } from '../base/route.js';
import { chooseLanguage, language, languages, t } from '../base/text.js';
import { icon } from './icons.js';

const themes = ['auto', 'light', 'dark'];

function theme() { return document.documentElement.dataset.theme ?? 'auto'; }
function setTheme(name) {
        if (name === 'auto') delete document.documentElement.dataset.theme;
        else document.documentElement.dataset.theme = name;
        try {
                if (name === 'auto') localStorage.removeItem('theme');
                else localStorage.setItem('theme', name);
        } catch { /* kept until the page goes */ }
}

class Menu extends Part {
        #open = false;
        #name = '';

        begin() {
                whoami().then(({ person }) => { this.#name = person.name || person.login; this.update(); }, () => {});
                this.listen(document, 'click', event => { if (this.#open && !this.contains(event.target)) this.#show(false); });
                this.listen(document, 'keydown', event => {
                        if (event.key !== 'Escape' || !this.#open) return;
                        this.#show(false);
                        this.querySelector('button')?.focus();
                });
                this.listen(this, 'focusout', event => { if (this.#open && event.relatedTarget && !this.contains(event.relatedTarget)) this.#show(false); });
                this.listen(route, 'change', () => this.#show(false));
        }

        #show(open) {
                this.#open = open;
                this.update();
        }

        view() {
                return html`
                        <button type="button" class="tool" aria-expanded=${this.#open} aria-controls="menu" aria-label=${t('menu')} @click=${() => this.#show(!this.#open)}>${icon('person')}</button>
                        <div id="menu" class="menu" ?hidden=${!this.#open}>${this.#open ? html`
                                ${this.#name ? html`<p class="menu-name"><span class="quiet">${t('signed_in_as')}</span><br><strong><bdi>${this.#name}</bdi></strong></p>` : nothing}
                                <fieldset><legend>${t('language')}</legend><div class="choice">${languages.map(([tag, name]) => html`
                                        <button type="button" lang=${tag} aria-pressed=${tag === language()} @click=${() => chooseLanguage(tag)}>${name}</button>`)}</div></fieldset>
                                <fieldset><legend>${t('theme')}</legend><div class="choice">${themes.map(name => html`
                                        <button type="button" aria-pressed=${name === theme()} @click=${() => { setTheme(name); this.update(); }}>${icon(name)}<span>${t(`theme_${name}`)}</span></button>`)}</div></fieldset>
                                <a href="/settings">${t('menu_settings')}</a>
                                <a href="/sign-out">${t('sign_out')}</a>` : nothing}
                        </div>`;
        }
}
customElements.define('psbx-menu', Menu);
