/* The contents at the right follow the reader: marked is the section whose text stands below the top of the page. */
(() => {
  const nav = document.getElementById("pst-page-toc-nav");
  if (!nav) return;
  nav.id = "contents"; // the theme's own marks lag behind whoever scrolls up or far; it looks for its name
  const links = [...nav.querySelectorAll("a[href^='#']")];
  const heading = (link) => {
    const target = document.getElementById(decodeURIComponent(link.hash.slice(1)));
    return target?.querySelector(":is(h1, h2, h3, h4, h5, h6)") ?? target;
  };
  const places = links.map((link) => [link, heading(link)]).filter(([, place]) => place);
  const box = nav.closest(".bd-sidebar-secondary");
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
    const inside = link.getBoundingClientRect(), around = box.getBoundingClientRect();
    if (inside.top < around.top + 40) box.scrollTop -= around.top + 40 - inside.top;
    if (inside.bottom > around.bottom - 40) box.scrollTop += inside.bottom - around.bottom + 40;
  };

  const current = () => {
    const page = document.scrollingElement;
    const shown = places.filter(([, place]) => place.checkVisibility());
    const top = (place) => place.getBoundingClientRect().top;
    // Where the page ends, no further heading can come to the top: there the one counts that the address names.
    if (scrollY > 0 && scrollY + innerHeight >= page.scrollHeight - 2) {
      const named = shown.find(([link]) => link.hash === location.hash);
      return named && top(named[1]) >= 0 ? named[0] : shown.at(-1)?.[0];
    }
    const line = Math.max((document.querySelector(".bd-header-article")?.offsetHeight ?? 0) + 24, innerHeight / 8);
    return shown.filter(([, place]) => top(place) <= line).at(-1)?.[0];
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
  addEventListener("scroll", follow, { passive: true });
  addEventListener("resize", follow);
  addEventListener("hashchange", follow);
  addEventListener("load", follow);
  document.addEventListener("toggle", follow, true);
})();
