/* On a narrow window a picture wider than that can be opened in a size that can be read, and scrolled. */
document.addEventListener("DOMContentLoaded", () => {
  const narrow = matchMedia("(max-width: 768px)");
  const element = (name, attributes, ...inside) => {
    const made = Object.assign(document.createElement(name), attributes);
    made.append(...inside);
    return made;
  };

  const enlarge = (picture) => {
    const large = picture.cloneNode(true);
    large.style.width = `${Math.max(picture.getAttribute("width"), 2 * innerWidth)}px`;
    const close = element("button", { type: "button", className: "enlarge" }, "Close");
    const box = element("div", { tabIndex: 0 }, large);
    const dialog = element("dialog", { className: "enlarged", ariaLabel: "The picture, enlarged" }, close, box);
    close.addEventListener("click", () => dialog.close());
    // A step of its own in the history, so that "back" closes the picture and does not leave the page.
    const back = () => dialog.close();
    history.pushState({ enlarged: true }, "");
    addEventListener("popstate", back);
    dialog.addEventListener("close", () => {
      removeEventListener("popstate", back);
      dialog.remove();
      if (history.state?.enlarged) history.back();
    });
    picture.closest("figure").append(dialog); // where the rules for pictures by day and by night hold
    dialog.showModal();
    const fade = () => box.classList.toggle("goes-on", box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
    box.addEventListener("scroll", fade);
    fade();
  };

  const offer = () => {
    if (!narrow.matches) return;
    document
      .querySelectorAll(".bd-article figure:not(:has(.enlarge)) :is(img, svg.drawing)[width]")
      .forEach((picture) => {
        if (picture.closest(".attn-explore, .attn-view") || picture.matches(".by-night")) return; // still pictures, and twins
        const caption = picture.closest("figure").querySelector("figcaption");
        if (!caption || parseFloat(picture.getAttribute("width")) < 1.25 * innerWidth) return;
        const button = element("button", { type: "button", className: "enlarge" }, "Enlarge");
        caption.append(button);
        const night = picture.nextElementSibling?.matches("img.by-night") ? picture.nextElementSibling : null;
        const places = picture.querySelector("[tabindex]") ? [button] : [button, picture, night]; // its parts take taps
        for (const place of places.filter(Boolean))
          place.addEventListener("click", () => enlarge(night?.checkVisibility() ? night : picture));
      });
  };
  offer();
  narrow.addEventListener("change", offer);
});
