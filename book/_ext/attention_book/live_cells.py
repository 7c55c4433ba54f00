"""Cells that run in the page: the button on each chapter, and the address of the Binder that may run them."""

from typing import Any
from urllib.parse import urlsplit

from sphinx.application import Sphinx
from sphinx.config import Config

# The page talks to Jupyter itself (book/_static/live/, 10 kB packed). Thebe does the same with 116 files of 3.3 MB,
# which no package on PyPI carries, and which ask two other hosts for MathJax and require.js; a build that needs PyPI
# alone could not have it.


def binder_address(options: dict[str, Any]) -> str:
    """Where Binder builds the course; empty while the course has no address on GitHub, or no Binder."""
    repository = urlsplit(options.get("repository_url") or "")
    hub = (options.get("launch_buttons") or {}).get("binderhub_url")
    if not hub or repository.hostname != "github.com":
        return ""
    owner, name = repository.path.strip("/").split("/")[:2]
    return f"{hub.rstrip('/')}/build/gh/{owner}/{name}/{options.get('repository_branch') or 'HEAD'}"


def add_script(app: Sphinx, config: Config) -> None:
    address = binder_address(config.html_theme_options)
    app.add_js_file("live.js", priority=800, **({"data-binder": address} if address else {}))


def add_button(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """The button promises what it can do: without Binder, live.js promises more where this computer shows the page."""
    if page.startswith("notebooks/"):
        live = binder_address(app.config.html_theme_options)
        context["header_buttons"].insert(
            0,
            {
                "type": "javascript",
                "javascript": "",
                "text": "Live" if live else "Run",
                "tooltip": "Change and run the cells in this page" if live else "How to run this chapter",
                "label": "live-button",
            },
        )


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("config-inited", add_script, priority=200)  # when the addresses are derived
    app.connect("html-page-context", add_button, priority=800)  # when the theme has made its own buttons
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
