/* Search: what Pagefind finds, section by section, under the field and on the search page. Nothing is loaded before the
   first key. A page that was opened from a folder may not read the index; there Sphinx's own search answers. */
(() => {
  const root = new URL(document.documentElement.dataset.content_root, location.href);
  const fromAFolder = location.protocol === "file:";
  let loading = null;
  const load = () =>
    (loading ??= import(new URL("pagefind/pagefind.js", root)).then(async (pagefind) => {
      await pagefind.options({
        baseUrl: root.pathname,
        excerptLength: 24,
        ranking: { termSimilarity: 2, pageLength: 0.2, termSaturation: 2 },
      });
      return pagefind;
    }));

  const score = (section) => section.weighted_locations.reduce((sum, place) => sum + place.balanced_score, 0);

  const best = (sections, most) => sections.sort((a, b) => score(b) - score(a)).slice(0, most);

  // Pagefind takes a name apart at its underscores. First stand the pages that explain it, then those that have it whole.
  const byName = (pages, name) => {
    const rank = ({ anchors, content }) =>
      anchors.some(({ id }) => id.toLowerCase().split(".").at(-1) === name)
        ? 0
        : content.toLowerCase().includes(name)
          ? 1
          : 2;
    const ranks = new Map(pages.map((page) => [page, rank(page)]));
    return pages.sort((a, b) => ranks.get(a) - ranks.get(b));
  };

  // Pages in Pagefind's order, each with its best sections, the best one first.
  const find = async (words, pages, sections) => {
    const pagefind = await load();
    // The index has Japanese cut into words, so the query is cut, too.
    const japanese = /[\u3041-\u30ff\u4e00-\u9fff]/.test(words) && "Segmenter" in Intl;
    const cut = japanese
      ? [...new Intl.Segmenter("ja", { granularity: "word" }).segment(words)].map(({ segment }) => segment).join(" ")
      : words;
    const { results } = await pagefind.search(cut);
    const name =
      /^[\w.]*[A-Za-z]_?[\w.]*$/.test(words) && /[_.]|[a-z][A-Z]/.test(words)
        ? words.split(".").at(-1).toLowerCase()
        : "";
    const first = await Promise.all(
      results.slice(0, name ? Math.max(pages, 20) : pages).map((result) => result.data()),
    );
    const loaded = name ? byName(first, name).slice(0, pages) : first;
    // Of a word that is nowhere, Pagefind takes ever fewer letters; one or two of them are no answer.
    const starts = cut
      .toLowerCase()
      .split(/\s+/)
      .map((word) => word.slice(0, 3));
    const found = loaded.filter((page) => {
      const marked = [...page.excerpt.matchAll(/<mark>(.*?)<\/mark>/g)].map((mark) => mark[1].toLowerCase());
      return marked.some((word) => starts.some((start) => word.includes(start)));
    });
    return {
      count: found.length && results.length,
      pages: found.map((page) => ({
        title: page.meta.title,
        url: page.url,
        sections: best(
          page.sub_results.filter((section) => section.title.trim() !== page.meta.title.trim()),
          sections,
        ),
      })),
    };
  };

  const element = (name, content, attributes = {}) => {
    const made = document.createElement(name);
    if (typeof content === "string")
      made.innerHTML = content; // Pagefind escapes the text and marks the words
    else made.append(...content);
    Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
    return made;
  };
  const escaped = (text) => new Option(text).innerHTML;

  const list = (pages) =>
    element(
      "ul",
      pages.map((page) =>
        element("li", [
          element("a", escaped(page.title), { href: new URL(page.url, root).href, class: "found-page" }),
          element(
            "ul",
            page.sections.map((section) => {
              const address = new URL(section.url, root);
              return element("li", [
                element("a", escaped(section.title), { href: address.href }),
                element("p", section.excerpt),
              ]);
            }),
          ),
        ]),
      ),
      { class: "found" },
    );

  const told = (words, count) =>
    count ? `${count} ${count === 1 ? "page matches" : "pages match"} “${words}”.` : `No page matches “${words}”.`;

  const answer = async (words, place, status, ...most) => {
    if (!words) {
      place.replaceChildren();
      place.dataset.asked = place.dataset.shown = "";
      status.textContent = "";
      return;
    }
    const asked = (place.dataset.asked = words);
    if (!status.textContent) status.textContent = "Searching …";
    const { count, pages } = await find(words, ...most);
    if (place.dataset.asked !== asked) return; // the reader has typed on
    status.textContent = told(words, count);
    place.replaceChildren(list(pages));
    place.dataset.shown = words;
  };

  const said = () => element("p", "", { role: "status", class: "found-count" });

  document.addEventListener("DOMContentLoaded", () => {
    if (fromAFolder) return;
    document.querySelectorAll("#pst-search-dialog").forEach((dialog) => {
      const place = element("div", "", { class: "found-below" });
      const status = said();
      dialog.append(element("div", [status, place], { class: "found-card" }));
      const field = dialog.querySelector("input[type=search]");
      const all = element("a", "All results", { class: "found-all", hidden: "" });
      place.after(all);
      let waiting = 0;
      const ask = async () => {
        clearTimeout(waiting);
        const words = field.value.trim();
        await answer(words, place, status, 6, 2);
        all.href = new URL(`search.html?${new URLSearchParams({ q: words })}`, root);
        all.hidden = !place.querySelector("a");
      };
      const shown = () => place.dataset.asked === field.value.trim() && place.dataset.shown === place.dataset.asked;
      field.addEventListener("input", () => {
        clearTimeout(waiting);
        waiting = setTimeout(ask, 120);
      });
      // Down and up go from the field through the results; Enter in the field opens the best section.
      dialog.addEventListener("keydown", async (event) => {
        if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
        const stops = [field, ...dialog.querySelectorAll(".found-card a:not([hidden])")];
        const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
        if (step) {
          event.preventDefault();
          stops.at((stops.indexOf(document.activeElement) + step) % stops.length).focus();
        } else if (event.key === "Enter" && event.target === field && field.value.trim()) {
          event.preventDefault();
          if (!shown()) await ask();
          if (shown()) (place.querySelector("li li a") ?? place.querySelector("a"))?.click();
        } else if (event.key.length === 1 && event.target.closest(".found-card")) field.focus();
      });
      place.addEventListener("click", ({ target }) => {
        if (target.closest("a")) dialog.close();
      });
    });

    const page = document.getElementById("search-results");
    if (!page) return;
    const words = (new URLSearchParams(location.search).get("q") ?? "").trim();
    document.querySelectorAll("main input[name=q]").forEach((field) => {
      field.value = words;
    });
    const status = said();
    const place = element("div", "");
    page.replaceWith(status, place);
    answer(words, place, status, 20, 3);
  });
})();
