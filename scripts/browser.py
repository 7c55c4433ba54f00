"""Find the browser that prints the book and that the tests open pages with: Chromium, Chrome or Edge."""

import os
import shutil
from pathlib import Path

ON_PATH = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "microsoft-edge",
    "chrome",
    "msedge",
)
ON_MACOS = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
)
ON_WINDOWS = (
    "Chromium/Application/chrome.exe",
    "Google/Chrome/Application/chrome.exe",
    "Microsoft/Edge/Application/msedge.exe",
)
WINDOWS_FOLDERS = ("ProgramFiles", "ProgramFiles(x86)", "LocalAppData")  # environment variables
NONE_FOUND = "no browser was found: install Chromium, Chrome or Edge (on Debian: sudo apt install chromium)"


def find_browser() -> str | None:
    """Return the path of the first browser found, on PATH or where macOS and Windows install programs."""
    if on_path := next(filter(None, map(shutil.which, ON_PATH)), None):
        return on_path
    folders = [os.environ[name] for name in WINDOWS_FOLDERS if name in os.environ]
    places = [*map(Path, ON_MACOS), *(Path(folder, name) for folder in folders for name in ON_WINDOWS)]
    return next((str(path) for path in places if path.is_file()), None)
