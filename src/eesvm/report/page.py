"""The interactive report as one HTML file that needs nothing beside it.

In: `ReportData`. Out: the text of the page: style, script, data and images inside. Texts that stand in the page itself
are escaped; the rest is JSON in which no character can end the element it stands in, and the script makes text nodes of
it.
The page's own policy lets the browser run the one script and apply the one style whose hashes it names, show images
that the page holds, and nothing else: no request leaves it, and no text in the data can become code.
Not here: what is shown, which `gather` decides, and how, which the files in `assets` do.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from html import escape

from eesvm.report.data import ReportData
from eesvm.report.static_page import asset, filled

# Parts of the script in the order in which they need each other; report.js comes last and starts it.
_SCRIPTS = ("base", "texts", "pictures", "charts", "lists", "views", "exemplars", "summary")
_POLICY = (
    "default-src 'none'; img-src blob:; style-src {style}; script-src {script}; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'"
)


def render(data: ReportData) -> str:
    """The page as HTML."""
    style = asset("report.css")
    script = "\n".join([*(asset(f"report.{name}.js") for name in _SCRIPTS), asset("report.js")])
    policy = _POLICY.format(style=_source(style), script=_source(script))
    return filled(
        "report.html",
        policy=escape(policy),
        title=_text(data.title),
        headline=_text(data.headline),
        footer=_text(data.footer),
        style=style,
        script=script,
        data=_inert(data.to_json()),
    )


def _source(text: str) -> str:
    """What a policy calls the inline element with this text."""
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"


def _text(text: str) -> str:
    """A text for people within HTML; file names that are no Unicode keep what can be shown of them."""
    return escape(text.encode("utf-8", "replace").decode("utf-8"))


def _inert(json_text: str) -> str:
    """JSON without any character that HTML gives a meaning to; it is parsed to the same values."""
    return json_text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
