"""Write `deploy/crds`: Motley's own kinds, for any other Kubernetes."""

from pathlib import Path

from motley.api import crdmanifest
from motley.cli import printers

CRDS = Path(__file__).resolve().parents[1] / "deploy/crds"


def main() -> None:
    """A file for each kind."""
    for row in crdmanifest.rows():
        said = f"# {row.kind} for any Kubernetes; a Motley cluster has it. See tools/gen_crds.py.\n"
        manifest = printers.document(crdmanifest.of(row), "yaml")
        (CRDS / f"{row.plural}.yaml").write_text(f"{said}{manifest.rstrip()}\n")


if __name__ == "__main__":
    main()
