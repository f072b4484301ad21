"""The kinds for other clusters: what is written in `deploy/crds` is what Motley itself serves."""

from pathlib import Path

import pytest
import yaml

from motley.api import crdmanifest
from motley.api.validation import customresource

CRDS = Path(__file__).parents[3] / "deploy/crds"
ROWS = {row.plural: row for row in crdmanifest.rows()}


def test_every_kind_is_written_out_and_nothing_else():
    assert {path.stem for path in CRDS.iterdir()} == set(ROWS)


@pytest.mark.parametrize("plural", ROWS)
def test_what_is_written_is_what_is_served(plural):
    text = (CRDS / f"{plural}.yaml").read_text()
    manifest = crdmanifest.of(ROWS[plural])

    assert yaml.safe_load(text) == manifest, "run tools/gen_crds.py"
    # As the server completes it: the same check that every CustomResourceDefinition passes.
    manifest["spec"]["conversion"] = {"strategy": "None"}
    manifest["status"] = {"storedVersions": [ROWS[plural].version]}
    assert [str(error) for error in customresource.definition(manifest)] == []


def test_a_status_is_a_subresource_only_where_there_is_one():
    def subresources(plural):
        return crdmanifest.of(ROWS[plural])["spec"]["versions"][0].get("subresources")

    assert subresources("slurmjobs") == {"status": {}}
    assert subresources("networktopologies") is None


def test_rules_stay_here_where_another_server_would_find_them_too_costly():
    assert "x-kubernetes-validations" in str(ROWS["elasticquotas"].definition.schema)
    assert "x-kubernetes-validations" not in str(crdmanifest.of(ROWS["elasticquotas"]))
    assert "x-kubernetes-validations" in str(crdmanifest.of(ROWS["slurmjobs"]))
