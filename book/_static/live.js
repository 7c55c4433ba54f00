/* The exercises that were right, kept in this browser and nowhere else; and the button "Live", or "Run" where no server
   runs cells, which loads what runs the cells of a chapter (live/cells.js) when it is pressed, and nothing before. */
(() => {
  const script = document.currentScript;
  const root = new URL(document.documentElement.dataset.content_root, location.href);
  const KEY = "attention-course: exercises";

  /**
   * What is kept: for each chapter how many exercises it has, and the names of those that were right.
   * @returns {Record<string, {of: number, right: string[]}>}
   */
  const read = () => {
    try {
      const kept = Object.entries(JSON.parse(localStorage.getItem(KEY)) ?? {});
      return Object.fromEntries(kept.filter(([, chapter]) => Array.isArray(chapter?.right) && chapter.right.length));
    } catch {
      return {}; // nothing kept, nothing that can be read, or a browser that keeps nothing
    }
  };
  const write = (all) => {
    try {
      if (Object.keys(all).length) localStorage.setItem(KEY, JSON.stringify(all));
      else localStorage.removeItem(KEY);
    } catch {
      /* a browser that keeps nothing: the page works all the same */
    }
    show();
  };

  const element = (name, text, attributes = {}) => {
    const made = document.createElement(name);
    made.textContent = text;
    Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
    return made;
  };
  const chapterOf = (url) => /\/notebooks\/(\w+)\.html$/.exec(new URL(url, location.href).pathname)?.[1];
  const exercises = () =>
    [...document.querySelectorAll(".cell.tag_exercise")].map((cell) => ({
      name: /check\.(\w+)\(/.exec(cell.querySelector("pre").textContent)?.[1],
      heading: cell.closest("section").querySelector("h2, h3, h4"),
    }));

  /** Writes beside each chapter of the side bar, and at each exercise, what is kept. */
  const show = () => {
    const all = read();
    document.querySelectorAll(".exercises-right").forEach((mark) => mark.remove());
    document.querySelectorAll(".bd-sidebar-primary .bd-links a").forEach((link) => {
      const chapter = all[chapterOf(link.href)];
      if (!chapter) return;
      const mark = element("span", ` ${chapter.right.length} of ${chapter.of}`, { class: "exercises-right" });
      mark.append(element("span", " exercises right", { class: "visually-hidden" }));
      link.append(mark);
    });
    const right = all[chapterOf(location.href)]?.right ?? [];
    exercises()
      .filter(({ name }) => right.includes(name))
      .forEach(({ heading }) => {
        const mark = element("span", " ✓", { class: "exercises-right" });
        mark.append(element("span", " right", { class: "visually-hidden" }));
        heading.insertBefore(mark, heading.querySelector(".headerlink"));
      });
    panel(all);
  };

  /** The place where a reader sees all of it, takes it along, brings it back or deletes it. */
  const panel = (all, said = "") => {
    const place = document.getElementById("exercises-kept");
    if (!place) return;
    const chapters = Object.entries(all).sort();
    const list = chapters.length ? element("ul", "") : element("p", "Nothing is kept in this browser yet.");
    list.append(
      ...chapters.map(([chapter, { right, of }]) =>
        element("li", `Chapter ${parseInt(chapter, 10)}: ${right.length} of ${of} (${right.join(", ")})`),
      ),
    );
    const save = element("a", "Save as a file", {
      download: "attention-course-exercises.json",
      href: `data:application/json,${encodeURIComponent(JSON.stringify(all, null, 2))}`,
    });
    const add = element("button", "Import a file", { type: "button" });
    add.addEventListener("click", () => {
      const picked = element("input", "", { type: "file", accept: ".json" });
      picked.addEventListener("change", () => bring(picked.files[0]));
      picked.click();
    });
    const clear = element("button", "Delete", { type: "button" });
    clear.addEventListener("click", () => {
      if (confirm("Delete what this browser keeps about your exercises?")) write({});
    });
    place.replaceChildren(
      list,
      ...(chapters.length ? [save, add, clear] : [add]),
      element("p", said, { role: "status" }),
    );
  };

  /** Adds what another browser saved to what is kept here. */
  const bring = async (file) => {
    try {
      const saved = Object.entries(JSON.parse(await file.text()));
      const whole = ([name, chapter]) =>
        /^\d\d_\w+$/.test(name) &&
        chapter.of >= chapter.right.length &&
        chapter.right.every((exercise) => /^\w+$/.test(exercise));
      if (!saved.length || !saved.every(whole)) throw new Error();
      const all = read();
      for (const [name, { of, right }] of saved)
        all[name] = { of, right: [...new Set([...(all[name]?.right ?? []), ...right])] };
      write(all);
      panel(all, `Imported from ${file.name}.`);
    } catch {
      panel(read(), `Nothing was imported: ${file.name} is not a file that was saved on this page.`);
    }
  };

  document.addEventListener("exercise-right", ({ detail }) => {
    const all = read();
    const chapter = chapterOf(location.href);
    const right = new Set(all[chapter]?.right).add(detail);
    const names = exercises().map(({ name }) => name);
    write({ ...all, [chapter]: { of: names.length, right: names.filter((name) => right.has(name)) } });
  });
  window.addEventListener("storage", show); // another tab of the course

  const onThisComputer = ["localhost", "127.0.0.1", "[::1]"].includes(root.hostname);

  /** Whether a server may run cells: Binder, or the one that shows the page and has told where its kernels are. */
  const servedLive = async () => {
    if (script.dataset.binder) return true;
    if (!onThisComputer) return false;
    return fetch(new URL("/live.json", root), { cache: "no-store" }).then(
      ({ ok }) => ok,
      () => true,
    );
  };

  /** Loads what runs cells, and hands it the page; says so where that cannot be. */
  const live = async (button) => {
    const said = document.querySelector(".live-said") ?? element("p", "", { class: "live-said", role: "status" });
    if (!said.isConnected) document.querySelector(".bd-article h1").after(said);
    said.textContent = "";
    button.disabled = true;
    try {
      if (await servedLive()) {
        const cells = await import(new URL("_static/live/cells.js", root));
        await cells.begin({ root, binder: script.dataset.binder, button });
      } else
        await new Promise((onload, onerror) => {
          document.head.append(
            Object.assign(element("script", ""), {
              src: new URL("_static/live/run_locally.js", root),
              onload,
              onerror,
            }),
          );
        });
    } catch {
      said.textContent =
        "What runs the cells could not be loaded. Look whether the network is there, or the server that shows this page, and press Live again.";
    }
    button.disabled = false;
  };

  document.addEventListener("DOMContentLoaded", () => {
    show();
    const button = document.querySelector(".btn-live-button");
    button?.addEventListener("click", () => live(button));
    const kernels = document.cookie.split("; ").includes(`live-${location.port}=1`); // make serve LIVE=1 says so
    if (!button || script.dataset.binder || !kernels) return; // the button has its name for them (_ext/live_cells.py)
    button.querySelector(".btn__text-container").textContent = "Live";
    button.title = "Change and run the cells in this page";
  });
})();
