/* The contents at the right follow the reader: marked is the section whose text stands below the top of the page. */
(() => {
  // The side bar begins at the chapter that is open.
  const sidebar = document.querySelector(".bd-sidebar-primary");
  const open = sidebar?.querySelector("li.current.active > a");
  if (open && sidebar.checkVisibility()) {
    const { top, height } = sidebar.getBoundingClientRect();
    sidebar.scrollTop += open.getBoundingClientRect().top - top - height / 2;
  }

  const nav = document.getElementById("pst-page-toc-nav");
  if (!nav) return;
  nav.id = "contents"; // the theme's own marks lag behind whoever scrolls up or far; it looks for its name
  const box = nav.closest(".bd-sidebar-secondary");
  const links = [...nav.querySelectorAll("a[href^='#']")];
  const target = (link) => document.getElementById(decodeURIComponent(link.hash.slice(1)));
  const top = (link) => target(link).getBoundingClientRect().top;
  let marked = null;

  const mark = (link) => {
    if (link === marked) return;
    marked = link;
    links.forEach((other) => {
      other.classList.toggle("active", other === link);
      if (other === link) other.setAttribute("aria-current", "true");
      else other.removeAttribute("aria-current");
    });
    nav.querySelectorAll(".toc-entry").forEach((entry) => entry.classList.toggle("active", entry.contains(link)));
    if (!link || !box || !nav.checkVisibility()) return;
    const inside = link.getBoundingClientRect(),
      around = box.getBoundingClientRect();
    if (inside.top < around.top + 40) box.scrollTop -= around.top + 40 - inside.top;
    if (inside.bottom > around.bottom - 40) box.scrollTop += inside.bottom - around.bottom + 40;
  };

  // Level by level, and deeper only where the reader is: what is far away has not been laid out.
  const readIn = (list, line) => {
    const shown = [...(list?.children ?? [])]
      .map((entry) => [entry, entry.querySelector(":scope > a[href^='#']")])
      .filter(([, link]) => link && target(link)?.checkVisibility());
    const read = shown.filter(([, link]) => top(link) <= line).at(-1);
    return read && (readIn(read[0].querySelector(":scope > ul"), line) ?? read[1]);
  };

  const current = () => {
    const page = document.scrollingElement;
    // Where the page ends, no further heading can come to the top: there the one counts that the address names.
    if (scrollY > 0 && scrollY + innerHeight >= page.scrollHeight - 2) {
      const named = links.find((link) => link.hash === location.hash);
      if (named && target(named)?.checkVisibility() && top(named) >= 0 && top(named) < innerHeight) return named;
    }
    const header = document.querySelector(".bd-header-article")?.offsetHeight ?? 0;
    return readIn(nav.querySelector("ul"), Math.max(header + 24, innerHeight / 8));
  };

  let waiting = false;
  const follow = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      mark(current() ?? null);
    });
  };
  // On a narrow window the contents lie over the page: whoever has chosen a section wants to see it.
  nav.addEventListener("click", ({ target }) => {
    if (target.closest("a")) nav.closest("dialog")?.close();
  });
  addEventListener("scroll", follow, { passive: true });
  for (const event of ["resize", "hashchange", "load"]) addEventListener(event, follow);
  document.addEventListener("toggle", follow, true);
})();
