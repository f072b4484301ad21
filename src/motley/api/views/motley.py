"""Motley's own kinds that components read."""

from typing import ClassVar

import msgspec

from motley.api.views.base import Object, View

BY_HAND = "import"
# Carried by what the cluster's own resolver writes: where there is such an object, somebody looks
# unknown images up, and waiting for that is worth while.
RESOLVER_LABEL = "motley.io/image-resolver"


class ImagePlatform(View):
    """One platform of an image, and the name the image has there."""

    architecture: str = ""
    os: str = "linux"
    variant: str = ""
    image: str = ""


class MappedImage(View):
    """What is known of an image."""

    name: str = ""
    architectures: list[ImagePlatform] = []
    source: str = BY_HAND
    digest: str = ""
    observed_at: str | None = None
    message: str = ""


class ImageMapSpec(View):
    """Images by name."""

    images: list[MappedImage] = []


class ImageMap(Object):
    """Which platforms images are built for, and what they are called there."""

    API_VERSION: ClassVar[str] = "motley.io/v1"
    KIND: ClassVar[str] = "ImageMap"
    PLURAL: ClassVar[str] = "imagemaps"
    NAMESPACED: ClassVar[bool] = False

    spec: ImageMapSpec = msgspec.field(default_factory=ImageMapSpec)
