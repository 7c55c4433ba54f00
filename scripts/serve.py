"""Serve the built book on this machine: `make serve`.

python scripts/serve.py          # make serve
python scripts/serve.py --live   # make serve LIVE=1: the cells of a chapter run in its page

`--live` also starts a Jupyter server. This server listens on this machine alone, refuses everybody without the token,
which is made anew at each start, and answers the pages of this site only. The pages read its address and the token
from /live.json.
"""

import argparse
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOSTS = ("localhost", "127.0.0.1")
PATIENCE = 120  # seconds for the Jupyter server's first answer

# The Jupyter server ends when its standard input ends, so it ends with this script, however the script ends.
# Not sys.stdin.read(): Python cannot shut down while a thread holds the lock of sys.stdin.
SERVER = """
import os, threading
from jupyter_server.serverapp import ServerApp, main

def end():
    while os.read(0, 1):
        pass
    if ServerApp.initialized() and ServerApp.instance().io_loop:
        server = ServerApp.instance()
        server.io_loop.add_callback(server.stop)
    else:
        os._exit(0)

threading.Thread(target=end, daemon=True).start()
main()
"""


class Failure(Exception):
    """The message says everything, so no traceback is shown."""


class Jupyter:
    """A Jupyter server that pages served on a port of this machine may use."""

    def __init__(self, port_of_site: int):
        self.token = secrets.token_urlsafe(32)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/"
        pages = "|".join(map(re.escape, HOSTS))
        settings = {
            "ServerApp.ip": "127.0.0.1",
            "ServerApp.port": port,
            "ServerApp.port_retries": 0,
            "ServerApp.root_dir": ROOT,
            "ServerApp.allow_origin_pat": f"^http://({pages}):{port_of_site}$",
            "ServerApp.open_browser": False,
            "ServerApp.terminals_enabled": False,
            "ServerApp.allow_root": True,  # in a container; nothing but this machine reaches it
            "ServerApp.log_level": "ERROR",
            # A page that was closed without a word leaves a kernel behind.
            "MappingKernelManager.cull_idle_timeout": 600,
            "MappingKernelManager.cull_interval": 60,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, *(f"--{name}={value}" for name, value in settings.items())],
            cwd=ROOT,
            # A token on the command line could be read by others; settings of the reader's own, a password for
            # instance, would lock the pages out.
            env=os.environ | {"JUPYTER_TOKEN": self.token, "JUPYTER_NO_CONFIG": "1"},
            stdin=subprocess.PIPE,
            # Ctrl-C must reach this script only: the Jupyter server would ask whether it shall end.
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # the same on Windows
        )

    def wait(self) -> None:
        """Wait until it answers."""
        for _ in range(PATIENCE * 10):
            if self.process.poll() is not None:
                raise Failure("the Jupyter server ended as soon as it was started; what it printed says why")
            try:
                urllib.request.urlopen(f"{self.url}api", timeout=5).close()
                return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        raise Failure(f"the Jupyter server does not answer after {PATIENCE} seconds")

    def stop(self) -> None:
        self.process.stdin.close()  # it ends its kernels first
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Pages(SimpleHTTPRequestHandler):
    """The pages of the book, and where their kernels are."""

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/live.json" or self.server.jupyter is None:
            super().do_GET()
            return
        # A foreign name that leads to this machine is no page of ours.
        if self.headers.get("Host") not in [f"{host}:{self.server.server_port}" for host in HOSTS]:
            self.send_error(403, "only pages on localhost are told")
            return
        answer = json.dumps(self.server.kernels).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(answer)

    def end_headers(self) -> None:
        # A page of others could lay itself over a framed chapter, and have the reader drop and run its code in a cell.
        self.send_header("Content-Security-Policy", "frame-ancestors 'none'")
        # By this the button of a chapter knows its name, Live or Run, without a request of its own.
        life = "" if self.server.jupyter else "; Max-Age=0"
        self.send_header("Set-Cookie", f"live-{self.server.server_port}=1; Path=/; SameSite=Strict{life}")
        super().end_headers()

    def log_message(self, *_) -> None:
        pass


class Site(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = os.name != "nt"  # Windows would let two servers have one port
    jupyter: Jupyter | None = None

    def __init__(self, html: Path, port: int, *, live: bool):
        if not (html / "index.html").exists():
            raise Failure(f"{html} has no index.html, so the book is not built there; make book builds it")
        try:
            super().__init__(("127.0.0.1", port), partial(Pages, directory=str(html)))
        except OSError as error:
            another = f"make serve {'LIVE=1 ' if live else ''}PORT={port + 1}"
            raise Failure(f"port {port} cannot be used ({error.strerror}); try another: {another}") from error
        self.address = f"http://localhost:{self.server_port}/"
        if live:
            self.start()

    def start(self) -> None:
        self.jupyter = Jupyter(self.server_port)
        self.kernels = {"url": self.jupyter.url, "token": self.jupyter.token}

    def server_close(self) -> None:
        super().server_close()
        if self.jupyter:
            self.jupyter.stop()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8000, help="where the book is served (default 8000)")
    parser.add_argument("--html", type=Path, default=ROOT / "_build" / "html", help="the built book")
    parser.add_argument("--live", action="store_true", help="start a Jupyter server that runs the cells in the page")
    options = parser.parse_args(arguments)
    for ending in ("SIGTERM", "SIGHUP"):  # the Jupyter server ends with this script; Windows has no SIGHUP
        if hasattr(signal, ending):
            signal.signal(getattr(signal, ending), lambda *_: sys.exit(0))
    try:
        with Site(options.html, options.port, live=options.live) as site:
            if site.jupyter:
                site.jupyter.wait()
            how = "press Live on a chapter; " if site.jupyter else ""
            print(f"The book: {site.address} ({how}stop with Ctrl-C)", flush=True)
            site.serve_forever()
    except Failure as error:
        print(f"make serve: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
