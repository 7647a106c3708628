"""The words of a Docker engine that refuses, and what a person does about them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from imagebuilder.errors import OutsideError

if TYPE_CHECKING:
    from collections.abc import Iterator

# The engine's own words for a host that cannot give a container its GPUs (failure modes A3 and A10).
TOOLKIT_HINT = (
    "install nvidia-container-toolkit, `nvidia-ctk runtime configure --runtime=docker`, restart Docker"
)
START_HINTS = {
    "could not select device driver": TOOLKIT_HINT,
    "unknown or invalid runtime name": TOOLKIT_HINT,
    "unresolvable CDI devices": "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
    "no space left on device": "docker system df; docker builder prune",
    "unauthorized": "docker login",
}


@contextmanager
def engine_errors() -> Iterator[None]:
    """Turn the SDK's errors into OutsideError; what a caller handles itself passes through."""
    from docker.errors import APIError, DockerException, NotFound
    from requests.exceptions import ReadTimeout, RequestException

    try:
        yield
    except (NotFound, ReadTimeout):
        raise
    except APIError as error:
        raise OutsideError(
            "the Docker engine refused", why=short(error.explanation or error), hint=next_step(str(error))
        ) from error
    except (DockerException, RequestException, OSError) as error:
        raise OutsideError(
            "the Docker engine stopped answering", why=short(error), hint="imgbuild doctor"
        ) from error


def next_step(text: str) -> str:
    """Give what to do about words of the engine; `imgbuild doctor` looks where they are not known."""
    return next((hint for words, hint in START_HINTS.items() if words in text), "imgbuild doctor")


def short(error: object) -> str:
    """Give an error on one line of at most 300 characters."""
    return " ".join(str(error).split())[:300]
