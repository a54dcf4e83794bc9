// Before the first paint: the person's own choice of light or dark, and of the language.
(() => {
        const keep = key => { try { return localStorage.getItem(key); } catch { return null; } };
        const theme = keep('theme'), lang = keep('lang');
        if (theme) document.documentElement.dataset.theme = theme;
        if (lang) document.documentElement.lang = lang;
})();
