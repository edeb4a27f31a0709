"""Measures in a headless Chromium if the built site fits.

`python docs/check_overflow.py SITE`, after `mkdocs build --site-dir SITE`, looks at 1400 and 420
px, in light and dark. At 1400 px it reports pages, tables and blocks of code wider than their
place; at 420 px pages only, since wide blocks scroll, as the tables of results do. It also reports
missing pictures, identifiers in running text that break within a word although they fit a line, and
text whose contrast to the page is below 3.
"""

import functools
import html
import http.server
import itertools
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

#: A page that shows one page after the other in a frame, and lists everything that is too wide.
MEASURE = r"""<!doctype html><body><pre id="found"></pre><script>
const pages = PAGES, width = WIDTH, found = [];
const blocks = "pre > code, .md-typeset__scrollwrap, .formula, .highlight";
const results = /^(experiments|examples)\//;
function luminance(color) {
  const parts = color.match(/[\d.]+/g).slice(0, 3).map(part => part / 255);
  const [r, g, b] = parts.map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function contrast(one, other) {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}
function look(page, view) {
  const root = view.document.documentElement;
  if (root.scrollWidth > width) found.push([page, "the page", root.scrollWidth]);
  for (const image of view.document.querySelectorAll("article img"))
    if (!image.complete || !image.naturalWidth) found.push([page, "no picture", image.src]);
  for (const code of view.document.querySelectorAll("article :is(p, li, td) > code")) {
    const cell = code.closest("td"), boxes = [...code.getClientRects()];
    const line = cell ? 0.8 * width : code.closest("p, li").clientWidth;
    const whole = boxes.reduce((sum, box) => sum + box.width, 0);
    if (boxes.length > 1 && whole < line && !/[\s\-/.,]/.test(code.textContent))
      found.push([page, "broken: " + code.textContent, boxes.length]);
  }
  const text = view.getComputedStyle(view.document.querySelector("article")).color;
  const ground = view.getComputedStyle(view.document.body).backgroundColor;
  if (contrast(text, ground) < 3) found.push([page, "contrast", text + " on " + ground]);
  const scrolls = width < 1000 || results.test(page);
  for (const block of scrolls ? [] : view.document.querySelectorAll(blocks))
    if (block.scrollWidth > block.clientWidth + 1)
      found.push([page, block.textContent.trim().slice(0, 60), block.scrollWidth]);
}
async function all() {
  const frame = document.createElement("iframe");
  frame.width = width; frame.height = 900;
  document.body.append(frame);
  for (const page of pages) {
    await new Promise(done => { frame.onload = done; frame.src = "/" + page; });
    await new Promise(done => setTimeout(done, 50));
    look(page, frame.contentWindow);
  }
  document.getElementById("found").textContent = JSON.stringify(found);
}
all();
</script>"""

#: The pages of the folders of results: hundreds of lists of files, and tables.
FOLDERS = re.compile(r"experiments/results/[^/]+/.")


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves the site, and the page that measures, without logging requests."""

    measure = ""

    def do_GET(self) -> None:
        """Sends a file of the site, or the page that measures."""
        if self.path != "/measure":
            super().do_GET()
            return
        body = self.measure.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Logs nothing."""


class Server(http.server.ThreadingHTTPServer):
    """Lets so many requests wait that a busy machine refuses none."""

    request_queue_size = 256


def too_wide(browser: str, site: Path, width: int, dark: bool) -> list[list[Any]]:
    """Returns page, beginning and width of everything that does not fit."""
    names = sorted(str(path.relative_to(site)) for path in site.rglob("*.html"))
    pages = [name for name in names if not FOLDERS.match(name)]
    script = MEASURE.replace("PAGES", json.dumps(pages)).replace("WIDTH", str(width))
    handler = functools.partial(type("Serving", (Quiet,), {"measure": script}), directory=site)
    with Server(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        text = dumped(browser, f"http://127.0.0.1:{server.server_port}/measure", dark)
        server.shutdown()
    element = re.search(r'<pre id="found">(\[.*?)</pre>', text, re.DOTALL)
    if element is None:
        raise SystemExit("the browser did not finish")
    result: list[list[Any]] = json.loads(html.unescape(element[1]))
    return result


def dumped(browser: str, address: str, dark: bool) -> str:
    """Returns the document at an address, after its scripts, for readers of that scheme."""
    with tempfile.TemporaryDirectory() as profile:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
        flags += [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
        command = [browser, *flags, "--window-size=1500,1000", "--virtual-time-budget=120000"]
        ran = subprocess.run(
            [*command, "--dump-dom", address], capture_output=True, text=True, check=False
        )
    return ran.stdout


def main() -> None:
    """Prints everything that does not fit, page by page; exits with status 1 if there is any."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("no Chromium on the PATH: nothing was measured")
    site, status = Path(sys.argv[1]), 0
    for width, dark in itertools.product((1400, 420), (False, True)):
        for page, what, size in too_wide(browser, site, width, dark):
            print(f"{width} px, {'dark' if dark else 'light'}: {page}: {size}: {what!r}")
            status = 1
    print("everything fits" if not status else "see above", file=sys.stderr)
    raise SystemExit(status)


if __name__ == "__main__":
    main()
