"""The kinds in `deploy/crds` on a Kubernetes that has none of them: all served, examples taken.

What other tests try on Motley's own server, whose kinds these are, must also be a structural schema
in the eyes of kube-apiserver (see `stock.py`), or nothing of Motley's can be used elsewhere. All
that `deploy/` holds beside is applied there as it is, too.
"""

from pathlib import Path

import pytest
import yaml

from motley.apiserver.authz import defaults

from .stock import DEPLOY, documents, eventually

EXAMPLES = Path(__file__).parents[2] / "examples"
CRDS = sorted((DEPLOY / "crds").glob("*.yaml"))
KINDS = {documents(path)[0]["spec"]["names"]["kind"] for path in CRDS}
# Roles and namespaces first, as people apply them.
MANIFESTS = sorted(
    (path for path in DEPLOY.glob("*/*.yaml") if path.parent.name != "crds"),
    key=lambda path: (path.stem != "rbac", path),
)
# Of the kinds that no example is of.
FURTHER = """
apiVersion: motley.io/v1
kind: ImageMap
metadata: {name: mine}
spec:
  images:
  - name: local-registry:5000/app:1
    architectures:
    - {architecture: amd64}
    - {architecture: arm, variant: v7, image: "local-registry:5000/app:1-armv7"}
---
apiVersion: motley.io/v1
kind: SlurmCluster
metadata: {name: default}
spec:
  hosts: ["login1.example.com", "login2.example.com:2222"]
  user: ann
  credentialsSecret: {namespace: default, name: slurm-key}
  hostKeys: ["ssh-ed25519 AAAAC3"]
---
apiVersion: motley.io/v1
kind: Invocation
metadata: {name: first}
spec: {function: price, arg: {item: [1, two]}}
---
apiVersion: motley.io/v1
kind: Decision
metadata: {name: web-0}
spec:
  pod: {namespace: default, name: web-0}
  scores: [{node: n-0, total: 93.5, plugins: {Hicev2: 0.5}}]
---
apiVersion: autoscaling.k8s.io/v1
kind: VerticalPodAutoscaler
metadata: {name: web}
spec:
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  updatePolicy: {updateMode: InPlaceOrRecreate}
  resourcePolicy: {containerPolicies: [{containerName: "*", minAllowed: {cpu: 50m}}]}
"""
BOTH = """
apiVersion: motley.io/v1
kind: Invocation
metadata: {name: both}
spec: {function: price, workflow: order}
"""


@pytest.fixture(scope="module")
def defined(stock):
    """What the server says of every kind."""
    stock.apply(DEPLOY / "crds")

    def states():
        found = stock.kubectl("get", "crds", "-o", "json").json["items"]
        said = {c["metadata"]["name"]: (c.get("status") or {}).get("conditions", ()) for c in found}
        return said if all(len(one) > 1 for one in said.values()) else None

    return eventually(states, "every kind's conditions")


def test_every_kind_is_established_and_its_schema_structural(stock, defined):
    assert len(defined) == len(CRDS)
    for name, conditions in defined.items():
        said = {c["type"]: c["status"] for c in conditions}
        assert said["Established"] == said["NamesAccepted"] == "True", name
        assert "NonStructuralSchema" not in said, name


def test_every_example_of_these_kinds_is_accepted(stock, defined):
    listed = [
        document
        for path in sorted(EXAMPLES.rglob("*.y*ml"))
        for document in documents(path)
        if document.get("kind") in KINDS
    ]
    listed += yaml.safe_load_all(FURTHER)
    assert {document["kind"] for document in listed} == KINDS
    for number, document in enumerate(listed):  # two have one name, in two namespaces
        document["metadata"] = {"name": f"{document['metadata']['name']}-{number}"}
    text = yaml.safe_dump_all(listed)
    words = ("apply", "-n", stock.namespace("examples"), "--validate=strict", "-f", "-")
    for more in (("--dry-run=server",), ()):
        done = stock.kubectl(*words, *more, stdin=text)
        assert done.err == ""
        assert done.out.count(" created") == len(listed)


def test_what_the_rules_forbid_is_refused(stock, defined):
    refusal = stock.kubectl("create", "-f", "-", stdin=BOTH, fails=True).err
    assert "exactly one of function and workflow must be set" in refusal


def test_everything_in_deploy_is_accepted_as_it_is(stock, defined):
    # At once: after an APIService that nobody serves yet, every kubectl complains of it.
    files = [word for path in MANIFESTS for word in ("-f", str(path))]
    done = stock.kubectl("apply", "--validate=strict", *files)
    assert done.err == ""
    assert done.out.count(" created\n") == sum(len(documents(path)) for path in MANIFESTS)


def test_the_roles_for_people_are_those_of_a_motley_cluster():
    shipped = {d["metadata"]["name"]: d["rules"] for d in documents(DEPLOY / "roles/roles.yaml")}
    wanted = {"view": defaults.MOTLEY_VIEW, "edit": defaults.MOTLEY_EDIT}
    assert shipped == {f"motley-kinds:{name}": rules for name, rules in wanted.items()}
