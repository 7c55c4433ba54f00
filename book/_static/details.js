/* A link that leads to a folded detail, or to anything inside one, opens it first. What a reader has opened is open
   again after a reload, so that the text is as long as before and the reader's place is where it was. */
(() => {
  const open = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    const section = target.matches("section") ? target : target.parentElement; // an older anchor stands at its top
    const own = section.querySelector(":scope > details.detail");
    const folds = own ? [own] : [];
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) folds.push(fold);
    const closed = folds.filter((fold) => !fold.open);
    closed.forEach((fold) => { fold.open = true; });
    if (closed.length) target.scrollIntoView();
  };

  const keep = () => {
    const folds = [...document.querySelectorAll(".bd-article details")];
    const key = `attention-course: open folds of ${location.pathname}`;
    try {
      if (performance.getEntriesByType("navigation")[0]?.type !== "navigate")
        for (const index of JSON.parse(sessionStorage.getItem(key)) ?? []) if (folds[index]) folds[index].open = true;
    } catch { /* a browser that keeps nothing */ }
    const write = () => {
      try {
        sessionStorage.setItem(key, JSON.stringify(folds.flatMap((fold, index) => (fold.open ? [index] : []))));
      } catch { /* a browser that keeps nothing */ }
    };
    addEventListener("pagehide", write);
    document.addEventListener("visibilitychange", write); // a phone may discard a hidden tab without another word
  };

  document.addEventListener("DOMContentLoaded", () => { keep(); open(); });
  window.addEventListener("hashchange", open);
  // The same link again changes no address, but a reader may have closed the detail meanwhile.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href*='#']");
    if (link && link.hash && link.pathname === location.pathname && link.hash === location.hash) setTimeout(open);
  });
})();
