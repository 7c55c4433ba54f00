/**
 * A kernel of a Jupyter server: its REST interface and its messages over a WebSocket, as Jupyter documents them.
 *
 * @typedef {{url: string, token: string, local: boolean}} Place where a Jupyter server is
 * @typedef {{header: {msg_type: string}, content: any, metadata: any}} Message
 */

/** Something went wrong that a sentence can help with. */
export class Trouble extends Error {}

const AGAIN = "What you wrote is still here.";
export const SAYS = {
  nowhere:
    "No server here runs cells. In the folder of the course, make serve LIVE=1 starts one and prints the address to open.",
  offline: `There is no network. ${AGAIN} Press Run when the network is back.`,
  stopped: `The Jupyter server does not answer. ${AGAIN} In the folder of the course, start make serve LIVE=1 again, then press Run.`,
  stoppedAway: `Binder's server does not answer; it ends after some minutes without use. ${AGAIN} Press Run to ask for a new one.`,
  refused: `The Jupyter server refuses the token that this page has. ${AGAIN} Stop make serve LIVE=1 and start it again, reload the page, and press Live.`,
  gone: `The kernel is gone, and its variables with it. ${AGAIN} Press Run: a new kernel starts, and the cells above run first.`,
  died: `The kernel died, perhaps for want of memory, and its variables with it. ${AGAIN} Press Run: a new kernel starts, and the cells above run first.`,
};

/** Asks a server; the token goes along. */
const ask = (place, path, options = {}) =>
  fetch(new URL(path, place.url), {
    ...options,
    cache: "no-store",
    headers: { Authorization: `token ${place.token}` },
  });

/** Answers in time or not at all. */
const within = (milliseconds) => ({ signal: AbortSignal.timeout(milliseconds) });

/**
 * Which sentence fits a server that did not do what it was asked. A refusal says nothing to a page of another origin,
 * so what can be asked without a token is asked first, then what needs only the token.
 * @param {Place} place
 */
export const diagnose = async (place) => {
  const up = await fetch(new URL("api", place.url), { mode: "no-cors", cache: "no-store", ...within(5000) }).then(
    () => true,
    () => false,
  );
  if (!up) return navigator.onLine ? (place.local ? SAYS.stopped : SAYS.stoppedAway) : SAYS.offline;
  const known = await ask(place, "api/kernels", within(5000)).then(
    (answer) => answer.ok,
    () => false,
  );
  return known ? SAYS.gone : SAYS.refused;
};

export class Kernel {
  /** @type {Map<string, {hear: (message: Message) => void, done: (ended: string) => void, fail: (error: Error) => void, left: Set<string>}>} */
  #waiting = new Map();
  #socket = null;
  #session = crypto.randomUUID();
  #closing = false;
  #opened = 0;

  /**
   * @param {Place} place
   * @param {string} id
   * @param {(sentence: string) => void} lost is told once when the kernel can no longer be reached, or has no variables
   */
  constructor(place, id, lost) {
    Object.assign(this, { place, id, lost });
  }

  /** Starts a kernel in a folder of the server, and connects to it. */
  static async start(place, folder, lost) {
    const body = JSON.stringify({ name: "python3", path: folder });
    const answer = await ask(place, "api/kernels", { method: "POST", body }).catch(() => null);
    if (!answer?.ok) {
      const why = await diagnose(place);
      throw new Trouble(
        why === SAYS.gone ? "The Jupyter server starts no kernel; what it printed in the terminal says why." : why,
      );
    }
    const kernel = new Kernel(place, (await answer.json()).id, lost);
    await kernel.#open();
    return kernel;
  }

  #open() {
    const address = new URL(`api/kernels/${this.id}/channels`, this.place.url);
    address.protocol = address.protocol.replace("http", "ws");
    address.search = new URLSearchParams({ session_id: this.#session, token: this.place.token });
    this.#socket = new WebSocket(address);
    this.#socket.onmessage = ({ data }) => this.#hear(JSON.parse(data));
    return new Promise((opened, failed) => {
      this.#socket.onopen = opened;
      this.#socket.onclose = async () => {
        const found = !this.#closing && (await this.find());
        // A computer that slept finds its kernel again, and what it said meanwhile.
        if (found && this.#opened++ < 100) this.#open().then(opened, failed);
        else this.#lose(this.#closing ? "The kernel was ended." : await diagnose(this.place), failed);
      };
    });
  }

  /** Whoever waits for an answer is told that none will come. */
  #lose(why, failed = () => {}) {
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    if (!this.#closing) this.lost(why);
    waiting.forEach(({ fail }) => fail(new Trouble(why)));
    failed(new Trouble(why));
  }

  /** Whether the server still has this kernel. */
  find() {
    return ask(this.place, `api/kernels/${this.id}`, within(10_000)).then(
      (answer) => answer.ok,
      () => false,
    );
  }

  #hear(message) {
    const { msg_type: type } = message.header;
    // A kernel that nobody asked to start again has died.
    if (type === "status" && ["restarting", "autorestarting", "dead"].includes(message.content.execution_state)) {
      this.#lose(SAYS.died);
      return;
    }
    const request = this.#waiting.get(message.parent_header?.msg_id);
    if (!request) return;
    if (type === "execute_reply") {
      request.ended = message.content.status;
      request.left.delete("reply");
    } else if (type === "status" && message.content.execution_state === "idle") request.left.delete("idle");
    else request.hear(message);
    if (!request.left.size) {
      this.#waiting.delete(message.parent_header.msg_id);
      request.done(request.ended);
    }
  }

  /**
   * Runs code.
   * @param {string} code
   * @param {(message: Message) => void} hear is given what the code prints, shows and raises
   * @returns {Promise<string>} "ok", "error" or "aborted"
   */
  run(code, hear) {
    const id = crypto.randomUUID();
    const header = {
      msg_id: id,
      msg_type: "execute_request",
      session: this.#session,
      username: "",
      version: "5.3",
      date: new Date().toISOString(),
    };
    const content = {
      code,
      silent: false,
      store_history: true,
      user_expressions: {},
      allow_stdin: false,
      stop_on_error: true,
    };
    return new Promise((done, fail) => {
      if (this.#socket.readyState !== WebSocket.OPEN) return fail(new Trouble(SAYS.gone));
      this.#waiting.set(id, { hear, done, fail, left: new Set(["reply", "idle"]), ended: "" });
      this.#socket.send(
        JSON.stringify({ header, content, channel: "shell", parent_header: {}, metadata: {}, buffers: [] }),
      );
    });
  }

  /** Stops what is running; the variables stay. */
  async interrupt() {
    const answer = await ask(this.place, `api/kernels/${this.id}/interrupt`, { method: "POST" }).catch(() => null);
    if (!answer?.ok) this.#lose(await diagnose(this.place));
  }

  /** Ends the kernel. */
  async end() {
    this.#closing = true;
    this.#socket.close();
    await ask(this.place, `api/kernels/${this.id}`, { method: "DELETE", keepalive: true }).catch(() => {}); // it is gone either way
  }
}
