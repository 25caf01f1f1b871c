"""How something is posted to an address of the settings."""

from urllib.request import HTTPRedirectHandler, OpenerDirector, build_opener


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Follows nothing."""


def poster() -> OpenerDirector:
    """Opens addresses, and takes a redirection for a failure: urllib would follow one of a POST by a GET without what
    was posted, which any server answers, and count it as delivered."""
    return build_opener(_NoRedirects)
