"""Remove unused styles, scripts, icons and colours from the pages.

The theme's own pages weigh three quarters of a megabyte. Everything here happens when all pages are written, and
changes nothing that a reader sees.
"""

import hashlib
import posixpath
import re
from base64 import b64encode
from collections.abc import Set
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pydata_sphinx_theme
import tinycss2
from PIL import Image, ImageFilter
from sphinx.application import Sphinx
from sphinx.util import logging

from attn_course.plots.colours import diverging, sequential

logger = logging.getLogger(__name__)

# ---------------------------------------------------------------- styles

CLASS = re.compile(r"[.#]((?:\\.|[\w-])+)")
# Of these it does not matter whether what stands in them occurs.
OPTIONAL = re.compile(r":(?:not|is|where|has)\((?:[^()]|\([^()]*\))*\)|\[[^\]]*\]")
FONT_AWESOME = re.compile(r"\.fa(?:-|[srlbdt]?\b|-?v?4)|Font ?Awesome", re.IGNORECASE)
SPACE = re.compile(r"\s+")


def classes_and_words(html: Path) -> set[str]:
    """Every class and id that a page has, and every word of a script, since scripts give classes as well."""
    words: set[str] = set()
    for path in html.rglob("*.html"):
        for names in re.findall(r'\s(?:class|id)="([^"]*)"', path.read_text(encoding="utf-8")):
            words.update(names.split())
        # A view in a page brings its own script.
        for script in re.findall(r"<script\b[^>]*>(.*?)</script>", path.read_text(encoding="utf-8"), re.DOTALL):
            words.update(re.findall(r"[A-Za-z_][\w-]*", script))
    for path in html.rglob("*.js"):
        if path.name != "fontawesome.js" and not {"locales", "pagefind"} & set(path.parts):
            words.update(re.findall(r"[A-Za-z_][\w-]*", path.read_text(encoding="utf-8", errors="ignore")))
    return words


def matches_something(selector: str, words: set[str]) -> bool:
    needed = {name.replace("\\", "") for name in CLASS.findall(OPTIONAL.sub("", selector))}
    return needed <= words and not FONT_AWESOME.search(selector)


def selectors(prelude: list[Any]) -> list[str]:
    parts, part = [], []
    for token in prelude:
        if token.type == "literal" and token.value == ",":
            parts.append(part)
            part = []
        else:
            part.append(token)
    return [tinycss2.serialize(part).strip() for part in [*parts, part]]


def matching_rules(css: str, words: set[str]) -> str:
    """The rules of a style sheet that can match something, without their comments and spaces."""
    rules = []
    for rule in tinycss2.parse_stylesheet(css, skip_comments=True, skip_whitespace=True):
        if rule.type == "qualified-rule":
            used = [selector for selector in selectors(rule.prelude) if matches_something(selector, words)]
            if used:
                rules.append(f"{','.join(used)}{{{without_spaces(tinycss2.serialize(rule.content))}}}")
        elif rule.type == "at-rule" and rule.lower_at_keyword in ("media", "supports", "layer", "container"):
            if inner := matching_rules(tinycss2.serialize(rule.content or []), words):
                rules.append(f"@{rule.at_keyword} {without_spaces(tinycss2.serialize(rule.prelude))}{{{inner}}}")
        elif rule.type == "at-rule" and rule.lower_at_keyword not in ("charset", "import"):
            text = without_spaces(tinycss2.serialize([rule]))
            if not FONT_AWESOME.search(text):
                rules.append(text)
    return "\n".join(rules)


def without_spaces(css: str) -> str:
    return SPACE.sub(" ", re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)).strip().rstrip(";")


def inline_imports(path: Path, static: Path) -> str:
    """A style sheet with those that it imports in their place, and its addresses as seen from the folder of styles."""
    folder = path.parent

    def imported(address: re.Match[str]) -> str:
        return inline_imports(Path(posixpath.normpath(folder / address[1])), static)

    def moved(address: re.Match[str]) -> str:
        return f"url({posixpath.relpath(folder / address[1], static)})"

    css = path.read_text(encoding="utf-8")
    css = re.sub(r"url\(['\"]?(?!['\"]?data:|#|[a-z]+:)([^'\")]+)['\"]?\)", moved, css)
    return re.sub(r'@import\s+"([^"]+)";', imported, css)


# ---------------------------------------------------------------- icons

ICONS = Path("theme/pydata_sphinx_theme/static/scripts/fontawesome.js")
ICON = re.compile(r'(?:"([\w-]+)"|(\w+)):\[(\d+),(\d+),\[([^\[\]]*)\],"[0-9a-f]+","([^"]*)"\]')
ICON_NAME = re.compile(r"\bfa-([a-z0-9-]+)")
SIZES = {"lg": "1.25em", "sm": "0.875em", "xl": "1.5em", "2x": "2em"}


def icon_rules(html: Path) -> str:
    """Style rules that draw the icons which some page or script names; the theme ships 2,000 of them as a script."""
    used: set[str] = set()
    for path in [*html.rglob("*.html"), *(html / "_static").glob("scripts/*.js")]:
        if path.name != ICONS.name:
            used.update(ICON_NAME.findall(path.read_text(encoding="utf-8", errors="ignore")))
    icons: dict[str, tuple[str, str, str]] = {}
    for name, bare, width, height, aliases, path in ICON.findall(
        (Path(pydata_sphinx_theme.__file__).parent / ICONS).read_text(encoding="utf-8")
    ):
        for one in [name or bare, *re.findall(r'"([\w-]+)"', aliases)]:
            icons[one] = (width, height, path)  # brands, regular and solid stand in this order; solid ones count
    rules = [
        ":is(.fa-solid,.fas,.fa-regular,.far,.fa-brands,.fab){display:inline-block;line-height:1}",
        ":is(.fa-solid,.fas,.fa-regular,.far,.fa-brands,.fab)::before{content:'';display:inline-block;height:1em;"
        "vertical-align:-0.125em;background:currentColor;mask:var(--icon) center/contain no-repeat}",
    ]
    rules += [f".fa-{name}{{font-size:{size}}}" for name, size in SIZES.items() if name in used]
    for name in sorted(used & set(icons)):
        width, height, path = icons[name]
        svg = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}'><path d='{path}'/></svg>"
        address = quote(svg, safe=" ='/:.-,")
        rules.append(f'.fa-{name}{{--icon:url("data:image/svg+xml,{address}")}}')
        rules.append(f".fa-{name}::before{{width:{int(width) / int(height):.3g}em}}")
    return "\n".join(rules)


# ---------------------------------------------------------------- scripts

# A script, and what a page has where the script has something to do.
WORK = {
    "clipboard.min.js": r'class="highlight"',
    "copybutton.js": r'class="highlight"',
    "togglebutton.js": r'class="(?:[^"]*\s)?toggle[\s"]|class="[^"]*\badmonition\b[^"]*\bdropdown[\s"]',
    "design-tabs.js": r'class="[^"]*\bsd-tab-set\b',
    **dict.fromkeys(
        ("doctools.js", "sphinx_highlight.js", "searchtools.js", "language_data.js", "searchindex.js"),
        r'id="search-results"',
    ),
}
# The theme measures every box of a page at once to see which scroll sideways; a11y.js does it bit by bit.
AT_ONCE = ',"complete"===document.readyState?I():window.addEventListener("load",I)'
SCRIPT = re.compile(r'[ \t]*<script\b([^>]*?)\ssrc="([^"]*)"([^>]*)></script>\n?')
SETTINGS = re.compile(r"\s*<script>(?:let toggle\w+|var togglebuttonSelector) = [^<]*</script>")
OPTIONS = re.compile(r'<script src="[^"]*documentation_options\.js[^"]*"></script>')


def stop_measuring_boxes(theme: Path) -> None:
    text = theme.read_text(encoding="utf-8")
    if text.count(AT_ONCE) != 1:
        logger.warning("the theme's script has changed: it measures all boxes at once, or no longer does")
    theme.write_text(text.replace(AT_ONCE, ""), encoding="utf-8")


def needed_scripts(page: str, options: str) -> str:
    """The page with the scripts that have work on it, which wait until it is read."""
    searching = 'id="search-results"' in page

    def script(tag: re.Match[str]) -> str:
        name = tag[2].partition("?")[0].rpartition("/")[2]
        if name == "fontawesome.js" or (name in WORK and not re.search(WORK[name], page)):
            return ""
        # Sphinx's own search, which stands in where there is no server, wants its scripts at once.
        if searching or "defer" in tag[1] + tag[3] or "async" in tag[1] + tag[3]:
            return tag[0]
        return tag[0].replace("<script", "<script defer", 1)

    page = OPTIONS.sub(lambda _: f"<script>{options}</script>", page)
    page = SCRIPT.sub(script, page)
    return page if "togglebutton.js" in page else SETTINGS.sub("", page)


# ---------------------------------------------------------------- what is known from the start

# The theme learns only at the end of a page whether it is day or night, and then colours all of it again.
LATE = 'document.documentElement.dataset.theme = localStorage.getItem("theme") || "auto";'
AT_THE_START = """{
      const mode = localStorage.getItem("mode"), night = matchMedia("(prefers-color-scheme: dark)").matches;
      document.documentElement.dataset.theme = mode === "light" || mode === "dark" ? mode : night ? "dark" : "light";
    }"""
# A formula asks for its font when it is laid out, which is too late. In a folder, a browser may not ask beforehand.
FONT = """  <script>
    if (location.protocol !== "file:")
      document.head.append(Object.assign(document.createElement("link"), {
        rel: "preload", as: "font", type: "font/woff2", crossOrigin: "", href: "ROOTvendor/stix/STIXTwoMath.woff2",
      }));
  </script>
"""


def preload_colours_and_font(page: str, root: str) -> str:
    """The page with its colours and the font of its formulas asked for before anything is drawn."""
    if "<math" in page:
        page = page.replace('  <link rel="stylesheet"', FONT.replace("ROOT", root) + '  <link rel="stylesheet"', 1)
    return page.replace(LATE, AT_THE_START, 1)


# ---------------------------------------------------------------- pictures

PICTURE = re.compile(r'<img ([^>]*?)src="([^"]*)"([^>]*?)\s*(/?)>')


def size_of(path: Path) -> tuple[int, int] | None:
    if path.suffix == ".svg":
        start = path.read_text(encoding="utf-8")[:2000]
        size = re.search(r'<svg[^>]*?\swidth="([\d.]+)(?:px|pt)?"[^>]*?\sheight="([\d.]+)', start, re.DOTALL)
        return (round(float(size[1])), round(float(size[2]))) if size else None
    with Image.open(path) as picture:
        return picture.size


def write_webp(folder: Path) -> dict[str, str]:
    """Write each PNG as WebP, which keeps every pixel; return the new names of those that became smaller."""
    renamed = {}
    for path in sorted(folder.glob("*.png")):
        webp = path.with_suffix(".webp")
        with Image.open(path) as picture:
            picture.save(webp, "webp", lossless=True, method=4, quality=75, exact=True)
        if webp.stat().st_size < path.stat().st_size:
            renamed[path.name] = webp.name
        else:
            webp.unlink()
    return renamed


def shows_heatmap(picture: Image.Image) -> bool:
    """Whether weights are drawn in it: of a heatmap 4 % or more have its colours, of curves and bars at most 0.3 %."""
    counted = picture.convert("RGB").getcolors(picture.width * picture.height)
    most = sorted(counted, reverse=True)[:1000]
    colours = np.array([colour for _, colour in most])
    scale = np.concatenate([m(np.arange(256))[:, :3] for m in (sequential(), diverging())]) * 255
    scale = scale[np.ptp(scale, axis=1) > 30]  # near-white is the colour of every card
    near = np.abs(colours[:, None] - scale).max(axis=2).min(axis=1) <= 2
    return sum(count for (count, _), on in zip(most, near, strict=True) if on) > 0.01 * picture.width * picture.height


BACKGROUND, INK = np.array([20, 24, 29]), np.array([217, 223, 229])  # of a page by night, as in custom.css
# What invert(0.91) and hue-rotate(180deg) make of a colour.
TURNED = np.array([[-0.574, 1.43, 0.144], [0.426, 0.43, 0.144], [0.426, 1.43, -0.856]])
GAP = 12  # pixels of a margin; cells stand closer, and panels do not


def panels(drawn: np.ndarray, top: int = 0, left: int = 0) -> list[tuple[slice, slice]]:
    """The rectangles that are drawn, cut apart where a margin goes all the way through."""
    for axis in (1, 0):
        lines = np.flatnonzero(drawn.any(axis=axis))
        if not len(lines):
            return []
        starts = [lines[0], *lines[1:][np.diff(lines) > GAP]]
        ends = [*lines[:-1][np.diff(lines) > GAP], lines[-1]]
        if len(starts) > 1:
            parts = [drawn[a : b + 1] if axis else drawn[:, a : b + 1] for a, b in zip(starts, ends, strict=True)]
            places = [(top + a, left) if axis else (top, left + a) for a in starts]
            return [panel for part, place in zip(parts, places, strict=True) for panel in panels(part, *place)]
    rows, columns = (np.flatnonzero(drawn.any(axis=axis)) for axis in (1, 0))
    return [
        (slice(top + rows[0], top + rows[-1] + 1), slice(left + columns[0], left + columns[-1] + 1)),
    ]


def share_around(points: np.ndarray) -> np.ndarray:
    """The share of the points in a square of 25 pixels around each pixel, in 255ths."""
    return np.asarray(Image.fromarray(points.astype(np.uint8) * 255).filter(ImageFilter.BoxBlur(12)))


def night_version(picture: Image.Image) -> Image.Image:
    """A heatmap on a dark page: its margins and its letters change places, and its cells keep their colours."""
    day = np.asarray(picture.convert("RGB")).astype(int)
    codes = np.concatenate([m(np.arange(256), bytes=True)[:, :3] for m in (sequential(), diverging())]).astype(int)
    # Two units off, because the files have fewer colours.
    near = (codes[:, None] + np.indices((5, 5, 5)).reshape(3, -1).T - 2) @ [65536, 256, 1]
    like = np.isin(day @ [65536, 256, 1], near)
    cells = np.ones_like(like)
    for down, right in np.ndindex(
        5, 5
    ):  # the edge of a letter can have a colour of the scale, but is thinner than this
        cells &= np.roll(like, (down, right), axis=(0, 1))
    for down, right in np.ndindex(5, 5):
        like = cells if down + right == 0 else like | np.roll(cells, (-down, -right), axis=(0, 1))
    cells = like
    lines = (day == 184).all(axis=2)  # of the hatch (heatmaps.py): many on a place, and no letter near
    cells |= (day.max(axis=2) < 255) & (share_around(lines) > 3) & (share_around(day.max(axis=2) < 150) == 0)
    grey = np.ptp(day, axis=2, keepdims=True) <= 40  # margins, lines and letters, some of them with a tint
    night = np.clip((232 - 0.82 * day) @ TURNED.T, 0, 255)
    night = np.where(grey, BACKGROUND + (INK - BACKGROUND) * (1 - day.mean(axis=2, keepdims=True) / 255), night)
    for panel in panels(cells):
        if min(cells[panel].shape) >= 8 and cells[panel].mean() > 0.2:
            night[panel] = 0.8 * day[panel]
    return Image.fromarray(night.round().astype(np.uint8))


def write_night_pictures(folder: Path, curves: Set[str]) -> dict[str, str]:
    """Draw each heatmap for the night, too, and return the names of both pictures."""
    made = {}
    for path in sorted(folder.glob("*.png")):
        if path.name not in curves:
            with Image.open(path) as picture:
                night_version(picture).save(path.with_suffix(".night.png"))
            made[path.name] = path.with_suffix(".night.png").name
    return made


def pictures_without_heatmap(folder: Path) -> set[str]:
    """The pictures that may turn dark by night; in a heatmap dark cells are what the text speaks of."""
    names = set()
    for path in folder.glob("*.png"):
        with Image.open(path) as picture:
            if not shows_heatmap(picture):
                names.add(path.name)
    return names


def lazy_pictures(
    page: str,
    at: Path,
    renamed: dict[str, str],
    curves: Set[str] = frozenset(),
    nights: dict[str, str] | None = None,
) -> str:
    """Pictures in their lighter form, with their sizes, and fetched when the reader comes near; the first at once."""
    start = page.find("<article")
    count = 0

    def picture(tag: re.Match[str]) -> str:
        nonlocal count
        before, address, after, end = tag.groups()
        folder, _, name = address.rpartition("/")
        attributes = f"{before.strip()} {after.strip()}".strip()
        file = Path(posixpath.normpath(at.parent / address))
        if not re.search(r"\b(?:width|height|style)=", attributes) and file.exists() and (size := size_of(file)):
            attributes += f' width="{size[0]}" height="{size[1]}"'
        elif (wide := re.search(r'style="width: (\d+)px;"', attributes)) and file.exists() and (size := size_of(file)):
            attributes += f' width="{wide[1]}" height="{round(int(wide[1]) * size[1] / size[0])}"'
        if folder.endswith("_images") and name in curves and "class=" not in attributes:
            attributes += ' class="curves"'
        other = ""
        if folder.endswith("_images") and name in (nights or {}) and "class=" not in attributes:
            night = renamed.get(nights[name], nights[name])
            other = f'<img src="{folder}/{night}" {attributes} class="by-night" decoding="async" loading="lazy"{end}>'
        if folder.endswith("_images") and name in renamed:
            address = f"{folder}/{renamed[name]}"
        if tag.start() > start >= 0 and "loading=" not in attributes:
            count += 1
            attributes += ' decoding="async"' + (' loading="lazy"' if count > 1 else "")
        return f'<img src="{address}" {attributes}{end}>{other}'

    return PICTURE.sub(picture, page)


# ---------------------------------------------------------------- marks in the text

SIGNATURE = re.compile(r'<dt class="sig\b.*?</dt>', re.DOTALL)
LISTING = re.compile(r'<div class="highlight">.*?</div>', re.DOTALL)
PRE = re.compile(r'<span class="pre">([^<]*)</span>')


def kinds_of_plain_code(css: str) -> list[str]:
    """The kinds of code whose colour is that of the listing itself, in every theme."""
    own = dict(re.findall(r'(html\[data-theme="\w+"\]) \.highlight \{[^}]*\bcolor: (#\w+)', css))
    styles: dict[str, dict[str, str]] = {}
    for theme, kind, style in re.findall(r'(html\[data-theme="\w+"\]) \.highlight \.(\w+) \{([^}]*)\}', css):
        styles.setdefault(kind, {})[theme] = style.strip()
    return sorted(
        kind
        for kind, by_theme in styles.items()
        if own and all(by_theme.get(theme, "").lower() == f"color: {colour}".lower() for theme, colour in own.items())
    )


def remove_plain_marks(page: str, plain: list[str]) -> str:
    """The page without marks that change nothing: a name in a listing is as black as the listing."""
    marks = re.compile(rf'<span class="(?:{"|".join(plain)})">([^<]*)</span>') if plain else None

    def signature(text: re.Match[str]) -> str:
        return re.sub(r'<span class="[wpo]">([^<]*)</span>', r"\1", text[0])

    page = SIGNATURE.sub(signature, PRE.sub(r"\1", page))
    return LISTING.sub(lambda text: marks.sub(r"\1", text[0]), page) if marks else page


# ---------------------------------------------------------------- code on a telephone

FITS = 42  # characters of code that a telephone shows in one line
CODE = re.compile(
    r'(<div class="highlight-(?:ipython3|python)[^"]*"><div class="highlight"><pre>)(.*?)(</pre>)', re.DOTALL
)
OUTPUT = re.compile(
    r'(<div class="output (?:stream|text_plain) [^"]*"><div class="highlight"><pre>(?:<span></span>)?)([^<]*)(</pre>)'
)
COLUMNS = re.compile(r"\S {2,}\S|\[")  # of a table, a tensor or a list, which must not break
WORD = re.compile(r"(?:<[^>]*>|&[^;\s]*;|[^\s<&])+")  # with the marks in it
SIGN = re.compile(r"(?:<[^>]*>|&[^;\s]*;|.)")


def breakable(line: str) -> str:
    """A line of code whose longest words may break after a bracket, and so not within a name."""

    def word(match: re.Match[str]) -> str:
        signs = SIGN.findall(match[0])
        if sum(len(sign) == 1 or sign[0] == "&" for sign in signs) <= FITS // 2:
            return match[0]
        return "".join(sign + "<wbr>" if sign in ("(", "[") else sign for sign in signs)

    return WORD.sub(word, line)


def mark_hanging_lines(page: str) -> str:
    """The page with a mark around each long line of code that says how far it is indented.

    In a narrow window the rest of such a line is indented, because at the margin it would look like a new line. The
    sentences among the outputs are marked, too, since they may break there.
    """

    def marked(code: re.Match[str]) -> str:
        if "<div" in code[2]:
            return code[0]  # a page of source code, which is cut into blocks of its own
        lines, is_open = [], []
        for line in code[2].removesuffix("\n").split("\n"):
            line = "".join(is_open) + line  # a mark may run over several lines
            is_open = []
            for tag in re.findall(r"<[^>]*>", line):
                is_open = is_open[:-1] if tag.startswith("</") else [*is_open, tag]
            line += "".join(f"</{tag[1:-1].split()[0]}>" for tag in reversed(is_open))
            text = unescape(re.sub(r"<[^>]*>", "", line))
            indent = len(text) - len(text.lstrip(" "))
            mark = f'<span class="long" style="--i:{indent}">' if indent else '<span class="long">'
            lines.append(f"{mark}{breakable(line)}\n</span>" if len(text) > FITS else f"{line}\n")
        return f"{code[1]}{''.join(lines)}{code[3]}"

    def wrapping(output: re.Match[str]) -> str:
        lines = output[2].split("\n")
        for index, line in enumerate(lines):
            if len(unescape(line)) > FITS and not COLUMNS.search(line):
                lines[index] = f'<span class="sentence">{line}</span>'
        return output[1] + "\n".join(lines) + output[3]

    return OUTPUT.sub(wrapping, CODE.sub(marked, page))


# ---------------------------------------------------------------- the page for missing pages

NO_PAGE = re.compile(r'(<link rel="stylesheet" href=|<img [^>]*?src=|<link rel="icon" href=)"([^"]*)"([^>]*)>')


def inline_style_and_pictures(page: str, html: Path, root: str) -> str:
    """The page that a host shows for any address that does not exist, with its style and pictures inside it.

    Its links hold for the address that the site was built for; what it looks like must not hang on that.
    """

    def inside(tag: re.Match[str]) -> str:
        file = html / tag[2].removeprefix(root)
        if not file.is_file():
            return tag[0]
        if file.suffix == ".css":
            return f"<style>{file.read_text(encoding='utf-8')}</style>"
        return f'{tag[1]}"data:image/svg+xml;base64,{b64encode(file.read_bytes()).decode()}"{tag[3]}>'

    return NO_PAGE.sub(inside, page)


# ---------------------------------------------------------------- all of it

STYLE = re.compile(r'[ \t]*<link\b(?=[^>]*\brel="stylesheet")[^>]*?\bhref="(?!https?:)([^"?]*)[^"]*"[^>]*>\n?')


def lighten(html: Path) -> None:
    """Make every page of a built site lighter."""
    static = html / "_static"
    icons, words = icon_rules(html), classes_and_words(html)
    stop_measuring_boxes(static / "scripts" / "pydata-sphinx-theme.js")
    curves = pictures_without_heatmap(html / "_images")
    nights = write_night_pictures(html / "_images", curves)
    renamed = write_webp(html / "_images")
    plain = kinds_of_plain_code((static / "pygments.css").read_text(encoding="utf-8"))
    options = SPACE.sub(" ", (static / "documentation_options.js").read_text(encoding="utf-8")).strip()
    sheets: dict[tuple[str, ...], str] = {}
    replaced: set[Path] = set()

    def sheet(names: tuple[str, ...]) -> str:
        if names not in sheets:
            rules = [matching_rules(inline_imports(html / name, static), words) for name in names]
            css = "\n".join([*rules, f"{icons}\n"])
            path = static / f"book.{hashlib.sha256(css.encode()).hexdigest()[:8]}.css"
            path.write_text(css, encoding="utf-8")
            replaced.update(html / name for name in names)
            sheets[names] = path.relative_to(html).as_posix()
        return sheets[names]

    for path in sorted(html.rglob("*.html")):
        page = path.read_text(encoding="utf-8")
        links = list(STYLE.finditer(page))
        if not links or "_static" not in page:
            continue
        root = re.match(r"(.*?)_static/", links[0][1])[1]  # "../", or a path on the host where the page is nowhere
        names = tuple(posixpath.normpath(link[1].removeprefix(root)) for link in links)
        page = STYLE.sub("", page)
        at = links[0].start()
        page = f'{page[:at]}  <link rel="stylesheet" href="{root}{sheet(names)}" />\n{page[at:]}'
        page = needed_scripts(preload_colours_and_font(page, root), options)
        if path.name == "404.html":
            page = inline_style_and_pictures(page, html, root)
        page = mark_hanging_lines(remove_plain_marks(lazy_pictures(page, path, renamed, curves, nights), plain))
        path.write_text(page, encoding="utf-8")
    for path in replaced:
        path.unlink(missing_ok=True)
    for name in renamed:  # a card for other sites may want the PNG
        if not any(f"_images/{name}" in path.read_text(encoding="utf-8") for path in html.rglob("*.html")):
            (html / "_images" / name).unlink()


def make_lighter(app: Sphinx, exception: Exception | None) -> None:
    if exception is None and app.builder.format == "html":
        lighten(Path(app.outdir))


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("build-finished", make_lighter, priority=850)  # before pages are copied, and before they are searched
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
