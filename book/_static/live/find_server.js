/** Where a kernel is to be had: beside a site that this machine serves, or on Binder. */
import { SAYS, Trouble } from "./kernel.js";

const LOCAL = ["localhost", "127.0.0.1", "[::1]"];

/**
 * What `make serve LIVE=1` answers beside the pages; null where no such server is.
 * @returns {Promise<import("./kernel.js").Place | null>}
 */
const beside = async (root) => {
  const answer = await fetch(new URL("/live.json", root), { cache: "no-store" }).catch(() => {
    throw new Trouble(navigator.onLine ? SAYS.stopped : SAYS.offline);
  });
  return answer.ok ? { ...(await answer.json()), local: true } : null;
};

/** Asks Binder to build and start the course; it tells its progress as it goes. */
const binder = (address, say) =>
  new Promise((found, failed) => {
    const events = new EventSource(address);
    const end = (settle, value) => {
      events.close();
      settle(value);
    };
    events.onerror = () =>
      end(
        failed,
        new Trouble(
          navigator.onLine
            ? "Binder does not answer. Try again later, or run the course on your own machine with make serve LIVE=1."
            : SAYS.offline,
        ),
      );
    events.onmessage = ({ data }) => {
      const { phase, message, url, token } = JSON.parse(data);
      if (phase === "ready") end(found, { url, token, local: false });
      else if (phase === "failed")
        end(
          failed,
          new Trouble(
            `Binder could not start the course (${message?.trim()}). Try again later, or run it on your own machine with make serve LIVE=1.`,
          ),
        );
      else say(`Binder: ${phase}. The first start of the day can take some minutes.`);
    };
  });

/** @returns {Promise<import("./kernel.js").Place>} */
export const findPlace = async ({ root, binder: address, say }) => {
  const here = LOCAL.includes(root.hostname) ? await beside(root) : null;
  if (here) return here;
  if (!address) throw new Trouble(SAYS.nowhere);
  say("Asking Binder for a server.");
  return binder(address, say);
};
