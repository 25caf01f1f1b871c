"""The hooks for MkDocs: they add the pages of the reference, and mermaid to pages that draw with it."""

import logging
from typing import Literal

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

from docs_reference import pages

_MERMAID = "assets/vendor/mermaid.js"


def on_startup(*, command: Literal["build", "gh-deploy", "serve"], dirty: bool) -> None:
    """Makes MkDocs print and count warnings: `--quiet` drops them, and a strict build ends only on those it counts."""
    del command, dirty
    logger = logging.getLogger("mkdocs")
    logger.setLevel(min(logger.getEffectiveLevel(), logging.WARNING))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are made from the code, and refuses one that is in docs/, too."""
    for path, text in pages().items():
        if files.get_file_from_path(path) is not None:
            raise ValueError(
                f"docs/{path} is made from the code by tools/docs/docs_reference; remove the file"
            )
        files.append(File.generated(config, path, content=text))
    return files


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Loads our copy of mermaid, which the theme then takes; otherwise it would load one from the network."""
    del config
    if 'class="mermaid"' not in output:
        return output
    script = f'<script src="{get_relative_url(_MERMAID, page.url)}"></script>\n'
    return output.replace("</head>", script + "</head>", 1)
