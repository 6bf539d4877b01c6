"""A session as an HTML document for people.

Everything that was said is escaped and stands as text; nothing in it is taken for markup (I-20).
The document runs nothing and loads nothing, and says so to the browser.
"""

from collections.abc import Iterable, Iterator
from html import escape

from holdfast.exporters.document import Fact, Heading, Paragraph, Piece, Remark, Title
from holdfast.exporters.safe_text import harmless, one_line

ROLES = ("system", "user", "assistant", "tool")

_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --line: #8884; --user: #0b7285; --assistant: #2b8a3e; \
--tool: #b35c00;
  --system: #862e9c; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; \
padding: 0 1rem; }}
h1 {{ font-size: 1.4rem; }}
h2 {{ font-size: 1.1rem; margin: 2.5rem 0 0; border-top: 1px solid var(--line); \
padding-top: 1rem; }}
h3 {{ font-size: .9rem; margin: 1.5rem 0 .25rem; }}
h4 {{ font-size: .85rem; margin: .75rem 0 .25rem; font-weight: 600; opacity: .75; }}
ul {{ list-style: none; padding: 0; font-size: .9rem; }}
p {{ margin: .25rem 0; font-size: .9rem; opacity: .75; }}
pre {{ margin: 0; padding: .5rem .75rem; white-space: pre-wrap; overflow-wrap: anywhere; \
font: inherit;
  border-left: 3px solid var(--line); }}
h4 + pre {{ font: .85rem/1.45 ui-monospace, monospace; background: #8881; }}
.user {{ color: var(--user); }} .assistant {{ color: var(--assistant); }}
.tool {{ color: var(--tool); }} .system {{ color: var(--system); }}
</style>
</head>
<body>
"""


def html(pieces: Iterable[Piece]) -> Iterator[str]:
    """The lines of the document."""
    listing = False
    for piece in pieces:
        if listing and not isinstance(piece, Fact):
            yield "</ul>"
            listing = False
        match piece:
            case Title(text):
                yield _HEAD.format(title=_safe(text)) + f"<h1>{_safe(text)}</h1>"
            case Fact(name, text):
                item = f"<li>{_safe(name)}: <code>{_safe(one_line(text))}</code></li>"
                yield item if listing else f"<ul>\n{item}"
                listing = True
            case Heading(level, text, role):
                # Only words that are known to be ours become markup (I-20).
                whose = f' class="{role}"' if role in ROLES else ""
                yield f"<h{level}{whose}>{_safe(text)}</h{level}>"
            case Remark(text, quoted):
                remark = _safe(text)
                if quoted:
                    remark += f"<code>{_safe(one_line(quoted))}</code>"
                yield f"<p>{remark}</p>"
            case Paragraph(text, title):
                # Browsers drop a line feed right after `<pre>`. This one is put there
                # to be dropped, so that a text that begins with one keeps it.
                heading = f"<h4>{_safe(title)}</h4>\n" if title else ""
                yield f"{heading}<pre>\n{_safe(text)}</pre>"
    if listing:
        yield "</ul>"
    yield "</body>\n</html>"


def _safe(text: str) -> str:
    """Text and nothing but text; what would steer a reader's eye is shown as a sign."""
    return escape(harmless(text), quote=True)
