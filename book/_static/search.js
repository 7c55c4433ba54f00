/* Search: what Pagefind finds, section by section, under the field and on the search page, and first the section whose
   heading has the words. Nothing is loaded before the first key. A page that was opened from a folder may not read the
   index; there Sphinx's own search answers. */
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

  // ---------------------------------------------------------------- headings

  const FILLERS = new Set(
    `a an and are can do does for how i in is it its itself my of on or
     the to use versus vs we what when why with you`.split(/\s+/),
  );
  const split = (text) =>
    text
      .toLowerCase()
      .replace(/(?:\bca)?n['’]t\b/g, " not")
      .match(/\d+\.\d+|[\p{L}\p{N}√ᵀ∞]+/gu) ?? [];
  const meaning = (words) => {
    const left = words.filter((word) => !FILLERS.has(word));
    return left.length ? left : words;
  };
  // One form for the plural, for the forms of a verb and for both spellings, -ise and -ize.
  const stem = (word) =>
    word
      .replace(/(?<=\w{3}i)[sz](?:e|es|ed|er|ers|ing|ation|ations)$/, "z")
      .replace(/(?<=\w{3})ies$/, "y")
      .replace(/(?<=\w{3})(?<!s)s$/, "")
      .replace(/(?<=\w{3})(?:ing|ed|e)$/, "");
  const stems = (text) => new Set(meaning(split(text)).map(stem));

  let heads = null;
  // What chapters explain: for each heading its page, its address and the words by which it is found.
  const headings = () =>
    (heads ??= fetch(new URL("pagefind/headings.json", root))
      .then((answer) => answer.json())
      .then((pages) =>
        pages.flatMap(([file, list]) =>
          list.map(([anchor, title, aliases]) => {
            const plain = title.replace(/^\d+(?:\.\d+)? (?:· )?/, "");
            const names = [
              ...(ASIDE.test(title) ? [] : [plain, plain.split(":")[0]]),
              ...aliases.split(", ").filter(Boolean),
            ];
            names.push(...names.map((name) => name.replace(/(?<=[a-z])(?=[A-Z])/g, " "))); // FlexAttention as two words
            return {
              page: new URL(file, root).pathname,
              url: new URL(file + (anchor && `#${anchor}`), root),
              title,
              pageTitle: list[0][1],
              words: names.flatMap(split),
              names: names.map(stems),
              overview: /00_/.test(file), // of chapter 0, which later chapters explain in full
            };
          }),
        ),
      ));

  /** How much of a heading a query names: 1 is all of it, 0 that words on both sides have no partner, or only one has. */
  const named = (query, { names }) =>
    Math.max(
      ...names.map((name) => {
        const shared = [...query].filter((word) => name.has(word)).length;
        if (shared === query.size) return shared / name.size;
        return shared === name.size && shared > 1 ? (0.95 * shared) / query.size : 0;
      }),
    );

  /** Whether two words differ by one letter: left out, added, changed or exchanged with its neighbour. */
  const nearly = (a, b) => {
    if (Math.abs(a.length - b.length) > 1) return false;
    let start = 0;
    while (start < a.length && a[start] === b[start]) start++;
    const [x, y] = [a.slice(start), b.slice(start)];
    return [
      [x.slice(1), y],
      [x, y.slice(1)],
      [x.slice(1), y.slice(1)],
      [x[1] + x[0] + x.slice(2), y],
    ].some(([one, other]) => one === other);
  };
  const corrected = (words, known) =>
    words
      .map((word) =>
        word.length < 5 || known.has(word) ? word : ([...known].find((other) => nearly(word, other)) ?? word),
      )
      .join(" ");

  // ---------------------------------------------------------------- pages and sections

  const ASIDE = /^(?:[\d.]+ )?(?:Recap|Test yourself|Exercise|Where this comes from)/;
  const score = ({ title, weighted_locations: places }) =>
    places.reduce((sum, place) => sum + place.balanced_score, 0) * (ASIDE.test(title) ? 0.2 : 1);

  /** The first of those with the highest rank. */
  const highest = (list, rank) => list.reduce((top, one) => (top && rank(top) >= rank(one) ? top : one), undefined);

  /** Puts the section of a heading first on its page. */
  const toFront = (page, { url, title }) => {
    if (!url.hash) return; // the page itself
    const there = page.sections.find((section) => section.url.endsWith(url.hash)) ?? { title, url: url.href };
    page.sections = [there, ...page.sections.filter((section) => section !== there)];
  };

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

  // Pages in Pagefind's order, each with its best sections, the best one first; a section that the words name is first.
  const look = async (words, pages, sections) => {
    const pagefind = await load();
    const list = await headings();
    // The index has Japanese cut into words, so the query is cut, too.
    const japanese = /[\u3041-\u30ff\u4e00-\u9fff]/.test(words) && "Segmenter" in Intl;
    const cut = japanese
      ? [...new Intl.Segmenter("ja", { granularity: "word" }).segment(words)].map(({ segment }) => segment).join(" ")
      : words
          .split(/\s+/)
          .filter((word, _, all) => !FILLERS.has(word.toLowerCase()) && (word.length > 1 || all.length < 4))
          .join(" ") || words;
    const known = new Set(list.flatMap((heading) => heading.words));
    // To Pagefind the two spellings of a word are two words.
    const other = cut.replace(/(?<=\w{3}i)[sz](?=(?:e|es|ed|er|ers|ing|ation|ations)\b)/g, (letter) =>
      letter === "s" ? "z" : "s",
    );
    const asked = [cut, ...(other !== cut && split(other).some((word) => known.has(word)) ? [other] : [])];
    const searched = (await Promise.all(asked.map((query) => pagefind.search(query)))).flatMap(
      ({ results }) => results,
    );
    const results = [...new Map(searched.sort((a, b) => a.score - b.score).map((one) => [one.id, one])).values()];
    results.reverse();
    const name =
      /^[\w.]*[A-Za-z]_?[\w.]*$/.test(words) && /[_.]|[a-z][A-Z]/.test(words)
        ? words.split(".").at(-1).toLowerCase()
        : "";
    const first = await Promise.all(
      results.slice(0, name ? Math.max(pages, 20) : pages).map((result) => result.data()),
    );
    const loaded = name ? byName(first, name).slice(0, pages) : first;
    // Of a word that is nowhere, Pagefind takes ever fewer letters; less than half of them are no answer.
    const starts = asked.flatMap((query) => split(query).map((word) => word.slice(0, Math.max(3, word.length / 2))));
    const found = loaded
      .filter((page) => {
        const marked = [...page.excerpt.matchAll(/<mark>(.*?)<\/mark>/g)].map((mark) => mark[1].toLowerCase());
        return marked.some((word) => starts.some((start) => word.includes(start)));
      })
      .map((page) => ({
        title: page.meta.title,
        url: page.url,
        sections: best(
          page.sub_results.filter((section) => section.title.trim() !== page.meta.title.trim()),
          page.sub_results.length,
        ),
      }));
    const exact = stems(words);
    // A word that nothing found has is corrected in find, which says so.
    const unknown = found.length > 0 && !list.some((heading) => named(exact, heading));
    const query = unknown ? stems(corrected(split(words), known)) : exact;
    const rank = (heading) => named(query, heading) - (heading.overview ? 0.01 : 0) - (heading.url.hash ? 0 : 0.001);
    // Of each page the heading that the query names best; a query that names most of one is a query for it.
    for (const page of found) {
      const top = highest(
        list.filter((heading) => heading.page === page.url),
        rank,
      );
      if (top && rank(top) > 0) toFront(page, top);
    }
    const top = highest(list, rank);
    // A name of the package is more than the words in it.
    if (top && rank(top) > (name ? 0.7 : 0.48)) {
      const page = found.find(({ url }) => url === top.page) ?? {
        title: top.pageTitle,
        url: top.page,
        sections: [],
      };
      toFront(page, top);
      found.splice(0, found.length, page, ...found.filter((one) => one !== page));
    }
    return {
      count: found.length && Math.max(results.length, 1),
      pages: found.slice(0, pages).map((page) => ({ ...page, sections: page.sections.slice(0, sections) })),
      known,
    };
  };

  const find = async (words, ...most) => {
    const answer = await look(words, ...most);
    if (answer.count) return answer;
    const instead = corrected(split(words), answer.known);
    return instead === words.toLowerCase() ? answer : { ...(await look(instead, ...most)), instead };
  };

  /** An excerpt without the end of its heading, which stands above it. Pagefind marks each word by itself. */
  const withoutHeading = (excerpt, title) => {
    const bare = (word) => word.replace(/<[^>]*>/g, "").replace(/[:?!]$/, ".");
    const heading = escaped(title)
      .replace(/[.:?!]*$/, ".")
      .split(" ")
      .map(bare);
    const words = excerpt.split(" ");
    const start = words.map(bare);
    const first = heading.findIndex((_, index) => heading.slice(index).every((word, at) => start[at] === word));
    return first < 0 ? excerpt : words.slice(heading.length - first).join(" ");
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
                ...(section.excerpt ? [element("p", withoutHeading(section.excerpt, section.title))] : []),
              ]);
            }),
          ),
        ]),
      ),
      { class: "found" },
    );

  const told = (words, count, instead) => {
    const pages = `${count} ${count === 1 ? "page matches" : "pages match"}`;
    if (!count) return `No page matches “${words}”.`;
    return instead ? `No page matches “${words}”. ${pages} “${instead}”.` : `${pages} “${words}”.`;
  };

  const answer = async (words, place, status, ...most) => {
    if (!words) {
      place.replaceChildren();
      place.dataset.asked = place.dataset.shown = "";
      status.textContent = "";
      return;
    }
    const asked = (place.dataset.asked = words);
    if (!status.textContent) status.textContent = "Searching …";
    const { count, pages, instead } = await find(words, ...most);
    if (place.dataset.asked !== asked) return; // the reader has typed on
    status.textContent = told(words, count, instead);
    place.replaceChildren(list(pages));
    (place.querySelector("li li a") ?? place.querySelector("a"))?.classList.add("found-first");
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
      // Enter in the field opens the best section, which shows its sign. Down goes to it, and then on; up goes back.
      dialog.addEventListener("keydown", async (event) => {
        if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
        const stops = [field, ...dialog.querySelectorAll(".found-card a:not([hidden])")];
        const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
        if (step) {
          event.preventDefault();
          const down = step > 0 && document.activeElement === field && place.querySelector(".found-first");
          (down || stops.at((stops.indexOf(document.activeElement) + step) % stops.length)).focus();
        } else if (event.key === "Enter" && event.target === field && field.value.trim()) {
          event.preventDefault();
          if (!shown()) await ask();
          if (shown()) place.querySelector(".found-first")?.click();
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
