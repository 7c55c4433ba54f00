/* "Continue where you left off": remembers the last chapter and section in this browser, and links to them on the start page. */
(() => {
  const KEY = "attention-course: last place";
  const root = new URL(document.documentElement.dataset.content_root, location.href);

  /** The heading that the reader has reached: the last one above the middle of the window. */
  const currentHeading = () =>
    [...document.querySelectorAll(".bd-article :is(h1, h2, h3)")]
      .filter((heading) => heading.getBoundingClientRect().top < innerHeight / 2 && heading.checkVisibility())
      .at(-1);
  const textOf = (heading) => heading.firstChild?.textContent.trim() ?? "";

  const remember = () => {
    const heading = currentHeading();
    if (!heading || scrollY < innerHeight) return; // a short look at a page is not reading
    const chapter = textOf(document.querySelector(".bd-article h1"));
    const section = heading.tagName === "H1" ? "" : textOf(heading);
    const page = location.pathname.slice(root.pathname.length);
    const place = { page, hash: heading.closest("section").id, title: section ? `${chapter}, ${section}` : chapter };
    try {
      localStorage.setItem(KEY, JSON.stringify(place));
    } catch {
      /* the browser stores nothing */
    }
  };

  const offer = () => {
    let place;
    try {
      place = JSON.parse(localStorage.getItem(KEY));
    } catch {
      return; // nothing stored, or nothing readable
    }
    if (!/^notebooks\/\w+\.html$/.test(place?.page)) return;
    const link = document.createElement("a");
    link.href = new URL(`${place.page}#${encodeURIComponent(place.hash)}`, root);
    link.textContent = `Continue with ${place.title}`;
    const line = document.createElement("p");
    line.className = "course-continue";
    line.append(link);
    document.querySelector("a.course-start").closest("p").after(line);
  };

  document.addEventListener("DOMContentLoaded", () => {
    if (document.querySelector("a.course-start")) offer();
    else if (/\/notebooks\/\w+\.html$/.test(location.pathname)) addEventListener("pagehide", remember);
  });
})();
