"""What MkDocs asks of this repository: the pages of the reference, and mermaid where a page draws with it."""

import logging
from typing import Literal

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

from docs_reference import pages

_MERMAID = "assets/vendor/mermaid.js"


def on_startup(*, command: Literal["build", "gh-deploy", "serve"], dirty: bool) -> None:
    """Has warnings printed and counted: `--quiet` drops them, and what is not counted does not end a strict build."""
    del command, dirty
    logger = logging.getLogger("mkdocs")
    logger.setLevel(min(logger.getEffectiveLevel(), logging.WARNING))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are made from the code; one that stands in docs/, too, would be written twice."""
    for path, text in pages().items():
        if files.get_file_from_path(path) is not None:
            raise ValueError(
                f"docs/{path} is made from the code by tools/docs/docs_reference; remove the file"
            )
        files.append(File.generated(config, path, content=text))
    return files


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """The theme takes the mermaid that is loaded already; without one it would load it from the network."""
    del config
    if 'class="mermaid"' not in output:
        return output
    script = f'<script src="{get_relative_url(_MERMAID, page.url)}"></script>\n'
    return output.replace("</head>", script + "</head>", 1)
