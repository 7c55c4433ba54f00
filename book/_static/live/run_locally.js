/* Says how to run a chapter that comes from a folder or from a server without kernels. It is no module, since a page
   that was opened from a folder can load none. */
(() => {
  const guide = new URL("../../book/how_to_use.html#run-it", document.currentScript.src);
  const zip = new URL("../../attention-course.zip", document.currentScript.src);
  const { href, pathname } = document.querySelector("a.btn-download-source-button");
  const dialog = Object.assign(document.createElement("dialog"), { className: "live-run-locally" });
  dialog.setAttribute("aria-labelledby", "live-run-locally");
  dialog.innerHTML = `<h2 id="live-run-locally">Run this chapter on your machine</h2>
    <p>No server runs Python for this page. <a href="${zip}" download>Download the course</a>, unzip it, and run this
      command in its folder. It installs the libraries and opens the website with cells that run. You need a computer;
      a phone or a tablet cannot run them.</p>
    <pre>make serve LIVE=1</pre>
    <p>You can also download <a href="${href}" download>${pathname.split("/").at(-1)}</a>, the notebook of this page,
      and open it in Jupyter. It needs PyTorch and the package of the course.</p>
    <p><a href="${guide}">How to set up the course</a></p>
    <form method="dialog"><button>Close</button></form>`;
  dialog.addEventListener("close", () => {
    dialog.remove();
    document.querySelector(".btn-live-button").focus();
  });
  document.body.append(dialog);
  dialog.showModal();
})();
