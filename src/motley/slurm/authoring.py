"""A job's manifest made whole on the machine where its files are.

Paths become files within the object: text in `spec.files`, everything else in a ConfigMap that is
created with the job. Pure but for reading those files.
"""

import base64
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from motley.slurm import localpaths

Document = dict[str, Any]
MOST_BYTES = 900 * 1024  # an object has 1.5 MiB at most
SOURCES = "slurm-sources"
SOURCE_ANNOTATION = "motley.io/source-path"


class TooMuch(ValueError):
    """The files do not fit into an object."""


@dataclass
class Whole:
    """A manifest that needs nothing of this machine any more."""

    job: Document
    binary: dict[str, str] = field(default_factory=dict)  # base64 by name
    notes: list[str] = field(default_factory=list)


def embed(job: Document, beside: Path) -> Whole:
    """Put the files a job names into it; relative paths begin at the manifest's folder. Raises
    OSError when one cannot be read, and TooMuch."""
    spec = job.setdefault("spec", {})
    whole = Whole(job)
    texts: dict[str, str] = dict(spec.get("files") or {})
    source = spec.pop("sourcePath", None)
    if source:
        annotations = job.setdefault("metadata", {}).setdefault("annotations", {})
        annotations[SOURCE_ANNOTATION] = source
        _take(whole, texts, _found(source, beside, whole), "")
    kept = []
    for item in spec.get("inputs") or []:
        if item.get("path"):
            _take(whole, texts, _found(item["path"], beside, whole), item.get("name", ""))
        else:
            kept.append(item)
    if whole.binary:
        name = f"{job['metadata']['name']}-{SOURCES}"
        kept.append({"configMap": {"name": name}})
    if texts:
        spec["files"] = texts
    if kept or "inputs" in spec:
        spec["inputs"] = kept
    size = sum(len(text.encode()) for text in texts.values())
    size += sum(len(text) for text in whole.binary.values())
    if size > MOST_BYTES:
        raise TooMuch(
            f"the job's files have {size} bytes, and {MOST_BYTES} fit into an object: put large"
            " inputs onto the cluster and name them by clusterPath"
        )
    return whole


def _found(path: str, beside: Path, whole: Whole) -> Path:
    here = Path(path) if Path(path).is_absolute() else beside / path
    if here.exists():
        return here
    near = beside / localpaths.name_of(path)  # a path of another machine, of Windows for one
    if near.exists():
        whole.notes.append(f"{path} is not on this machine: {near} is taken")
        return near
    raise FileNotFoundError(f"{path} does not exist, nor does {near}")


def _take(whole: Whole, texts: dict[str, str], path: Path, name: str) -> None:
    folder = f"{name}/" if name and path.is_dir() else ""
    for inner, file in localpaths.files_of(path).items():
        called = name if name and not path.is_dir() else folder + inner
        data = file.read_bytes()
        try:
            texts[called] = data.decode()
        except UnicodeDecodeError:
            if "/" in called:
                raise TooMuch(f"{called}: files that are no text cannot be in folders") from None
            whole.binary[called] = base64.b64encode(data).decode()
